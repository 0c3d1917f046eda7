"""From the texts that declare outcomes to their categories and what is expected of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from clusterdp._lists import parse_numbers
from clusterdp._text import percent, shortest_decimal
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.categories import Categories, CategoriesRecord, together
from clusterdp.outcomes.chosen_grids import choose_categories, reference_prior
from clusterdp.outcomes.declaration import (
    QuestionRequest,
    check_partition,
    declare,
    declared_of,
    parse_question,
)
from clusterdp.outcomes.metric import OBSERVED
from clusterdp.outcomes.reference import parse_margins
from clusterdp.planning.questions import (
    Partition,
    asked_of,
    asked_shares,
    best_partition,
    most_categories,
)
from clusterdp.planning.request import MOST_OBSERVED, observed_assumed
from clusterdp.rows.column_types import PLAIN, Notation

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.reference import JointPrior, Margin

# A margin that is missed by less is met: in shares, or in standard deviations.
_MET = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What an owner declares about outcomes, as texts; every part is as options hold it.

    Attributes:
        outcomes: Such as `visit=0,1`.
        implies: Such as `conversion -> visit`.
        metric: Such as `rounds>=10`.
        weight: Such as `rounds=2`.
        reference: Such as `visit=0.15`.
        grids: Such as `rounds=0,1,5,493`; empty if the grids of numbers are to be placed.
        missing: The names of outcomes that may be missing.
        question: Such as `visit,conversion` or, with how often it is asked, `visit,conversion=2`;
            empty if outcomes are to be put into questions.
        epsilon: The budget that questions are chosen for; None if there is none yet.
        notation: How outcomes that are text have numbers.
    """

    outcomes: tuple[str, ...]
    implies: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    question: tuple[str, ...] = ()
    epsilon: float | None = None
    notation: Notation = PLAIN

    @property
    def declared(self) -> DeclaredOutcomes:
        """The declared outcomes."""
        return declare(
            self.outcomes,
            implications=self.implies,
            metrics=self.metric,
            weights=self.weight,
            missing=self.missing,
        )

    def margins(self, declared: DeclaredOutcomes) -> dict[str, Margin]:
        """What is expected of each outcome, by name."""
        texts = self.reference
        if len(texts) == 1 and "=" not in texts[0] and len(declared.names) == 1:
            return parse_margins({declared.names[0]: texts[0]}, declared.spaces)
        named = [text.partition("=")[0].strip() for text in texts]
        repeated = [name for name in named if named.count(name) > 1]
        if repeated:
            raise ParameterError(f"reference gives {repeated[0]!r} twice; give it once")
        return parse_margins(texts, declared.margin_spaces)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionOutcomes:
    """The categories of a question, and what is expected of them.

    Attributes:
        categories: The categories, with the grids of numbers.
        probs: Their expected distribution; axes `[category]`.
        is_declared: Whether anything was declared about it.
        asked: Of how many of `ASKED_TOTAL` units the question is asked.
        notes: What the owner should know about it.
    """

    categories: Categories
    probs: FloatArray
    is_declared: bool
    asked: int = ASKED_TOTAL
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenOutcomes:
    """The questions of a release.

    Attributes:
        questions: The outcomes of each question.
        notes: What the owner should know about them.
    """

    questions: tuple[QuestionOutcomes, ...]
    notes: tuple[str, ...] = ()

    @property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of each question."""
        return tuple(question.categories for question in self.questions)

    @property
    def grid_texts(self) -> list[str]:
        """The grids as a plan holds them."""
        grids = [pair for space in self.spaces for pair in space.record().grids.items()]
        return [f"{name}={','.join(map(shortest_decimal, points))}" for name, points in grids]

    @property
    def question_texts(self) -> list[str]:
        """The questions as a plan holds them; none of one outcome."""
        names = [one.declared.names for one in self.spaces]
        if len(names) == 1:
            return [str(QuestionRequest(names[0]))] if len(names[0]) > 1 else []
        asked = [one.asked for one in self.questions]
        return [str(QuestionRequest(*one)) for one in zip(names, asked, strict=True)]


@lru_cache(maxsize=16)
def choose_outcomes(declaration: Declaration) -> ChosenOutcomes:
    """The categories of declared outcomes, computed once for each declaration."""
    declared = declaration.declared
    margins = declaration.margins(declared)
    # Where nothing at all is declared, all outcomes are equally likely, which is said as well.
    unsaid = [name for name in declared.missing if margins and name + OBSERVED not in margins]
    observed = {name + OBSERVED: str(MOST_OBSERVED) for name in unsaid}
    margins |= parse_margins(observed, declared.margin_spaces)
    chosen = _questions(declaration, declared, margins)
    notes = (*_partition_notes(chosen), *map(observed_assumed, unsaid))
    found = []
    for names, asked in zip(chosen.questions, chosen.asked, strict=True):
        own = declared_of(declared, names)
        known = {name: margin for name, margin in margins.items() if name in own.margin_spaces}
        found.append(_expected(declaration, own, known, asked))
    of_questions = dict.fromkeys(note for question in found for note in question.notes)
    spaces = together([one.categories for one in found])
    questions = (replace(one, categories=space) for one, space in zip(found, spaces, strict=True))
    return ChosenOutcomes(questions=tuple(questions), notes=(*of_questions, *notes))


def _questions(
    declaration: Declaration, declared: DeclaredOutcomes, margins: dict[str, Margin]
) -> Partition:
    """The outcomes of each question, and how often it is asked."""
    epsilon = declaration.epsilon
    if not declaration.question:
        return best_partition(declared, margins, epsilon)
    given = [parse_question(text) for text in declaration.question]
    check_partition(given, declared)
    names = tuple(one.names for one in given)
    if all(one.weight is None for one in given):
        return Partition(names, asked_shares(declared, margins, epsilon, names))
    return Partition(names, asked_of([one.weight or 1.0 for one in given]))


def _partition_notes(found: Partition) -> tuple[str, ...]:
    """What was done, and what it gains."""
    if len(found.questions) == 1:
        return ()
    listed = "; ".join(
        f"{', '.join(names)} ({percent(asked / ASKED_TOTAL)} of units)"
        for names, asked in zip(found.questions, found.asked, strict=True)
    )
    note = (
        "each person's row answers one question. Which one is public and was drawn by a hash: "
        f"{listed}"
    )
    if found.saving > 1:
        note += f". If outcomes shared epsilon, rows would have {found.saving:.2g} times the noise"
    elif found.saving < 1:
        note += (
            f". At such an epsilon, releases of one outcome each that share it would have "
            f"{found.saving:.2g} times the noise in rows"
        )
    return (note,)


def _expected(
    declaration: Declaration, declared: DeclaredOutcomes, margins: dict[str, Margin], asked: int
) -> QuestionOutcomes:
    """A question whose outcomes are expected to have some margins."""
    if declaration.grids:
        categories = _with_grids(declared, declaration.grids)
        prior = reference_prior(categories, margins)
    else:
        most = most_categories(declaration.epsilon)
        categories, prior = choose_categories(declared, margins, most)
    return QuestionOutcomes(
        categories=categories,
        probs=prior.probs,
        is_declared=bool(margins),
        asked=asked,
        notes=_missed(prior),
    )


def _with_grids(declared: DeclaredOutcomes, texts: tuple[str, ...]) -> Categories:
    """Categories with the grids that a plan decided."""
    named = (text.partition("=") for text in texts)
    grids = {name: parse_numbers(points) for name, _, points in named if name in declared.names}
    return CategoriesRecord(declared=declared.record(), grids=grids).categories()


def _missed(prior: JointPrior) -> tuple[str, ...]:
    """Notes about margins that contradict each other."""
    return tuple(
        f"the reference of {name!r} contradicts the implications or the other references; the "
        "nearest distribution that keeps the implications is used"
        for name, miss in prior.misses.items()
        if miss > _MET
    )
