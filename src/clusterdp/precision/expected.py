"""What outcomes are thought to be like before any is read. It decides efficiency, nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError

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
        rounding: The variance that rounding numbers to their grids adds to each metric: categories
            are of rounded numbers. Empty where it adds none.
    """

    kinds: FloatArray
    is_declared: bool = True
    rounding: tuple[float, ...] = ()

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
    def rounding(self) -> FloatArray:
        """The variance that rounding adds to each metric; axes `[metric]`."""
        rounding = self.baseline.rounding
        return np.array(rounding) if rounding else np.zeros(len(self.space.metric_values()))

    @cached_property
    def factors(self) -> FloatArray:
        """What is estimated, as a sum of metrics; axes `[estimated, metric]`.

        A mean N/D among units with an observed outcome is linearized: (N − θD)/E[D], with θ and
        E[D] of all units together.
        """
        values = self.space.metric_values()
        means, factors = values @ self.overall, np.eye(len(values))
        for metric, ratio in self.space.of_observed().items():
            factors[metric, ratio.observed] = -means[metric] / means[ratio.observed]
            factors[metric] /= means[ratio.observed]
        return factors

    @cached_property
    def weights(self) -> FloatArray:
        """How much the variance of each metric counts in what is minimized; axes `[metric]`.

        Metrics count relative to variances of true outcomes, not of rounded ones.
        """
        if not self.baseline.is_declared:
            return self.space.metric_weights(None)
        weights = self.space.metric_weights(self.overall)
        linear = self.factors @ self.space.metric_values()
        rounded = self.overall @ (linear.T - linear @ self.overall) ** 2
        true = without_rounding(rounded, self.factors**2 @ self.rounding)
        more = np.divide(rounded, true, out=np.ones_like(true), where=true > 0) - 1
        # What is wanted of a ratio N/D counts for D as well.
        own = weights * more
        counted = weights + own
        for metric, ratio in self.space.of_observed().items():
            share = self.factors[metric, ratio.observed] / self.factors[metric, metric]
            counted[ratio.observed] += share**2 * own[metric]
        return np.asarray(counted)

    @property
    def is_joint(self) -> bool:
        """Whether there are several metrics, so that one channel serves them all."""
        return len(self.space.metric_values()) > 1

    def moments(self) -> list[tuple[float, float]]:
        """The mean and the deviation to expect of each metric where its outcome is observed."""
        every, ratios, found = self.space.metric_values(), self.space.of_observed(), []
        for index, values in enumerate(every):
            weights, origin, share = self.overall, 0.0, 1.0
            if index in ratios:
                observed, origin = ratios[index]
                weights = weights * every[observed]
                share = max(float(weights.sum()), np.finfo(float).tiny)
                weights = weights / share
            mean = float(weights @ values)
            spread = weights @ (values - mean) ** 2
            true = without_rounding(spread, self.rounding[index] / share)
            found.append((origin + mean, math.sqrt(true)))
        return found


def without_rounding(variance: FloatArray, rounding: FloatArray) -> FloatArray:
    """The variance of true outcomes, from that of rounded ones and what rounding adds."""
    return np.asarray(np.maximum(variance - rounding, 0.0))


def uniform_baseline(space: CategorySpace) -> ExpectedOutcomes:
    """Nothing is known."""
    probs = np.full((1, 1, space.n_categories), 1 / space.n_categories)
    return ExpectedOutcomes(kinds=probs, is_declared=False)


def histogram_baseline(
    space: CategorySpace,
    histogram: Sequence[float],
    within_share: float = 1.0,
    cluster_sizes: IntArray | None = None,
    rounding: tuple[float, ...] = (),
) -> ExpectedOutcomes:
    """A public histogram, and how similar clusters are.

    Args:
        space: The outcome space.
        histogram: One number per category, in any unit.
        within_share: The share of the first metric's variance that lies within clusters: 1 if
            clusters are equal, near 0 if each has nearly one value. Other metrics differ between
            clusters as far as they depend on the first.
        cluster_sizes: How many units each cluster has, so that all of them together have the
            histogram; by default as many.
        rounding: What rounding adds to the variance of each metric, see `ExpectedOutcomes`.
    """
    probs = np.array(histogram, dtype=np.float64)
    sound = np.isfinite(probs).all() and (probs >= 0).all() and probs.sum() > 0
    if len(probs) != space.n_categories or not sound:
        raise ParameterError(
            f"prior must be {space.n_categories} numbers of at least 0, one per outcome "
            f"combination, got {len(probs)}"
        )
    probs = probs / probs.sum()
    if not 0 < within_share <= 1:
        raise ParameterError(f"within_share must lie in (0, 1], got {within_share}")
    if within_share == 1:
        return ExpectedOutcomes(kinds=probs[np.newaxis, np.newaxis], rounding=rounding)
    sizes = np.ones(_KINDS) if cluster_sizes is None else cluster_sizes
    weights = np.bincount(np.arange(len(sizes)) % _KINDS, sizes, minlength=_KINDS)
    values, within_rows = space.metric_values()[0], rounding[0] if rounding else 0.0
    # Rounding is within clusters, so that it counts for neither part of the variance.
    spread = without_rounding(probs @ (values - probs @ values) ** 2, np.array(within_rows))
    between = (1 - within_share) * float(spread)
    kinds = _kinds(values, probs, between, weights / weights.sum())
    return ExpectedOutcomes(kinds=kinds[:, np.newaxis], rounding=rounding)


def _kinds(
    values: FloatArray, probs: FloatArray, between: float, weights: FloatArray
) -> FloatArray:
    """Kinds of clusters that average to the whole, with the given variance between them.

    A kind is the whole mixed with one of its slices between two quantiles of the values. The means
    of slices spread the most that is possible; mixing takes that back to where it is wanted.
    Categories of one value keep their proportions in every kind.
    """
    levels, of_category = np.unique(values, return_inverse=True)
    masses = np.bincount(of_category, probs).astype(np.float64)
    slices = _slices(masses, weights)
    mean = masses @ levels
    most = weights @ (slices @ levels - mean) ** 2
    mixed = min(1.0, math.sqrt(between / most)) if most else 0.0
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
