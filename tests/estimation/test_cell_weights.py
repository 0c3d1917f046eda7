"""What cells count for in a segment: both arms stand for the same people, without bias."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bench.interval_coverage import DESIGNS, Design, Units, draw_units, segment_effects
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA, assert_mean
from clusterdp.estimation.means import weights as cell_weights
from clusterdp.estimation.means.arms import true_effects
from clusterdp.estimation.means.responses import CellMoments
from populations import make_layout, true_moments

if TYPE_CHECKING:
    from clusterdp.cells.layout import Layout

SPACE = cdp.OutcomeSpace.integers(0, 4)
# How often 95% intervals must cover in so many replicates, if they cover 93.5% at least.
N_REPLICATES = 4000
LOWEST = float(stats.binom(N_REPLICATES, 0.935).ppf(ALPHA)) / N_REPLICATES


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.floats(0.02, 1.0))
def test_weights_add_up_to_one(seed: int, n_arms: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    layout = make_layout(rng.integers(1, 60, size=(rng.integers(1, 30), n_arms)))
    sizes = rng.binomial(layout.sizes, share)
    for arm in range(1, n_arms):
        weights = cell_weights.weigh_cells(sizes, layout, [0, arm]) if sizes.sum() else None
        if weights is None or not weights.sizes.sum(axis=0).all():
            continue
        np.testing.assert_allclose(weights.shares.sum(axis=0), 1.0)
        assert (weights.shares >= 0).all()
        alone = ~weights.pooled[:, 0]
        people = sizes.sum(axis=1) / sizes.sum()  # of all arms, not of the two alone
        np.testing.assert_allclose(weights.shares[alone], np.stack([people[alone]] * 2, axis=1))
        assert (weights.sizes[alone][people[alone] > 0] >= 2).all()


def test_the_pool_is_chosen_before_arms_are_drawn(rng: np.random.Generator) -> None:
    """The same clusters in every replicate, but for those in which an arm has fewer than two."""
    units = draw_units(DESIGNS[0], 0.1, rng)
    counts = units.population().assign(500, rng)[..., SPACE.n_categories :].sum(axis=-1)
    pooled = cell_weights.weigh_cells(counts, units.layout, [0, 1]).pooled[..., 0]
    usual = np.median(pooled, axis=0) > 0
    assert usual.any()
    assert not usual.all()
    assert pooled[:, usual].all()
    drawn_few = (counts < 2).any(axis=-1)
    assert (pooled[:, ~usual] == drawn_few[:, ~usual]).all()
    # At most 5e-4 of either arm; 500 draws of up to 40 clusters.
    assert drawn_few[:, ~usual].sum() <= stats.binom(500 * 40, 1e-3).isf(ALPHA)


def drawn_moments(layout: Layout, rng: np.random.Generator) -> CellMoments:
    counts = np.stack([[rng.multinomial(size, [0.2] * 5) for size in row] for row in layout.sizes])
    return true_moments(counts, SPACE)


def test_everyone_as_a_segment_has_neymans_variance(rng: np.random.Generator) -> None:
    """The pool of all clusters has it too, but for its small-sample factor."""
    layout = make_layout(rng.integers(2, 30, size=(25, 2)))
    moments = drawn_moments(layout, rng)
    weights = cell_weights.weigh_cells(layout.sizes, layout, [0, 1])
    assert not weights.pooled.any()
    shares = layout.sizes.sum(axis=1) / layout.n_units
    found = true_effects(moments, layout, "stratified")
    assert found.effects == pytest.approx(shares @ (moments.means[:, 1] - moments.means[:, 0]))
    within = moments.squares / (layout.sizes - 1) / layout.sizes
    neyman = (shares**2 @ within).sum()
    assert found.variances == pytest.approx(neyman)
    pooled = replace(weights, pooled=np.ones_like(weights.pooled))
    together = cell_weights.arm_variances(moments, pooled).sum()
    factors = pooled.pool_factors()
    assert (factors > 1).all()
    assert neyman * factors.min() <= together * (1 + 1e-12)
    assert together <= neyman * factors.max() * (1 + 1e-12)


def test_weighing_units_alike_is_one_cluster(rng: np.random.Generator) -> None:
    layout = make_layout(rng.integers(2, 30, size=(25, 2)))
    counts = np.stack([[rng.multinomial(size, [0.2] * 5) for size in row] for row in layout.sizes])
    found = true_effects(true_moments(counts, SPACE), layout, "unstratified")
    merged = make_layout(layout.sizes.sum(axis=0, keepdims=True))
    whole = true_moments(counts.sum(axis=0, keepdims=True), SPACE)
    plain = true_effects(whole, merged, "stratified")
    np.testing.assert_allclose(found.effects, plain.effects)
    np.testing.assert_allclose(found.variances, plain.variances)
    assert found.degrees is not None
    assert plain.degrees is not None
    np.testing.assert_allclose(found.degrees, plain.degrees)


def test_clusters_without_an_arm_count_for_nothing(rng: np.random.Generator) -> None:
    """Whatever their outcomes: effects are as if they were not there."""
    layout = make_layout([[20, 30], [0, 40], [25, 15], [7, 0]])
    moments = drawn_moments(layout, rng)
    compared = layout.compared()
    assert len(compared.clusters) == 2
    chosen = CellMoments(
        **{name: getattr(moments, name)[[0, 2]] for name in ("sizes", "means", "squares", "noise")}
    )
    found = true_effects(moments, layout, "stratified")
    expected = true_effects(chosen, compared, "stratified")
    np.testing.assert_allclose(found.effects, expected.effects)
    np.testing.assert_allclose(found.variances, expected.variances)


STUDIED = [
    (DESIGNS[0], cdp.optimal(epsilon=4), (0.01, 0.05, 0.1, 0.5)),
    (DESIGNS[1], cdp.optimal(epsilon=4), (0.05,)),
    (DESIGNS[2], cdp.optimal(epsilon=1), (0.05,)),
    (DESIGNS[3], cdp.optimal(epsilon=4, sums=cdp.SumShares(clusters=0.3)), (0.1, 0.5)),
    (DESIGNS[4], cdp.optimal(epsilon=1, sums=cdp.SumShares(clusters=0.5)), (0.1,)),
    (DESIGNS[0], cdp.optimal(epsilon=1, sums=cdp.SumShares(totals=0.1)), (0.01, 0.1, 0.5)),
    (DESIGNS[5], cdp.cluster_dp(noise_scale=4, prior_floor=0.05, epsilon=4), (0.05, 0.5)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("design", "mechanism", "share"),
    [(design, mechanism, share) for design, mechanism, shares in STUDIED for share in shares],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_segments_are_covered_without_bias(
    design: Design, mechanism: cdp.Mechanism, share: float, rng: np.random.Generator
) -> None:
    """A part of `make bench-coverage`; false alarms: ALPHA for each rate and each bias."""
    units = draw_units(design, share, rng)
    found = segment_effects(units, mechanism, N_REPLICATES, rng)
    for effects, truth in zip(found, units.truth(), strict=True):
        errors = np.array([effect.effect for effect in effects]) - truth
        bounds = np.array([effect.ci() for effect in effects])
        rate = ((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).mean()
        assert LOWEST <= rate <= 0.99, rate
        assert_mean(errors, 0, float(errors.std()))


def raw_effects(units: Units, rng: np.random.Generator) -> np.ndarray:
    """True outcomes, every unit of an arm counting the same."""
    counts = units.population().assign(N_REPLICATES, rng)[..., SPACE.n_categories :]
    sums = (counts @ SPACE.as_array()).sum(axis=1)
    means = sums / counts.sum(axis=(1, 3))
    return np.asarray(means[:, 1] - means[:, 0])


def test_raw_means_of_arms_are_biased(rng: np.random.Generator) -> None:
    """The negative control: shares that go with outcomes, and arms compared as they are."""
    units = draw_units(DESIGNS[0], 0.05, rng)
    found = raw_effects(units, rng)
    with pytest.raises(AssertionError, match="mean is off"):
        assert_mean(found - units.truth()[0], 0, float(found.std()))
