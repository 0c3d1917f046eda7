"""What people read, as values: a document has sections, a section has parts.

A part says what it is, not how it looks: `text.py` lays it out for terminals, `markup.py` for
Markdown, notebooks and pages. They escape what they are given, and nobody else does. So texts are
given as they are, from any source; names stand in `code(...)`, what matters most in
`strong(...)`. Both put control characters around a text, which no name or label may have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._text import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup

_CODE, _STRONG = "\x02", "\x03"


def code(text: str) -> str:
    """A name or a command within a text."""
    return f"{_CODE}{text}{_CODE}"


def strong(text: str) -> str:
    """The part of a text that matters most."""
    return f"{_STRONG}{text}{_STRONG}"


def in_code(text: str) -> str:
    """A text of ours in which names stand in backticks."""
    return text.replace("`", _CODE)


def render_inline(
    text: str,
    escape: Callable[[str], str],
    as_code: Callable[[str], str],
    as_strong: tuple[str, str],
) -> str:
    """A text with what stands for code and for strong words.

    Args:
        text: The text.
        escape: What makes a plain text one of the medium.
        as_code: The same for code.
        as_strong: What begins and ends strong words.
    """
    rendered, n_strong = [], 0
    for index, part in enumerate(text.split(_CODE)):
        if index % 2:
            rendered.append(as_code(plain_text(part)))
            continue
        for piece in re.split(f"({_STRONG})", part):
            if piece == _STRONG:
                rendered.append(as_strong[n_strong % 2])
                n_strong += 1
            else:
                rendered.append(escape(plain_text(piece)))
    return "".join(rendered)


class Paragraph(NamedTuple):
    """Some sentences; `kind` is "lead" for the first ones of a page, "soft" for small print."""

    text: str
    kind: str = ""


class Facts(NamedTuple):
    """Names with what is known of them."""

    pairs: Sequence[tuple[str, str]]


class KeyNumbers(NamedTuple):
    """The few numbers that matter most: what each is, and the number with its unit."""

    pairs: Sequence[tuple[str, str]]


class Items(NamedTuple):
    """A list of texts; in terminals each begins with `mark`."""

    texts: Sequence[str]
    is_ordered: bool = False
    mark: str = "- "


def as_notes(texts: Sequence[str]) -> list[Items]:
    """Notes to a reader; an empty list without notes."""
    return [Items(texts, mark="note: ")] if texts else []


class Table(NamedTuple):
    """A table of short texts, mostly numbers.

    Attributes:
        title: What it shows.
        rows: The header, then the rows; the first cell names the row.
        kind: "numeric", or "files" for names and checksums.
        groups: Names above several columns each, with how many; the first column has none.
    """

    title: str
    rows: Sequence[tuple[str, ...]]
    kind: str = "numeric"
    groups: Sequence[tuple[str, int]] = ()


class Code(NamedTuple):
    """Lines to copy, with what they are."""

    label: str
    lines: str
    language: str = ""


class Chart(NamedTuple):
    """A drawing with its caption. Where nothing can be drawn, it is left out."""

    drawing: Markup
    caption: str


class DrawnRow(NamedTuple):
    """A row of a table with drawn intervals.

    Attributes:
        label: What it shows.
        group: The group that it belongs to, such as an arm.
        value: What it is sorted by; empty if it is unknown.
        size: How many units it covers.
        drawing: Its interval.
        cells: Its numbers.
    """

    label: str
    group: str
    value: str
    size: int
    drawing: Markup
    cells: tuple[str, ...]


class DrawnTable(NamedTuple):
    """Rows with drawn intervals on one axis, below rows for all units."""

    name: str
    header: tuple[str, ...]
    axis: Markup
    overall: Sequence[DrawnRow]
    rows: Sequence[DrawnRow]


class FilterTable(NamedTuple):
    """Tables that pages sort and filter together; other media show them at rest.

    Attributes:
        title: What they show.
        key: What their elements are named by.
        groups: The groups to filter by; none if there is one.
        tables: One for each metric.
    """

    title: str
    key: str
    groups: tuple[str, ...]
    tables: Sequence[DrawnTable]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its parts.

    Attributes:
        heading: Its heading; none for what is above all others.
        parts: What is in it, sections of their own among it.
        anchor: What links to it name it by; empty if none do.
        is_folded: Whether pages show its heading only, until it is opened.
    """

    heading: str
    parts: Sequence[Part | Section]
    anchor: str = ""
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A title, sections, and a last line."""

    title: str
    sections: Sequence[Section]
    footer: str = ""


Part = Paragraph | Facts | KeyNumbers | Items | Table | Code | Chart | FilterTable
