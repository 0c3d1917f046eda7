"""Tables for people: aligned text for terminals, HTML for notebooks. All text is escaped."""

from __future__ import annotations

import shutil
import sys
import textwrap
from html import escape as escape_html
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_INDENT, _GAP = "  ", "  "
# How many lines a stacked row may take for what can be left out.
_STACKED_LINES = 2


class Column(NamedTuple):
    """A column of a table that adapts to the width of a terminal.

    Attributes:
        name: Its header.
        cells: Its cells.
        rank: When it is left out: the highest first, zero never.
        is_label: Whether it says what a row is of; labels are aligned at the left.
        starts_line: Whether it starts a line of a stacked row.
    """

    name: str
    cells: tuple[str, ...]
    rank: int = 0
    is_label: bool = False
    starts_line: bool = False

    def broken(self) -> tuple[str, str]:
        """Its header in two lines, if that makes it narrower."""
        if len(self.name) <= max(map(len, self.cells)):
            return "", self.name
        words = self.name.split()
        breaks = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(len(words))]
        return min(breaks, key=lambda both: max(map(len, both)))

    def lines(self, header: tuple[str, ...]) -> list[str]:
        """A header of some lines and the cells, all of one width."""
        texts = (*header, *self.cells)
        width = max(map(len, texts))
        return [text.ljust(width) if self.is_label else text.rjust(width) for text in texts]


class Fitted(NamedTuple):
    """A table that fits: its lines, and the columns that were left out."""

    lines: list[str]
    left_out: tuple[str, ...]


def terminal_width() -> int | None:
    """How many characters a line of the terminal has; None if output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """A text as lines that fit, those after the first indented; one line without a width."""
    text = plain_text(text)
    if width is None:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def fitted(columns: Sequence[Column], width: int | None) -> Fitted:
    """A table as lines.

    Where it does not fit, headers are broken; columns are left out from the highest rank on; and at
    last rows are stacked.
    """
    flat = _flat([column.lines((column.name,)) for column in columns])
    if width is None or _fits(flat, width):
        return Fitted(flat, ())
    kept = list(columns)
    while not _fits(flat := _flat([column.lines(column.broken()) for column in kept]), width):
        if all(column.rank == 0 for column in kept):
            return _stacked(columns, width)
        kept.remove(max(kept, key=lambda column: column.rank))
    return Fitted(flat, tuple(column.name for column in columns if column not in kept))


def _flat(columns: Sequence[list[str]]) -> list[str]:
    """Columns of texts beside each other."""
    lines = (_INDENT + _GAP.join(cells) for cells in zip(*columns, strict=True))
    return [plain_text(line).rstrip() for line in lines]


def _fits(lines: list[str], width: int) -> bool:
    return max(map(len, lines)) <= width


def _stacked(columns: Sequence[Column], width: int) -> Fitted:
    """Each row as its labels in a line, and its other cells with their names below."""
    labels = [column for column in columns if column.is_label]
    kept = sorted((c for c in columns if not c.is_label), key=lambda column: column.rank)
    entries = [f"{column.name} {{:>{max(map(len, column.cells))}}}" for column in kept]
    shown: list[list[int]] = [[]]
    inner = width - 2 * len(_INDENT)
    for place, column in enumerate(kept):
        together = [*shown[-1], place]
        lengths = [len(kept[one].name) + 1 + max(map(len, kept[one].cells)) for one in together]
        fits = sum(lengths) + len(_GAP) * (len(together) - 1) <= inner
        if fits and not column.starts_line:
            shown[-1] = together
        elif column.rank == 0 or len(shown) < _STACKED_LINES:
            shown.append([place])
        else:
            break
    n_shown = sum(map(len, shown))
    lines = []
    for row in range(len(columns[0].cells)):
        label = ", ".join(f"{column.name} {column.cells[row]}" for column in labels)
        lines += wrapped(_INDENT + label, width, 2 * _INDENT) if label else []
        for together in shown:
            cells = (entries[one].format(kept[one].cells[row]) for one in together)
            lines += wrapped(2 * _INDENT + _GAP.join(cells), width, 3 * _INDENT)
    names = {column.name for column in kept[n_shown:]}
    return Fitted(lines, tuple(column.name for column in columns if column.name in names))


class Table(NamedTuple):
    """A table with the title above it.

    Attributes:
        title: The title.
        rows: The header, then the rows.
    """

    title: str
    rows: list[tuple[str, ...]]

    def as_text(self, width: int | None = None) -> str:
        """The table as aligned lines."""
        title = [plain_text(self.title)] if self.title else []
        return "\n".join([*title, *aligned(self.rows, width)])

    def as_html(self) -> str:
        """The table for notebooks."""
        header, *rows = self.rows
        return html_lines([self.title] if self.title else []) + html_table(header, rows)


def aligned(rows: Sequence[tuple[str, ...]], width: int | None = None) -> list[str]:
    """Rows as lines, their columns aligned at the right.

    Where they do not fit, the table goes on below an empty line, with its first column again.
    """
    columns = [_right(cells) for cells in zip(*rows, strict=True)]
    lines: list[str] = []
    while columns:
        first, *others = columns
        n_kept = max(1, len(others))
        while width and n_kept > 1 and not _fits(_flat([first, *others[:n_kept]]), width):
            n_kept -= 1
        lines += ([""] if lines else []) + _flat([first, *others[:n_kept]])
        columns = [first, *others[n_kept:]] if n_kept < len(others) else []
    return lines


def _right(cells: tuple[str, ...]) -> list[str]:
    longest = max(map(len, cells))
    return [cell.rjust(longest) for cell in cells]


def listed(pairs: Sequence[tuple[str, str]], notes: Iterable[str] = ()) -> list[str]:
    """Names with their values as lines, the values below each other; then notes."""
    width = max(len(name) for name, _ in pairs)
    named = (f"{name:{width}}  {text}" for name, text in pairs)
    return [plain_text(line) for line in (*named, *(f"note: {note}" for note in notes))]


def html_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table with a header."""
    body = "".join(_html_row("td", row) for row in rows)
    return f"<table><thead>{_html_row('th', header)}</thead><tbody>{body}</tbody></table>"


def html_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """A table of names with their values."""
    rows = (f"<tr><th>{_escaped(name)}</th><td>{_escaped(text)}</td></tr>" for name, text in pairs)
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def html_lines(lines: Iterable[str]) -> str:
    """A paragraph per line."""
    return "".join(f"<p>{_escaped(line)}</p>" for line in lines)


def html_notes(notes: Iterable[str]) -> str:
    """A list of notes; nothing if there are none."""
    items = "".join(f"<li>{_escaped(note)}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""


def _escaped(text: str) -> str:
    return escape_html(plain_text(text))


def _html_row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells) + "</tr>"
