from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_mean, assert_variance
from clusterdp.studies import formulas as theory
from clusterdp.studies.simulation import simulate_experiments, simulate_releases
from populations import (
    experiment_one,
    many_small_clusters,
    rare_binary,
    three_arms,
)

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.studies.simulation import Population

POPULATIONS = [experiment_one, many_small_clusters, rare_binary, three_arms]
by_name: dict[str, Any] = {"ids": lambda build: build.__name__}


def mechanisms(space: CategorySpace) -> dict[str, Mechanism]:
    floor = 0.2 / space.n_categories
    return {
        "cluster": cdp.cluster_dp(noise_scale=4, prior_floor=floor, resample_prob=0.6),
        "cluster-free": cdp.cluster_free_dp(noise_scale=4, prior_floor=floor, epsilon=2),
        "uniform": cdp.uniform_prior_dp(epsilon=2),
        "horvitz-thompson": cdp.noisy_horvitz_thompson(epsilon=0.5),
        "histogram": cdp.noisy_histogram(epsilon=0.5),
    }


@pytest.mark.slow
@pytest.mark.parametrize("build", POPULATIONS, **by_name)
@pytest.mark.parametrize("name", mechanisms(cdp.OutcomeSpace.binary()))
def test_excess_variance_is_what_releases_show(
    build: object, name: str, rng: np.random.Generator
) -> None:
    """Releases of fixed counts: unbiased, with the variance the theory says."""
    population: Population = build(rng)  # type: ignore[operator]
    layout = population.layout
    mechanism = mechanisms(population.space)[name]
    counts = population.assign(1, rng)[0]
    predicted = theory.excess_variance(
        counts, layout, population.space, mechanism, rng=rng, n_draws=400
    )
    drawn = simulate_releases(
        counts, layout, population.space, mechanism, n_replicates=4000, rng=rng, use="rows"
    )
    true = simulate_free_effects(population, counts)
    for position in range(len(layout.treatments)):
        value = predicted.value[position]
        blur = 6 * predicted.std_error[position] / value
        assert_mean(drawn.effects[:, position], true[position], math.sqrt(value * (1 + blur)))
        assert_variance(drawn.effects[:, position], value, relative_error=blur + 0.02)
        if name not in ("horvitz-thompson", "histogram"):
            estimated = drawn.privacy_variances[:, position]
            slack = 40 * predicted.std_error[position] + 1e-9 * value
            assert_mean(estimated, value, estimated.std() + slack)


def simulate_free_effects(population: Population, counts: np.ndarray) -> np.ndarray:
    """Differences in true means, weighted by cluster size, spelled out."""
    layout = population.layout
    means = counts @ population.space.metric_values()[0] / layout.sizes
    weights = layout.sizes.sum(axis=1) / layout.n_units
    return np.array(
        [weights @ (means[:, arm] - means[:, layout.control]) for arm in layout.treatments]
    )


def uniform_prior_excess(population: Population, resample_prob: float) -> FloatArray:
    """thm:variance_privacy_random: excess variance of the stratified uniform-prior estimator.

    For coro:unstratified, take `population.merged()`.
    """
    layout, values = population.layout, population.space.metric_values()[0]
    keep = 1 - resample_prob
    frequencies = population.potential_counts() / layout.sizes.sum(axis=1)[:, None, None]
    mean, mean_square = frequencies @ values, frequencies @ values**2
    constant = resample_prob * (values**2).mean() - (resample_prob * values.mean()) ** 2
    per_unit = (
        constant / keep**2
        + resample_prob / keep * mean_square
        - 2 * resample_prob * values.mean() / keep * mean
    )
    return theory.weighted(per_unit / layout.sizes, layout)


@pytest.mark.slow
@pytest.mark.parametrize("build", POPULATIONS, **by_name)
def test_total_variance_is_assignment_plus_privacy(build: object, rng: np.random.Generator) -> None:
    population: Population = build(rng)  # type: ignore[operator]
    mechanism = cdp.uniform_prior_dp(epsilon=3)
    drawn = simulate_experiments(population, mechanism, n_replicates=6000, rng=rng)
    resample = mechanism.parameters(population.space)["resample_prob"]
    total = theory.non_private_variance(population) + uniform_prior_excess(population, resample)
    for position, effect in enumerate(population.effects()):
        assert_mean(drawn.effects[:, position], effect, math.sqrt(total[position]))
        assert_variance(drawn.effects[:, position], total[position], relative_error=0.02)


def test_the_unstratified_estimator_of_one_cluster(rng: np.random.Generator) -> None:
    """coro:unstratified, under assignment of the whole population at once."""
    population = experiment_one(rng).merged()
    mechanism = cdp.uniform_prior_dp(epsilon=1)
    drawn = simulate_experiments(
        population, mechanism, n_replicates=6000, rng=rng, estimator="unstratified"
    )
    resample = mechanism.parameters(population.space)["resample_prob"]
    total = theory.non_private_variance(population) + uniform_prior_excess(population, resample)
    assert_mean(drawn.effects[:, 0], population.effects()[0], math.sqrt(total[0]))
    assert_variance(drawn.effects[:, 0], total[0], relative_error=0.02)


@pytest.mark.parametrize("build", POPULATIONS, **by_name)
def test_closed_form_of_the_uniform_prior(build: object, rng: np.random.Generator) -> None:
    """thm:variance_privacy_random against the general formula, averaged over assignments."""
    population: Population = build(rng)  # type: ignore[operator]
    layout = population.layout
    mechanism = cdp.uniform_prior_dp(resample_prob=0.7)
    closed = uniform_prior_excess(population, 0.7)
    # Every potential outcome counted in every arm, as if all units were assigned to it.
    everyone = population.potential_counts()
    cluster_sizes = layout.sizes.sum(axis=1, keepdims=True)
    shares = everyone / cluster_sizes[..., None] * layout.sizes[..., None]
    general = theory.excess_variance(shares, layout, population.space, mechanism, rng=rng).value
    np.testing.assert_allclose(closed, general, rtol=1e-6)


def test_binary_special_case(rng: np.random.Generator) -> None:
    """eq:var-rand-binary: n/(n₀n₁) · (λ/2)(1−λ/2)/(1−λ)²."""
    population = rare_binary(rng).merged()
    n_control, n_treated = population.layout.sizes[0]
    half = 0.35
    expected = (1 / n_control + 1 / n_treated) * half * (1 - half) / (1 - 2 * half) ** 2
    assert uniform_prior_excess(population, 0.7) == pytest.approx(expected)


@pytest.mark.parametrize("resample_prob", [0.3, 0.8])
@pytest.mark.parametrize("floor_share", [0.1, 1.0])
def test_the_gap_lies_within_the_bound(
    resample_prob: float, floor_share: float, rng: np.random.Generator
) -> None:
    population = experiment_one(rng)
    mechanism = cdp.cluster_dp(
        noise_scale=10, prior_floor=floor_share / 12, resample_prob=resample_prob
    )
    counts = population.assign(1, rng)[0]
    gap = theory.excess_variance(
        counts, population.layout, population.space, mechanism, rng=rng, n_draws=200
    ).value
    bound = theory.variance_bound(population, mechanism)
    assert (gap <= bound.total).all()
    assert (bound.first_term < bound.total).all()


def test_bound_by_hand() -> None:
    """C5 in one line for one cluster of 4+4 units, binary, γ=0.25, σ=2, λ=0.5."""
    from populations import from_units

    population = from_units(
        np.zeros(8, np.int64),
        np.array([[0, 1]] * 4 + [[1, 1]] * 4),
        cdp.OutcomeSpace.binary(),
        n_arms=2,
    )
    mechanism = cdp.cluster_dp(noise_scale=2, prior_floor=0.25, resample_prob=0.5)
    distance = 2 * 2 * (0.25 + 2 / 4 * (math.exp(-0.25 * 4 / 2) - math.exp(-4 / 2)))
    inner = 1 * (3 / 0.25 + 2) + (0.5 * math.sqrt(2) + 1) ** 2 / 0.25 * 1 * (1 - 0.5 * 0.25)
    spread = 8 * 0.25 / 7  # S² of four zeros and four ones
    first = (1 / 0.25 - 1) * (spread / 4)
    bound = theory.variance_bound(population, mechanism)
    assert bound.first_term == pytest.approx(first)
    assert bound.total == pytest.approx(first + 2 * distance * inner / 4)
    with pytest.raises(cdp.ParameterError, match="Cluster-DP"):
        theory.variance_bound(population, cdp.uniform_prior_dp(epsilon=1))
    free = cdp.cluster_free_dp(noise_scale=2, prior_floor=0.25, resample_prob=0.5)
    with pytest.raises(cdp.ParameterError, match="Cluster-DP"):
        theory.variance_bound(population, free)


def test_aggregate_closed_forms_tend_to_the_papers(rng: np.random.Generator) -> None:
    """At small ε the discrete noise is the continuous one; scales are those of C3 and C4."""
    population = experiment_one(rng)
    layout, space = population.layout, population.space
    counts = population.assign(1, rng)[0]
    epsilon, values = 0.01, space.metric_values()[0]

    def excess(mechanism: Mechanism) -> np.ndarray:
        return theory.excess_variance(counts, layout, space, mechanism, rng=rng).value

    weights = layout.sizes.sum(axis=1) / layout.n_units
    largest = np.ptp(values) / layout.sizes.min(axis=1)
    assert excess(cdp.noisy_horvitz_thompson(epsilon=epsilon)) == pytest.approx(
        2 * ((weights * largest / epsilon) ** 2).sum(), rel=1e-4
    )
    inverse_squares = (1 / layout.sizes**2).sum(axis=1)
    assert excess(cdp.noisy_histogram(epsilon=epsilon)) == pytest.approx(
        2 * (2 / epsilon) ** 2 * (values**2).sum() * (weights**2 * inverse_squares).sum(), rel=1e-4
    )


def test_homogeneity_falls_when_clusters_are_alike(rng: np.random.Generator) -> None:
    mixed = experiment_one(rng)
    n_types = mixed.type_counts.shape[1]
    apart = np.zeros_like(mixed.type_counts)
    apart[[0, 1, 2], [0, n_types // 2, n_types - 1]] = mixed.type_counts.sum(axis=1)
    alike = replace(mixed, type_counts=apart)
    assert (theory.homogeneity(alike) == 0).all()
    assert (theory.homogeneity(mixed) > 0).all()


def test_raising_the_floor_helps_at_equal_privacy(rng: np.random.Generator) -> None:
    """Design §2: with an exact prior and δ=0 the excess falls in γ; the uniform prior is best.

    Excess per unit is (V_p + V_q)/(gR) + V_q/(gR)², g = Kγ, R = (e^ε̃ − 1)/K.
    """
    population = experiment_one(rng)
    layout = population.layout
    counts = population.assign(1, rng)[0]
    excess = [
        theory.excess_variance(
            counts,
            layout,
            population.space,
            cdp.cluster_dp(noise_scale=1e9, prior_floor=share / 12, epsilon=1),
            rng=rng,
            n_draws=50,
        ).value[0]
        for share in (0.1, 0.3, 1.0)
    ]
    uniform = theory.excess_variance(
        counts, layout, population.space, cdp.uniform_prior_dp(epsilon=1), rng=rng
    ).value[0]
    assert excess == sorted(excess, reverse=True)
    assert excess[-1] == pytest.approx(uniform, rel=1e-3)
