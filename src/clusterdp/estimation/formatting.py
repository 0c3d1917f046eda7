"""Estimates as text and as HTML, from one table."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterdp.estimation.results import Effect, Estimate
    from clusterdp.estimation.segments import Segment


def as_text(estimate: Estimate) -> str:
    """A table of effects with a line on where they come from."""
    header, body = as_table(estimate)
    table = aligned([header, *body])
    notes = [f"  note: {note}" for note in estimate.notes]
    return "\n".join([title(estimate), *table, *notes])


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines, their columns aligned at the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def as_html(estimate: Estimate) -> str:
    """The same for notebooks."""
    header, rows = as_table(estimate)
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in estimate.notes)
    return (
        f"<p>{escape(title(estimate))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<ul>{notes}</ul>" if notes else "")
    )


def title(estimate: Estimate) -> str:
    """Where the numbers come from, in a line."""
    control = estimate.effects[0].of.control
    text = (
        f"Effect on {', '.join(estimate.metrics)} of {estimate.treatment}, against "
        f"{estimate.treatment} = {control}; {estimate.estimator}, from {estimate.mechanism}"
    )
    return f"{text} ({estimate.guarantee.in_short()})" if estimate.guarantee else text


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
