"""A release as a value: everything that is published, in memory or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import percent
from clusterdp.document.model import Facts, Paragraph, as_notes
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.published.notes import joined_texts

if TYPE_CHECKING:
    from clusterdp.cells.assignment import AssignmentProbs
    from clusterdp.cells.layout import Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.document.model import Part
    from clusterdp.mechanisms.draw import ReleasedQuestion
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.published.notes import ReleaseNote
    from clusterdp.rows.questions import QuestionRule
    from clusterdp.spec.answers import Answers
    from clusterdp.spec.columns import Columns
    from clusterdp.spec.provenance import Provenance
    from clusterdp.statistics.pilot import DrawnPilot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """All that is published: no true outcome, no key.

    Attributes:
        units: One row per unit, sorted by id: unit, arm, cluster, `response`, and a column
            such as `clicks_debiased` for each outcome. With several questions, `question` names the
            one that a unit answered; debiased columns of others are null. A frame of the library
            that was given, without its index or metadata; None if only aggregates are published.
        cells: One row per (cluster, arm): size, noisy statistics, and the prior and decode values
            or the number of the randomizer. Lists are in the order of outcome combinations. With
            one histogram per arm (`cluster_free_dp`) the clusters of an arm repeat the arm's
            statistics.
        questions: What is published of each question.
        guarantee: What the whole release costs.
        columns: The names of the published columns.
        layout: Clusters, arms and cell sizes.
        remarks: Remarks for readers of this release, each with the outcomes that it is about.
        provenance: Where it comes from, as stated by the owner.
        pilots: The pilot histogram of each question, or None.
        asking: How units are asked one of several questions; None where there is one, or no rows.
        response: The randomized response of private clusters, which are published as noisy
            clusters; None if clusters are public.
        assignment: The declared probabilities of arms by label; None if they are the same.
        manifest_sha256: The checksum of its manifest; None in memory.
        answers: The follow-up that it answers; None for a release.
    """

    units: Any
    cells: Any
    questions: tuple[ReleasedQuestion, ...]
    guarantee: Guarantee
    columns: Columns
    layout: Layout
    remarks: tuple[ReleaseNote, ...]
    provenance: Provenance
    pilots: tuple[DrawnPilot | None, ...] = ()
    asking: QuestionRule | None = None
    response: ClusterResponse | None = None
    assignment: AssignmentProbs | None = None
    manifest_sha256: str | None = None
    answers: Answers | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for readers of this release."""
        return tuple(one.text for one in self.remarks)

    @property
    def mechanism_names(self) -> str:
        """The names of its mechanisms, each once."""
        return ", ".join(dict.fromkeys(question.mechanism.name for question in self.questions))

    def __repr__(self) -> str:
        return to_screen([Paragraph(self._title(), "lead"), *self._parts()], terminal_width())

    def _repr_html_(self) -> str:
        from clusterdp.document.markup import to_html  # only notebooks need it

        return to_html(Paragraph(self._title(), "lead"), *self._parts())

    def _title(self) -> str:
        return f"Release of {', '.join(self.columns.outcomes)}"

    def _parts(self) -> list[Part]:
        """What was released, what it costs and how to use it."""
        layout, columns, about = self.layout, self.columns, self.provenance
        arms = [
            f"{arm} (control)" if place == layout.control else str(arm)
            for place, arm in enumerate(layout.arms)
        ]
        outcomes = [one for each in self.questions for one in each.space.declared.outcomes]
        facts = {
            "Privacy": str(self.guarantee.statement(about.unit)),
            "Table": layout.in_words,
            **({} if self.response is None else {"Private clusters": self.response.in_words}),
            "Arms": ", ".join(arms),
            "Outcomes": ", ".join(f"{one.name} ({one})" for one in outcomes),
            "Mechanism": self.mechanism_names,
        }
        if len(self.questions) > 1:
            asked = [f"{one.name} {percent(one.mechanism.asked_share)}" for one in self.questions]
            facts["Questions"] = f"each {about.unit} answers one: {', '.join(asked)}"
        if self.units is None:
            facts["Rows"] = "none; noisy statistics of cells only"
            if self.answers is not None:
                facts["Rows"] = f"none; it answers a follow-up to {self.answers.release[:8]}"
        else:
            parts = columns.parts
            named = [
                f"{name} ({parts[name]})" if name in parts else name for name in columns.published
            ]
            facts["Columns"] = ", ".join(named)
        used = "release" if self.answers is None else "release, answers=this_folder"
        facts["Next"] = f"clusterdp.estimate({used})"
        return [Facts(list(facts.items())), *as_notes(joined_texts(self.remarks))]
