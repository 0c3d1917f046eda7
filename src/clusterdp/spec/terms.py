"""What is published of outcomes and what that costs: all that is known before they are read.

A manifest states it, and so does a ledger.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.errors import FormatError, ParameterError
from clusterdp.mechanisms.draw import Question
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import Categories, CategoriesRecord, together
from clusterdp.privacy.accounting import (
    CLUSTER_AND_OUTCOME,
    Guarantee,
    ReleaseLoss,
    any_loss,
    basic_composition,
)
from clusterdp.spec.columns import question_names
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Sequence

# Probabilities of categories, for each kind of cluster; cluster c is of kind c modulo their number,
# counted among those with units in every arm.
Expected = tuple[tuple[float, ...], ...]


def known_record(space: Categories) -> CategoriesRecord:
    """Categories as a manifest holds them, which nobody has to read from their texts again."""
    record = space.record()
    record.__dict__["categories"] = together([space])[0]
    return record


class QuestionTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is published of a question of outcomes, how, and what that costs.

    Attributes:
        outcomes: The declared outcomes, and the grids of numbers.
        mechanism: What is published, by the parameters that the machine uses.
        noise: Numbers that follow from them and that readers need, by statistic.
        epsilon: The ε of the question.
        delta: The δ of the question.
    """

    outcomes: CategoriesRecord
    mechanism: Mechanism
    noise: dict[str, dict[str, list[float | None]]]
    epsilon: float
    delta: float

    @classmethod
    def from_question(cls, question: Question) -> QuestionTerms:
        """The terms of a question.

        Raises:
            ParameterError: If the budget of the mechanism cannot be met, or its prior is of another
                outcome space.
        """
        space, mechanism = question.space, question.mechanism
        guarantee = mechanism.guarantee(space)
        if mechanism.releases_rows:
            question.rows.public_prior(space)
        facts = {one.label: one.facts(space) for one in mechanism.statistics}
        return cls(
            outcomes=known_record(space),
            mechanism=mechanism.settled(space),
            noise={name: numbers for name, numbers in facts.items() if numbers},
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its outcomes."""
        return tuple(outcome.name for outcome in self.outcomes.declared.outcomes)


class Terms(Struct, frozen=True, kw_only=True, dict=True):
    """What is published of all outcomes, and what that costs.

    Attributes:
        questions: What is published of each question.
        labels: The response that private clusters went through; None where clusters are public.
        guarantee: What all questions and labels cost together.
    """

    questions: tuple[QuestionTerms, ...]
    labels: ClusterResponse | None
    guarantee: Guarantee

    @classmethod
    def from_questions(
        cls, questions: Sequence[Question], labels: ClusterResponse | None = None
    ) -> Terms:
        """The terms of a release of some questions.

        Raises:
            ParameterError: If a budget cannot be met, a prior is of another outcome space, some
                questions have rows and others do not, or units would not be asked one question.
        """
        mechanisms = [question.mechanism for question in questions]
        if len({mechanism.releases_rows for mechanism in mechanisms}) > 1:
            raise ParameterError(
                "some questions would publish rows and others would not; choose mechanisms that "
                "all do"
            )
        _check_asked(mechanisms)
        terms = cls(
            questions=tuple(map(QuestionTerms.from_question, questions)),
            labels=labels,
            guarantee=total_guarantee(questions, labels),
        )
        _check_readable(terms)
        return terms

    @cached_property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of each question."""
        return together([question.outcomes.categories for question in self.questions])

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanism of each question."""
        return tuple(question.mechanism for question in self.questions)

    @cached_property
    def pairs(self) -> tuple[Question, ...]:
        """Each question by its categories and its mechanism."""
        pairs = zip(self.spaces, self.mechanisms, strict=True)
        return tuple(Question(space=space, mechanism=mechanism) for space, mechanism in pairs)

    @property
    def mechanism_names(self) -> str:
        """The names of its mechanisms, each once."""
        return ", ".join(dict.fromkeys(one.name for one in self.mechanisms))

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The names of all outcomes, question by question."""
        return tuple(name for question in self.questions for name in question.names)

    @property
    def missing_names(self) -> tuple[str, ...]:
        """The names of outcomes that may be missing, question by question."""
        return tuple(
            name for question in self.questions for name in question.outcomes.declared.missing
        )

    @property
    def has_pilot(self) -> bool:
        """Whether a pilot was paid for."""
        return any(mechanism.pilot is not None for mechanism in self.mechanisms)

    def covariates_in_words(self, unit: str = "unit") -> str:
        """What is published of the owner's covariates; empty without any."""
        found = self.mechanisms[0].find(NoisyCovariates)
        return "" if found is None else found.in_sentences(unit)

    @property
    def question_names(self) -> tuple[str, ...]:
        """The name of each question; none where there is one, which everyone is asked."""
        return question_names([question.names for question in self.questions])

    @property
    def releases_rows(self) -> bool:
        """Whether user-level rows are published, or aggregates alone."""
        return all(mechanism.releases_rows for mechanism in self.mechanisms)

    def losses(self) -> tuple[ReleaseLoss, ...]:
        """What is lost at worst: all parts are drawn independently, and add up.

        Labels, and every question; or, where each unit is asked one of several, or where all share
        their sums, a loss that bounds that of each.
        """
        of_labels = () if self.labels is None else (self.labels.loss(),)
        if _is_shared(self.mechanisms) and len(self.questions) > 1:
            worst = _largest([(one.epsilon, one.delta) for one in self.questions])
            return (*of_labels, ReleaseLoss(any_loss(worst.epsilon), worst.delta))
        return (*of_labels, *(one.mechanism.loss(one.space) for one in self.pairs))

    def check(self) -> None:
        """Raise a FormatError unless all of it follows from the parameters of the mechanisms."""
        if not self.questions:
            raise FormatError("there is no question")
        try:
            again = Terms.from_questions(self.pairs, self.labels)
        except ParameterError as error:
            raise FormatError(f"the parameters do not fit any known mechanism: {error}") from None
        if again.guarantee != self.guarantee:
            raise FormatError(
                "the stated guarantee does not match the parameters, which cost "
                f"{again.guarantee.statement().budget}"
            )
        for ours, theirs in zip(again.questions, self.questions, strict=True):
            for name in QuestionTerms.__struct_fields__:
                if getattr(ours, name) != getattr(theirs, name):
                    raise FormatError(f"{name!r} is inconsistent")


def total_guarantee(
    questions: Sequence[Question], labels: ClusterResponse | None = None
) -> Guarantee:
    """What the questions of a release cost together, rounded up.

    Neighbours differ in all outcomes of a unit. With rows a unit is asked one question, which is
    public and follows from its id. So its outcomes are in the sums of everyone, which each
    mechanism counts in full, and in the counts, the pilot and the row of that question: what a
    release costs is the largest of what its mechanisms do. So it is of an answer, which has these
    sums and nothing else. Of all else without rows a unit is part of every question, and Σε and Σδ
    are the cost. Where clusters are private, neighbours differ in a unit's
    cluster as well. Given the labels that units were given, all else costs as much as with these as
    public clusters, so that ε₁ and ε₂ add up.
    """
    found = [question.mechanism.guarantee(question.space) for question in questions]
    if _is_shared([question.mechanism for question in questions]):
        found = [_largest([(one.epsilon, one.delta) for one in found])]
    if labels is None:
        return basic_composition(found)
    total = basic_composition([labels.guarantee(), *found])
    return replace(total, neighbours=CLUSTER_AND_OUTCOME)


def _is_shared(mechanisms: Sequence[Mechanism]) -> bool:
    """Whether a unit loses the largest ε of some questions: it is asked one, or all share sums."""
    return all(one.releases_rows or one.is_answer for one in mechanisms)


def _largest(costs: Sequence[tuple[float, float]]) -> Guarantee:
    """The largest ε with the largest δ."""
    epsilons, deltas = zip(*costs, strict=True)
    return Guarantee(epsilon=max(epsilons), delta=max(deltas))


def _check_readable(terms: Terms) -> None:
    """Raise a ParameterError unless terms read back as they are written.

    An integer for a float is written as `10` and read as `10.0`: nobody could read the manifest,
    and its ε would be spent.
    """
    try:
        written = msgspec.json.encode(terms)
        again = msgspec.json.encode(msgspec.json.decode(written, type=Terms))
    except (TypeError, msgspec.ValidationError) as error:
        raise ParameterError(f"a parameter of a mechanism cannot be published: {error}") from None
    if again != written:
        at = next(i for i, pair in enumerate(zip(written, again, strict=False)) if len({*pair}) > 1)
        name = re.findall(rb'"([a-z_]+)":', written[:at])[-1].decode()
        raise ParameterError(f"{name} of a mechanism must be a float, such as 10.0")


def _check_asked(mechanisms: Sequence[Mechanism]) -> None:
    """Raise a ParameterError unless each unit is asked one question, and sums cover all units."""
    asked = [mechanism.asked for mechanism in mechanisms]
    if not mechanisms[0].releases_rows and min(asked) < ASKED_TOTAL:
        raise ParameterError("without rows, all units are part of every question")
    if mechanisms[0].releases_rows and sum(asked) != ASKED_TOTAL:
        raise ParameterError(
            f"each unit is asked one question, so that the numbers asked add up to {ASKED_TOTAL}; "
            f"got {', '.join(map(str, asked))}"
        )
    if len({mechanism.sums for mechanism in mechanisms}) > 1:
        raise ParameterError(
            "sums cover all units and outcomes: give every question the same shares for them"
        )
