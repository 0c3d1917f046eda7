"""The space of one outcome: finitely many values, or a number in a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.experiment.number import Number
from clusterdp.experiment.outcomes import OutcomeSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

Space = OutcomeSpace | Number


def space_in_words(given: Space | str) -> str:
    """A space for readers, from itself or its text."""
    space = parse_space(given)
    return space.in_words if isinstance(space, OutcomeSpace) else str(space)


def parse_space(given: Space | str | Sequence[float]) -> Space:
    """A space as people write it.

    Values (`0,1,5`), integers (`0..5`), `binary`, two labels (`no,yes`), bins (`bins:0,1,10 as
    0,4`) or a number in a range (`number:0..493`). The text of a space reads back as itself.
    """
    if isinstance(given, Number):
        return given
    if isinstance(given, str) and Number.is_meant_by(given):
        return Number.parse(given)
    return OutcomeSpace.parse(given.strip() if isinstance(given, str) else given)
