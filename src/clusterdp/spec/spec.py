"""What is going to be published, and what it costs: nothing in it is open.

A `ReleaseSpec` is made once, before anything is drawn, and passed on. Private clusters change the
cells of a table and not the spec; looks lead to another spec, which keeps what was declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.draw import Question, check_exact
from clusterdp.spec.terms import Expected, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.spec.answers import Answers
    from clusterdp.spec.clusters import Clusters
    from clusterdp.spec.provenance import Provenance, Spent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionSpec(Question):
    """A question that is going to be published.

    Attributes:
        expected: What outcomes are thought to be like, which is published; None where nothing was
            declared.
        rounding: The variance that rounding numbers to their grids adds to each metric, if outcomes
            are so; published as well.
        declared: What it was before a pilot decided the rest; None without one.
    """

    expected: Expected | None = None
    rounding: tuple[float, ...]
    declared: QuestionSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleaseSpec:
    """What is going to be published of the outcomes of a table. Make one with `from_questions`.

    Attributes:
        questions: The questions; at least one.
        clusters: Whether clusters are public or private.
        provenance: Where the release comes from.
        terms: What is published, and what that costs, as manifests and ledgers state it.
        answers: The follow-up that it answers; None for a release.
    """

    questions: tuple[QuestionSpec, ...]
    clusters: Clusters
    provenance: Provenance
    terms: Terms
    answers: Answers | None = None

    @classmethod
    def from_questions(
        cls,
        questions: Sequence[QuestionSpec],
        clusters: Clusters,
        provenance: Provenance,
        answers: Answers | None = None,
    ) -> ReleaseSpec:
        """The specification of some questions.

        Raises:
            ParameterError: If their budgets cannot be met, or they cannot be asked together.
        """
        return cls(
            questions=tuple(questions),
            clusters=clusters,
            provenance=provenance,
            terms=Terms.from_questions(questions, clusters.response),
            answers=answers,
        )

    @property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of each question."""
        return tuple(question.space for question in self.questions)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What is published of each question."""
        return tuple(question.mechanism for question in self.questions)

    def begun(
        self, day: date, spent_before: Spent | None = None, continues: Sequence[str] = ()
    ) -> ReleaseSpec:
        """The same, with what is on record of its beginning.

        Args:
            day: When it began.
            spent_before: What had been spent before it; None without a ledger.
            continues: The batches that it continues, by the checksums of their manifests.
        """
        known = msgspec.structs.replace(
            self.provenance,
            released_on=day,
            spent_before=spent_before,
            continues=tuple(continues) or None,
        )
        return replace(self, provenance=known)

    def with_mechanisms(self, mechanisms: Sequence[Mechanism]) -> ReleaseSpec:
        """The same with mechanisms as its terms state them, in the numbers that the machine uses.

        A ledger has them so: every run of a release does the same.
        """
        pairs = zip(self.questions, mechanisms, strict=True)
        return replace(self, questions=tuple(replace(one, mechanism=own) for one, own in pairs))

    def check(self, layout: Layout) -> None:
        """Raise a ParameterError if a release of these cells could not be completed.

        See `check_exact`; it reads what is public alone, or given labels in place of private
        clusters.
        """
        for question in self.questions:
            check_exact(layout, question.space, question.mechanism)
            if question.mechanism.is_answer and self.answers is None:
                raise ParameterError(
                    "totals of groups without rows answer a follow-up; publish rows too"
                )
        if self.clusters.probs(layout) is not None and not self.terms.releases_rows:
            raise ParameterError(
                "without rows, effects cannot be weighted for arms that have different "
                "probabilities in private clusters; choose a mechanism that releases rows"
            )
