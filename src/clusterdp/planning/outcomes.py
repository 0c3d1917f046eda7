"""From declared outcomes to questions, their categories and what is expected of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterdp._text import percent, shortest_decimal
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.outcomes.baseline import baseline_prior, choose_categories, parse_margins
from clusterdp.outcomes.categories import Categories, categories_on, together
from clusterdp.outcomes.declaration import QuestionRequest, check_partition, declared_of
from clusterdp.outcomes.metric import OBSERVED
from clusterdp.planning._partition import (
    Partition,
    asked_shares,
    best_partition,
    most_categories,
    whole_shares,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.outcomes.baseline import JointPrior, Margin
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.spec.request import OutcomeRequest

# What is assumed where nothing is declared.
UNIFORM = (
    "No baseline was given, so all values are assumed equally likely. Predictions can be far off."
)
REMEDY = "Say what you expect with --baseline."
# The share of units that are taken to have an outcome which may be missing, if nobody said more.
_MOST_OBSERVED = 0.9
# A margin that is missed by less is met: in shares, or in standard deviations.
_MET = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionOutcomes:
    """The categories of a question, and what is expected of them.

    Attributes:
        categories: The categories, with the grids of numbers.
        probs: Their expected distribution; axes `[category]`.
        is_declared: Whether anything was declared about it.
        asked: Of how many of `ASKED_TOTAL` units the question is asked.
    """

    categories: Categories
    probs: FloatArray
    is_declared: bool
    asked: int = ASKED_TOTAL


def choose_outcomes(
    request: OutcomeRequest, epsilon: float | None
) -> tuple[tuple[QuestionOutcomes, ...], tuple[str, ...]]:
    """The questions of declared outcomes, and what the owner should know about them.

    Args:
        request: What is declared.
        epsilon: The budget that questions are chosen for; None if it is not decided yet.
    """
    declared, margins = request.declared, dict(request.margins)
    # Where nothing at all is declared, all outcomes are equally likely, which is said as well.
    unsaid = [name for name in declared.missing if margins and name + OBSERVED not in margins]
    observed = {name + OBSERVED: str(_MOST_OBSERVED) for name in unsaid}
    margins |= parse_margins(observed, declared.margin_spaces)
    chosen = _questions(request, margins, epsilon)
    found: list[QuestionOutcomes] = []
    notes: list[str] = []
    for names, asked in zip(chosen.questions, chosen.asked, strict=True):
        own = declared_of(declared, names)
        known = {name: margin for name, margin in margins.items() if name in own.margin_spaces}
        categories, prior = _categories(request, own, known, epsilon)
        found.append(
            QuestionOutcomes(
                categories=categories, probs=prior.probs, is_declared=bool(known), asked=asked
            )
        )
        notes += _missed(prior)
    spaces = together([question.categories for question in found])
    return tuple(
        replace(question, categories=space) for question, space in zip(found, spaces, strict=True)
    ), (*dict.fromkeys(notes), *_partition_notes(chosen), *map(_observed_note, unsaid))


def outcome_options(questions: Sequence[QuestionOutcomes]) -> dict[str, list[str] | None]:
    """The options that fix questions and grids as they were chosen; a plan holds them.

    One question of one outcome needs no name.
    """
    spaces = [question.categories for question in questions]
    grids = [pair for space in spaces for pair in space.record().grids.items()]
    names = [space.declared.names for space in spaces]
    if len(names) == 1:
        texts = [str(QuestionRequest(names[0]))] if len(names[0]) > 1 else []
    else:
        texts = [
            str(QuestionRequest(own, question.asked))
            for own, question in zip(names, questions, strict=True)
        ]
    points = [f"{name}={','.join(map(shortest_decimal, points))}" for name, points in grids]
    return {"question": texts or None, "grids": points or None}


def _observed_note(outcome: str) -> str:
    """What is assumed of an outcome that may be missing, if its baseline does not say it."""
    name = f"{outcome}{OBSERVED}"
    return (
        f"{outcome} is taken to be observed for {_MOST_OBSERVED:.0%} of units, because no baseline "
        f"says so; give what you expect: observed = 0.8 of {outcome} in the experiment file, or "
        f"--baseline {name}=0.8 beside the other baselines"
    )


def _questions(
    request: OutcomeRequest, margins: dict[str, Margin], epsilon: float | None
) -> Partition:
    """The outcomes of each question, and how often it is asked."""
    given, declared = request.questions, request.declared
    if not given:
        return best_partition(declared, margins, epsilon)
    check_partition(given, declared)
    names = tuple(one.names for one in given)
    if all(one.weight is None for one in given):
        return Partition(names, asked_shares(declared, margins, epsilon, names))
    return Partition(names, whole_shares([one.weight or 1.0 for one in given]))


def _partition_notes(found: Partition) -> tuple[str, ...]:
    """What was done, and what it gains."""
    if len(found.questions) == 1:
        return ()
    listed = "; ".join(
        f"{', '.join(names)} ({percent(asked / ASKED_TOTAL)} of units)"
        for names, asked in zip(found.questions, found.asked, strict=True)
    )
    note = (
        "each unit's row answers one question. Which one is public and was drawn by a hash: "
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


def _categories(
    request: OutcomeRequest,
    declared: DeclaredOutcomes,
    margins: dict[str, Margin],
    epsilon: float | None,
) -> tuple[Categories, JointPrior]:
    """The categories of a question whose outcomes are expected to have some margins."""
    if not request.grids:
        return choose_categories(declared, margins, most_categories(epsilon))
    grids = {name: points for name, points in request.grids.items() if name in declared.names}
    categories = categories_on(declared, grids)
    return categories, baseline_prior(categories, margins)


def _missed(prior: JointPrior) -> tuple[str, ...]:
    """Notes about margins that contradict each other."""
    return tuple(
        f"the baseline of {name!r} contradicts the constraints or the other baselines; the "
        "nearest distribution that keeps the constraints is used"
        for name, miss in prior.misses.items()
        if miss > _MET
    )
