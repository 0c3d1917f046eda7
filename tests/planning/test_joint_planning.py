"""Plans for several metrics: what is predicted of each, and what weights and metrics change."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_variance
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.planning import choose as planning
from clusterdp.planning.alternatives import smallest_epsilon
from clusterdp.planning.compare import compare
from clusterdp.precision.expected import Scenario, histogram_baseline
from clusterdp.precision.forecast import predict, purpose_variances
from clusterdp.precision.row_noise import NoiseCurve
from clusterdp.spec.purpose import parse_purpose
from clusterdp.spec.request import BudgetRequest
from coverage_rates import released_metrics
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism

FUNNEL = {"visit": "0,1", "order": "0,1", "spend": "0,10,40"}
IMPLIED = ("order -> visit", "spend>0 -> order", "order -> spend>0")
# No visit; a visit; a small and a large order.
SHARES = [0.7, 0.2, 0.07, 0.03]
LAYOUT = make_layout([[300, 300], [200, 250], [500, 400]])


def funnel(**more: Any) -> Scenario:
    space = Categories(declared=declare(FUNNEL, constraints=IMPLIED, **more))
    return Scenario(LAYOUT, space, histogram_baseline(space, SHARES))


def simulated_effects(
    scenario: Scenario, mechanism: Mechanism, rng: np.random.Generator, n_replicates: int
) -> list[FloatArray]:
    """Estimates of each metric from fresh outcomes and fresh releases; axes `[replicate]`."""
    layout, space = scenario.layout, scenario.space
    counts = np.stack(
        [[rng.multinomial(size, SHARES, n_replicates) for size in row] for row in layout.sizes]
    )
    counts = np.moveaxis(counts, 2, 0)  # [replicate, cluster, arm, category]
    nobody = np.zeros_like(counts)
    found = released_metrics(counts, nobody, layout, space, mechanism, rng)
    return [one.effects[:, 0] for one in found]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_privacy_noise_of_rows_is_that_of_the_channel(epsilon: float) -> None:
    """Exactly, from the probabilities and outputs of the channel."""
    known = funnel()
    mechanism = cdp.optimal(epsilon=epsilon, prior=SHARES)
    channel = mechanism.settled_rows(known.space).public_channel(known.space)
    probs = channel.transition()[0] @ np.diag(SHARES)  # [released, true]
    sizes = LAYOUT.sizes
    weights = (sizes.sum(axis=1, keepdims=True) / sizes.sum()) ** 2 / sizes
    for metric, values in enumerate(known.space.metric_values()):
        outputs = channel.decode(metric)[0]
        noise = (probs * (outputs[:, np.newaxis] - values) ** 2).sum()
        mean = values @ SHARES
        spread = ((values - mean) ** 2) @ SHARES
        for share in (1.0, 0.25):
            found = predict(mechanism, known)[metric].segment(share)
            assert found is not None
            assert found.privacy_std_error**2 == pytest.approx(noise * weights.sum() / share)
            assert found.sampling_std_error**2 == pytest.approx(spread * weights.sum() / share)


@pytest.mark.parametrize(
    "mechanism",
    [
        cdp.optimal(epsilon=1, prior=SHARES, sums=cdp.SumShares(clusters=0.3)),
        cdp.optimal(epsilon=3, prior=SHARES),
        cdp.uniform_prior_dp(epsilon=2, sums=cdp.SumShares(clusters=0.2)),
    ],
    ids=["sums", "rows", "uniform"],
)
def test_predictions_of_every_metric_come_true(
    mechanism: Mechanism, rng: np.random.Generator
) -> None:
    known = funnel()
    drawn = simulated_effects(known, mechanism, rng, 4000)
    predicted = [one.overall.std_error**2 for one in predict(mechanism, known)]
    for effects, variance in zip(drawn, predicted, strict=True):
        assert_variance(effects, variance, relative_error=0.03)
    # A planner that mixes metrics up must be caught.
    with pytest.raises(AssertionError):
        assert_variance(drawn[0], predicted[1], relative_error=0.03)


def test_a_weight_moves_noise_from_its_metric_to_others() -> None:
    """A larger weight on one variance cannot raise it at the optimum, nor lower all others."""
    mechanism = cdp.optimal(epsilon=1, prior=SHARES)
    plain, weighted = funnel(), funnel(weights={"visit": 20})
    before = [one.overall.privacy_std_error for one in predict(mechanism, plain)]
    after = [one.overall.privacy_std_error for one in predict(mechanism, weighted)]
    assert after[0] < 0.98 * before[0]
    assert max(after[1] / before[1], after[2] / before[2]) > 1.001


@pytest.mark.parametrize("purpose", ["overall", "segments:0.1"])
def test_the_split_is_within_a_hundredth_of_the_best(purpose: str) -> None:
    """Against a search that designs every channel, without interpolation."""
    known = funnel()
    chosen = planning.choose(BudgetRequest(epsilon=1.7, optimize_for=purpose), known)
    wanted = parse_purpose(purpose)

    def objective(mechanism: Mechanism) -> float:
        return math.sqrt(purpose_variances(predict(mechanism, known), wanted, known).max())

    searched = [
        cdp.optimal(epsilon=1.7, prior=SHARES, sums=cdp.SumShares(totals=totals, clusters=clusters))
        for totals in (0.0, 0.02, 0.05, 0.1, 0.3, 0.6)
        for clusters in (0.0, 0.05, 0.1, 0.3)
    ]
    assert objective(chosen) <= 1.01 * min(map(objective, searched))


def test_noise_between_designed_channels_is_interpolated() -> None:
    """The weighted noise within 2%; single metrics may trade noise, and stay within 10%."""
    known = funnel()
    like = cdp.optimal(epsilon=1, prior=SHARES)
    weights = known.space.metric_weights(np.array(SHARES))
    for epsilon in (0.3, 0.85, 1.2, 1.7, 2.4, 3.4):
        mechanism = cdp.optimal(epsilon=epsilon, prior=SHARES)
        rows = mechanism.settled_rows(known.space).public_channel(known.space)
        exact = np.array([rows.noise_variance(metric)[0] @ SHARES for metric in range(3)])
        found = NoiseCurve(like, known)(np.array(epsilon)).by_arm.mean(axis=-1)
        assert weights @ found == pytest.approx(weights @ exact, rel=0.02)
        np.testing.assert_allclose(found, exact, rtol=0.1)


def test_mechanisms_that_cannot_serve_are_left_out() -> None:
    (compared,) = compare([BudgetRequest(epsilon=1)], [funnel()])
    names = [option.name for option in compared.options]
    assert "noisy-horvitz-thompson" not in names
    assert {"optimal", "cluster-dp", "noisy-histogram"} <= set(names)
    assert all(len(option.overall) == 3 for option in compared.options)
    with pytest.raises(cdp.ParameterError, match="noisy contrasts cover one metric"):
        compare([BudgetRequest(epsilon=1, mechanism="noisy-horvitz-thompson")], [funnel()])


@pytest.mark.parametrize("metric", [0, 2])
def test_the_smallest_epsilon_for_an_effect_on_a_metric(metric: int) -> None:
    known, request = funnel(), BudgetRequest(mechanism="optimal", optimize_for="segments:0.5")
    at_one = planning.choose(
        BudgetRequest(mechanism="optimal", epsilon=1, optimize_for="segments:0.5"), known
    )
    segment = predict(at_one, known)[metric].segment(0.5)
    assert segment is not None
    effect = segment.detectable_effect
    least = smallest_epsilon([request], effect, [known], (0, metric))
    assert least == pytest.approx(1, rel=0.03)
    found = planning.choose(replace(request, epsilon=least), known)
    kept = predict(found, known)[metric].segment(0.5)
    assert kept is not None
    assert kept.detectable_effect <= effect * (1 + 1e-6)


@pytest.mark.parametrize("within", [0.3, 0.8])
def test_clusters_differ_in_the_first_metric(within: float) -> None:
    space = funnel().space
    kinds = histogram_baseline(space, SHARES, within).kinds[:, 0]
    np.testing.assert_allclose(kinds.mean(axis=0), SHARES)
    visits = space.metric_values()[0]
    means = kinds @ visits
    spread = (kinds * (visits - means[:, np.newaxis]) ** 2).sum(axis=1).mean()
    whole = visits @ SHARES
    assert spread == pytest.approx(within * whole * (1 - whole))
    # Among visitors of any cluster, orders are as frequent as among all.
    with_visits = kinds[means > 0]
    orders = with_visits @ space.metric_values()[1] / (with_visits @ visits)
    np.testing.assert_allclose(orders, 0.1 / 0.3)
