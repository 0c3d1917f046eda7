"""What outcomes are thought to be like before any is read. It decides efficiency, nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.outcomes.space import metric_moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace


# Clusters are thought to be of this many kinds, where they are thought to differ.
_KINDS = 8
# Stands for a mass of zero, so that its inverse exists.
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedOutcomes:
    """A declared distribution of outcomes.

    Attributes:
        kinds: Distributions that clusters have; axes `[kind, arm or 1, category]`. Cluster c is of
            kind c modulo their number.
        is_declared: False where nothing is known and outcomes are taken as uniform.
    """

    kinds: FloatArray
    is_declared: bool = True

    @property
    def differs(self) -> bool:
        """Whether clusters are thought to differ: only then can noisy counts be worth it."""
        return bool(np.ptp(self.kinds, axis=(0, 1)).max() > 1e-9)


@dataclass(frozen=True, eq=False)
class Scenario:
    """A question as it is seen before any outcome is read: all that a prediction is made from.

    Attributes:
        layout: Clusters, arms and cell sizes.
        space: The outcome space.
        baseline: What outcomes are thought to be like.
    """

    layout: Layout
    space: CategorySpace
    baseline: ExpectedOutcomes

    @cached_property
    def probs(self) -> FloatArray:
        """The distribution of every cell; axes `[cluster, arm or 1, category]`."""
        return self.baseline.kinds[np.arange(len(self.layout.clusters)) % len(self.baseline.kinds)]

    @cached_property
    def overall(self) -> FloatArray:
        """The distribution of all units together; axes `[category]`."""
        weights = self.layout.sizes[..., np.newaxis] / self.layout.n_units
        return np.asarray((weights * self.probs).sum(axis=(0, 1)))

    @property
    def weights(self) -> FloatArray:
        """How much the variance of each metric counts in what is minimised; axes `[metric]`."""
        return self.space.metric_weights(self.overall if self.baseline.is_declared else None)

    @property
    def is_joint(self) -> bool:
        """Whether there are several metrics, so that one channel serves them all."""
        return len(self.space.metric_values()) > 1

    def moments(self) -> list[tuple[float, float]]:
        """The mean and the standard deviation that are expected of each metric."""
        return metric_moments(self.space, self.overall)


def uniform_baseline(space: CategorySpace) -> ExpectedOutcomes:
    """Nothing is known."""
    probs = np.full((1, 1, space.n_categories), 1 / space.n_categories)
    return ExpectedOutcomes(kinds=probs, is_declared=False)


def histogram_baseline(
    space: CategorySpace,
    histogram: Sequence[float],
    within_share: float = 1.0,
    cluster_sizes: IntArray | None = None,
) -> ExpectedOutcomes:
    """A public histogram, and how alike clusters are.

    Args:
        space: The outcome space.
        histogram: One number per category, in any unit.
        within_share: The share of the first metric's variance that lies within clusters: 1 if
            clusters are alike, near 0 if each has nearly one value. Other metrics differ between
            clusters as far as they depend on the first.
        cluster_sizes: How many units each cluster has, so that all of them together have the
            histogram; by default as many.
    """
    probs = np.array(histogram, dtype=np.float64)
    sound = np.isfinite(probs).all() and (probs >= 0).all() and probs.sum() > 0
    if len(probs) != space.n_categories or not sound:
        raise ParameterError(
            f"prior must be {space.n_categories} numbers of at least 0, one per category, "
            f"got {len(probs)}"
        )
    probs = probs / probs.sum()
    if not 0 < within_share <= 1:
        raise ParameterError(f"within_share must lie in (0, 1], got {within_share}")
    if within_share == 1:
        return ExpectedOutcomes(kinds=probs[np.newaxis, np.newaxis])
    weights = _kind_weights(cluster_sizes)
    kinds = _kinds(space.metric_values()[0], probs, within_share, weights)
    return ExpectedOutcomes(kinds=kinds[:, np.newaxis])


def _kind_weights(cluster_sizes: IntArray | None) -> FloatArray:
    """The share of all units in the clusters of each kind; axes `[kind]`."""
    sizes = np.ones(_KINDS) if cluster_sizes is None else cluster_sizes
    weights = np.bincount(np.arange(len(sizes)) % _KINDS, sizes, minlength=_KINDS)
    return np.asarray(weights / weights.sum())


def _kinds(
    values: FloatArray, probs: FloatArray, within_share: float, weights: FloatArray
) -> FloatArray:
    """Kinds of clusters that average to the whole, with the given share of variance within.

    A kind is the whole mixed with one of its slices between two quantiles of the values. The means
    of slices spread the most that is possible; mixing takes that back to where it is wanted.
    Categories of one value keep their proportions in every kind.
    """
    levels, of_category = np.unique(values, return_inverse=True)
    masses = np.bincount(of_category, probs).astype(np.float64)
    slices = _slices(masses, weights)
    mean = masses @ levels
    between = weights @ (slices @ levels - mean) ** 2
    variance = masses @ (levels - mean) ** 2
    mixed = min(1.0, math.sqrt((1 - within_share) * variance / between)) if between else 0.0
    shares = probs / np.maximum(masses, _TINY)[of_category]
    return np.asarray((1 - mixed) * probs + mixed * slices[:, of_category] * shares)


def _slices(masses: FloatArray, weights: FloatArray) -> FloatArray:
    """The distributions between quantiles of a whole; axes `[kind, level]`.

    A slice is as wide as its kind has units. A kind without any is as the whole.
    """
    ends = np.concatenate([[0.0], np.cumsum(masses)])
    edges = np.concatenate([[0.0], np.cumsum(weights)])
    overlap = np.minimum(ends[1:], edges[1:, np.newaxis]) - np.maximum(
        ends[:-1], edges[:-1, np.newaxis]
    )
    widths = np.where(weights > 0, weights, 1.0)[:, np.newaxis]
    found = np.where(weights[:, np.newaxis] > 0, np.maximum(overlap, 0.0) / widths, masses)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
