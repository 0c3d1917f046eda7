"""Distributions of outcomes by arm, as a chart and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._words import counted
from clusterdp.estimation.formatting import plain_label, segment_label
from clusterdp.estimation.headline import arm_label
from clusterdp.experiment.decimals import shown
from clusterdp.pages.chart import Axis, Line, line_chart
from clusterdp.pages.scales import Linear

if TYPE_CHECKING:
    from clusterdp.estimation.distribution import ArmDistribution
    from clusterdp.estimation.results import Estimate
    from clusterdp.pages.svg import Svg

# Lines that can be told apart.
_MOST_LINES = 4
# Segments with a table of their own.
_MOST_SEGMENTS = 50


class ArmsTable(NamedTuple):
    """The share of units at or below each value, arm by arm.

    Attributes:
        caption: What it is of.
        header: The outcome and the arms.
        rows: A row for each value.
    """

    caption: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


class DistributionPart(NamedTuple):
    """How an outcome is distributed in the arms.

    Attributes:
        outcome: The outcome.
        chart: The share of units at or below each value.
        caption: What the chart shows.
        table: The shares of everyone.
        segments: Those of each segment.
        left_out: What is not shown; empty if all is.
    """

    outcome: str
    chart: Svg
    caption: str
    table: ArmsTable
    segments: list[ArmsTable]
    left_out: str


def distribution_parts(estimate: Estimate) -> list[DistributionPart]:
    """Every outcome whose distribution was asked for, in all arms."""
    outcomes = dict.fromkeys(one.outcome for one in estimate.distributions)
    return [_part(estimate, outcome) for outcome in outcomes]


def _part(estimate: Estimate, outcome: str) -> DistributionPart:
    every = [one for one in estimate.distributions if one.outcome == outcome]
    overall = [one for one in every if not one.segment]
    arms = [arm_label(estimate, one.arm) for one in overall]
    name = plain_label(outcome)
    lines = [_steps(label, one) for label, one in zip(arms, overall, strict=True)][:_MOST_LINES]
    lowest = min(float(one.shares[0]) for one in overall)
    described = "; ".join(
        f"{label}: {one.shares[0]:.1%} at the lowest value"
        for label, one in zip(arms, overall, strict=True)
    )
    chart = line_chart(
        lines,
        Axis(name, Linear.over(overall[0].values.tolist())),
        Axis(
            "units at or below a value",
            Linear.over([lowest, 1.0]),
            lambda share: f"{100 * share:.4g}%",
        ),
        title=f"Distribution of {name} by arm",
        description=described,
    )
    segments = list(dict.fromkeys(one.segment for one in every if one.segment))
    n_more = len(segments) - _MOST_SEGMENTS
    missing = [f"the distributions in {counted(n_more, 'segment')} more"] if n_more > 0 else []
    missing += [f"the lines of {len(arms) - _MOST_LINES} arms"] if len(arms) > _MOST_LINES else []
    return DistributionPart(
        outcome=name,
        chart=chart,
        caption=f"Share of units with {name} at or below a value. Intervals hold one by one.",
        table=_table(estimate, f"Units with {name} at or below a value", overall),
        segments=[
            _table(
                estimate,
                plain_label(segment_label(segment)),
                [one for one in every if one.segment == segment],
            )
            for segment in segments[:_MOST_SEGMENTS]
        ],
        left_out=f"Not shown: {' and '.join(missing)}; --json (to_dict) has all."
        if missing
        else "",
    )


def _table(estimate: Estimate, caption: str, of_arms: list[ArmDistribution]) -> ArmsTable:
    """The shares of some arms."""
    arms = (arm_label(estimate, one.arm) for one in of_arms)
    rows = [
        (
            shown(value),
            *(
                f"{one.shares[place]:.2%} [{one.low[place]:.2%}, {one.high[place]:.2%}]"
                for one in of_arms
            ),
        )
        for place, value in enumerate(of_arms[0].values)
    ]
    return ArmsTable(caption, (plain_label(of_arms[0].outcome), *arms), rows)


def _steps(label: str, one: ArmDistribution) -> Line:
    """A line that rises at every value but the first, where it begins."""
    return Line(
        label, np.repeat(one.values, 2)[1:].tolist(), np.repeat(one.shares, 2)[:-1].tolist()
    )
