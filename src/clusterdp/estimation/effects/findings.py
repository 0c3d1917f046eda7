"""Notes for whoever uses an estimate: sorted by weight, and gathered over segments.

Checks of the data that an estimate rests on, each with a verdict.

What an estimate was made from, and how to make it again: names of files, never their paths.
"""

from __future__ import annotations

import inspect
import math
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clusterdp._text import counted
from clusterdp.cells.layout import units_in_words
from clusterdp.estimation.report.results import FEW_UNITS
from clusterdp.estimation.report.tables import segment_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.report.results import Effect


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


_FEW = f"fewer than {FEW_UNITS} units in an arm, so intervals are wide and by Student's t"
_NO_NUMBERS = "too few units in an arm, so there are no numbers"
Verdict = Literal["fine", "note", "warning"]


class Check(NamedTuple):
    """A question about the data, and the answer.

    Attributes:
        question: What was checked.
        verdict: Whether numbers can be used as they are ("fine"), are of other people than one
            might think ("note"), or may be wrong ("warning").
        found: What was found, a sentence each.
    """

    question: str
    verdict: Verdict
    found: tuple[str, ...]

    @classmethod
    def of(cls, question: str, notes: Sequence[Note], *, fine: str) -> Check:
        """A check that found these notes; `fine` is said if there are none."""
        if not notes:
            return cls(question, "fine", (fine,))
        warnings, remarks = sorted_notes(notes)
        return cls(question, "warning" if warnings else "note", (*warnings, *remarks))

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**self._asdict(), "found": list(self.found)}


def arms_check(layout: Layout, notes: Sequence[Note]) -> Check:
    """Whether arms have their planned shares, from what the check of sample ratios noted."""
    sizes = layout.sizes.sum(axis=0)
    shares = [
        f"{arm} {size / layout.n_units:.1%}" for arm, size in zip(layout.arms, sizes, strict=True)
    ]
    like = "equal ones, as nothing was declared" if layout.arm_shares is None else "as declared"
    fine = f"they do, as far as can be seen ({like}), in all clusters: {', '.join(shares)}"
    return Check.of("Do arms have their planned shares?", notes, fine=fine)


def segment_size_check(effects: Sequence[Effect]) -> list[Check]:
    """Whether every segment has units enough for numbers; nothing if there are no segments."""
    arm_sizes: dict[str, int] = {}
    for one in effects:
        if one.of.segment and one.of.against is None:
            n_units = 0 if math.isnan(one.effect) else min(one.n_treated, one.n_control)
            label = segment_label(one.of.segment)
            arm_sizes[label] = min(arm_sizes.get(label, n_units), n_units)
    if not arm_sizes:
        return []
    notes = [
        Note(_FEW if n_units else _NO_NUMBERS, Weight.SCOPE, name)
        for name, n_units in arm_sizes.items()
        if n_units < FEW_UNITS
    ]
    smallest = min(arm_sizes, key=lambda name: arm_sizes[name])
    fine = f"the smallest arm of any, in {smallest}, has {counted(arm_sizes[smallest], 'unit')}"
    return [Check.of("Do segments have units enough?", notes, fine=fine)]


# A call that is longer than a line of this width has a line for each argument.
_WIDTH = 80
# What can be written into a call as it is.
_PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an estimate was made from.

    Attributes:
        data: The title of the release, or the name of its folder; None if it has neither.
        n_clusters: How many clusters there are; 0 where none were given.
        arm_sizes: Every arm with its units.
        shares: The metrics that are shares of units.
        made_by: The call or the command that makes it again.
    """

    data: str | None
    n_clusters: int
    arm_sizes: tuple[tuple[Any, int], ...]
    shares: tuple[str, ...]
    made_by: str

    @classmethod
    def of(cls, data: str | None, layout: Layout, shares: list[str], made_by: str) -> Origin:
        """The origin of an estimate, from the name and the layout of its release."""
        sizes = layout.sizes.sum(axis=0).tolist()
        return cls(
            data=data,
            n_clusters=layout.n_clusters,
            arm_sizes=tuple(zip(layout.arms, sizes, strict=True)),
            shares=tuple(shares),
            made_by=made_by,
        )

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return sum(size for _, size in self.arm_sizes)

    def in_short(self) -> str:
        """For people: "published: 64,000 units in 7 clusters"."""
        name = "" if self.data is None else f"{self.data}: "
        return name + units_in_words(self.n_units, self.n_clusters)


def file_name(source: Any) -> str | None:
    """The name of a file or folder, without where it is; None if it is neither."""
    return Path(source).resolve().name if isinstance(source, str | os.PathLike) else None


def call_text(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """A call of a function, as someone would write it to repeat it.

    The first argument is named if it is the path of a file or folder. Tables and other objects
    stand as their parameter.

    Args:
        function: What was called.
        given: Its arguments by parameter.
    """
    parameters = inspect.signature(function).parameters
    first, *others = parameters
    words = [repr(file_name(given[first]) or first)] if file_name(given[first]) else [first]
    words += [
        f"{name}={_written(name, given[name])}"
        for name in others
        if given[name] is not parameters[name].default
    ]
    name = f"clusterdp.{function.__name__}"
    if len(line := f"{name}({', '.join(words)})") <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), ")"])


def _written(name: str, value: Any) -> str:
    """A value as code; the name of its parameter if it is no plain value."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(name, one) for one in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_written(name, key)}: {_written(name, one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    return name
