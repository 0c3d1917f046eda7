from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.channels.integers import PRIOR_TOTAL
from clusterdp.channels.priors import estimate_prior, to_weights

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
