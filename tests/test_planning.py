from __future__ import annotations

import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_variance
from clusterdp import planning, theory
from clusterdp.planning import Request
from clusterdp.simulation import simulate_experiments
from populations import from_units, make_layout

SPACE = cdp.OutcomeSpace.integers(0, 5)
LAYOUT = make_layout(np.full((20, 2), 200), SPACE)
UNIFORM = planning.check_reference(None, SPACE)


@pytest.mark.parametrize(
    "request_",
    [
        Request(mechanism="cluster-dp", epsilon=2),
        Request(mechanism="cluster-free-dp", epsilon=2, delta=1e-5),
        Request(mechanism="cluster-dp", epsilon=2, prior_floor=0.02),
        Request(mechanism="cluster-dp", epsilon=2, noise_scale=7),
        Request(mechanism="noisy-histogram", epsilon=2),
        Request(mechanism="noisy-horvitz-thompson", epsilon=2),
        Request(epsilon=2),
    ],
    ids=str,
)
def test_what_is_chosen_keeps_the_budget_and_what_was_given(request_: Request) -> None:
    mechanism = planning.choose(request_, LAYOUT, UNIFORM)
    assert mechanism.guarantee(SPACE).epsilon <= 2
    if request_.prior_floor:
        assert mechanism.prior_floor == request_.prior_floor
    if request_.noise_scale:
        assert mechanism.summary.noise_scale == request_.noise_scale  # type: ignore[union-attr]


def test_what_is_chosen_is_the_best_of_its_kind() -> None:
    best = planning.choose(Request(mechanism="cluster-dp", epsilon=2), LAYOUT, UNIFORM)
    error = planning.predict(best, LAYOUT, UNIFORM).std_error
    for scale in (1.5, 10, 100):
        for floor in (0.01, 0.1, 1 / 6):
            other = cdp.cluster_dp(noise_scale=scale, prior_floor=floor, epsilon=2)
            assert error <= planning.predict(other, LAYOUT, UNIFORM).std_error * 1.01


def test_without_a_name_the_uniform_prior_wins() -> None:
    """Design §2: at equal privacy nothing within the paper's family beats it."""
    assert planning.choose(Request(epsilon=1), LAYOUT, UNIFORM).name == "Uniform-Prior-DP"


def test_predictions_come_true(rng: np.random.Generator) -> None:
    """Given the true distribution as reference, simulated variances are the predicted ones."""
    reference = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    clusters = np.repeat(np.arange(20), 400)
    outcomes = np.tile(np.repeat(np.arange(6), (reference * 400).astype(int)), 20)
    population = from_units(clusters, np.stack([outcomes, outcomes], axis=1), SPACE, n_arms=2)
    for mechanism in (
        cdp.uniform_prior_dp(epsilon=1),
        cdp.cluster_dp(noise_scale=5, prior_floor=0.05, epsilon=1),
        cdp.noisy_histogram(epsilon=0.5),
    ):
        predicted = planning.predict(mechanism, population.layout, reference)
        drawn = simulate_experiments(population, mechanism, n_replicates=3000, rng=rng)
        assert_variance(drawn.effects[:, 0], predicted.std_error**2, relative_error=0.05)


def test_many_clusters_are_predicted_from_some() -> None:
    rng = np.random.default_rng()
    large = make_layout(rng.integers(50, 150, size=(2000, 2)), SPACE)
    mechanism = cdp.uniform_prior_dp(epsilon=1)
    sampled = planning.predict(mechanism, large, UNIFORM)
    counts = large.sizes[..., np.newaxis] * UNIFORM
    whole = theory.excess_variance(counts, large, mechanism, rng=rng).value[0]
    assert sampled.privacy_std_error**2 == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(), "give epsilon"),
        (Request(mechanism="cluster-dp", resample_prob=0.5), "must all be given"),
        (Request(mechanism="uniform-prior-dp", epsilon=1, noise_scale=3), "takes no noise_scale"),
        (Request(mechanism="noisy-horvitz-thompson"), "needs epsilon"),
        (Request(mechanism="noisy-histogram", epsilon=1, delta=0.1), "takes no delta"),
        (Request(mechanism="magic", epsilon=1), "must be one of"),
    ],
    ids=str,
)
def test_requests_that_make_no_sense(request_: Request, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        planning.choose(request_, LAYOUT, UNIFORM)


def test_a_reference_needs_one_number_per_outcome() -> None:
    with pytest.raises(cdp.ParameterError, match="6 numbers"):
        planning.check_reference([0.5, 0.5], SPACE)
    np.testing.assert_allclose(planning.check_reference([1, 1, 0, 0, 0, 2], SPACE).sum(), 1)
