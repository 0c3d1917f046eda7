"""What an effect is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.estimation.formatting import segment_label, shortened

if TYPE_CHECKING:
    from clusterdp.estimation.cuts import Segment


class Target(NamedTuple):
    """What an effect is of: a metric of an arm against control, in a segment.

    Attributes:
        metric: An outcome, or a function of outcomes.
        arm: The treatment arm.
        control: The control arm.
        segment: Columns and values that define the segment; empty for everyone.
        adjusted: Whether covariates were adjusted for.
        against: What the segment's effect is compared with; None if with nothing.
    """

    metric: str
    arm: Any
    control: Any
    segment: Segment = ()
    adjusted: bool = False
    against: str | None = None

    def is_named_by(self, parts: tuple[Any, ...]) -> bool:
        """Whether these name it: each its metric, its arm or its segment, which may be left out."""
        text = {self.metric, str(self.arm), self.label}
        named = all(part == self.arm or str(part) in text for part in parts)
        return named and (self.label == "overall" or self.label in map(str, parts))

    @property
    def label(self) -> str:
        """The segment in words."""
        return self._worded(segment_label(self.segment), self.against)

    def in_short(self, longest: int) -> str:
        """The same in one line, with names of so many letters at most."""
        against = None if self.against is None else shortened(self.against, longest)
        return self._worded(shortened(segment_label(self.segment), longest), against)

    def _worded(self, segment: str, against: str | None) -> str:
        text = segment if against is None else f"{segment} vs {against}"
        return f"{text} (adjusted)" if self.adjusted else text
