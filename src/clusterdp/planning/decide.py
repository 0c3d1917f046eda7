"""What follows from a request: its questions, and with the cells of a table its mechanisms.

Everything here is decided once. Declared outcomes become questions, with their categories and what
is expected of them. A `Draft` is a request whose questions and grids are chosen, which is all that
is needed to open a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from clusterdp._lists import in_parts
from clusterdp._text import shortest_decimal, three_digits
from clusterdp.cells.assignment import parse_arm_shares
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.baseline import FittedOutcomes, parse_margins, place_grids
from clusterdp.outcomes.categories import categories_on, together
from clusterdp.outcomes.declaration import QuestionRequest, check_partition, declared_of
from clusterdp.outcomes.metric import OBSERVED
from clusterdp.planning._partition import (
    Partition,
    asked_shares,
    best_partition,
    most_categories,
    whole_shares,
)
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.precision.expected import Scenario, histogram_baseline
from clusterdp.precision.visible import shown_metrics
from clusterdp.privacy.composition import split_budget
from clusterdp.rows.column_types import Notation
from clusterdp.spec.columns import Columns, question_names
from clusterdp.spec.spec import QuestionSpec, ReleaseSpec
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.baseline import JointPrior, Margin
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.spec.request import BudgetRequest, OutcomeRequest, Request


# What is assumed where nothing is declared.
UNIFORM = (
    "No baseline was given, so all values are assumed equally likely. Predictions can be far off."
)
REMEDY = "Declare what you expect: --baseline."
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
        rounding: The variance that rounding to grids adds to each metric.
        declared: The outcomes whose baselines were declared, and whether they were observed, by
            names of metrics.
        asked: Of how many of `ASKED_TOTAL` units the question is asked.
    """

    categories: Categories
    probs: FloatArray
    rounding: tuple[float, ...]
    declared: frozenset[str]
    asked: int = ASKED_TOTAL

    @property
    def is_declared(self) -> bool:
        """Whether anything was declared about it."""
        return bool(self.declared)


def choose_outcomes(
    request: OutcomeRequest, epsilon: float | None, unit: str = "unit"
) -> tuple[tuple[QuestionOutcomes, ...], tuple[str, ...]]:
    """The questions of declared outcomes, and what the owner should know about them.

    Args:
        request: What is declared.
        epsilon: The budget that questions are chosen for; None if it is not decided yet.
        unit: What a unit is called.
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
                categories=categories,
                probs=prior.probs,
                rounding=tuple(prior.rounding.tolist()),
                declared=frozenset(known),
                asked=asked,
            )
        )
        notes += [
            f"the baseline of {name!r} contradicts the constraints or the other baselines; the "
            "nearest distribution that keeps the constraints is used"
            for name, miss in prior.misses.items()
            if miss > _MET
        ]
    spaces = together([question.categories for question in found])
    return tuple(
        replace(question, categories=space) for question, space in zip(found, spaces, strict=True)
    ), (*dict.fromkeys(notes), *_partition_notes(chosen, unit), *map(_observed_note, unsaid))


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
        f"{outcome} is assumed to be observed for {_MOST_OBSERVED:.0%} of units. Give the share "
        f"that you expect: baseline={{'{name}': 0.8}} (--baseline {name}=0.8)."
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


def _partition_notes(found: Partition, unit: str) -> tuple[str, ...]:
    """What several questions gain; those that were given gain nothing that is known."""
    if len(found.questions) == 1 or found.saving == 1:
        return ()
    shared = "outcomes" if found.saving > 1 else "releases of one outcome each"
    noise = f"rows would have {found.saving:.2g} times the noise"
    return (f"Each {unit} answers one question. If {shared} shared ε, {noise}.",)


def asked_in_words(unit: str, asked: Iterable[tuple[Iterable[str], str]]) -> str:
    """Which question a unit answers: the outcomes of each, and how many are asked it."""
    listed = ", ".join(f"{'+'.join(names)} {share}" for names, share in asked)
    return f"each {unit}'s row answers one, chosen by a public hash of its id: {listed}"


def _categories(
    request: OutcomeRequest,
    declared: DeclaredOutcomes,
    margins: dict[str, Margin],
    epsilon: float | None,
) -> tuple[Categories, JointPrior]:
    """The categories of a question whose outcomes are expected to have some margins."""
    fitted = FittedOutcomes(declared, margins)
    if request.grids:
        grids = {name: points for name, points in request.grids.items() if name in declared.names}
        categories = categories_on(declared, grids)
    else:
        categories = place_grids(declared, fitted.densities, most_categories(epsilon))
    return categories, fitted.prior_of(categories)


@dataclass(frozen=True, kw_only=True, eq=False)
class Draft:
    """A request whose questions are chosen: all that is decided before a table is read.

    Attributes:
        request: What was asked for.
        questions: The outcomes of each question, with their grids.
        notes: What the owner should know about them.
    """

    request: Request
    questions: tuple[QuestionOutcomes, ...]
    notes: tuple[str, ...]

    @classmethod
    def from_request(cls, request: Request) -> Draft:
        """The questions of a request, chosen for what its clusters leave of the budget."""
        request.options.require("outcomes")
        assert request.outcomes is not None  # noqa: S101 - they were given
        epsilon = request.budget.epsilon
        if epsilon is not None:
            epsilon = request.clusters.left_for_outcomes(epsilon)
        questions, notes = choose_outcomes(request.outcomes, epsilon, request.provenance.unit)
        return cls(request=request, questions=questions, notes=notes)

    @cached_property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of the outcomes, question by question."""
        return tuple(question.categories for question in self.questions)

    @cached_property
    def columns(self) -> Columns:
        """Which column plays which part; a plan may do without ids."""
        options, declared = self.request.options, [space.declared for space in self.spaces]
        options.require("arm")
        return Columns(
            unit=options.unit or "",
            arm=options.arm or "",
            cluster=options.cluster,
            outcomes=tuple(name for one in declared for name in one.names),
            missing=tuple(name for one in declared for name in one.missing),
            kept=self.request.kept,
            breakdowns=self.request.breakdowns,
            randomization_unit=options.randomization_unit,
            folds=self.request.folds,
            question_names=question_names([one.names for one in declared]),
            private_cluster=self.request.clusters.response is not None,
            covariates=tuple(dict.fromkeys(one.column for one in self.request.budget.covariates)),
        )

    @cached_property
    def notation(self) -> Notation:
        """How outcomes that are text have numbers."""
        options = self.request.options
        return Notation(decimal=options.decimal or ".", thousands=options.thousands)

    def to_options(self) -> dict[str, Any]:
        """The options with questions, grids and labels fixed, as every run must have them."""
        fixed: dict[str, Any] = outcome_options(self.questions)
        if self.request.options.labels_from is not None:
            response = self.request.clusters.response
            fixed["labels"] = None if response is None else list(response.labels)
            fixed["labels_from"] = None
        every = self.request.options.to_dict() | fixed
        return {name: value for name, value in every.items() if value is not None}

    @property
    def n_sharing(self) -> int:
        """How many questions share ε: all of them where no rows are published, else none."""
        without_rows = (self.request.budget.mechanism or "").startswith("noisy-")
        return len(self.questions) if without_rows else 1

    def budgets(self, epsilon: float | None = None) -> tuple[BudgetRequest, ...]:
        """What is wanted of each question; `epsilon` takes the place of the one that was given.

        A unit is asked one question, which has all of ε. Without rows everyone is in every one, and
        they share it.
        """
        given = self.request.budget
        whole = given.epsilon if epsilon is None else epsilon
        if whole is not None:
            whole = self.request.clusters.left_for_outcomes(whole)
        n_sharing, several = self.n_sharing, len(self.questions) > 1
        shared = split_budget(whole, [1 / n_sharing] * n_sharing)
        return tuple(
            replace(
                given,
                mechanism="optimal" if several and given.mechanism is None else given.mechanism,
                epsilon=shared[place % n_sharing],
                prior=prior,
                pilot=pilot,
                asked=question.asked if n_sharing == 1 else ASKED_TOTAL,
            )
            for place, (question, prior, pilot) in enumerate(
                zip(self.questions, self._priors, self._pilots, strict=True)
            )
        )

    @property
    def _pilots(self) -> list[float | None]:
        """The share of ε for a pilot, by question.

        Of several questions, those without a declared baseline get it, if there are any. A binary
        one never does: its channel is the same for all priors.
        """
        pilot = self.request.budget.pilot
        if len(self.questions) == 1:
            return [pilot]
        large = [space.n_categories > 2 for space in self.spaces]
        unknown = [
            many and not question.is_declared
            for many, question in zip(large, self.questions, strict=True)
        ]
        return [pilot if one else None for one in (unknown if any(unknown) else large)]

    @cached_property
    def _priors(self) -> list[tuple[float, ...] | None]:
        """The prior that was given, question by question."""
        prior = self.request.budget.prior
        if prior is None:
            return [None] * len(self.spaces)
        return list(in_parts(prior, [space.n_categories for space in self.spaces]))

    def with_design(self, layout: Layout) -> Layout:
        """Cells with what was declared of how arms were assigned."""
        options = self.request.options
        if options.group_correlation is not None:
            if layout.assigned is None:
                raise ParameterError(
                    "group_correlation (--group-correlation) needs randomization units: give "
                    "randomization_unit=... (--randomization-unit)"
                )
            if not 0 <= options.group_correlation <= 1:
                raise ParameterError(
                    f"group_correlation must lie in [0, 1], got {options.group_correlation}"
                )
            assigned = msgspec.structs.replace(
                layout.assigned, correlation=options.group_correlation
            )
            layout = replace(layout, assigned=assigned)
        if options.arm_shares is None:
            return layout
        return replace(layout, arm_shares=parse_arm_shares(options.arm_shares, layout.arms))

    def scenarios(self, layout: Layout) -> tuple[Scenario, ...]:
        """All that a plan is made from, question by question.

        Outcomes are expected as the baseline or the prior is.
        """
        options, compared = self.request.options, layout.compared()
        declared_share = options.within_share
        within = self.request.clusters.within_share(
            1.0 if declared_share is None else declared_share
        )
        found = []
        for question, prior in zip(self.questions, self._priors, strict=True):
            probs, declared = question.probs.tolist(), question.is_declared
            if options.baseline is None and prior is not None:
                probs, declared = list(prior), True
            expected = histogram_baseline(
                question.categories, probs, within, compared.sizes.sum(axis=1), question.rounding
            )
            expected = replace(expected, is_declared=declared or declared_share is not None)
            found.append(Scenario(compared, question.categories, expected))
        return tuple(found)

    def target(self) -> tuple[int, int, float]:
        """The question and the metric in it that `mde` is about, and the effect to find."""
        self.request.options.require("mde")
        assert self.request.target is not None  # noqa: S101 - it was given
        metric, size = self.request.target
        every = [list(map(str, space.declared.metrics)) for space in self.spaces]
        wanted = self.request.primary if metric is None else str(metric)
        for question, metrics in enumerate(every):
            if wanted in metrics:
                return question, metrics.index(wanted), size
        listed = ", ".join(repr(name) for metrics in every for name in metrics)
        raise ParameterError(f"there is no metric {wanted!r}; the metrics are {listed}")


def assumed_in_words(questions: Iterable[tuple[QuestionOutcomes, Scenario]]) -> str:
    """What is assumed of the outcomes of some questions, and why."""
    baselines: list[str] = []
    implied: list[str] = []
    unknown: list[str] = []
    for question, scenario in questions:
        space = question.categories
        if not scenario.baseline.is_declared:
            unknown += space.declared.names
            continue
        for metric, (mean, std) in zip(shown_metrics(space), scenario.moments(), strict=True):
            shown = (
                metric.level(mean)
                if metric.is_share
                else f"mean {three_digits(mean)} (sd {three_digits(std)})"
            )
            # A prior gives every combination its share.
            given = not question.is_declared or metric.name in question.declared
            (baselines if given else implied).append(f"{metric.name} {shown}")
    if not baselines and not implied:
        return f"{UNIFORM} {REMEDY}"
    parts = [f"your baselines: {', '.join(baselines)}"] if baselines else []
    parts += [f"Implied: {', '.join(implied)}"] if implied else []
    said = ". ".join(parts)
    if unknown:
        said += (
            f". No baseline of {', '.join(unknown)} was given, so all values are assumed equally "
            f"likely. {REMEDY}"
        )
    return said


def decide(
    draft: Draft, layout: Layout, mechanisms: Sequence[Mechanism] | None = None
) -> ReleaseSpec:
    """What is published of the questions of a draft.

    Args:
        draft: The questions.
        layout: The cells of the table.
        mechanisms: What is published of each; by default the best that was allowed.
    """
    scenarios = draft.scenarios(layout)
    if mechanisms is None:
        mechanisms = plan_mechanisms(draft.budgets(), scenarios).mechanisms
    questions = [
        QuestionSpec(
            space=space,
            mechanism=mechanism,
            expected=tuple(map(tuple, expected.kinds[:, 0].tolist()))
            if (expected := scenario.baseline).is_declared
            else None,
            rounding=tuple(scenario.rounding.tolist()),
        )
        for space, scenario, mechanism in zip(draft.spaces, scenarios, mechanisms, strict=True)
    ]
    for mechanism in mechanisms:
        held = mechanism.find(NoisyCovariates)
        if held and not {one.column for one in held.covariates} <= {*draft.columns.covariates}:
            raise ParameterError(
                "a mechanism made by hand has no covariates; choose one by name, and give "
                "covariate=... (--covariate)"
            )
    request = draft.request
    return ReleaseSpec.from_questions(questions, request.clusters, request.provenance)
