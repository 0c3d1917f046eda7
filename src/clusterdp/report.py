"""Estimates for people: text and HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterdp.effects import Effect, Estimate

_HEADER = ("arm", "effect", "std error", "95% interval", "p-value", "privacy share", "units")


def as_text(estimate: Estimate) -> str:
    """A table of effects with a line on where they come from."""
    rows = [_HEADER, *(_cells(effect) for effect in estimate.effects)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    table = [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    notes = [f"  note: {note}" for note in estimate.notes]
    return "\n".join([_title(estimate), *table, *notes])


def as_html(estimate: Estimate) -> str:
    """The same for notebooks."""
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEADER)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(effect)) + "</tr>"
        for effect in estimate.effects
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in estimate.notes)
    return (
        f"<p>{escape(_title(estimate))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<ul>{notes}</ul>" if notes else "")
    )


def _title(estimate: Estimate) -> str:
    control = estimate.effects[0].control
    title = f"Effects against {control!r}, {estimate.estimator}, from {estimate.source}"
    return f"{title}; {estimate.guarantee}" if estimate.guarantee else title


def _cells(effect: Effect) -> tuple[str, ...]:
    low, high = effect.ci()
    p_value = effect.p_value
    return (
        str(effect.arm),
        _number(effect.effect),
        _number(effect.std_error),
        f"[{_number(low)}, {_number(high)}]",
        f"{p_value:.4f}" if p_value >= 1e-4 else "<0.0001",
        f"{effect.privacy_share:.0%}",
        f"{effect.n_treated:,} vs {effect.n_control:,}",
    )


def _number(number: float) -> str:
    """Four significant digits, without exponents where a person would not expect them."""
    return f"{number:.4g}"
