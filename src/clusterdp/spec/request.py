"""What an owner asked for, parsed once: code with a `Request` never sees the texts it came from.

Options (`fields.py`) are flat and typed, and are what plans, files and ledgers hold. A request has
them, and next to them every value that a text stands for. What needs the table, or has to be
chosen, is not here: `planning/decide.py` makes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.declaration import QuestionRequest
from clusterdp.privacy.accounting import checked_epsilon
from clusterdp.spec.fields import SUM_SHARES
from clusterdp.spec.purpose import parse_purpose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp.outcomes.baseline import Margin
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.metric import Metric
    from clusterdp.spec.clusters import Clusters
    from clusterdp.spec.fields import Options
    from clusterdp.spec.provenance import Provenance
    from clusterdp.statistics.covariates import Covariate


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRequest:
    """What is declared of outcomes.

    Attributes:
        declared: The outcomes, with constraints, metrics and weights.
        margins: What is expected of each, by name.
        questions: Which are asked together; empty if that is left open.
        grids: The points of each number, by name; empty if they are to be placed.
    """

    declared: DeclaredOutcomes
    margins: Mapping[str, Margin] = field(default_factory=dict)
    questions: tuple[QuestionRequest, ...] = ()
    grids: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """A mechanism by name, with the parameters its user gave; of a release, or of one question.

    Attributes:
        mechanism: A name of `MECHANISM_NAMES`, or None for the best that releases rows.
        epsilon: ε of the whole release.
        delta: δ of the whole release.
        noise_scale: σ.
        prior_floor: γ.
        resample_prob: λ.
        counts_share: The share of ε for noisy counts that the optimal channel's priors are learned
            from.
        pilot: The share of ε for a pilot.
        totals_share: The share of ε for noisy totals of arms.
        sums_share: The share of ε for noisy sums of every cell.
        breakdown_share: The share of ε for noisy totals of groups, of all breakdowns together.
        prior: The public prior that an optimal channel is designed for.
        optimize_for: What it is for, see `parse_purpose`; None for all purposes at once.
        asked: Of how many of `ASKED_TOTAL` units the question is asked.
        covariates: The owner's covariates, of the outcomes of all questions.
        covariate_share: The share of ε for their products with outcomes.
    """

    mechanism: str | None = None
    epsilon: float | None = None
    delta: float = 0.0
    noise_scale: float | None = None
    prior_floor: float | None = None
    resample_prob: float | None = None
    counts_share: float | None = None
    pilot: float | None = None
    totals_share: float | None = None
    sums_share: float | None = None
    breakdown_share: float | None = None
    prior: tuple[float, ...] | None = None
    optimize_for: str | None = None
    asked: int = ASKED_TOTAL
    covariates: tuple[Covariate, ...] = ()
    covariate_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise_scale", "prior_floor", "resample_prob"):
            given = getattr(self, name)
            if given is not None and not 0 < given < math.inf:
                raise ParameterError(f"{name} must be a finite number above 0, got {given}")
        if self.epsilon is not None:
            checked_epsilon(self.epsilon)
        for name in ("pilot", "counts_share", "covariate_share", *SUM_SHARES):
            share = getattr(self, name)
            if share is not None and not 0 <= share < 1:
                raise ParameterError(
                    f"{name} is a share of epsilon, and must be at least 0 and below 1, got {share}"
                )
        parse_purpose(self.optimize_for)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for.

    Attributes:
        options: Every option that was given, as plans and ledgers hold them.
        outcomes: What is declared of outcomes; None if nothing was, as when a release is resumed.
        clusters: Whether clusters are public or private, and what is declared of them.
        budget: The budget and the mechanism, of all questions together.
        target: The effect that a budget is looked for, as `mde` has it: a metric, or None for the
            first, and its size; None if it was not given.
        kept: The public columns that are published as they are.
        breakdowns: The columns of each breakdown.
        folds: How many folds units are put in.
        aggregates: How several rows of a unit become one, by outcome; empty if each unit has one.
        provenance: Where the release comes from, as far as the owner says it.
    """

    options: Options
    outcomes: OutcomeRequest | None
    clusters: Clusters
    budget: BudgetRequest
    target: tuple[Metric | None, float] | None
    kept: tuple[str, ...]
    breakdowns: tuple[tuple[str, ...], ...]
    folds: int
    aggregates: Mapping[str, str]
    provenance: Provenance

    @property
    def declared(self) -> DeclaredOutcomes:
        """The declared outcomes, which there must be."""
        self.options.require("outcomes")
        assert self.outcomes is not None  # noqa: S101 - they were given
        return self.outcomes.declared

    @property
    def primary(self) -> str:
        """The metric that the experiment is judged by; the first outcome if none was named."""
        return self.options.primary or self.declared.names[0]

    def in_one_question(self) -> Request:
        """The same with all outcomes asked together, as a mechanism made by hand needs it."""
        assert self.outcomes is not None  # noqa: S101 - they were given
        whole = QuestionRequest(self.outcomes.declared.names)
        return replace(
            self,
            options=msgspec.structs.replace(self.options, question=[str(whole)]),
            outcomes=replace(self.outcomes, questions=(whole,)),
        )


def check_ledger_named(options: Options) -> None:
    """Raise a ParameterError if a ledger has no population, or what belongs to one has none."""
    if options.ledger is not None and not options.population:
        raise ParameterError(
            "a ledger needs a population, whose budget it is; give population=... (--population)"
        )
    given = (options.population, options.ledger_key_file, options.new_population or None)
    if options.ledger is None and any(value is not None for value in given):
        raise ParameterError(
            "population, new_population and ledger_key_file (--population, --new-population and "
            "--ledger-key-file) belong to a ledger: give ledger=... (--ledger)"
        )
