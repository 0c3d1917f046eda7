"""Documents as text for terminals: lines that fit, without characters that are not plain."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._text import plain_text
from clusterdp.document.model import (
    Code,
    Facts,
    Items,
    KeyNumbers,
    Paragraph,
    Section,
    Table,
    render_inline,
)
from clusterdp.document.scales import interval_scale, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp.document.model import Part
    from clusterdp.document.scales import Interval, Linear


_INDENT, _GAP = "  ", "  "
# Stands for a space at which no line is broken.
_FIRM = "\0"
# How many lines a stacked row may take for what can be left out.
_STACKED_LINES = 2
# Letters between two numbers of an axis.
_AXIS_GAP = 2
_BAR, _DOT, _ZERO, _CROSSED, _BELOW, _ABOVE = "─", "●", "│", "┼", "<", ">"


class Column(NamedTuple):
    """A column of a table that adapts to the width of a terminal.

    Attributes:
        name: Its header.
        cells: Its cells.
        rank: When it is left out: the highest first, zero never.
        is_label: Whether it names the row; labels are aligned at the left.
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


def terminal_width() -> int:
    """How many characters a line has: as the terminal or `COLUMNS` say, and 80 elsewhere."""
    return shutil.get_terminal_size(fallback=(80, 24)).columns


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """A text as lines that fit, those after the first indented; one line without a width."""
    text = plain_text(text)
    if width is None:
        return [text]
    # A number stays with its unit, and with what it is.
    firm = re.sub(r"(?<=\d) (?=pp\b)", _FIRM, text)
    firm = re.sub(r"\b([εδτpF]) = (?=\d)", rf"\1{_FIRM}={_FIRM}", firm)
    lines = textwrap.wrap(firm, width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(_FIRM, " ") for line in lines]


def remark(kind: str, text: str, width: int | None) -> list[str]:
    """A warning, a note or an error as lines, aligned behind its kind."""
    return wrapped(_ended(f"{kind}: {text}"), width, " " * (len(kind) + 2))


def _ended(text: str) -> str:
    """Sentences with their last period; a command at the end has none."""
    is_open = text[-1:].isalnum() or text[-1:] == ")"
    return f"{text}." if is_open and ": clusterdp " not in text else text


def fitted(columns: Sequence[Column], width: int | None) -> tuple[list[str], tuple[str, ...]]:
    """A table as lines that fit, and the names of columns that were left out.

    Where it does not fit, headers are broken; columns are left out from the highest rank on; and at
    last rows are stacked.
    """
    flat = _flat([column.lines((column.name,)) for column in columns])
    if width is None or _fits(flat, width):
        return flat, ()
    kept = list(columns)
    while not _fits(flat := _flat([column.lines(column.broken()) for column in kept]), width):
        if all(column.rank == 0 for column in kept):
            return _stacked(columns, width)
        kept.remove(max(kept, key=lambda column: column.rank))
    return flat if flat[0] else flat[1:], tuple(one.name for one in columns if one not in kept)


def _flat(columns: Sequence[list[str]]) -> list[str]:
    """Columns of texts next to each other."""
    lines = (_INDENT + _GAP.join(cells) for cells in zip(*columns, strict=True))
    return [plain_text(line).rstrip() for line in lines]


def _fits(lines: list[str], width: int) -> bool:
    return max(map(len, lines)) <= width


def _stacked(columns: Sequence[Column], width: int) -> tuple[list[str], tuple[str, ...]]:
    """Each row as its labels in a line, and its other cells with their names below."""
    labels = [column for column in columns if column.is_label]
    others = sorted((one for one in columns if not one.is_label), key=lambda one: one.rank)
    shown: list[list[list[str]]] = [[]]
    hidden = list(others)
    for column in others:
        longest = max(map(len, column.cells))
        texts = [f"{column.name} {cell:>{longest}}" for cell in column.cells]
        together = [*shown[-1], texts]
        n_letters = sum(len(one[0]) for one in together) + len(_GAP) * (len(together) - 1)
        if n_letters <= width - 2 * len(_INDENT) and not column.starts_line:
            shown[-1] = together
        elif column.rank == 0 or len(shown) < _STACKED_LINES:
            shown.append([texts])
        else:
            break
        hidden.remove(column)
    lines = []
    for row in range(len(columns[0].cells)):
        label = ", ".join(f"{column.name} {column.cells[row]}" for column in labels)
        lines += wrapped(_INDENT + label, width, 2 * _INDENT) if label else []
        for together in shown:
            cells = _GAP.join(texts[row] for texts in together)
            lines += wrapped(2 * _INDENT + cells, width, 3 * _INDENT)
    return lines, tuple(column.name for column in columns if column in hidden)


def aligned(
    rows: Sequence[tuple[str, ...]],
    width: int | None = None,
    groups: Sequence[tuple[str, int]] = (),
) -> list[str]:
    """Rows as lines: the first column aligned at the left, others at the right.

    Where they do not fit, headers are broken; where that does not help, the table goes on below an
    empty line, with its first column again.
    Columns of a group stay together.
    """
    labelled, blocks = _blocks(rows, groups)
    if width and not _fits(_together(labelled, blocks), width):
        broken = [Column(name, tuple(cells)).broken() for name, *cells in zip(*rows, strict=True)]
        upper, lower = (tuple(lines) for lines in zip(*broken, strict=True))
        narrow = _blocks([upper, (rows[0][0], *lower[1:]), *rows[1:]], groups)
        if _fits(_together(*narrow), width):
            labelled, blocks = narrow
    found: list[str] = []
    while True:
        n_kept = max(1, len(blocks))
        while width and n_kept > 1 and not _fits(_together(labelled, blocks[:n_kept]), width):
            n_kept -= 1
        found += ([""] if found else []) + _together(labelled, blocks[:n_kept])
        blocks = blocks[n_kept:]
        if not blocks:
            return found


def _blocks(
    rows: Sequence[tuple[str, ...]], groups: Sequence[tuple[str, int]]
) -> tuple[list[str], list[list[str]]]:
    """The first column of a table as lines, and the others, those of a group next to each other."""
    labels, *others = zip(*rows, strict=True)
    first = Column("", labels, is_label=True).lines(())
    columns = iter([Column("", cells).lines(()) for cells in others])
    blocks = []
    for name, span in groups or [("", 1)] * len(others):
        lines = [_GAP.join(cells) for cells in zip(*islice(columns, span), strict=True)]
        blocks.append([*([name.center(len(lines[0])).rstrip()] if groups else []), *lines])
    return [*([""] if groups else []), *first], blocks


def _together(labels: list[str], blocks: Sequence[list[str]]) -> list[str]:
    """Blocks of lines next to each other, each of one width."""
    columns = [labels, *blocks]
    widths = [max(map(len, one)) for one in columns]
    return _flat(
        [[line.ljust(width) for line in one] for one, width in zip(columns, widths, strict=True)]
    )


def to_lines(parts: Iterable[Part | Section], width: int | None = None) -> list[str]:
    """Parts of a document as lines that fit; without a width, a line for each text.

    Lines to copy are not broken. Charts are left out.
    """
    lines: list[str] = []
    for part in parts:
        match part:
            case Section(heading, inner):
                lines += ["", *wrapped(in_plain_text(heading), width)] if heading else [""]
                lines += to_lines(inner, width)
            case Paragraph(text):
                lines += wrapped(in_plain_text(text), width)
            case Facts(pairs) | KeyNumbers(pairs):
                lines += _fact_lines(pairs, width)
            case Items(texts, _, mark):
                for text in texts:
                    said = f"{mark}{in_plain_text(text)}"
                    lines += wrapped(
                        _ended(said) if mark.endswith(": ") else said, width, " " * len(mark)
                    )
            case Table(title, rows, _, groups):
                lines += wrapped(in_plain_text(title), width) if title else []
                lines += aligned([tuple(map(in_plain_text, row)) for row in rows], width, groups)
            case Code(label, copied):
                lines += [plain_text(f"{label}:")] if label else []
                lines += [_INDENT + plain_text(line) for line in copied.splitlines()]
    return lines


def to_screen(parts: Iterable[Part | Section], width: int) -> str:
    """Parts of a document as a screen: lines that fit, an empty one between parts."""
    blocks = ("\n".join(to_lines([part], width)) for part in parts)
    return "\n\n".join(block.strip("\n") for block in blocks)


def _fact_lines(pairs: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Names with their texts, which start at the same place."""
    shown = [(in_plain_text(name), in_plain_text(text)) for name, text in pairs]
    longest = max((len(name) for name, _ in shown), default=0)
    indent = " " * (longest + len(_GAP))
    return [
        line
        for name, text in shown
        for line in wrapped(f"{name:{longest}}{_GAP}{text}", width, indent)
    ]


def in_plain_text(text: str) -> str:
    """A text of a document as one line; code stands in backticks."""
    return render_inline(text, str, "`{}`".format, ("", ""))


def interval_lines(intervals: Sequence[Interval], unit: str, width: int) -> list[str]:
    """An axis, and a line for each interval: dot, whiskers, zero, and arrows beyond the axis."""
    scale = interval_scale([(one.low, one.high) for one in intervals])
    width -= len(unit) + 2  # for the last number of the axis
    return [
        _axis_line(scale, unit, width),
        *(_interval_line(one, scale, width) for one in intervals),
    ]


def _axis_line(scale: Linear, unit: str, width: int) -> str:
    """Zero and every n-th number from there, as many as have room; the last has the unit."""
    ticks = scale.ticks()
    zero = min(range(len(ticks)), key=lambda index: abs(ticks[index]))
    for step in range(1, len(ticks) + 1):
        chosen = ticks[zero % step :: step]
        texts = [short(tick).replace("−", "-") for tick in chosen]
        line = ""
        for tick, text in zip(chosen, texts, strict=True):
            start = max(_column(scale, tick, width) - len(text) // 2, 0)
            is_first, room = not line, start - len(line)
            if not is_first and room < _AXIS_GAP:
                break
            line += " " * room + text
        else:
            break
    return f"{line} {unit}".rstrip()


def _interval_line(one: Interval, scale: Linear, width: int) -> str:
    letters = [" "] * width
    zero = _column(scale, 0.0, width)
    letters[zero] = _ZERO
    if math.isnan(one.low) or math.isnan(one.high):
        return "".join(letters)
    low, high = (_column(scale, end, width) for end in (one.low, one.high))
    for column in range(low, high + 1):
        letters[column] = _CROSSED if column == zero else _BAR
    if scale.low <= one.estimate <= scale.high:
        letters[_column(scale, one.estimate, width)] = _DOT
    if one.low < scale.low:
        letters[0] = _BELOW
    if one.high > scale.high:
        letters[-1] = _ABOVE
    return "".join(letters)


def _column(scale: Linear, value: float, width: int) -> int:
    """Where a number stands; those beyond the axis at its ends."""
    (place,) = scale.places([value])
    return round(min(max(float(place), 0.0), 1.0) * (width - 1))
