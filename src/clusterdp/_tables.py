"""Tables for people: aligned text for terminals, HTML for notebooks. All text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines, their columns aligned at the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def listed(pairs: Sequence[tuple[str, str]], notes: Iterable[str] = ()) -> list[str]:
    """Names with their values as lines, the values below each other; then notes."""
    width = max(len(name) for name, _ in pairs)
    return [*(f"{name:{width}}  {text}" for name, text in pairs), *(f"note: {n}" for n in notes)]


def html_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table with a header."""
    body = "".join(_html_row("td", row) for row in rows)
    return f"<table><thead>{_html_row('th', header)}</thead><tbody>{body}</tbody></table>"


def html_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """A table of names with their values."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in pairs)
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def html_lines(lines: Iterable[str]) -> str:
    """A paragraph per line."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def html_notes(notes: Iterable[str]) -> str:
    """A list of notes; nothing if there are none."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""


def _html_row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
