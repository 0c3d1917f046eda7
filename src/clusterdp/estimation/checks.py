"""Checks of the data that an estimate rests on, each with a verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clusterdp._words import counted
from clusterdp.estimation.formatting import segment_label
from clusterdp.estimation.notes import Note, Weight, sorted_notes
from clusterdp.estimation.results import FEW_UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.estimation.results import Effect
    from clusterdp.experiment.layout import Layout

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
