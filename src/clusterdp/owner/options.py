"""Options, and what follows from them: outcomes, columns, what a plan is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from clusterdp._lists import in_parts, parse_names, parse_numbers
from clusterdp.cells.assignment import parse_arm_shares
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.grammar import parse_metric
from clusterdp.outcomes.published_names import parse_aggregates, question_names
from clusterdp.owner.clusters import declared_labels, left_for_outcomes, within_given
from clusterdp.owner.declaring import Declaration, choose_outcomes
from clusterdp.owner.fields import DECLARATION, REQUESTED, OptionList
from clusterdp.planning.choose import Request
from clusterdp.planning.request import Scenario, assumed_of, histogram_reference
from clusterdp.privacy.accounting import checked_delta, checked_epsilon
from clusterdp.privacy.composition import split_budget
from clusterdp.published.provenance import LONGEST, Provenance
from clusterdp.rows.column_types import Notation
from clusterdp.rows.columns import MOST_FOLDS, Columns

if TYPE_CHECKING:
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.categories import Categories
    from clusterdp.owner.declaring import ChosenOutcomes
    from clusterdp.releasing.labelling import DeclaredLabels

# Of where a release comes from, what readers ask for first.
_ASKED_FOR = ("title", "description", "contact", "licence")


class Options(OptionList, frozen=True, kw_only=True, omit_defaults=True):
    """Options with what follows from them."""

    @property
    def declaration(self) -> Declaration:
        """What is declared about the outcomes."""
        self.require("outcomes")
        if self.reference == []:
            raise ParameterError("reference is empty; leave it out, or say what you expect")
        texts = {name: tuple(getattr(self, name) or ()) for name in DECLARATION}
        epsilon = self.for_outcomes(self.epsilon)
        return Declaration(**texts, epsilon=epsilon, notation=self.notation)

    @property
    def notation(self) -> Notation:
        """How outcomes that are text have numbers."""
        return Notation(decimal=self.decimal or ".", thousands=self.thousands)

    @property
    def chosen(self) -> ChosenOutcomes:
        """The categories of the outcomes and what is expected of them, computed once."""
        return choose_outcomes(self.declaration)

    @property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of the outcomes, question by question."""
        return self.chosen.spaces

    def with_grids(self) -> Options:
        """The same options with questions, grids and labels fixed, as every run must have them."""
        chosen = self.chosen
        return msgspec.structs.replace(
            self.with_labels(),
            question=chosen.question_texts or None,
            grids=chosen.grid_texts or None,
        )

    def with_labels(self) -> Options:
        """The same options with the labels of private clusters listed, if a file has them."""
        declared = self.private_labels
        if declared is None or self.labels_from is None:
            return self
        listed = list(declared.response.labels)
        return msgspec.structs.replace(self, labels=listed, labels_from=None)

    @property
    def private_labels(self) -> DeclaredLabels | None:
        """What is declared of private clusters; None if clusters are public."""
        return declared_labels(self)

    def for_outcomes(self, epsilon: float | None) -> float | None:
        """What private clusters leave of a budget for outcomes."""
        declared = self.private_labels
        if declared is None or epsilon is None:
            return epsilon
        return left_for_outcomes(epsilon, declared)

    @property
    def target(self) -> tuple[int, int, float]:
        """The question and the metric in it that `mde` is about, and the effect to find."""
        self.require("mde")
        name, _, effect = str(self.mde).rpartition("=")
        try:
            size = float(effect)
        except ValueError:
            raise ParameterError(
                f"mde reads METRIC=EFFECT (visit=0.01), got {self.mde!r}"
            ) from None
        declared = self.declaration.declared
        return *self.metric_index(name or declared.names[0]), size

    def metric_index(self, name: str) -> tuple[int, int]:
        """The question of a metric, and its place there, by its name."""
        questions = [list(map(str, space.declared.metrics)) for space in self.spaces]
        wanted = str(parse_metric(name))
        for question, metrics in enumerate(questions):
            if wanted in metrics:
                return question, metrics.index(wanted)
        listed = ", ".join(repr(metric) for metrics in questions for metric in metrics)
        raise ParameterError(f"there is no metric {name!r}; the metrics are {listed}")

    @property
    def columns(self) -> Columns:
        """Which column plays which part; a plan may do without ids."""
        self.require("arm", "outcomes")
        return Columns(
            unit=self.unit or "",
            arm=self.arm or "",
            cluster=self.cluster,
            outcomes=tuple(name for space in self.spaces for name in space.declared.names),
            missing=tuple(name for space in self.spaces for name in space.declared.missing),
            kept=self.kept,
            breakdowns=self.breakdowns,
            assigned_by=self.assigned_by,
            folds=self.n_folds,
            question_names=question_names([space.declared.names for space in self.spaces]),
            private_cluster=self.private_cluster is not None,
        )

    def with_design(self, layout: Layout) -> Layout:
        """Cells with what was declared of how arms were assigned."""
        if self.group_correlation is not None:
            if layout.assigned is None:
                raise ParameterError(
                    "group_correlation (--group-correlation) is about groups that were assigned as "
                    "a whole, and there are none: give assigned_by=... (--assigned-by)"
                )
            if not 0 <= self.group_correlation <= 1:
                raise ParameterError(
                    f"group_correlation must lie in [0, 1], got {self.group_correlation}"
                )
            assigned = msgspec.structs.replace(layout.assigned, correlation=self.group_correlation)
            layout = replace(layout, assigned=assigned)
        if self.arm_shares is None:
            return layout
        if self.assignment is not None:
            raise ParameterError(
                "assignment declares the probabilities of arms: leave out arm_shares (--arm-shares)"
            )
        return replace(layout, arm_shares=parse_arm_shares(self.arm_shares, layout.arms))

    @property
    def kept(self) -> tuple[str, ...]:
        """The public columns that are published as they are."""
        names = parse_names(self.keep)
        if len(set(names)) < len(names):
            raise ParameterError(f"keep names a column twice, got {self.keep!r}; name it once")
        return names

    @property
    def provenance(self) -> Provenance:
        """Where the release comes from, as far as the owner says it."""
        return Provenance(**{name: getattr(self, name) for name in LONGEST})

    @property
    def unsaid(self) -> list[str]:
        """What readers ask for first of where a release comes from, and nobody said."""
        return [name for name in _ASKED_FOR if getattr(self, name) is None]

    @property
    def breakdowns(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each breakdown."""
        return tuple(map(parse_names, self.breakdown or ()))

    @property
    def aggregates(self) -> dict[str, str]:
        """How several rows of a unit become one, by outcome; empty if each unit has one."""
        return parse_aggregates(self.aggregate or (), self.declaration.declared.names)

    @property
    def n_folds(self) -> int:
        """How many folds units are put in."""
        if self.folds is not None and not 1 <= self.folds <= MOST_FOLDS:
            raise ParameterError(
                f"folds must be 1 to {MOST_FOLDS}, got {self.folds}; 2 are enough to choose in one "
                "and estimate in the other"
            )
        return 2 if self.folds is None else self.folds

    def requests(self, epsilon: float | None = None) -> tuple[Request, ...]:
        """What is wanted of each question; `epsilon` takes the place of the one that was given.

        A unit is asked one question, which has all of ε. Without rows everyone is in every one, and
        they share it.
        """
        given = {name: getattr(self, name) for name in REQUESTED}
        given |= {"purpose": self.purpose, "delta": checked_delta(self.delta or 0.0)}
        questions = self.chosen.questions
        if len(questions) > 1 and self.mechanism is None:
            given["mechanism"] = "optimal"
        whole = self.epsilon if epsilon is None else epsilon
        if whole is not None:
            whole = self.for_outcomes(checked_epsilon(whole))
        budgets = split_budget(whole, [1 / self.n_sharing] * self.n_sharing)
        return tuple(
            Request(
                **given
                | {
                    "epsilon": budgets[place % self.n_sharing],
                    "prior": prior,
                    "look": look,
                    "asked": question.asked if self.n_sharing == 1 else ASKED_TOTAL,
                }
            )
            for place, (question, prior, look) in enumerate(
                zip(questions, self._priors(), self._looks(), strict=True)
            )
        )

    @property
    def n_sharing(self) -> int:
        """How many questions share ε: all of them where no rows are published, else none."""
        without_rows = (self.mechanism or "").startswith("noisy-")
        return len(self.chosen.questions) if without_rows else 1

    def _looks(self) -> list[float | None]:
        """The share of ε for a look, by question.

        Of several questions it is of those that nothing is declared of, if there are any, and of no
        binary one: its channel is the same for all priors.
        """
        questions = self.chosen.questions
        if len(questions) == 1:
            return [self.look]
        large = [one.categories.n_categories > 2 for one in questions]
        unknown = [many and not one.is_declared for many, one in zip(large, questions, strict=True)]
        return [self.look if one else None for one in (unknown if any(unknown) else large)]

    def _priors(self) -> list[tuple[float, ...] | None]:
        """The prior that was given, question by question."""
        if self.prior is None:
            return [None] * len(self.spaces)
        sizes = [space.n_categories for space in self.spaces]
        return list(in_parts(parse_numbers(self.prior), sizes))

    def scenarios(self, layout: Layout) -> tuple[Scenario, ...]:
        """All that a plan is made from, question by question.

        Outcomes are expected as the reference or the prior is.
        """
        within = 1.0 if self.within_share is None else self.within_share
        if self.within_share is not None and self.cluster is None:
            raise ParameterError(
                "within_share (--within-share) is about clusters, and there are none: give "
                "cluster=... (--cluster), or leave it out"
            )
        compared = layout.compared()
        if (labels := self.private_labels) is not None:
            within = within_given(within, labels.response)
        found = []
        for question, prior in zip(self.chosen.questions, self._priors(), strict=True):
            space, probs, declared = (
                question.categories,
                question.probs.tolist(),
                question.is_declared,
            )
            if self.reference is None and prior is not None:
                probs, declared = list(prior), True
            expected = histogram_reference(space, probs, within, compared.sizes.sum(axis=1))
            known = declared or self.within_share is not None
            expected = replace(expected, is_declared=known)
            found.append(Scenario(compared, space, expected))
        return tuple(found)

    def assumption(self, layout: Layout) -> str:
        """What a plan or a prediction assumes of outcomes, and why."""
        return "; ".join(map(assumed_of, self.spaces, self.scenarios(layout)))
