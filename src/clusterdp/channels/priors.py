"""Stage 2: from noisy counts to a prior over outcomes. Post-processing: it costs nothing.

Noisy frequencies of groups are shrunk towards a distribution as far as they are noisy. Frequencies
of neighbouring outcomes often differ from that distribution similarly: a histogram is smooth, and
an effect moves people to the next value. How similar they are is estimated from the noisy counts
themselves, so that heaps and single values are not smoothed away.

Cells with similar priors share a channel. Priors are public by then, so sharing costs nothing.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.base import PRIOR_TOTAL
from clusterdp.statistics.noise import nearest_distribution

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.statistics.base import Histogram


# How much of the noise that shrinking leaves is taken off every outcome.
_NOISE_PART = 0.8
# The largest correlation of neighbours: estimates of it are noisy.
_MOST_ALIKE = 0.8
# Stands for a variance of zero, so that its inverse exists.
_TINY = 1e-300


def shrink_frequencies(
    noisy_counts: IntArray, sizes: IntArray, noise_variance: float, centre: FloatArray
) -> FloatArray:
    """The distributions of groups, given how they are distributed on the whole.

    Empirical Bayes: with m the distribution that groups are shrunk towards, n a group's size and W
    the variance of the noise on a count, frequencies are taken to have the covariance

        S = ρ·D½·A·D½,   D = diag(m_y(1 − m_y)),   A_yz = a^|y − z|

    between groups, so that neighbours have correlation a. Their estimate is the best linear one,
    m + S(S + W/n²)⁻¹(count/n − m). It is projected onto the simplex. Part of the noise that is
    left is then taken off every outcome, because outcomes that hardly occur are often shown by
    noise alone.

    Args:
        noisy_counts: Axes `[..., group, outcome]`, outcomes in their order.
        sizes: The number of units of each group; axes `[group]`.
        noise_variance: W.
        centre: m, with no outcome impossible; axes `[..., group or 1, outcome]`.
    """
    n_units = sizes[:, np.newaxis].astype(np.float64)
    away = noisy_counts / n_units - centre
    root = np.sqrt(centre * (1 - centre))
    between, correlation = _differences(n_units * away, n_units * root, noise_variance)
    moved, kept = _best_linear(away, root, noise_variance / n_units**2, between, correlation)
    nearest = nearest_distribution(centre + moved)
    left = np.maximum(nearest - _NOISE_PART * kept * math.sqrt(noise_variance) / n_units, 0.0)
    # Where noise is larger than all there is, the likeliest outcomes say nothing either.
    shown = left.sum(axis=-1, keepdims=True)
    return np.where(shown > 0, left / np.maximum(shown, _TINY), nearest)


def _differences(
    away: FloatArray, root: FloatArray, noise_variance: float
) -> tuple[FloatArray, FloatArray]:
    """How frequencies differ between groups: ρ and a, axes `[..., 1, 1]`.

    Both are by moments, ρ from squares without their noise and ρ·a from neighbours' products.

    The noise of two outcomes is independent, so that it adds nothing to products on average.

    Args:
        away: Noisy counts less those expected of m; axes `[..., group, outcome]`.
        root: n·√(m(1 − m)); the same axes.
        noise_variance: W.
    """
    axes = (-2, -1)
    squares = (away**2 - noise_variance).sum(axis=axes, keepdims=True)
    between = np.clip(squares / (root**2).sum(axis=axes, keepdims=True), 0.0, 1.0)
    products = (away[..., 1:] * away[..., :-1]).sum(axis=axes, keepdims=True)
    possible = (root[..., 1:] * root[..., :-1]).sum(axis=axes, keepdims=True)
    correlation = np.divide(
        products / possible, between, out=np.zeros_like(between), where=between > 0
    ).clip(0.0, _MOST_ALIKE)
    return between, correlation


def _best_linear(
    away: FloatArray,
    root: FloatArray,
    noise: FloatArray,
    between: FloatArray,
    correlation: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """S(S + V)⁻¹ times `away`, and the diagonal of S(S + V)⁻¹, with V the variance of the noise.

    The inverse of A is tridiagonal: 1 + a² (1 at the ends) and −a next to it, over 1 − a². So with
    T = (1 − a²)A⁻¹ and G = (1 − a²)ρD, S(S + V)⁻¹ = D½(V·T + G)⁻¹G·D⁻½.

    Args:
        away: Noisy frequencies less m; axes `[..., group, outcome]`.
        root: D½; the same axes.
        noise: V; axes `[group, 1]`.
        between: ρ; axes `[..., 1, 1]`.
        correlation: a, the correlation of neighbouring outcomes; the same axes.
    """
    shape = np.broadcast_shapes(away.shape, root.shape)
    inside = np.r_[0.0, np.ones(shape[-1] - 2), 0.0]
    gain = np.broadcast_to((1 - correlation**2) * between * root**2, shape)
    diagonal = noise * (1 + correlation**2 * inside) + gain + _TINY
    off_diagonal = np.broadcast_to(-noise * correlation, (*shape[:-1], 1))[..., 0]
    solved, inverse = solve_tridiagonal(diagonal, off_diagonal, gain * away / root)
    return root * solved, inverse * gain


def solve_tridiagonal(
    diagonal: FloatArray, off_diagonal: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """M⁻¹·right and the diagonal of M⁻¹, for positive definite matrices M.

    Args:
        diagonal: Of M; axes `[..., row]`.
        off_diagonal: Of M, the same in every row; axes `[...]`.
        right: Axes `[..., row]`.
    """
    downwards = _pivots(diagonal, off_diagonal)
    upwards = _pivots(diagonal[..., ::-1], off_diagonal)[..., ::-1]
    solved = np.array(right, dtype=np.float64)
    n_rows = right.shape[-1]
    for row in range(1, n_rows):
        solved[..., row] -= off_diagonal / downwards[..., row - 1] * solved[..., row - 1]
    solved[..., -1] /= downwards[..., -1]
    for row in range(n_rows - 2, -1, -1):
        solved[..., row] -= off_diagonal * solved[..., row + 1]
        solved[..., row] /= downwards[..., row]
    return solved, 1 / (downwards + upwards - diagonal)


def _pivots(diagonal: FloatArray, off_diagonal: FloatArray) -> FloatArray:
    """What elimination from the first row on leaves of the diagonal; axes `[..., row]`."""
    pivots = diagonal.copy()
    for row in range(1, diagonal.shape[-1]):
        pivots[..., row] -= off_diagonal**2 / pivots[..., row - 1]
    return pivots


# The share of the uniform prior that is mixed in, for outcomes that noisy counts, or a baseline,
# show too seldom. Where a baseline is right, it costs up to 0.013% of the noise at ε = 1 and 1.9%
# at 4; 1% would cost up to 0.0014% and 0.3%. Where a tenth of the truth is uniform, the noise is up
# to 0.07% and 3.9% above the least with 3%, and 0.11% and 9.9% with 1% (Hillstrom's funnel, two and
# three binary metrics of 5%).
_UNIFORM_PART = 0.03


def estimate_prior(noisy_counts: IntArray, sizes: IntArray, prior_floor: float) -> FloatArray:
    """Algorithm 1 of the paper: clip noisy frequencies to [γ, 1], then renormalize.

    If they add up to more than 1, each is lowered in proportion to its height above the floor. If
    they add up to less, each is raised in proportion to its distance from 1. None falls below γ.

    Args:
        noisy_counts: Axes `[..., outcome]`.
        sizes: The number of units behind each histogram; axes `[...]`, broadcast.
        prior_floor: γ, at most 1/K.

    Returns:
        The prior q̃; axes `[..., outcome]`, at least γ each, adding up to one.
    """
    clipped = np.clip(noisy_counts / sizes[..., np.newaxis], prior_floor, 1.0)
    total = clipped.sum(axis=-1, keepdims=True)
    room = np.where(total > 1, clipped - prior_floor, 1 - clipped)
    room_total = room.sum(axis=-1, keepdims=True)
    # No room at all means every frequency stands at a floor of 1/K: nothing is left to move.
    share = np.divide(room, room_total, out=np.zeros_like(room), where=room_total > 0)
    prior: FloatArray = np.maximum(clipped + share * (1 - total), prior_floor)
    return prior


def learn_priors(histogram: Histogram, prior: FloatArray) -> FloatArray:
    """A distribution for every group, from noisy counts: shrunk as far as they are noisy.

    The histogram of all groups together is shrunk towards what is known without counts, that of the
    arms of a cluster together towards the result, and that of each group towards its cluster's. So
    counts that are all noise lead back to the public prior, small groups to their cluster's and the
    population's, and counts without noise to the frequencies of each group.

    Args:
        histogram: The noisy counts, of every cell or of every arm.
        prior: What is public of outcomes; axes `[outcome]`.

    Returns:
        Distributions with a little of every outcome; axes `[..., group, outcome]`.
    """
    counts, sizes = histogram.noisy_counts, histogram.group_sizes
    n_groups, n_clusters = len(sizes), len(np.unique(histogram.groups[:, 0]))
    learned = prior[np.newaxis]
    # Everyone, clusters and groups, which are in the order of clusters; no two of them equal.
    for n_parts in dict.fromkeys((1, n_clusters, n_groups)):
        n_each = n_groups // n_parts
        learned = shrink_frequencies(
            counts.reshape(*counts.shape[:-2], n_parts, n_each, -1).sum(axis=-2),
            sizes.reshape(n_parts, n_each).sum(axis=1),
            n_each * histogram.noise_variance,
            with_every_outcome(np.repeat(learned, n_parts // learned.shape[-2], axis=-2)),
        )
    return with_every_outcome(learned)


def with_every_outcome(prior: FloatArray) -> FloatArray:
    """A prior mixed with a small part of the uniform one; axes `[..., outcome]`."""
    return np.asarray((1 - _UNIFORM_PART) * prior + _UNIFORM_PART / prior.shape[-1])


def to_weights(prior: FloatArray, floor_weight: int) -> IntArray:
    """The prior in integers: each at least `floor_weight`, adding up to exactly PRIOR_TOTAL.

    What lies above the floor is divided by largest remainders.
    """
    n_outcomes = prior.shape[-1]
    to_share = PRIOR_TOTAL - n_outcomes * floor_weight
    above = np.maximum(prior - floor_weight / PRIOR_TOTAL, 0.0)
    above_total = above.sum(axis=-1, keepdims=True)
    flat = np.full_like(above, 1 / n_outcomes)
    shares = to_share * np.divide(above, above_total, out=flat, where=above_total > 0)
    weights = np.floor(shares).astype(np.int64)
    missing = to_share - weights.sum(axis=-1, keepdims=True)
    by_remainder = np.argsort(weights - shares, axis=-1, kind="stable")
    rank = np.argsort(by_remainder, axis=-1, kind="stable")
    shared: IntArray = weights + (rank < missing)
    return floor_weight + shared


# Representatives are found from this many priors at most, and serve the others as well.
_MOST_SAMPLED = 20_000


def representative_priors(priors: FloatArray, most: int) -> FloatArray:
    """At most so many priors that stand for all; axes `[prior, outcome]`.

    Distinct priors stand for themselves while they are few. Otherwise they are the means of
    clusters (k-means on square roots, where distances are equal in their effect on variance).
    """
    distinct = np.unique(priors, axis=0)
    if len(distinct) <= most:
        return distinct
    from scipy.cluster.vq import kmeans2

    step = -(-len(distinct) // _MOST_SAMPLED)
    sample = distinct[::step]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty cluster is one channel less
        # The seed is fixed so that a channel follows from its priors; nothing secret is drawn.
        _, members = kmeans2(np.sqrt(sample), most, minit="++", rng=np.random.default_rng(0))
    sums = np.zeros((most, priors.shape[1]))
    np.add.at(sums, members, sample)
    sizes = np.bincount(members, minlength=most)
    return np.asarray((sums[sizes > 0].T / sizes[sizes > 0]).T)
