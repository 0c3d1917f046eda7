"""Noisy frequencies of groups, shrunk towards a distribution as far as they are noisy.

Frequencies of neighbouring outcomes often differ from that distribution alike: a histogram is
smooth, and an effect moves people to the next value. How alike they are is estimated from the noisy
counts themselves, so that heaps and single values are not smoothed away.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.experiment.simplex import nearest_distribution

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

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
    differ = _differences(n_units * away, n_units * root, noise_variance)
    moved, kept = _best_linear(away, root, noise_variance / n_units**2, differ)
    nearest = nearest_distribution(centre + moved)
    left = np.maximum(nearest - _NOISE_PART * kept * math.sqrt(noise_variance) / n_units, 0.0)
    # Where noise is larger than all there is, the likeliest outcomes say nothing either.
    shown = left.sum(axis=-1, keepdims=True)
    return np.where(shown > 0, left / np.maximum(shown, _TINY), nearest)


class _Differences(NamedTuple):
    """How frequencies differ between groups; axes `[..., 1, 1]`.

    Attributes:
        between: ρ.
        alike: a, the correlation of neighbouring outcomes.
    """

    between: FloatArray
    alike: FloatArray


def _differences(away: FloatArray, root: FloatArray, noise_variance: float) -> _Differences:
    """ρ and a by moments, ρ from squares without their noise and ρ·a from neighbours' products.

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
    alike = np.divide(
        products / possible, between, out=np.zeros_like(between), where=between > 0
    ).clip(0.0, _MOST_ALIKE)
    return _Differences(between, alike)


def _best_linear(
    away: FloatArray, root: FloatArray, noise: FloatArray, differ: _Differences
) -> tuple[FloatArray, FloatArray]:
    """S(S + V)⁻¹ times `away`, and the diagonal of S(S + V)⁻¹, with V the variance of the noise.

    The inverse of A is tridiagonal: 1 + a² (1 at the ends) and −a beside it, over 1 − a². So with
    T = (1 − a²)A⁻¹ and G = (1 − a²)ρD, S(S + V)⁻¹ = D½(V·T + G)⁻¹G·D⁻½.

    Args:
        away: Noisy frequencies less m; axes `[..., group, outcome]`.
        root: D½; the same axes.
        noise: V; axes `[group, 1]`.
        differ: ρ and a.
    """
    shape = np.broadcast_shapes(away.shape, root.shape)
    inside = np.r_[0.0, np.ones(shape[-1] - 2), 0.0]
    gain = np.broadcast_to((1 - differ.alike**2) * differ.between * root**2, shape)
    diagonal = noise * (1 + differ.alike**2 * inside) + gain + _TINY
    beside = np.broadcast_to(-noise * differ.alike, (*shape[:-1], 1))[..., 0]
    solved, inverse = solve_tridiagonal(diagonal, beside, gain * away / root)
    return root * solved, inverse * gain


def solve_tridiagonal(
    diagonal: FloatArray, beside: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """M⁻¹·right and the diagonal of M⁻¹, for positive definite matrices M.

    Args:
        diagonal: Of M; axes `[..., row]`.
        beside: Of M, the same in every row; axes `[...]`.
        right: Axes `[..., row]`.
    """
    downwards, upwards = _pivots(diagonal, beside), _pivots(diagonal[..., ::-1], beside)[..., ::-1]
    solved = np.array(right, dtype=np.float64)
    n_rows = right.shape[-1]
    for row in range(1, n_rows):
        solved[..., row] -= beside / downwards[..., row - 1] * solved[..., row - 1]
    solved[..., -1] /= downwards[..., -1]
    for row in range(n_rows - 2, -1, -1):
        solved[..., row] -= beside * solved[..., row + 1]
        solved[..., row] /= downwards[..., row]
    return solved, 1 / (downwards + upwards - diagonal)


def _pivots(diagonal: FloatArray, beside: FloatArray) -> FloatArray:
    """What elimination from the first row on leaves of the diagonal; axes `[..., row]`."""
    pivots = diagonal.copy()
    for row in range(1, diagonal.shape[-1]):
        pivots[..., row] -= beside**2 / pivots[..., row - 1]
    return pivots
