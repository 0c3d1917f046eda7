"""Estimates as text, and the columns and numbers that pages show too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp._text import shortest_decimal
from clusterdp.document.text import Column, fitted, wrapped
from clusterdp.estimation.effects.effect import Effect, within
from clusterdp.estimation.effects.families import WHY_REPORTED
from clusterdp.estimation.effects.findings import ArmDistribution, Findings, SegmentTest
from clusterdp.estimation.effects.text import (
    NOTHING,
    limits_text,
    p_value_text,
    plain_label,
    segment_label,
    to_decimals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Everyone, in a column of segments.
_ALL = "all"


def estimate_text(estimate: Findings, width: int | None = None) -> str:
    """Tables of effects, where they come from, tests and notes; every line fits the width."""
    lines = [line for text in heading(estimate) for line in wrapped(text, width)]
    left_out: dict[str, None] = {}
    for title, columns in effect_tables(estimate):
        table, hidden = fitted(columns, width)
        lines += [] if title is None else ["", *wrapped(title, width)]
        lines += table
        left_out |= dict.fromkeys(hidden)
    lines += [
        line for text in distribution_lines(estimate.distributions) for line in wrapped(text, width)
    ]
    remarks = [*reported_lines(estimate), *segment_test_lines(estimate), *bound_lines(estimate)]
    remarks += [] if "Holm" in left_out else family_lines(estimate)
    remarks += [f"warning: {text}" for text in estimate.warnings]
    remarks += [f"note: {text}" for text in estimate.notes]
    if left_out:
        remarks.append(f"not shown at this width: {', '.join(left_out)}; --json and --csv have all")
    return "\n".join([*lines, *(line for text in remarks for line in wrapped(text, width, "  "))])


def heading(estimate: Findings) -> list[str]:
    """Where the numbers come from, in a line; and what the release cost, in another."""
    treatment, how = estimate.treatment, f"{estimate.estimator}, from {estimate.mechanism}"
    source = f"Distributions by {treatment}; {how}"
    if estimate.effects:
        of = estimate.effects[0].of
        arm = treatment if has_several_arms(estimate) else f"{treatment} = {of.arm}"
        source = (
            f"Effect on {', '.join(estimate.metrics)} of {arm}, against {treatment} = "
            f"{of.control}; {how}"
        )
    return [source, *([estimate.guarantee.in_short()] if estimate.guarantee else [])]


def segment_test_lines(estimate: Findings) -> list[str]:
    """Tests that segments have the same effect, each in a line."""
    return [
        f"{', '.join(test.by)}: do effects on {test.metric} of {test.arm} differ between "
        f"{test.n_segments} segments{' (adjusted)' if test.adjusted else ''}? "
        f"F = {test.statistic:.4g}, p-value {p_value_text(test.p_value)}"
        for test in estimate.tests
    ]


def segment_test_columns(estimate: Findings) -> list[Column]:
    """The same tests as columns."""

    def each(name: str, cell: Callable[[SegmentTest], object], *, is_label: bool = False) -> Column:
        cells = tuple(plain_label(cell(test)) for test in estimate.tests)
        return Column(name, cells, is_label=is_label)

    return [
        each("cut by", lambda test: ", ".join(test.by), is_label=True),
        each("metric", lambda test: test.metric, is_label=True),
        each(plain_label(estimate.treatment), lambda test: test.arm, is_label=True),
        each("adjusted", lambda test: "yes" if test.adjusted else "no"),
        each("segments", lambda test: test.n_segments),
        each("F", lambda test: f"{test.statistic:.4g}"),
        each("p-value", lambda test: p_value_text(test.p_value)),
    ]


def distribution_lines(distributions: Sequence[ArmDistribution]) -> list[str]:
    """Distributions of outcomes, a line for each value."""
    lines = []
    for one in distributions:
        where = f", {segment_label(one.segment)}" if one.segment else ""
        lines.append(f"share of units with {one.outcome} at or below a value, {one.arm}{where}:")
        width = max(len(shortest_decimal(value)) for value in one.values)
        lines += [
            f"  {shortest_decimal(row['value']):>{width}}  {row['share']:7.2%}  "
            f"[{row['ci_low']:.2%}, {row['ci_high']:.2%}]"
            for row in one.to_rows()
        ]
    return lines


def bound_lines(estimate: Findings) -> list[str]:
    """Bounds for attrition, each in a line."""

    def show(number: float | None) -> str:
        return NOTHING if number is None else f"{number:.4g}"

    return [
        f"{one.of.metric} of {one.of.arm}, of those who would be observed in either arm: between "
        f"{show(one.low)} and {show(one.high)}, {one.level:.0%} limits "
        f"{limits_text(one.limits, show)}, if the arm moves who is observed in one direction only"
        + ("; from the declared ends, as rows do not tell the distribution" * one.from_ends)
        + ("; widened to hold the effect on those observed, which noise had outside" * one.widened)
        for one in estimate.bounds
    ]


def reported_lines(estimate: Findings) -> list[str]:
    """Which effects to report, where some are adjusted, and why."""
    adjusted = [effect for effect in estimate.effects if effect.of.adjusted]
    if not adjusted:
        return []
    is_reported = any(effect.to_report for effect in adjusted)
    why = WHY_REPORTED if is_reported else "to report: the plain effect"
    return [f"adjusted for {', '.join(map(plain_label, estimate.adjusted_for))}", f"* {why}"]


def family_lines(estimate: Findings) -> list[str]:
    """What simultaneous intervals and corrected p-values hold for."""
    sizes: dict[str, set[int]] = {}
    for effect in estimate.effects:
        if effect.family_size > 1:
            sizes.setdefault(_kind(effect), set()).add(effect.family_size)
    if not sizes:
        return []
    parts = [f"{'/'.join(map(str, sorted(each)))} {kind}" for kind, each in sizes.items()]
    text = (
        f"all at once, Holm and BH: families over {', '.join(estimate.family)} "
        f"({'; '.join(parts)}). Holm bounds the chance of any false alarm, BH the share of false "
        "alarms"
    )
    return [text]


def _kind(effect: Effect) -> str:
    where = "overall effects" if not effect.of.segment else "effects in segments"
    kind = where if effect.of.against is None else "differences"
    return f"adjusted {kind}" if effect.of.adjusted else kind


def effect_tables(estimate: Findings) -> list[tuple[str | None, list[Column]]]:
    """Effects, without a title; and differences between segments with one, if there are any."""
    effects = [effect for effect in estimate.effects if effect.of.against is None]
    differences = [effect for effect in estimate.effects if effect.of.against is not None]
    every = [(None, effects), ("Differences between the effects of segments", differences)]
    return [(title, effect_columns(estimate, rows)) for title, rows in every if rows]


def effect_columns(estimate: Findings, effects: Sequence[Effect]) -> list[Column]:
    """The columns that these effects need; what matters least has the highest rank."""
    by_metric = {
        metric: to_decimals(effect.std_error for effect in effects if effect.of.metric == metric)
        for metric in estimate.metrics
    }
    shows = [by_metric[effect.of.metric] for effect in effects]
    percent = f"{100 * estimate.level:.4g}%"

    def each(cell: Callable[[Effect], str]) -> tuple[str, ...]:
        return tuple(map(cell, effects))

    def numbers(cell: Callable[[Effect], float | None]) -> tuple[str, ...]:
        return tuple(show(cell(effect)) for effect, show in zip(effects, shows, strict=True))

    def intervals(level: Callable[[Effect], float]) -> tuple[str, ...]:
        pairs = zip(effects, shows, strict=True)
        return tuple(effect.ci_text(level(effect), show) for effect, show in pairs)

    columns = [
        *_labels(estimate, effects),
        Column("effect", numbers(lambda one: _within(one.effect, (-one.largest, one.largest)))),
        Column("std error", numbers(lambda one: one.std_error)),
        Column(f"{percent} interval", intervals(lambda _: estimate.level)),
        Column("p-value", each(lambda one: p_value_text(one.p_value)), rank=1),
    ]
    if any(effect.family_size > 1 for effect in effects):
        together = intervals(lambda one: one.simultaneous_level(estimate.level))
        columns += [
            Column(f"{percent} all at once", together, rank=3),
            Column("Holm", each(lambda one: p_value_text(one.holm_p_value)), rank=2),
            Column("BH", each(lambda one: p_value_text(one.bh_p_value)), rank=4),
        ]
    if any(effect.treated_mean is not None for effect in effects):
        columns += [
            Column(
                "arm mean",
                numbers(lambda one: _within(one.treated_mean, one.possible)),
                starts_line=True,
            ),
            Column("arm error", numbers(lambda one: one.treated_std_error), rank=8),
            Column("control mean", numbers(lambda one: _within(one.control_mean, one.possible))),
            Column("control error", numbers(lambda one: one.control_std_error), rank=9),
        ]
    if any(effect.lift(estimate.level) for effect in effects):
        columns.append(Column("lift", each(lambda one: _lift(one, estimate.level)), rank=5))
    return [
        *columns,
        Column("privacy share", each(_share), rank=7),
        Column("units", each(lambda one: f"{one.n_treated:,} vs {one.n_control:,}"), rank=6),
    ]


def _labels(estimate: Findings, effects: Sequence[Effect]) -> list[Column]:
    """What each effect is of, in as few columns as tell effects apart."""

    def label(name: str, cells: list[object]) -> Column:
        return Column(plain_label(name), tuple(map(plain_label, cells)), is_label=True)

    columns = []
    if len(estimate.metrics) > 1:
        columns.append(label("metric", [effect.of.metric for effect in effects]))
    columns += [
        label(name, [dict(one.of.segment).get(name, _ALL) for one in effects])
        for name in estimate.segment_columns
    ]
    if has_several_arms(estimate):
        columns.append(label(estimate.treatment, [effect.of.arm for effect in effects]))
    if any(effect.of.against is not None for effect in effects):
        columns.append(label("against", [effect.of.against for effect in effects]))
    if any(effect.of.adjusted for effect in effects):
        columns.append(label("adjusted", [_is_adjusted(effect) for effect in effects]))
    return columns


def _is_adjusted(effect: Effect) -> str:
    """Whether covariates were adjusted for; with a star if this is the one to report."""
    return ("yes" if effect.of.adjusted else "no") + (" *" if effect.to_report else "")


def has_several_arms(estimate: Findings) -> bool:
    """Whether effects are of more than one arm."""
    return len({effect.of.arm for effect in estimate.effects}) > 1


def _lift(effect: Effect, level: float) -> str:
    lift = effect.lift(level)
    if lift is None:
        return NOTHING
    ratio, low, high = lift
    limits = f"above {low:+.1%}" if math.isinf(high) else f"[{low:+.1%}, {high:+.1%}]"
    return f"{ratio:+.1%} {limits}"


def _within(number: float | None, bounds: tuple[float, float] | None) -> float | None:
    """A number as people are shown it: what is possible, where noise took it further."""
    if number is None or bounds is None or math.isnan(number):
        return number
    return within(number, bounds)


def _share(effect: Effect) -> str:
    share = effect.privacy_share
    return NOTHING if math.isnan(share) else f"{share:.0%}"
