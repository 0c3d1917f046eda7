"""The four populations of the coverage study, and small ones for exact tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.cells.layout import Layout
from clusterdp.estimation.means.responses import CellMoments
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.studies.simulation import Population

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.outcomes.space import CategorySpace


def make_layout(sizes: IntArray | list[list[int]], control: int = 0) -> Layout:
    sizes = np.array(sizes)
    return Layout(
        clusters=tuple(f"c{index}" for index in range(len(sizes))),
        arms=tuple(range(sizes.shape[1])),
        control=control,
        sizes=sizes,
    )


def from_units(
    clusters: IntArray, outcomes: IntArray, space: CategorySpace, n_arms: int
) -> Population:
    """A population of units given one by one; `outcomes` are codes with axes `[unit, arm]`.

    Each cluster is shared out among the arms as evenly as possible.
    """
    types, kinds = np.unique(outcomes, axis=0, return_inverse=True)
    counts = np.zeros((clusters.max() + 1, len(types)), dtype=np.int64)
    np.add.at(counts, (clusters, kinds.ravel()), 1)
    cluster_sizes = counts.sum(axis=1)
    sizes = np.stack([(cluster_sizes + arm) // n_arms for arm in range(n_arms)], axis=1)
    return Population(
        type_outcomes=types, type_counts=counts, layout=make_layout(sizes), space=space
    )


def experiment_one(rng: np.random.Generator) -> Population:
    """The paper's Experiment 1: K'=5, v=5, β=4.5, clusters of 500, 1000 and 2000, τ=1."""
    half, variance, between = 5, 5.0, 4.5
    clusters = np.repeat(np.arange(3), [500, 1000, 2000])
    latent = np.sqrt(between) * rng.normal(size=3)[clusters]
    latent += np.sqrt(variance - between) * rng.normal(size=len(clusters))
    step = 2 * np.sqrt(variance) / half
    control = np.clip(np.rint(latent / step), -half, half).astype(np.int64) + half
    return from_units(
        clusters,
        np.stack([control, control + 1], axis=1),
        OutcomeSpace.integers(-half, half + 1),
        n_arms=2,
    )


def many_small_clusters(rng: np.random.Generator) -> Population:
    """200 clusters of 20 to 60 units, outcomes 0 to 5, effects that differ between units."""
    clusters = np.repeat(np.arange(200), rng.integers(20, 61, size=200))
    rate = rng.uniform(0.1, 0.7, size=200)[clusters]
    control = rng.binomial(4, rate)
    treated = control + rng.binomial(1, 0.3, size=len(clusters))
    return from_units(
        clusters, np.stack([control, treated], axis=1), OutcomeSpace.integers(0, 5), n_arms=2
    )


def rare_binary(rng: np.random.Generator) -> Population:
    """A binary outcome at a 2% rate, 40 clusters of 200 to 800 units."""
    clusters = np.repeat(np.arange(40), rng.integers(200, 801, size=40))
    control = rng.random(len(clusters)) < 0.02
    treated = control | (rng.random(len(clusters)) < 0.01)
    return from_units(
        clusters,
        np.stack([control, treated], axis=1).astype(np.int64),
        OutcomeSpace.binary(),
        n_arms=2,
    )


def three_arms(rng: np.random.Generator) -> Population:
    """Three arms, 12 clusters of 150 to 400 units, outcomes 0 to 4."""
    clusters = np.repeat(np.arange(12), rng.integers(150, 401, size=12))
    control = rng.binomial(3, rng.uniform(0.1, 0.6, size=12)[clusters])
    lift = rng.binomial(1, 0.4, size=len(clusters))
    return from_units(
        clusters,
        np.stack([control, control, control + lift], axis=1),
        OutcomeSpace.integers(0, 4),
        n_arms=3,
    )


def true_moments(counts: IntArray, space: CategorySpace) -> CellMoments:
    """Moments of true outcomes; axes of `counts`: `[..., cluster, arm, outcome]`."""
    values = space.metric_values()[0]
    sizes = counts.sum(axis=-1)
    means = counts @ values / np.maximum(sizes, 1)
    squares = (counts * (values - means[..., np.newaxis]) ** 2).sum(axis=-1)
    return CellMoments(sizes=sizes, means=means, squares=squares, noise=np.zeros_like(means))
