"""What an effect is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.estimation.formatting import segment_label

if TYPE_CHECKING:
    from clusterdp.estimation.segments import Segment


class Target(NamedTuple):
    """What an effect is of: an arm against control, in a segment.

    Attributes:
        arm: The treatment arm.
        control: The control arm.
        segment: Columns and values that define the segment; empty for everyone.
        adjusted: Whether covariates were adjusted for.
    """

    arm: Any
    control: Any
    segment: Segment = ()
    adjusted: bool = False

    @property
    def label(self) -> str:
        """The segment in words."""
        text = segment_label(self.segment)
        return f"{text} (adjusted)" if self.adjusted else text
