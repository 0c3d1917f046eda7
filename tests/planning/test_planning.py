from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_variance
from clusterdp.channels.base import SMALLEST_ROW_EPSILON
from clusterdp.channels.optimal import OptimalRows
from clusterdp.channels.resampling import ResamplingBudget
from clusterdp.planning import choose as planning
from clusterdp.precision import expected as reference
from clusterdp.precision.expected import Scenario
from clusterdp.precision.forecast import predict, purpose_variances
from clusterdp.spec.purpose import parse_purpose
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.sums import NoisySums, NoisyTotals
from clusterdp.studies import formulas as theory
from clusterdp.studies.simulation import simulate_experiments
from populations import experiment_one, from_units, make_layout

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism

SPACE = cdp.OutcomeSpace.integers(0, 5)
LAYOUT = make_layout(np.full((20, 2), 200))
UNIFORM = Scenario(LAYOUT, SPACE, reference.uniform_baseline(SPACE))
EVEN = Scenario(LAYOUT, SPACE, reference.histogram_baseline(SPACE, [1] * 6))
FALLING = Scenario(LAYOUT, SPACE, reference.histogram_baseline(SPACE, [50, 25, 12, 6, 4, 3]))


@pytest.mark.parametrize(
    "request_",
    [
        BudgetRequest(mechanism="optimal", epsilon=2),
        BudgetRequest(mechanism="optimal", epsilon=2, delta=1e-5, sums_share=0.2),
        BudgetRequest(mechanism="optimal", epsilon=2, counts_share=0.1),
        BudgetRequest(mechanism="optimal", epsilon=2, counts_share=0.1, prior=(1, 1, 1, 1, 1, 5)),
        BudgetRequest(mechanism="optimal", epsilon=2, prior=(1, 1, 1, 1, 1, 5)),
        BudgetRequest(mechanism="cluster-dp", epsilon=2),
        BudgetRequest(mechanism="cluster-free-dp", epsilon=2, delta=1e-5),
        BudgetRequest(mechanism="cluster-dp", epsilon=2, prior_floor=0.02),
        BudgetRequest(mechanism="cluster-dp", epsilon=2, noise_scale=7),
        BudgetRequest(mechanism="noisy-histogram", epsilon=2),
        BudgetRequest(mechanism="noisy-horvitz-thompson", epsilon=2),
        BudgetRequest(epsilon=2),
        BudgetRequest(epsilon=2, optimize_for="overall"),
        BudgetRequest(epsilon=2, optimize_for="segments:0.03", totals_share=0.05),
        BudgetRequest(epsilon=2, totals_share=0, sums_share=0),
    ],
    ids=str,
)
def test_what_is_chosen_keeps_the_budget_and_what_was_given(request_: BudgetRequest) -> None:
    mechanism = planning.choose(request_, UNIFORM)
    assert mechanism.guarantee(SPACE).epsilon <= 2
    if request_.prior_floor:
        assert isinstance(mechanism.rows, ResamplingBudget)
        assert mechanism.rows.prior_floor == request_.prior_floor
    if request_.noise_scale:
        counts = mechanism.find(NoisyCounts)
        assert counts is not None
        assert counts.noise_scale == request_.noise_scale
    if request_.counts_share:
        counts = mechanism.find(NoisyCounts)
        assert counts is not None
        assert 2 / counts.noise_scale == pytest.approx(2 * request_.counts_share)
    kinds = ((NoisySums, request_.sums_share), (NoisyTotals, request_.totals_share))
    for kind, share in kinds:
        if share is not None:
            found = mechanism.find(kind)
            assert (0 if found is None else found.epsilon) == pytest.approx(2 * share)


def largest_regrets(
    mechanisms: list[Mechanism], scenario: Scenario, purpose: str | None
) -> list[float]:
    """The largest regret of each mechanism against the best of all, every channel designed."""
    purposes = parse_purpose(purpose, scenario.layout)
    found = np.array(
        [
            purpose_variances(predict(made, scenario), purposes, scenario).max(axis=-1)
            for made in mechanisms
        ]
    )
    regrets = np.sqrt(found / found.min(axis=0)).max(axis=1)
    return [float(regret) for regret in regrets]


@pytest.mark.slow
@pytest.mark.parametrize("purpose", [None, "overall", "segments:0.1"])
@pytest.mark.parametrize("known", [EVEN, FALLING], ids=["even", "falling"])
@pytest.mark.parametrize("epsilon", [0.5, 3])
def test_the_split_is_within_a_hundredth_of_the_best(
    epsilon: float, known: Scenario, purpose: str | None
) -> None:
    """Against a fine search that designs every channel, without interpolation."""
    request = BudgetRequest(epsilon=epsilon, optimize_for=purpose, counts_share=0.0)
    chosen = planning.choose(request, known)
    declared = known.baseline
    prior = known.overall.tolist() if declared.is_declared else None
    shares = [0.0, *np.geomspace(0.003, 0.95, 16).tolist()]
    searched = [
        cdp.optimal(
            epsilon=epsilon, prior=prior, sums=cdp.SumShares(totals=totals, clusters=clusters)
        )
        for totals, clusters in itertools.product(shares, shares)
        if totals + clusters <= 0.9  # rows keep a tenth
    ]
    regret, *others = largest_regrets([chosen, *searched], known, purpose)
    assert regret <= 1.01 * min(others)


@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["overall", "segments:0.1"])
def test_counts_are_within_a_hundredth_of_the_best(purpose: str) -> None:
    """Where clusters are known to differ, also against every share for noisy counts."""
    space = cdp.OutcomeSpace.integers(0, 7)
    differing = reference.histogram_baseline(space, [1.0] * 8, within_share=0.1)
    known = Scenario(make_layout(np.full((8, 2), 2000)), space, differing)
    chosen = planning.choose(BudgetRequest(epsilon=4, optimize_for=purpose), known)
    searched = [
        cdp.optimal(
            epsilon=4, noise_scale=2 / (4 * counts), sums=cdp.SumShares(totals=sums, clusters=sums)
        )
        for counts, sums in itertools.product((0.01, 0.03, 0.1), (0.0, 0.05, 0.2))
    ]
    regret, *others = largest_regrets([chosen, *searched], known, purpose)
    assert regret <= 1.01 * min(others)
    if purpose != "overall":
        assert chosen.find(NoisyCounts) is not None


def test_what_is_chosen_is_the_best_of_its_kind() -> None:
    best = planning.choose(BudgetRequest(mechanism="cluster-dp", epsilon=2), UNIFORM)
    error = predict(best, UNIFORM)[0].overall.std_error
    for scale in (1.5, 2, 5, 10, 100):
        for floor in (0.01, 0.1, 1 / 6):
            other = cdp.cluster_dp(noise_scale=scale, prior_floor=floor, epsilon=2)
            assert error <= predict(other, UNIFORM)[0].overall.std_error * 1.01


def test_rows_keep_what_makes_them_valid() -> None:
    """Whatever the budget, and if the overall effect is all that counts."""
    for epsilon in (0.02, 0.2, 2, 11):
        made = planning.choose(BudgetRequest(epsilon=epsilon, optimize_for="overall"), UNIFORM)
        rows = made.settled_rows(SPACE)
        assert isinstance(rows, OptimalRows)
        assert rows.epsilon >= SMALLEST_ROW_EPSILON
        assert made.guarantee(SPACE).epsilon <= epsilon


@pytest.mark.slow
def test_predictions_come_true(rng: np.random.Generator) -> None:
    """Given the true distribution as reference, simulated variances are the predicted ones."""
    shape = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    clusters = np.repeat(np.arange(20), 400)
    outcomes = np.tile(np.repeat(np.arange(6), (shape * 400).astype(int)), 20)
    population = from_units(clusters, np.stack([outcomes, outcomes], axis=1), SPACE, n_arms=2)
    expected = reference.histogram_baseline(SPACE, shape.tolist())
    known = Scenario(population.layout, SPACE, expected)
    for mechanism in (
        cdp.uniform_prior_dp(epsilon=1),
        cdp.cluster_dp(noise_scale=5, prior_floor=0.05, epsilon=1),
        cdp.noisy_histogram(epsilon=0.5),
        cdp.optimal(epsilon=1, sums=cdp.SumShares(clusters=0.3)),
        cdp.optimal(epsilon=2, noise_scale=5),
        planning.choose(BudgetRequest(epsilon=1, totals_share=0), known),
    ):
        predicted = predict(mechanism, known)[0].overall
        drawn = simulate_experiments(population, mechanism, n_replicates=3000, rng=rng)
        assert_variance(drawn.effects[:, 0], predicted.std_error**2, relative_error=0.05)


def test_predictions_come_true_in_experiment_one(rng: np.random.Generator) -> None:
    """With the distribution of every cell as reference."""
    population = experiment_one(rng)
    potential = population.potential_counts().astype(np.float64)
    probs = potential / potential.sum(axis=-1, keepdims=True)
    expected = reference.ExpectedOutcomes(kinds=probs)
    known = Scenario(population.layout, population.space, expected)
    mechanism = planning.choose(BudgetRequest(epsilon=1, totals_share=0), known)
    predicted = predict(mechanism, known)[0].overall
    drawn = simulate_experiments(population, mechanism, n_replicates=3000, rng=rng)
    # Effects are the same for all units, so assignment has less variance than two samples.
    assignment = theory.non_private_variance(population)[0]
    total = predicted.privacy_std_error**2 + assignment
    assert_variance(drawn.effects[:, 0], total, relative_error=0.05)


def test_many_clusters_are_predicted_from_some() -> None:
    rng = np.random.default_rng()
    large = make_layout(rng.integers(50, 150, size=(2000, 2)))
    mechanism = cdp.uniform_prior_dp(epsilon=1)
    sampled = predict(mechanism, replace(UNIFORM, layout=large))[0].overall
    # Expected counts; they need not be whole.
    counts: Any = large.sizes[..., np.newaxis] * UNIFORM.overall
    whole = theory.excess_variance(counts, large, SPACE, mechanism, rng=rng).value[0]
    assert sampled.privacy_std_error**2 == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (BudgetRequest(), "give epsilon"),
        (BudgetRequest(mechanism="cluster-dp", resample_prob=0.5), "must all be given"),
        (
            BudgetRequest(mechanism="uniform-prior-dp", epsilon=1, noise_scale=3),
            "noise_scale does not apply to mechanism 'uniform-prior-dp'",
        ),
        (BudgetRequest(mechanism="optimal", epsilon=1, noise_scale=3), "give counts_share"),
        (
            BudgetRequest(mechanism="cluster-dp", epsilon=1, counts_share=0.1),
            "counts_share does not apply to mechanism",
        ),
        (BudgetRequest(mechanism="optimal", epsilon=1, prior_floor=0.1), "prior_floor does not"),
        (BudgetRequest(mechanism="noisy-horvitz-thompson"), "needs epsilon"),
        (BudgetRequest(mechanism="noisy-histogram", epsilon=1, delta=0.1), "delta does not"),
        (BudgetRequest(mechanism="magic", epsilon=1), "must be one of"),
        (BudgetRequest(epsilon=1, breakdown_share=0.1), "needs breakdowns; declare one"),
        (BudgetRequest(epsilon=1, optimize_for="breakdowns"), "needs breakdowns; declare one"),
        (BudgetRequest(epsilon=1, totals_share=0.6, sums_share=0.5), "together below 1"),
    ],
    ids=str,
)
def test_requests_that_make_no_sense(request_: BudgetRequest, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        planning.choose(request_, UNIFORM)


def test_references() -> None:
    with pytest.raises(cdp.ParameterError, match="6 numbers"):
        reference.histogram_baseline(SPACE, [0.5, 0.5])
    with pytest.raises(cdp.ParameterError, match="within_share"):
        reference.histogram_baseline(SPACE, [1] * 6, within_share=0)


@pytest.mark.parametrize("within", [0.2, 0.6])
def test_kinds_of_clusters_average_to_the_whole(within: float) -> None:
    histogram = np.array([5.0, 3, 2, 2, 1, 1])
    kinds = reference.histogram_baseline(SPACE, histogram.tolist(), within).kinds[:, 0]
    np.testing.assert_allclose(kinds.mean(axis=0), histogram / histogram.sum())
    values = SPACE.as_array()
    means = kinds @ values
    spread = (kinds * (values - means[:, np.newaxis]) ** 2).sum(axis=1).mean()
    whole = histogram / histogram.sum()
    assert spread == pytest.approx(within * (whole @ (values - whole @ values) ** 2))
