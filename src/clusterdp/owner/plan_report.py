"""What a plan compared, as people read it: the reports of its questions, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp.document.markup import to_html
from clusterdp.document.model import Paragraph
from clusterdp.owner.question_report import fitting
from clusterdp.spec.terms import total_guarantee

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.owner.question_report import Report
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.spec.request import Request


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanReport:
    """What was compared in every question.

    Attributes:
        request: What was asked for.
        questions: The report of each question.
        notes: What the owner should know about the table, the reference and the questions.
    """

    request: Request
    questions: tuple[Report, ...]
    notes: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """What all questions cost together."""
        return total_guarantee(
            [one.space for one in self.questions], self._mechanisms, self.response
        )

    @property
    def epsilon(self) -> float:
        """The budget of outcomes and private clusters together."""
        every = [one.comparison.epsilon for one in self.questions]
        return (max if self.releases_rows else sum)(every) + self.label_epsilon

    @property
    def releases_rows(self) -> bool:
        """Whether rows are published, so that each unit is asked one question with all of ε."""
        return self._mechanisms[0].releases_rows

    @property
    def label_epsilon(self) -> float:
        """What private clusters take of it."""
        return self.request.clusters.epsilon

    @property
    def response(self) -> ClusterResponse | None:
        """The response that private clusters go through; None where clusters are public."""
        return self.request.clusters.response

    @property
    def _mechanisms(self) -> list[Mechanism]:
        return [one.comparison.choice.mechanism for one in self.questions]

    def as_text(self, width: int | None) -> str:
        """The report for terminals, in lines that fit; in long ones without a width."""
        parts = [f"{title}\n{one.as_text(width, said)}" for title, one, said in self._titled()]
        below = fitting(self._conclusions(), width)
        return "\n".join(["\n\n".join(parts).lstrip("\n"), *below])

    def as_html(self) -> str:
        """The report for notebooks."""
        parts = [
            to_html(*[Paragraph(title)] if title else []) + one.as_html(said)
            for title, one, said in self._titled()
        ]
        return "".join(parts) + to_html(*map(Paragraph, self._conclusions()))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values: those of one question, or a list of questions."""
        questions = [one.to_dict() for one in self.questions]
        if len(questions) == 1:
            return {**questions[0], **self._of_labels()}
        return {
            "epsilon": self.epsilon,
            "guarantee": self.guarantee.in_short(),
            "notes": list(self.notes),
            "questions": questions,
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
            for title, one, _ in self._titled()
            for remark in ([title] if title else []) + one.remarks()
        ]

    def every_note(self) -> list[str]:
        """What the owner should know, each once."""
        of_questions = (note for one in self.questions for note in one.notes())
        return list(dict.fromkeys((*self.notes, *of_questions)))

    def _titled(self) -> Iterator[tuple[str, Report, set[str]]]:
        """Each question with a title, which one alone does not need, and what was said before."""
        said: set[str] = set()
        for place, one in enumerate(self.questions, start=1):
            names = ", ".join(one.space.declared.names)
            title = f"question {place}: {names}{one.asked_in_words}"
            yield title if len(self.questions) > 1 else "", one, set(said)
            said.update(*one.texts())

    def _conclusions(self) -> list[str]:
        notes = [f"note: {note}" for note in self.every_note()]
        return [f"guarantee: {self.guarantee.in_short()}", *notes]
