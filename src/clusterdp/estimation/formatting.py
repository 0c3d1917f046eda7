"""Estimates as text and as HTML, from one table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp._tables import aligned, html_lines, html_notes, html_table

if TYPE_CHECKING:
    from clusterdp.estimation.results import Effect, Estimate
    from clusterdp.estimation.segments import Segment


def as_text(estimate: Estimate) -> str:
    """A table of effects with a line on where they come from."""
    header, body = as_table(estimate)
    table = aligned([header, *body])
    tests = [f"  {line}" for line in (*test_lines(estimate), *bound_lines(estimate))]
    notes = [f"  note: {note}" for note in estimate.notes]
    return "\n".join([*heading(estimate), *table, *tests, *distribution_lines(estimate), *notes])


def as_html(estimate: Estimate) -> str:
    """The same for notebooks."""
    table, notes = html_table(*as_table(estimate)), html_notes(estimate.notes)
    lines = [*test_lines(estimate), *bound_lines(estimate), *distribution_lines(estimate)]
    return html_lines(heading(estimate)) + table + html_lines(lines) + notes


def heading(estimate: Estimate) -> list[str]:
    """Where the numbers come from, in a line; and what the release cost, in another."""
    how = f"{estimate.estimator}, from {estimate.mechanism}"
    source = f"Distributions by {estimate.treatment}; {how}"
    if estimate.effects:
        control = estimate.effects[0].of.control
        source = (
            f"Effect on {', '.join(estimate.metrics)} of {estimate.treatment}, against "
            f"{estimate.treatment} = {control}; {how}"
        )
    return [source, *([estimate.guarantee.in_short()] if estimate.guarantee else [])]


def test_lines(estimate: Estimate) -> list[str]:
    """Tests that segments have the same effect, each in a line."""
    return [
        f"{', '.join(test.by)}: do effects on {test.metric} of {test.arm} differ between "
        f"{test.n_segments} segments{' (adjusted)' if test.adjusted else ''}? "
        f"F = {_number(test.statistic)}, p-value {_p_value(test.p_value)}"
        for test in estimate.tests
    ]


def bound_lines(estimate: Estimate) -> list[str]:
    """Bounds for attrition, each in a line."""
    return [
        f"{one.of.metric} of {one.of.arm}, of those who would be observed in either arm: between "
        f"{_number(one.low)} and {_number(one.high)}, {one.level:.0%} limits "
        f"[{_number(one.limits[0])}, {_number(one.limits[1])}], if the arm moves who is observed "
        "in one direction only"
        + ("; from the declared ends, as rows do not tell the distribution" * one.from_ends)
        for one in estimate.bounds
    ]


def distribution_lines(estimate: Estimate) -> list[str]:
    """Distributions of outcomes, a line for each value."""
    return [line for one in estimate.distributions for line in one.lines()]


def effect_in_short(effect: Effect, level: float = 0.95) -> str:
    """An effect in a line: what it is of, the number and its interval."""
    arms = f"{effect.of.arm} against {effect.of.control}"
    interval = f"{100 * level:.4g}% interval {_interval(effect.ci(level))}"
    return (
        f"Effect({effect.of.metric}, {effect.of.label}, {arms}: {_number(effect.effect)}, "
        f"std error {_number(effect.std_error)}, {interval})"
    )


def as_table(estimate: Estimate) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows, with only the columns that this estimate needs."""
    several = len({effect.of.label for effect in estimate.effects}) > 1
    cut = any(effect.of.segment for effect in estimate.effects)
    lifts = any(effect.lift() for effect in estimate.effects)
    metrics = len(estimate.metrics) > 1
    header = (["metric"] if metrics else []) + (["segment"] if several else [])
    percent = f"{100 * estimate.level:.4g}%"
    header += [
        estimate.treatment if estimate.treatment != "segment" else "arm",
        "effect",
        "std error",
        f"{percent} interval",
    ]
    header += [f"{percent}, all segments at once"] if cut else []
    header += ["p-value"] + (["lift"] if lifts else []) + ["privacy share", "units"]
    return tuple(header), [
        (
            *([effect.of.metric] if metrics else []),
            *_cells(effect, estimate.level, several=several, cut=cut, lifts=lifts),
        )
        for effect in estimate.effects
    ]


def _cells(
    effect: Effect, level: float, *, several: bool, cut: bool, lifts: bool
) -> tuple[str, ...]:
    cells = [effect.of.label] if several else []
    cells += [str(effect.of.arm), _number(effect.effect), _number(effect.std_error)]
    cells.append(_interval(effect.ci(level)))
    if cut:
        cells.append(_interval(effect.simultaneous_ci(level)) if effect.of.segment else "")
    cells.append(_p_value(effect.p_value))
    if lifts:
        lift = effect.lift(level)
        cells.append(f"{lift[0]:+.1%} [{lift[1]:+.1%}, {lift[2]:+.1%}]" if lift else "")
    share = "" if math.isnan(effect.privacy_share) else f"{effect.privacy_share:.0%}"
    return (*cells, share, f"{effect.n_treated:,} vs {effect.n_control:,}")


def segment_label(segment: Segment) -> str:
    """A segment in words: "tier=gold, region=1", or "overall"."""
    return ", ".join(f"{name}={value}" for name, value in segment) or "overall"


def _interval(bounds: tuple[float, float]) -> str:
    return f"[{_number(bounds[0])}, {_number(bounds[1])}]" if bounds[0] == bounds[0] else "–"


def _p_value(p_value: float) -> str:
    if math.isnan(p_value):
        return "–"
    return f"{p_value:.4f}" if p_value >= 1e-4 else "<0.0001"


def _number(number: float) -> str:
    """Four significant digits."""
    return f"{number:.4g}" if not math.isnan(number) else "–"
