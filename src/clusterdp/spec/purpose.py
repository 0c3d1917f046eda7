"""What a release is for: the overall effect, breakdowns, segments, or all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout

# The share of the segments that a plan for all purposes looks at.
USUAL_SEGMENT = 0.1
OVERALL, BREAKDOWNS, _SEGMENTS = "overall", "breakdowns", "segments"
# All purposes at once, as None.
BALANCED = "balanced"


class Purpose(NamedTuple):
    """One thing that a release is for.

    Attributes:
        kind: `overall`, `breakdowns` or `segments`.
        share: The share of every cell that segments have; 1 for other kinds.
        place: The index of its breakdown.
    """

    kind: str
    share: float = 1.0
    place: int = 0

    def in_words(self, layout: Layout) -> str:
        """What effects it is about."""
        if self.kind == _SEGMENTS:
            return f"{100 * self.share:.3g}% segments"
        if self.kind == BREAKDOWNS:
            return f"groups by {', '.join(layout.breakdowns[self.place].columns)}"
        return "the overall effect"

    def groups(self, layout: Layout) -> tuple[list[int], FloatArray]:
        """The groups of a breakdown that have every arm: their targets, and shares of the units.

        Targets are everyone, then the groups of all breakdowns in their order.
        """
        sizes = layout.breakdowns[self.place].sizes
        first = 1 + sum(len(one.sizes) for one in layout.breakdowns[: self.place])
        present = np.flatnonzero((sizes > 0).all(axis=1))
        return (first + present).tolist(), sizes[present].sum(axis=1) / sizes[present].sum()


def parse_purpose(text: str | None, layout: Layout | None = None) -> tuple[Purpose, ...]:
    """The purposes that a text names; all of them for None.

    `breakdowns` are as many purposes as there are breakdowns, of which a release has to serve each;
    those without a group that has units in every arm do not count.

    Raises:
        ParameterError: If it names no purpose, or breakdowns that were not declared.
    """
    kind, _, share = (text or "").partition(":")
    breakdowns = () if layout is None else layout.breakdowns
    every = tuple(
        Purpose(BREAKDOWNS, place=place)
        for place, one in enumerate(breakdowns)
        if one.compares_arms
    )
    if text is None:
        return (Purpose(OVERALL), *every, Purpose(_SEGMENTS, USUAL_SEGMENT))
    if text == OVERALL:
        return (Purpose(OVERALL),)
    if text == BREAKDOWNS:
        if layout is not None and not every:
            raise ParameterError(
                "optimize_for=breakdowns (--optimize-for breakdowns) needs breakdowns; declare one "
                "(breakdown=..., --breakdown)"
            )
        return every
    if kind == _SEGMENTS:
        return (Purpose(_SEGMENTS, _parse_share(text, share)),)
    raise _unknown(text)


def _parse_share(text: str, share: str) -> float:
    if share == "" and text == _SEGMENTS:
        return USUAL_SEGMENT
    try:
        number = float(share)
    except ValueError:
        raise _unknown(text) from None
    if not 0 < number <= 1:
        raise ParameterError(
            f"the share of optimize_for=segments:SHARE lies in (0, 1], got {share}"
        )
    return number


def _unknown(text: str) -> ParameterError:
    return ParameterError(
        "optimize_for must be balanced, overall, breakdowns, segments or segments:SHARE, such as "
        f"segments:0.05; got {text!r}"
    )
