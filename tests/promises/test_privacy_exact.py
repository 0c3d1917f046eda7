"""The guarantee against every neighbour and every output of small cells: no sampling, no proof."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.contrasts import NoisyContrasts
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.noise import ALONE, noise_variance
from clusterdp.studies.claims import clustered, stated_epsilon
from enumeration import hockey_stick, joint_release, neighbours, worst_delta, worst_loss
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism

TWO, THREE = cdp.OutcomeSpace.binary(), cdp.OutcomeSpace.integers(-1, 1)
# Floating-point slack on a loss; the guarantee itself is rounded up.
SLACK = 1e-9


@pytest.mark.parametrize(
    ("mechanism", "space", "size", "reach"),
    [
        (cdp.cluster_dp(noise_scale=2, prior_floor=0.05, resample_prob=0.8), TWO, 20, 30),
        (cdp.cluster_dp(noise_scale=0.7, prior_floor=0.3, resample_prob=0.4), TWO, 6, 20),
        (cdp.cluster_dp(noise_scale=1.5, prior_floor=0.2, epsilon=2.5), THREE, 5, 12),
        (cdp.cluster_dp(noise_scale=4, prior_floor=1 / 3, resample_prob=0.9), THREE, 4, 12),
    ],
    ids=["two outcomes", "high floor", "three outcomes by budget", "uniform prior"],
)
def test_joint_loss_is_stated_and_reached(
    mechanism: Mechanism, space: cdp.OutcomeSpace, size: int, reach: int
) -> None:
    counts = mechanism.find(NoisyCounts)
    assert counts is not None
    release = joint_release(mechanism, space, size, reach, counts.noise_scale)
    stated = mechanism.guarantee(space).epsilon
    loss = worst_loss(release, size)
    assert loss <= stated + SLACK
    assert loss >= 0.99 * stated
    assert loss > stated_epsilon(mechanism, space)


@pytest.mark.parametrize("epsilon", [1.2, 2.0])
@pytest.mark.parametrize("delta", [1e-4, 0.02])
def test_joint_delta_is_stated_and_reached(epsilon: float, delta: float) -> None:
    """One rare outcome in a large cell: the floor binds whatever the noise, so δ is attained."""
    size, mechanism = (
        400,
        cdp.cluster_dp(noise_scale=2, prior_floor=0.1, epsilon=epsilon, delta=delta),
    )
    assert mechanism.guarantee(TWO).delta == delta
    assert mechanism.guarantee(TWO).epsilon <= epsilon
    release = joint_release(mechanism, TWO, size, reach=60, noise_scale=2)
    rare, none = (1, size - 1), (0, size)
    reached = hockey_stick(release.log_prob(rare, 0), release.log_prob(none, 1), epsilon)
    assert 0.99 * delta <= reached <= delta * (1 + SLACK)


@pytest.mark.parametrize("delta", [1e-4, 0.02, 0.2])
def test_joint_delta_holds_for_every_neighbour(delta: float) -> None:
    mechanism = cdp.cluster_dp(noise_scale=1.5, prior_floor=0.2, epsilon=1.8, delta=delta)
    release = joint_release(mechanism, TWO, size=8, reach=40, noise_scale=1.5)
    assert worst_delta(release, 8, epsilon=1.8) <= delta * (1 + SLACK)


@pytest.mark.parametrize("delta", [1e-6, 1e-4, 0.02])
def test_the_papers_accounting_lets_more_through_than_it_says(delta: float) -> None:
    mechanism = clustered(
        "Cluster-DP",
        epsilon=1.8,
        delta=delta,
        noise_scale=1.5,
        prior_floor=0.2,
        accounting="paper",
    )
    assert stated_epsilon(mechanism, TWO) == pytest.approx(1.8)
    assert mechanism.guarantee(TWO).epsilon > 1.8
    release = joint_release(mechanism, TWO, size=8, reach=40, noise_scale=1.5)
    assert worst_delta(release, 8, epsilon=1.8) > 1.5 * delta


def test_c1_the_prior_costs_two_over_sigma() -> None:
    """Counts (10, 10) → (9, 11) at σ=2: the prior alone loses 1.0, where the paper says 0.5."""
    mechanism = cdp.cluster_dp(noise_scale=2, prior_floor=0.01, resample_prob=0.5)
    release = joint_release(mechanism, TWO, size=20, reach=60, noise_scale=2)
    assert release.weights is not None
    priors, point_of = np.unique(release.weights, axis=0, return_inverse=True)
    before, after = (
        np.bincount(point_of.ravel(), np.exp(release.log_prob_counts(counts)), len(priors))
        for counts in ((10, 10), (9, 11))
    )
    loss = np.log(before / after)
    assert loss.max() == pytest.approx(2 / 2, rel=1e-6)
    delta_at_half = hockey_stick(np.log(before), np.log(after), 0.5)
    # A prior is (9, 11) noised, clipped and renormalized; some noise is lost in it, hence not
    # the 0.152 that the noisy counts themselves leak.
    assert delta_at_half == pytest.approx(0.128, abs=0.002)
    counts_delta = hockey_stick(
        release.log_prob_counts((10, 10)), release.log_prob_counts((9, 11)), 0.5
    )
    up = 1 / (1 + math.exp(-1 / 2))
    assert counts_delta == pytest.approx(up**2 * (1 - math.exp(0.5 - 1)), rel=1e-9)


def test_c2_a_high_floor_does_not_cap_the_cost_of_the_prior() -> None:
    """At σ=0.3, γ=0.45 the paper charges 2/γ = 4.4 at most per... its min(1/σ, 2/γ) = 3.3."""
    mechanism = cdp.cluster_dp(noise_scale=0.3, prior_floor=0.45, resample_prob=0.9)
    release = joint_release(mechanism, TWO, size=20, reach=20, noise_scale=0.3)
    paper = stated_epsilon(mechanism, TWO)
    assert worst_loss(release, 20) > paper + 3


class Recorder:
    """A noise source that adds a constant and remembers the scales it was asked for."""

    def __init__(self, constant: int) -> None:
        self.constant = constant
        self.scales: list[float] = []

    def __call__(self, values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        self.scales.append(scale)
        return values + self.constant


def contrast_loss(
    space: cdp.OutcomeSpace, sizes: list[int], epsilon: float, paper_scale: float | None = None
) -> float:
    """The largest loss of one cluster's noisy contrasts, over every neighbour of some tables.

    The loss of discrete Laplace noise under a shift is at most shift/scale, and reaches it.
    """
    layout = make_layout([sizes])
    statistic = cdp.noisy_horvitz_thompson(epsilon=epsilon).find(NoisyContrasts)
    assert statistic is not None
    n_outcomes, worst = space.n_categories, 0.0
    base = np.zeros((1, len(sizes), n_outcomes), dtype=np.int64)
    base[0, :, 0] = sizes

    def noiseless(counts: IntArray, constant: int) -> tuple[FloatArray, list[float]]:
        recorder = Recorder(constant)
        drawn = statistic.draw(CellTotals.from_counts(counts, space), layout, space, recorder)
        return drawn.values[0], recorder.scales

    zero, scales = noiseless(base, 0)
    step = noiseless(base, 1)[0] - zero
    for arm in range(len(sizes)):
        changed = base.copy()
        changed[0, arm, 0] -= 1
        changed[0, arm, -1] += 1
        shift = np.abs(noiseless(changed, 0)[0] - zero) / step
        used = np.array(scales if paper_scale is None else [paper_scale])
        worst = max(worst, float((shift / used).sum()))
    return worst


@pytest.mark.parametrize("sizes", [[3, 7], [7, 3], [5, 5], [4, 6, 9], [2, 3, 3, 8]])
def test_noisy_contrasts_cost_epsilon(sizes: list[int]) -> None:
    loss = contrast_loss(THREE, sizes, epsilon=0.8)
    assert loss <= 0.8 + SLACK
    if len(sizes) == 2 or max(sizes) != sizes[0]:
        # Reached when control is no larger than each treatment arm; with one treatment, always.
        assert loss >= 0.99 * 0.8


def test_c4_the_papers_sensitivity_is_too_small() -> None:
    """With Δ from max|y| = 1 instead of y_max − y_min = 2, the loss is twice the stated ε."""
    epsilon, sizes = 0.8, [3, 7]
    _, multiples = THREE.lattice()
    paper_scale = max(sizes) * max(map(abs, multiples)) / epsilon
    assert contrast_loss(THREE, sizes, epsilon, paper_scale) == pytest.approx(2 * epsilon)


def test_noisy_histogram_costs_epsilon() -> None:
    """Counts of a cell of 6 over three outcomes, every neighbour and every noise within reach."""
    epsilon, size = 0.9, 6
    mechanism = cdp.noisy_histogram(epsilon=epsilon)
    recorder = Recorder(0)
    counts = np.zeros((1, 2, 3), dtype=np.int64)
    counts[..., 0] = size
    statistic = mechanism.find(NoisyCounts)
    assert statistic is not None
    layout = make_layout([[size, size]])
    totals = CellTotals.from_counts(counts, THREE)
    drawn = statistic.draw(totals, layout, THREE, recorder)
    np.testing.assert_array_equal(drawn.noisy_counts, counts[0])
    (scale,) = set(recorder.scales)
    rows = cdp.cluster_dp(noise_scale=scale, prior_floor=0.2, resample_prob=0.5)
    release = joint_release(rows, THREE, size, reach=12, noise_scale=scale)
    loss = max(
        float((release.log_prob_counts(before) - release.log_prob_counts(after)).max())
        for before, after, _, _ in neighbours(size, 3)
    )
    assert mechanism.guarantee(THREE).epsilon <= epsilon
    assert 0.99 * epsilon <= loss <= epsilon + SLACK
    # C3: noise of the paper's scale 1/ε would lose twice as much.
    assert loss * scale * epsilon == pytest.approx(2 * epsilon)
    assert noise_variance(scale) < 2 * scale**2
