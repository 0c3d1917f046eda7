"""Which mechanism, and how to split its budget: from public numbers and a declared baseline.

No outcome is read. The guarantee and unbiasedness hold for any choice; a wrong baseline costs
efficiency and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.mechanisms import catalogue as builders
from clusterdp.planning._split import Split, best_split
from clusterdp.planning.advice import scope_of_counts, share_of_counts
from clusterdp.spec.fields import SUM_SHARES
from clusterdp.spec.purpose import parse_purpose
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning._split import Losses
    from clusterdp.precision.expected import Scenario

    # The mechanism of a split, and shares of ε for noisy counts to choose from; none if there is
    # nothing to split.
    Recipe = tuple[Callable[[Split], Mechanism], tuple[float, ...]]

# The share of ε for counts that a mechanism must publish but makes no use of.
_IDLE_COUNTS = 0.001
# Shares of ε for noisy counts; between two of them the variance is flat.
_COUNT_SHARES = (0.01, 0.02, 0.05, 0.12, 0.3)
# The square of this is what noise on products of covariates and outcomes may add to a variance, as
# a share; then the least and the most of ε that they get for that; and the most standard deviations
# that a range is taken to have.
_LOST, _LEAST_SHARE, _MOST_SHARE, _MOST_SPANS = 0.04, 0.005, 0.1, 30.0
# Mechanisms that redraw rows from counts may give them more.
_MOST_COUNTS = 0.5


class MechanismChoice(NamedTuple):
    """The mechanism of each question, how ε is split, and what that loses for each purpose.

    Nothing is lost where nothing was searched.
    """

    mechanisms: tuple[Mechanism, ...]
    split: Split
    losses: Losses


def choose(request: BudgetRequest, scenario: Scenario) -> Mechanism:
    """The mechanism asked for; what was not given keeps the largest regret small."""
    return plan_mechanisms([request], [scenario]).mechanisms[0]


def plan_mechanisms(
    requests: Sequence[BudgetRequest], scenarios: Sequence[Scenario]
) -> MechanismChoice:
    """The mechanisms of all questions, whose sums share one split of ε."""
    first, layout = requests[0], scenarios[0].layout
    parse_purpose(first.optimize_for, layout)  # also where no share is left to choose
    if first.mechanism is None:
        if first.epsilon is None:
            raise ParameterError("missing: the budget. Fix: give epsilon=... (--epsilon)")
        redrawn = first.prior_floor is not None or first.resample_prob is not None
        name = "cluster-dp" if redrawn else "optimal"
        return plan_mechanisms([replace(one, mechanism=name) for one in requests], scenarios)
    if first.mechanism not in MECHANISMS:
        raise ParameterError(
            f"mechanism must be one of {', '.join(MECHANISMS)}; got {first.mechanism!r}"
        )
    if first.breakdown_share and not layout.breakdowns:
        raise ParameterError(
            "breakdown_share needs breakdowns; declare one (breakdown=..., --breakdown)"
        )
    choose_split, refused = MECHANISMS[first.mechanism]
    _refuse_given(first, *refused)
    recipes = [choose_split(*one) for one in zip(requests, scenarios, strict=True)]
    builds = [
        partial(_asking, build, request.asked)
        for (build, _), request in zip(recipes, requests, strict=True)
    ]
    if first.covariates:
        covariates = _covariates(first, scenarios)
        builds = [partial(_adjusting, build, covariates) for build in builds]
    counts = recipes[0][1]
    split, losses = best_split(builds, scenarios, first, counts) if counts else (Split(), {})
    return MechanismChoice(tuple(build(split) for build in builds), split, losses)


def _asking(build: Callable[[Split], Mechanism], asked: int, split: Split) -> Mechanism:
    """The mechanism of a split, of the units that are asked."""
    return msgspec.structs.replace(build(split), asked=asked)


def _adjusting(
    build: Callable[[Split], Mechanism], covariates: NoisyCovariates, split: Split
) -> Mechanism:
    """The mechanism of a split, with moments of the owner's covariates."""
    made = build(split)
    return msgspec.structs.replace(made, statistics=(*made.statistics, covariates))


def _covariates(request: BudgetRequest, scenarios: Sequence[Scenario]) -> NoisyCovariates:
    """The moments of the owner's covariates, and their part of ε.

    With weights q_a = Σ s² of arms, noise on products adds Σ q_a²·2M²/(ε·n_a)²/(Σ q_a)² times
    (R/σ_x)²(D/σ_y)² to the variance of an effect, as a share of it; R and D are ranges, M is the
    number of covariates. They get what makes that small, within limits; R/σ_x is taken to be D/σ_y.
    """
    if request.epsilon is None or (request.mechanism or "").startswith("noisy-"):
        raise ParameterError(
            "covariate needs epsilon, and a mechanism that releases rows; leave out covariate, or "
            "give epsilon=... (--epsilon)"
        )
    share = request.covariate_share
    if share is None:
        layout, wanted = scenarios[0].layout, {one.outcome for one in request.covariates}
        weights = layout.mean_weights.sum(axis=0)
        noise = layout.against_control((weights / layout.sizes.sum(axis=0)) ** 2)
        uneven = math.sqrt(2 * float((noise / layout.against_control(weights) ** 2).max()))
        widest = max(
            span**2 / max(std, span / _MOST_SPANS) ** 2
            for scenario in scenarios
            for name, span, (_, std) in zip(
                scenario.space.outcome_names,
                np.ptp(scenario.space.metric_values(), axis=1).tolist(),
                scenario.moments(),
                strict=False,
            )
            if name in wanted
        )
        needed = len(wanted) * widest * uneven / _LOST / request.epsilon
        share = float(f"{min(max(needed, _LEAST_SHARE), _MOST_SHARE):.2g}")
    if not share:
        raise ParameterError("covariate_share must be above 0 where there is a covariate")
    return NoisyCovariates(
        epsilon=share * request.epsilon,
        covariate_epsilon=request.epsilon,
        covariates=request.covariates,
    )


def _choose_optimal(request: BudgetRequest, scenario: Scenario) -> Recipe:
    """The optimal channel: for a public prior, or for priors that are learned from noisy counts."""
    if request.noise_scale is not None:
        raise ParameterError(
            f"noise_scale does not apply to mechanism 'optimal', got {request.noise_scale:g}; give "
            "counts_share (under [expert]), the share of epsilon for noisy counts"
        )
    if request.epsilon is None:
        raise ParameterError("optimal needs epsilon")
    layout, space, prior = scenario.layout, scenario.space, request.prior
    # For two categories all priors have one channel; units that are not asked count as the prior.
    matters = space.n_categories > 2 or request.asked < ASKED_TOTAL
    if prior is None and scenario.baseline.is_declared and matters:
        prior = tuple(scenario.overall.tolist())

    def build(split: Split) -> Mechanism:
        noise_scale = _noise_scale(request, split)
        return builders.optimal(
            epsilon=request.epsilon or 0.0,
            delta=request.delta,
            noise_scale=noise_scale,
            scope=scope_of_counts(layout, space, noise_scale or 0.0),
            prior=prior,
            sums=split.sum_shares(layout),
            pilot=request.pilot or 0.0,
        )

    return build, _shares_of_counts(request, scenario)


def _shares_of_counts(request: BudgetRequest, scenario: Scenario) -> tuple[float, ...]:
    """Shares of ε for noisy counts that could pay: predicted, or where nothing is known."""
    space, baseline = scenario.space, scenario.baseline
    if request.counts_share is not None:
        return (request.counts_share,)
    known = request.pilot or request.prior is not None or request.asked < ASKED_TOTAL
    if known or space.n_categories == 2 or scenario.is_joint:
        return (0.0,)
    if any(space.metric_lattice().is_number):  # a pilot also finds where they end
        return (0.0,)
    if baseline.differs:
        return (0.0, *_COUNT_SHARES)
    if baseline.is_declared or request.optimize_for == "overall":
        return (0.0,)
    return (share_of_counts(scenario, request.epsilon or 0.0),)


def _choose_clustered(request: BudgetRequest, scenario: Scenario) -> Recipe:
    by_cluster = request.mechanism == "cluster-dp"
    make = builders.cluster_dp if by_cluster else builders.cluster_free_dp
    by_hand = (request.noise_scale, request.prior_floor, request.resample_prob)
    if request.epsilon is None:
        if None in by_hand:
            raise ParameterError(
                "without epsilon, noise_scale, prior_floor and resample_prob must all be given"
            )
        _refuse_given(request, *SUM_SHARES)
        made = make(
            noise_scale=request.noise_scale or 0.0,
            prior_floor=request.prior_floor or 0.0,
            resample_prob=request.resample_prob,
            delta=request.delta,
        )
        return lambda _: made, ()
    _refuse_given(request, "resample_prob")
    # At equal privacy a higher floor is better, up to 1/K: see docs/explanation/privacy.md.
    floor = request.prior_floor or 1 / scenario.space.n_categories

    def build(split: Split) -> Mechanism:
        return make(
            noise_scale=_noise_scale(request, split) or 0.0,
            prior_floor=floor,
            epsilon=request.epsilon,
            delta=request.delta,
            sums=split.sum_shares(scenario.layout),
        )

    counts: tuple[float, ...] = (_IDLE_COUNTS, *_COUNT_SHARES, _MOST_COUNTS)
    if request.noise_scale is not None:
        counts = (2 / request.noise_scale / request.epsilon,)
    elif not by_cluster and request.prior_floor is None:
        counts = (_IDLE_COUNTS,)
    return build, counts


def _choose_uniform(request: BudgetRequest, scenario: Scenario) -> Recipe:
    if request.epsilon is None or request.resample_prob is not None:
        made = builders.uniform_prior_dp(
            resample_prob=request.resample_prob, epsilon=request.epsilon, delta=request.delta
        )
        return lambda _: made, ()

    def build(split: Split) -> Mechanism:
        return builders.uniform_prior_dp(
            epsilon=request.epsilon,
            delta=request.delta,
            sums=split.sum_shares(scenario.layout),
        )

    return build, (0.0,)


def _choose_contrasts(request: BudgetRequest, _: Scenario) -> Recipe:
    if request.epsilon is None:
        raise ParameterError("noisy-horvitz-thompson needs epsilon")
    made = builders.noisy_horvitz_thompson(epsilon=request.epsilon)
    return lambda _: made, ()


def _choose_histogram(request: BudgetRequest, _: Scenario) -> Recipe:
    made = builders.noisy_histogram(epsilon=request.epsilon, noise_scale=request.noise_scale)
    return lambda _: made, ()


def _noise_scale(request: BudgetRequest, split: Split) -> float | None:
    if request.noise_scale is not None:
        return request.noise_scale
    if not split.counts or request.epsilon is None:
        return None
    return 2 / (split.counts * request.epsilon)


def _refuse_given(request: BudgetRequest, *names: str) -> None:
    # A share or a δ of 0 asks for nothing.
    given = [name for name in names if getattr(request, name) not in (None, 0.0)]
    if given:
        raise ParameterError(f"{given[0]} does not apply to mechanism {request.mechanism!r}")


# How a mechanism is chosen, and what may not be given with it.
_OF_PILOTS = ("pilot", "counts_share", "prior")
_OF_ROWS = (*_OF_PILOTS, "prior_floor", "resample_prob", "delta", *SUM_SHARES)
MECHANISMS: dict[str, tuple[Callable[[BudgetRequest, Scenario], Recipe], tuple[str, ...]]] = {
    "optimal": (_choose_optimal, ("prior_floor", "resample_prob")),
    "cluster-dp": (_choose_clustered, _OF_PILOTS),
    "cluster-free-dp": (_choose_clustered, _OF_PILOTS),
    "uniform-prior-dp": (_choose_uniform, (*_OF_PILOTS, "noise_scale", "prior_floor")),
    "noisy-horvitz-thompson": (_choose_contrasts, ("noise_scale", *_OF_ROWS)),
    "noisy-histogram": (_choose_histogram, _OF_ROWS),
}
