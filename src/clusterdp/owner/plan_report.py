"""What a plan compared, as people read it: the reports of its blocks, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._tables import html_lines
from clusterdp.owner.block_report import fitting
from clusterdp.published.terms import total_guarantee

if TYPE_CHECKING:
    from clusterdp.channels.label_response import LabelResponse
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.owner.block_report import Report
    from clusterdp.owner.options import Options
    from clusterdp.privacy.accounting import Guarantee


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanReport:
    """What was compared in every block.

    Attributes:
        given: What was asked for.
        blocks: The report of each block.
        notes: What the owner should know about the table, the reference and the blocks.
    """

    given: Options
    blocks: tuple[Report, ...]
    notes: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """What all blocks cost together."""
        return total_guarantee([one.space for one in self.blocks], self._mechanisms, self.response)

    @property
    def epsilon(self) -> float:
        """The budget of outcomes and private clusters together."""
        return sum(one.comparison.epsilon for one in self.blocks) + self.label_epsilon

    @property
    def label_epsilon(self) -> float:
        """What private clusters take of it."""
        return 0.0 if self.response is None else self.response.guarantee().epsilon

    @property
    def response(self) -> LabelResponse | None:
        """The response that private clusters go through; None where clusters are public."""
        labels = self.given.private_labels
        return None if labels is None else labels.response

    @property
    def _mechanisms(self) -> list[Mechanism]:
        return [one.comparison.choice.mechanism for one in self.blocks]

    def as_text(self, width: int | None) -> str:
        """The report for terminals, in lines that fit; in long ones without a width."""
        parts = [f"{title}\n{one.as_text(width)}" for title, one in self._titled()]
        below = fitting(self._conclusions(), width)
        return "\n".join(["\n\n".join(parts).lstrip("\n"), *below])

    def as_html(self) -> str:
        """The report for notebooks."""
        parts = [
            html_lines([title] if title else []) + one.as_html() for title, one in self._titled()
        ]
        return "".join(parts) + html_lines(self._conclusions())

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values: those of one block, or a list of blocks."""
        blocks = [one.to_dict() for one in self.blocks]
        if len(blocks) == 1:
            return {**blocks[0], **self._of_labels()}
        return {
            "epsilon": self.epsilon,
            "guarantee": self.guarantee.in_short(),
            "notes": list(self.notes),
            "blocks": blocks,
            **self._of_labels(),
        }

    def _of_labels(self) -> dict[str, Any]:
        """What is said of private clusters; nothing where clusters are public."""
        if self.response is None:
            return {}
        return {
            "epsilon": self.epsilon,
            "label_epsilon": self.label_epsilon,
            "guarantee": self.guarantee.in_short(),
            "notes": self.every_note(),
        }

    def remarks(self) -> list[str]:
        """What a plan file says above its options."""
        return [
            remark
            for title, one in self._titled()
            for remark in ([title] if title else []) + one.remarks()
        ]

    def every_note(self) -> list[str]:
        """What the owner should know, each once."""
        of_blocks = (note for one in self.blocks for note in one.notes())
        return list(dict.fromkeys((*self.notes, *of_blocks)))

    def _titled(self) -> list[tuple[str, Report]]:
        """Each block with a title, which one alone does not need."""
        if len(self.blocks) == 1:
            return [("", self.blocks[0])]
        return [
            (f"block {place}: {', '.join(one.space.declared.names)}", one)
            for place, one in enumerate(self.blocks, start=1)
        ]

    def _conclusions(self) -> list[str]:
        notes = [f"note: {note}" for note in self.every_note()]
        return [f"guarantee: {self.guarantee.in_short()}", *notes]
