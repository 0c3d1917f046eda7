from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.channels.base import PRIOR_TOTAL
from clusterdp.channels.priors import (
    estimate_prior,
    learn_priors,
    to_weights,
    with_every_outcome,
)
from clusterdp.statistics.base import Histogram
from clusterdp.statistics.noise import nearest_distribution, noise_variance, simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

histograms = st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=64)


@given(histograms, st.integers(1, 10**6), st.floats(0.001, 1))
def test_a_prior_sums_to_one_and_keeps_its_floor(
    noisy_counts: list[int], size: int, floor_share: float
) -> None:
    floor_weight = max(1, int(floor_share * PRIOR_TOTAL / len(noisy_counts)))
    floor = floor_weight / PRIOR_TOTAL
    prior = estimate_prior(np.array([noisy_counts]), np.array([size]), floor)
    assert abs(prior.sum() - 1) < 1e-9
    assert prior.min() >= floor
    weights = to_weights(prior, floor_weight)
    assert weights.sum() == PRIOR_TOTAL
    assert weights.min() >= floor_weight
    assert np.abs(weights / PRIOR_TOTAL - prior).max() <= 2 / PRIOR_TOTAL + 1e-9


@given(histograms, st.integers(1, 1000), st.randoms())
def test_relabelling_outcomes_permutes_the_prior(
    noisy_counts: list[int], size: int, shuffler: object
) -> None:
    order = np.random.default_rng().permutation(len(noisy_counts))
    floor = 0.5 / len(noisy_counts)
    counts = np.array(noisy_counts)
    straight = estimate_prior(counts, np.array(size), floor)
    np.testing.assert_allclose(
        estimate_prior(counts[order], np.array(size), floor), straight[order], atol=1e-12
    )


def test_without_noise_and_floor_the_prior_is_the_histogram() -> None:
    counts = np.array([[3, 5, 2]])
    np.testing.assert_allclose(
        estimate_prior(counts, np.array([10]), 1e-9), [[0.3, 0.5, 0.2]], atol=1e-8
    )


def test_algorithm_one_by_hand() -> None:
    """Frequencies (0.9, 0.4, −0.2), γ=0.1: clipped to 1.4 in all, the excess of 0.4 is given back.

    Heights above the floor are (0.8, 0.3, 0), so (0.8, 0.3, 0)/1.1 · 0.4 is taken off.
    """
    prior = estimate_prior(np.array([[9, 4, -2]]), np.array([10]), 0.1)
    np.testing.assert_allclose(prior, [[0.9 - 0.32 / 1.1, 0.4 - 0.12 / 1.1, 0.1]])
    # Short of one: (0.2, 0.3, 0.1) lacks 0.4, shared as (0.8, 0.7, 0.9)/2.4.
    prior = estimate_prior(np.array([[2, 3, -5]]), np.array([10]), 0.1)
    np.testing.assert_allclose(prior, [[0.2 + 0.32 / 2.4, 0.3 + 0.28 / 2.4, 0.1 + 0.36 / 2.4]])


def test_the_highest_floor_is_uniform() -> None:
    floor_weight = PRIOR_TOTAL // 3
    prior = estimate_prior(np.array([[90, -5, 3]]), np.array([7]), floor_weight / PRIOR_TOTAL)
    weights = to_weights(prior, floor_weight)
    assert np.ptp(weights) <= 1


def groups_of(noisy_counts: IntArray, sizes: IntArray, variance: float) -> Histogram:
    """Noisy counts of groups that are a cell each."""
    return Histogram(noisy_counts, sizes, np.arange(len(sizes))[:, np.newaxis], variance)


@given(
    st.integers(2, 30).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-(10**9), 10**9), min_size=n, max_size=n), min_size=1, max_size=5
        )
    ),
    st.integers(1, 10**9),
    st.floats(0, 1e20),
)
def test_learned_priors_are_distributions_whatever_was_drawn(
    noisy_counts: list[list[int]], size: int, variance: float
) -> None:
    counts = np.array(noisy_counts)
    n_outcomes = counts.shape[1]
    point = np.eye(n_outcomes)[0]
    for prior in (np.full(n_outcomes, 1 / n_outcomes), point):
        learned = learn_priors(groups_of(counts, np.full(len(counts), size), variance), prior)
        np.testing.assert_allclose(learned.sum(axis=-1), 1)
        assert learned.min() > 0


def test_counts_without_noise_are_the_prior() -> None:
    counts, prior = np.array([[30, 50, 20, 0], [2, 2, 3, 1]]), np.array([0.1, 0.2, 0.3, 0.4])
    learned = learn_priors(groups_of(counts, counts.sum(axis=1), 0.0), prior)
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    # ρ is at most 1 and here above 0, so all of a difference is kept.
    np.testing.assert_allclose(learned, with_every_outcome(frequencies))


def test_counts_that_are_all_noise_lead_back_to_the_public_prior() -> None:
    counts, sizes = np.array([[900, -500, 40], [3, 700, 1]]), np.array([100, 200])
    uniform = learn_priors(groups_of(counts, sizes, 1e12), np.full(3, 1 / 3))
    np.testing.assert_allclose(uniform, 1 / 3)
    declared = np.array([0.7, 0.2, 0.1])
    learned = learn_priors(groups_of(counts, sizes, 1e12), declared)
    # The uniform part is mixed in three times.
    np.testing.assert_allclose(
        learned[0], with_every_outcome(with_every_outcome(with_every_outcome(declared)))
    )


@pytest.mark.parametrize("size", [30, 300, 3000])
@pytest.mark.parametrize("differ", [0.0, 2.0])
def test_shrinking_is_never_far_from_the_better_of_groups_and_population(
    rng: np.random.Generator, size: int, differ: float
) -> None:
    """Mean squared errors of 300 draws of 20 groups.

    The standard error of their ratio is below 3%, a sixth of what is allowed for.
    """
    scale, n_groups, n_draws = 20.0, 20, 300
    centres = rng.normal(5.5, differ, (n_groups, 1))
    probs = np.exp(-(((np.arange(12) - centres) / 1.5) ** 2) / 2)
    counts = rng.multinomial(size, probs / probs.sum(axis=1, keepdims=True))
    sizes = np.full(n_groups, size)
    noisy = simulated_noise(rng)(np.broadcast_to(counts, (n_draws, *counts.shape)), scale)

    def error(estimates: FloatArray) -> float:
        return float(((estimates - counts / size) ** 2).sum(axis=-1).mean())

    learned = learn_priors(groups_of(noisy, sizes, noise_variance(scale)), np.full(12, 1 / 12))
    alone = with_every_outcome(nearest_distribution(noisy / size))
    everyone = noisy.sum(axis=1, keepdims=True) / sizes.sum()
    together = with_every_outcome(nearest_distribution(everyone))
    assert error(learned) <= 1.2 * min(error(alone), error(together))


@pytest.mark.parametrize(("arms_differ", "most"), [(0.0, 0.9), (2.0, 1.5)])
def test_arms_of_a_cluster_tell_of_each_other(
    rng: np.random.Generator, arms_differ: float, most: float
) -> None:
    """Mean squared errors of 300 draws of 20 clusters, against cells without clusters.

    Where arms are alike, each knows twice as much. Where they differ as much as clusters do, they
    are shrunk a little too far. Over runs the ratio is 0.69 and 1.21, with standard deviations
    below 0.05: both limits are six of them away.
    """
    size, scale, n_draws = 300, 20.0, 300
    centres = rng.normal(5.5, 2.0, (20, 1)) + arms_differ * rng.normal(size=(20, 2))
    probs = np.exp(-(((np.arange(12) - centres[..., np.newaxis]) / 1.5) ** 2) / 2)
    counts = rng.multinomial(size, probs / probs.sum(axis=-1, keepdims=True)).reshape(40, 12)
    noisy = simulated_noise(rng)(np.broadcast_to(counts, (n_draws, *counts.shape)), scale)
    alone = groups_of(noisy, np.full(40, size), noise_variance(scale))
    clustered = alone._replace(groups=np.arange(40).reshape(20, 2))

    def error(histogram: Histogram) -> float:
        learned = learn_priors(histogram, np.full(12, 1 / 12))
        return float(((learned - counts / size) ** 2).sum(axis=-1).mean())

    assert error(clustered) <= most * error(alone)
