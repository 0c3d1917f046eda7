"""What follows from a request: its questions, and with the cells of a table its mechanisms.

Everything here is decided once. A `Draft` is a request whose questions and grids are chosen, which
is all that is needed to open a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from clusterdp._lists import in_parts
from clusterdp.cells.assignment import parse_arm_shares
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.outcomes import (
    REMEDY,
    UNIFORM,
    QuestionOutcomes,
    choose_outcomes,
    outcome_options,
)
from clusterdp.precision.expected import Scenario, histogram_baseline
from clusterdp.precision.visible import shown_metrics
from clusterdp.privacy.composition import split_budget
from clusterdp.rows.column_types import Notation
from clusterdp.spec.columns import Columns, question_names
from clusterdp.spec.parse import to_options
from clusterdp.spec.spec import QuestionSpec, ReleaseSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.spec.request import BudgetRequest, Request


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
        questions, notes = choose_outcomes(request.outcomes, epsilon)
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
        every = to_options(self.request) | fixed
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
                question.categories, probs, within, compared.sizes.sum(axis=1)
            )
            expected = replace(expected, is_declared=declared or declared_share is not None)
            found.append(Scenario(compared, question.categories, expected))
        return tuple(found)

    def assumption(self, scenarios: tuple[Scenario, ...]) -> str:
        """What a plan or a prediction assumes of outcomes, and why."""
        return "; ".join(map(assumed_of, self.spaces, scenarios))

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


def assumed_of(space: Categories, scenario: Scenario) -> str:
    """What is assumed of the outcomes of a question, and why."""
    if not scenario.baseline.is_declared:
        return f"{UNIFORM} {REMEDY}"
    expected = [
        f"{metric.name} {metric.level(mean)}"
        if metric.is_share
        else f"{metric.name} mean {mean:.3g}, sd {std:.3g}"
        for metric, (mean, std) in zip(shown_metrics(space), scenario.moments(), strict=True)
    ]
    return f"your baselines: {', '.join(expected)}"


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
        )
        for space, scenario, mechanism in zip(draft.spaces, scenarios, mechanisms, strict=True)
    ]
    request = draft.request
    return ReleaseSpec.from_questions(questions, request.clusters, request.provenance)
