"""The forest plot: effects with their intervals, one below the other. It needs matplotlib.

Distributions of outcomes by arm, as a chart and a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._text import counted, shortest_decimal
from clusterdp.document._matplotlib import interval_figure
from clusterdp.document.charts import Axis, ChartLine, Interval, IntervalPanel, line_chart
from clusterdp.document.scales import Linear
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.findings import ArmDistribution, Findings
from clusterdp.estimation.effects.text import plain_label, segment_label, short_label
from clusterdp.estimation.report.forest_table import largest
from clusterdp.estimation.report.headline import arm_label
from clusterdp.estimation.report.tables import effect_columns, has_several_arms
from clusterdp.privacy.accounting import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


# Rows of a panel; of more, those of the largest segments are drawn.
_MOST_ROWS = 150
# Letters of a row's label.
_LONGEST = 40


def forest_plot(estimate: Findings, path: str | Path | None = None) -> Figure:
    """A figure of all effects, a panel for each metric; written to a file if a path is given.

    Overall effects are on top, and dashed lines lead down from them. Thick bars are intervals of
    one effect. Thin bars are intervals that cover all effects of a family at once. Differences
    between segments have panels of their own.
    """
    if not estimate.effects:
        raise ParameterError(
            "there are no effects to plot; ask for a metric beside distributions (metrics=...)"
        )
    found = []
    for metric in estimate.metrics:
        effects = [effect for effect in estimate.effects if effect.of.metric == metric]
        for of_segments, title in ((False, "effect on {}"), (True, "differences of effects on {}")):
            rows = [one for one in effects if (one.of.against is not None) == of_segments]
            if rows:
                found.append(_panel(estimate, rows, title.format(metric)))
    return interval_figure(found, _title(estimate), None if path is None else Path(path))


def _panel(estimate: Findings, every: list[Effect], title: str) -> IntervalPanel:
    """Effects on one metric, or differences between them."""
    effects, level = largest(every, _MOST_ROWS, lambda _: 1), estimate.level
    percent = f"{100 * level:.4g}%"
    columns = {one.name: one.cells for one in effect_columns(estimate, effects)}
    names = ("effect", f"{percent} interval", "units")
    header, *numbers = _aligned([(name, *columns[name]) for name in names])
    arms = list(dict.fromkeys(str(effect.of.arm) for effect in estimate.effects))
    several = has_several_arms(estimate)
    intervals = [
        Interval(
            effect.of.in_short(_LONGEST)
            + (f" · {short_label(effect.of.arm, _LONGEST)}" if several else ""),
            effect.effect,
            *effect.ci(level),
            told,
            outer=effect.simultaneous_ci(level) if effect.family_size > 1 else None,
            series=arms.index(str(effect.of.arm)),
            is_main=not effect.of.segment,
            is_reference=effect.to_report and not effect.of.segment,
            is_hollow=effect.of.adjusted,
        )
        for effect, told in zip(effects, numbers, strict=True)
    ]
    caption = f"against {estimate.treatment} = {effects[0].of.control}; {percent} intervals"
    if any(one.outer is not None for one in intervals):
        caption += ", thin: all at once"
    if len(effects) < len(every):
        caption += f"; the {len(effects)} of {len(every):,} effects with the most units"
    return IntervalPanel(title, caption, header, intervals)


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Cells beside each other, each column as wide as its widest."""
    widths = [max(map(len, cells)) for cells in columns]
    return ["  ".join(map(str.rjust, row, widths)) for row in zip(*columns, strict=True)]


def _title(estimate: Findings) -> str:
    """What the figure shows, and where the numbers come from."""
    released = estimate.mechanism
    if estimate.guarantee is not None:
        released += f", ε = {rounded_up(estimate.guarantee.epsilon)}"
        if estimate.guarantee.delta:
            released += f", δ = {rounded_up(estimate.guarantee.delta)}"
    metrics = short_label(", ".join(estimate.metrics), 2 * _LONGEST)
    return f"Effect of {estimate.treatment} on {metrics}\n{estimate.origin.in_short()}; {released}"


# Lines that can be told apart.
_MOST_LINES = 4
# Segments with a table of their own.
_MOST_SEGMENTS = 50


# A table of texts: its caption, its header, and rows whose first cell says what they are of.
PageTable = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def distribution_parts(estimate: Findings) -> list[dict[str, object]]:
    """Every outcome whose distribution was asked for, in all arms."""
    outcomes = dict.fromkeys(one.outcome for one in estimate.distributions)
    return [_part(estimate, outcome) for outcome in outcomes]


def _part(estimate: Findings, outcome: str) -> dict[str, object]:
    """How an outcome is distributed in the arms: a chart and tables of everyone and of segments."""
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
    return {
        "outcome": name,
        "chart": chart,
        "caption": f"Share of units with {name} at or below a value. Intervals hold one by one.",
        "table": _table(estimate, f"Units with {name} at or below a value", overall),
        "segments": [
            _table(
                estimate,
                plain_label(segment_label(segment)),
                [one for one in every if one.segment == segment],
            )
            for segment in segments[:_MOST_SEGMENTS]
        ],
        "left_out": missing and f"Not shown: {' and '.join(missing)}; --json (to_dict) has all.",
    }


def _table(estimate: Findings, caption: str, of_arms: list[ArmDistribution]) -> PageTable:
    """The shares of some arms."""
    arms = (arm_label(estimate, one.arm) for one in of_arms)
    rows = [
        (
            shortest_decimal(value),
            *(
                f"{one.shares[place]:.2%} [{one.low[place]:.2%}, {one.high[place]:.2%}]"
                for one in of_arms
            ),
        )
        for place, value in enumerate(of_arms[0].values)
    ]
    return caption, (plain_label(of_arms[0].outcome), *arms), rows


def _steps(label: str, one: ArmDistribution) -> ChartLine:
    """A line that rises at every value but the first, where it begins."""
    return ChartLine(
        label, np.repeat(one.values, 2)[1:].tolist(), np.repeat(one.shares, 2)[:-1].tolist()
    )
