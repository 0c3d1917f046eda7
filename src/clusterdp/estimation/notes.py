"""Notes for whoever uses an estimate: sorted by weight, and gathered over segments."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from clusterdp._words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

# This many segments are named; more are counted.
_NAMED = 3


class Weight(IntEnum):
    """How much a note matters; the heaviest is shown first."""

    WARNING = 0  # numbers may be wrong
    SCOPE = 1  # who or what the numbers are about
    METHOD = 2  # how they were computed


class Note(NamedTuple):
    """A remark.

    Attributes:
        text: The remark.
        weight: How much it matters.
        segment: The segment that it is about; None if it is about all numbers.
    """

    text: str
    weight: Weight = Weight.METHOD
    segment: str | None = None


def sorted_notes(notes: Iterable[Note]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings, then the other notes by weight. What is said of many segments is said once."""
    about: dict[tuple[Weight, str], dict[str, None]] = {}
    for note in notes:
        segments = about.setdefault((note.weight, note.text), {})
        if note.segment is not None:
            segments[note.segment] = None
    lines = [
        (weight, _gathered(text, list(segments)))
        for (weight, text), segments in sorted(about.items(), key=lambda item: item[0][0])
    ]
    warnings = tuple(line for weight, line in lines if weight == Weight.WARNING)
    return warnings, tuple(line for weight, line in lines if weight != Weight.WARNING)


def _gathered(text: str, segments: list[str]) -> str:
    if not segments:
        return text
    if len(segments) > _NAMED:
        return f"{counted(len(segments), 'segment')}: {text}"
    return f"{'; '.join(segments)}: {text}"
