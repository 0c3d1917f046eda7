"""Which mechanism, and how to split its budget: from public numbers and a declared reference.

No outcome is read. Whatever is chosen, the guarantee and unbiasedness hold; a wrong reference costs
efficiency and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.mechanisms import catalogue as builders
from clusterdp.mechanisms.sum_shares import SumShares
from clusterdp.planning.predictions import is_joint
from clusterdp.planning.split import MOST_SUMS_SHARE, Split, best_split
from clusterdp.privacy.accounting import checked_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario

# The share of ε for counts that a mechanism must publish but makes no use of.
_IDLE_COUNTS = 0.001
# Shares of ε for noisy counts; between two of them the variance is flat.
_COUNT_SHARES = (0.02, 0.05, 0.12, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A mechanism by name, with the parameters its user gave.

    Attributes:
        mechanism: A name of `MECHANISMS`, or None for the best that releases rows.
        epsilon: ε of the whole release.
        delta: δ of the whole release.
        noise_scale: σ.
        prior_floor: γ.
        resample_prob: λ.
        sums_share: The share of ε for noisy sums.
        prior: The public prior that an optimal channel is designed for.
        segment_share: What it is for: the effect in a segment of this share of every cell, or the
            overall effect (1).
    """

    mechanism: str | None = None
    epsilon: float | None = None
    delta: float = 0.0
    noise_scale: float | None = None
    prior_floor: float | None = None
    resample_prob: float | None = None
    sums_share: float | None = None
    prior: tuple[float, ...] | None = None
    segment_share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise_scale", "prior_floor", "resample_prob"):
            given = getattr(self, name)
            if given is not None and not 0 < given < math.inf:
                raise ParameterError(f"{name} must be a finite number above 0, got {given}")
        if self.epsilon is not None:
            checked_epsilon(self.epsilon)
        if not 0 < self.segment_share <= 1:
            raise ParameterError(f"segment_share must lie in (0, 1], got {self.segment_share}")


def choose(request: Request, scenario: Scenario) -> Mechanism:
    """The mechanism asked for; what was not given minimises the predicted standard error."""
    if request.mechanism is None:
        if request.epsilon is None:
            raise ParameterError(
                "missing: epsilon; give epsilon=..., the budget of the release (--epsilon)"
            )
        redrawn = request.prior_floor is not None or request.resample_prob is not None
        return choose(replace(request, mechanism="cluster-dp" if redrawn else "optimal"), scenario)
    if request.mechanism not in MECHANISMS:
        raise ParameterError(
            f"mechanism must be one of {', '.join(MECHANISMS)}; got {request.mechanism!r}"
        )
    return MECHANISMS[request.mechanism](request, scenario)


def _choose_optimal(request: Request, scenario: Scenario) -> Mechanism:
    """The optimal channel: for a public prior, or for noisy counts where clusters differ."""
    _refuse_given(request, "prior_floor", "resample_prob")
    if request.epsilon is None:
        raise ParameterError("optimal needs epsilon")
    layout, space, reference = scenario
    prior = request.prior
    if prior is None and reference.is_declared and space.n_categories > 2:
        prior = tuple(reference.overall(layout).tolist())

    def build(split: Split) -> Mechanism:
        return builders.optimal(
            epsilon=request.epsilon or 0.0,
            delta=request.delta,
            noise_scale=_noise_scale(request, split),
            prior=None if split.counts else prior,
            sums=SumShares(clusters=split.sums),
        )

    counts: tuple[float, ...] = (0.0,)
    if request.noise_scale is not None:
        counts = (2 / request.noise_scale / request.epsilon,)
    elif request.prior is None and _counts_could_pay(scenario):
        counts = (0.0, *_COUNT_SHARES)
    return _split(request, scenario, build, counts)


def _counts_could_pay(scenario: Scenario) -> bool:
    """Whether a channel for every cell could be worth its noisy counts, and be designed in time."""
    _, space, reference = scenario
    return reference.differs and space.n_categories > 2 and not is_joint(space)


def _choose_clustered(request: Request, scenario: Scenario) -> Mechanism:
    _refuse_given(request, "prior")
    by_cluster = request.mechanism == "cluster-dp"
    make = builders.cluster_dp if by_cluster else builders.cluster_free_dp
    by_hand = (request.noise_scale, request.prior_floor, request.resample_prob)
    if request.epsilon is None:
        if None in by_hand:
            raise ParameterError(
                "without epsilon, noise_scale, prior_floor and resample_prob must all be given"
            )
        return make(
            noise_scale=request.noise_scale or 0.0,
            prior_floor=request.prior_floor or 0.0,
            resample_prob=request.resample_prob,
            delta=request.delta,
        )
    _refuse_given(request, "resample_prob")
    # At equal privacy a higher floor is better, up to 1/K: see docs/privacy.md.
    floor = request.prior_floor or 1 / scenario.space.n_categories

    def build(split: Split) -> Mechanism:
        return make(
            noise_scale=_noise_scale(request, split) or 0.0,
            prior_floor=floor,
            epsilon=request.epsilon,
            delta=request.delta,
            sums=SumShares(clusters=split.sums),
        )

    counts: tuple[float, ...] = (_IDLE_COUNTS, *_COUNT_SHARES, MOST_SUMS_SHARE)
    if request.noise_scale is not None:
        counts = (2 / request.noise_scale / request.epsilon,)
    elif not by_cluster and request.prior_floor is None:
        counts = (_IDLE_COUNTS,)
    return _split(request, scenario, build, counts)


def _choose_uniform(request: Request, scenario: Scenario) -> Mechanism:
    _refuse_given(request, "noise_scale", "prior_floor", "prior")
    if request.epsilon is None or request.resample_prob is not None:
        return builders.uniform_prior_dp(
            resample_prob=request.resample_prob, epsilon=request.epsilon, delta=request.delta
        )

    def build(split: Split) -> Mechanism:
        return builders.uniform_prior_dp(
            epsilon=request.epsilon, delta=request.delta, sums=SumShares(clusters=split.sums)
        )

    return _split(request, scenario, build, (0.0,))


def _choose_contrasts(request: Request, _: Scenario) -> Mechanism:
    _refuse_given(
        request, "noise_scale", "prior_floor", "resample_prob", "delta", "sums_share", "prior"
    )
    if request.epsilon is None:
        raise ParameterError("noisy-horvitz-thompson needs epsilon")
    return builders.noisy_horvitz_thompson(epsilon=request.epsilon)


def _choose_histogram(request: Request, _: Scenario) -> Mechanism:
    _refuse_given(request, "prior_floor", "resample_prob", "delta", "sums_share", "prior")
    return builders.noisy_histogram(epsilon=request.epsilon, noise_scale=request.noise_scale)


def _split(
    request: Request,
    scenario: Scenario,
    build: Callable[[Split], Mechanism],
    counts: tuple[float, ...],
) -> Mechanism:
    """The mechanism at its best split of ε."""
    sums_share = request.sums_share
    split = best_split(
        build, scenario, counts=counts, sums=sums_share, segment_share=request.segment_share
    )
    return build(split)


def _noise_scale(request: Request, split: Split) -> float | None:
    if request.noise_scale is not None:
        return request.noise_scale
    if not split.counts or request.epsilon is None:
        return None
    return 2 / (split.counts * request.epsilon)


def _refuse_given(request: Request, *names: str) -> None:
    # A share or a δ of 0 asks for nothing.
    given = [name for name in names if getattr(request, name) not in (None, 0.0)]
    if given:
        raise ParameterError(f"{request.mechanism} takes no {given[0]}")


MECHANISMS = {
    "optimal": _choose_optimal,
    "cluster-dp": _choose_clustered,
    "cluster-free-dp": _choose_clustered,
    "uniform-prior-dp": _choose_uniform,
    "noisy-horvitz-thompson": _choose_contrasts,
    "noisy-histogram": _choose_histogram,
}
