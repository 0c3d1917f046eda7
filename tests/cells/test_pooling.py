"""Which clusters are pooled must not follow from how their units came into arms."""

from __future__ import annotations

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.cells.assignment import check_assignment, pool_small_clusters
from clusterdp.cells.layout import LARGEST_WEIGHT, Layout, stratified_weights


def layout_of(sizes: list[list[int]]) -> Layout:
    n_clusters, n_arms = np.shape(sizes)
    return Layout(
        clusters=tuple(range(n_clusters)),
        arms=tuple(range(n_arms)),
        control=0,
        sizes=np.array(sizes, dtype=np.int64),
    )


def assigned(n_units: np.ndarray, share: float, rng: np.random.Generator) -> Layout:
    treated = rng.binomial(n_units, share)
    return layout_of(np.stack([n_units - treated, treated], axis=1).tolist())


def test_clusters_with_every_arm_stay_as_they_are() -> None:
    layout = layout_of([[3, 1], [5, 5]])
    assert pool_small_clusters(layout, None).layout is layout
    assert pool_small_clusters(layout, 1).layout is layout


def test_all_clusters_that_could_lack_an_arm_are_pooled_if_one_does() -> None:
    """By their sizes alone: of 10 units all are in one arm with probability 0.002, of 60 never."""
    pooled = pool_small_clusters(layout_of([[3, 0], [1, 2], [5, 5], [30, 30]]), None)
    assert pooled.layout.clusters == ("3", "pooled")
    assert pooled.layout.sizes.tolist() == [[30, 30], [9, 7]]
    assert pooled.regroup is not None
    assert pooled.regroup.tolist() == [1, 1, 1, 0]
    assert "3 clusters of at most 10 units were pooled" in pooled.notes[0]


def test_what_lacks_an_arm_by_design_is_left_out_and_said() -> None:
    pooled = pool_small_clusters(layout_of([[300, 0], [90, 90], [400, 400]]), None)
    assert pooled.regroup is None
    assert pooled.layout.complete.tolist() == [False, True, True]
    assert "leave out 1 cluster (300 units) without units in some arm." in pooled.notes[0]


def test_who_is_pooled_does_not_follow_from_assignment() -> None:
    """The bias of 0.1.

    Sizes 1 to 6, a fifth treated, outcomes that follow from size: pooled by the counts of arms,
    the pool had treated units of small clusters and control units of large ones, and an effect of
    0.087 where there is none. False alarm: 4.5 standard errors, 7e-6.
    """
    rng = np.random.default_rng()
    n_units = np.tile(np.arange(1, 7), 200)
    effects = []
    for _ in range(300):
        layout = assigned(n_units, 0.2, rng)
        pooled = pool_small_clusters(layout, 2)
        outcome = np.where(n_units > 3, 1.0, 0.0)[:, np.newaxis] * layout.sizes
        codes = np.arange(len(n_units)) if pooled.regroup is None else pooled.regroup
        sums = np.zeros(pooled.layout.sizes.shape)
        np.add.at(sums, codes, outcome)
        means = sums / pooled.layout.sizes
        weights = pooled.layout.sizes.sum(axis=1) / pooled.layout.n_units
        effects.append(weights @ (means[:, 1] - means[:, 0]))
    error = np.std(effects, ddof=1) / np.sqrt(len(effects))
    assert abs(np.mean(effects)) < 4.5 * error + 1e-12


def test_arms_assigned_to_clusters_are_refused_and_households_are_not() -> None:
    by_school = np.array([[30, 0], [0, 25]] * 10)
    with pytest.raises(cdp.DataError, match="--randomization-unit"):
        check_assignment(layout_of(by_school.tolist()))
    rng = np.random.default_rng()
    check_assignment(assigned(np.full(400, 2), 0.5, rng))
    check_assignment(assigned(np.full(400, 1), 0.5, rng))


def test_weights_are_stratified_rounded_and_capped() -> None:
    rng = np.random.default_rng()
    layout = assigned(rng.integers(20, 110, 79), 0.35, rng)
    weights = stratified_weights(layout, 4.0)
    assert weights.min() >= 1
    assert weights.max() == LARGEST_WEIGHT
    inverse = layout.sizes.sum(axis=1, keepdims=True) / layout.sizes
    below = weights < LARGEST_WEIGHT
    for arm in range(2):
        scale = weights[below[:, arm], arm] / inverse[below[:, arm], arm]
        np.testing.assert_allclose(scale, scale.mean(), rtol=0.06)  # rounding of at least 10


def test_units_of_a_cluster_that_lacks_an_arm_are_in_no_total() -> None:
    """They have no weight, and the cap of the others is as if they were not there."""
    sizes = [[100, 50], [40, 60], [30, 0]]
    weights = stratified_weights(layout_of(sizes), 4.0)
    assert (weights[2] == 0).all()
    np.testing.assert_array_equal(weights[:2], stratified_weights(layout_of(sizes[:2]), 4.0))


def test_one_tiny_cell_does_not_decide_the_weights() -> None:
    sizes = np.full((50, 2), 100)
    sizes[0] = [199, 1]
    weights = stratified_weights(layout_of(sizes.tolist()), 50.0)
    assert (weights[1:, 1] > LARGEST_WEIGHT / 3).all()
    assert (stratified_weights(layout_of([[70, 30]]), 1.0) == LARGEST_WEIGHT).all()
