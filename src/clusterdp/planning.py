"""What to expect of a release, and the parameters that are not given: from public numbers alone."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from clusterdp import mechanisms, theory
from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp.arrays import FloatArray, IntArray
    from clusterdp.cells import Layout
    from clusterdp.mechanisms import Mechanism
    from clusterdp.outcomes import OutcomeSpace

# Clusters and noise draws a prediction is made from; more would change its third digit.
_CLUSTERS, _DRAWS = 400, 8
_FLOOR_SHARES = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
_NOISE_FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0)


class Prediction(NamedTuple):
    """What the standard error of the overall effect should be, and what of it privacy costs.

    Of several treatments, the least certain one.
    """

    std_error: float
    sampling_std_error: float
    privacy_std_error: float


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
    """

    mechanism: str | None = None
    epsilon: float | None = None
    delta: float = 0.0
    noise_scale: float | None = None
    prior_floor: float | None = None
    resample_prob: float | None = None


def check_reference(reference: list[float] | None, space: OutcomeSpace) -> FloatArray:
    """The declared distribution of outcomes, uniform if nothing was declared.

    It decides what is predicted and chosen, and never what is guaranteed or whether effects are
    unbiased.
    """
    if reference is None:
        return np.full(space.n_outcomes, 1 / space.n_outcomes)
    probs = np.array(reference, dtype=np.float64)
    sound = np.isfinite(probs).all() and (probs >= 0).all() and probs.sum() > 0
    if len(probs) != space.n_outcomes or not sound:
        raise ParameterError(
            f"reference must be {space.n_outcomes} numbers of at least 0, one per outcome, "
            f"got {len(probs)}"
        )
    return np.asarray(probs / probs.sum())


def predict(mechanism: Mechanism, layout: Layout, reference: FloatArray) -> Prediction:
    """The standard error to expect if outcomes in every cell follow the reference."""
    sample, scale = _sampled(layout)
    # Expected counts; they need not be whole.
    counts = cast("IntArray", sample.sizes[..., np.newaxis] * reference)
    # The seed is fixed so that candidates are compared under the same noise; no data is involved.
    rng = np.random.default_rng(0)
    excess = theory.excess_variance(counts, sample, mechanism, rng=rng, n_draws=_DRAWS).value
    values = layout.space.as_array()
    spread = float(reference @ (values - reference @ values) ** 2)
    weights = sample.sizes.sum(axis=1, keepdims=True) / sample.n_units
    per_arm = spread * (weights**2 / sample.sizes).sum(axis=0)
    sampling = per_arm[list(layout.treatments)] + per_arm[layout.control]
    total = scale * (excess + sampling)
    worst = int(np.argmax(total))
    return Prediction(
        math.sqrt(total[worst]),
        math.sqrt(scale * sampling[worst]),
        math.sqrt(scale * excess[worst]),
    )


def choose(request: Request, layout: Layout, reference: FloatArray) -> Mechanism:
    """The mechanism asked for; what was not given minimises the predicted standard error."""
    if request.mechanism is None:
        if request.epsilon is None:
            raise ParameterError("give epsilon, the budget of the release, or name a mechanism")
        candidates = [
            choose(replace(request, mechanism=name), layout, reference)
            for name in _candidates(request)
        ]
        return min(candidates, key=lambda made: predict(made, layout, reference).std_error)
    if request.mechanism not in MECHANISMS:
        raise ParameterError(
            f"mechanism must be one of {', '.join(MECHANISMS)}; got {request.mechanism!r}"
        )
    return MECHANISMS[request.mechanism](request, layout, reference)


def _candidates(request: Request) -> tuple[str, ...]:
    """The mechanisms that release rows and take what was given."""
    if request.noise_scale is None and request.prior_floor is None:
        return ("uniform-prior-dp", "cluster-dp", "cluster-free-dp")
    return ("cluster-dp", "cluster-free-dp")


def _choose_clustered(request: Request, layout: Layout, reference: FloatArray) -> Mechanism:
    build = mechanisms.cluster_free_dp
    if request.mechanism == "cluster-dp":
        build = mechanisms.cluster_dp
    scales, floors = [request.noise_scale], [request.prior_floor]
    if request.epsilon is None and None in (request.noise_scale, request.prior_floor):
        raise ParameterError(
            "without epsilon, noise_scale, prior_floor and resample_prob must all be given"
        )
    if request.noise_scale is None and request.epsilon is not None:
        scales = [2 / request.epsilon * factor for factor in _NOISE_FACTORS]
    if request.prior_floor is None:
        floors = [share / layout.space.n_outcomes for share in _FLOOR_SHARES]
    candidates = [
        build(
            noise_scale=scale,
            prior_floor=floor,
            resample_prob=request.resample_prob,
            epsilon=request.epsilon,
            delta=request.delta,
        )
        for scale, floor in itertools.product(scales, floors)
        if scale is not None and floor is not None
    ]
    if len(candidates) == 1:
        return candidates[0]
    return min(candidates, key=lambda made: predict(made, layout, reference).std_error)


def _choose_uniform(request: Request, layout: Layout, reference: FloatArray) -> Mechanism:  # noqa: ARG001 - as the others
    _refuse_given(request, "noise_scale", "prior_floor")
    return mechanisms.uniform_prior_dp(
        resample_prob=request.resample_prob, epsilon=request.epsilon, delta=request.delta
    )


def _choose_contrasts(request: Request, layout: Layout, reference: FloatArray) -> Mechanism:  # noqa: ARG001 - as the others
    _refuse_given(request, "noise_scale", "prior_floor", "resample_prob", "delta")
    if request.epsilon is None:
        raise ParameterError("noisy-horvitz-thompson needs epsilon")
    return mechanisms.noisy_horvitz_thompson(epsilon=request.epsilon)


def _choose_histogram(request: Request, layout: Layout, reference: FloatArray) -> Mechanism:  # noqa: ARG001 - as the others
    _refuse_given(request, "prior_floor", "resample_prob", "delta")
    return mechanisms.noisy_histogram(epsilon=request.epsilon, noise_scale=request.noise_scale)


def _refuse_given(request: Request, *names: str) -> None:
    given = [name for name in names if getattr(request, name)]
    if given:
        raise ParameterError(f"{request.mechanism} takes no {given[0]}")


def _sampled(layout: Layout) -> tuple[Layout, float]:
    """A layout of fewer clusters, and what its variances are multiplied by to stand for all."""
    n_clusters = len(layout.clusters)
    if n_clusters <= _CLUSTERS:
        return layout, 1.0
    by_size = np.argsort(layout.sizes.sum(axis=1), kind="stable")
    chosen = by_size[np.linspace(0, n_clusters - 1, _CLUSTERS).astype(np.int64)]
    sample = replace(
        layout,
        clusters=tuple(layout.clusters[index] for index in chosen),
        sizes=layout.sizes[chosen],
    )
    share = sample.n_units / layout.n_units
    return sample, share**2 * n_clusters / _CLUSTERS


MECHANISMS = {
    "cluster-dp": _choose_clustered,
    "cluster-free-dp": _choose_clustered,
    "uniform-prior-dp": _choose_uniform,
    "noisy-horvitz-thompson": _choose_contrasts,
    "noisy-histogram": _choose_histogram,
}
