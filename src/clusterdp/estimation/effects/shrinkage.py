"""Effects of many segments, shrunken towards their mean, and a ranking of them.

Of many segments the largest effect is the luckiest. With effects τ̂_s, standard errors σ_s and τ²
the variance of true effects,

    μ̂ + w_s(τ̂_s − μ̂),   w_s = τ²/(τ² + σ_s²),

has the least mean squared error that is possible without knowing the segments. τ² and the kurtosis
κ of true effects follow from moments of τ̂_s − μ̂. Neither is below what noise alone would show of
it. Errors of segments go together, by sums of everyone, and so the moments use their covariance.

Intervals are those of Armstrong, Kolesár and Plagborg-Møller (2022): of a dimension's, 95% cover on
average, for any shape of true effects. The bias of a shrunken effect, in its standard errors, has
the mean square σ²/τ², and the kurtosis κ. The interval reaches as far as it must, for no such bias
to have more than 5% outside. The error of μ̂ is added.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.effects.intervals import quantile

# From so many segments of a dimension on, the largest effect is mostly the luckiest.
MANY_SEGMENTS = 10
# Above this, knowing the kurtosis makes no interval shorter.
_ANY_KURTOSIS = 50.0
# Biases at which the chance to miss is computed, and their mean squares with a reach of their own.
_N_BIASES, _N_SQUARES = 150, 3
# Smaller biases are taken to be as large.
_LEAST_SQUARE = 1e-3
# Halvings of what a reach can be.
_HALVINGS = 12


class ShrunkenEffect(NamedTuple):
    """The effect in one of many segments, shrunken.

    Attributes:
        effect: The estimate.
        low: The lower limit; of the intervals of a dimension, 95% cover on average.
        high: The upper limit.
        ranks: The best and the worst place that the segment can have, the largest effect first.
        rest_p_value: Benjamini and Hochberg's p-value that its effect is that of the rest.
        is_above_rest: Whether the plain effect is above that of the rest.
    """

    effect: float
    low: float
    high: float
    ranks: tuple[int, int]
    rest_p_value: float
    is_above_rest: bool

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return {
            "shrunken_effect": self.effect,
            "shrunken_ci_low": self.low,
            "shrunken_ci_high": self.high,
            "best_rank": self.ranks[0],
            "worst_rank": self.ranks[1],
            "rest_bh_p_value": self.rest_p_value,
        }


def shrink(
    effects: FloatArray, covariances: FloatArray, degrees: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """The shrunken effects of a dimension, and how far their intervals reach; axes `[segment]`.

    Args:
        effects: The effects; axes `[segment]`.
        covariances: Of their errors; axes `[segment, segment]`.
        degrees: Degrees of freedom of standard errors; axes `[segment]`.
        level: The confidence level.
    """
    variances = np.diag(covariances)
    spread, kurtosis = _moments(effects, covariances)
    precision = 1 / (variances + spread)
    precision = precision / precision.sum()
    center = float(precision @ effects)
    kept = spread / (spread + variances)
    center_variance = float(precision @ covariances @ precision + spread * (precision**2).sum())
    longer = np.array([quantile(level, one) for one in degrees]) / quantile(level)
    own = kept * np.sqrt(variances) * longer * _reaches(variances / spread, kurtosis, level)
    shared = quantile(level) * (1 - kept) * np.sqrt(center_variance)
    return center + kept * (effects - center), np.hypot(own, shared)


def _moments(effects: FloatArray, covariances: FloatArray) -> tuple[float, float]:
    """The variance of true effects, and their kurtosis.

    Each is at least the mean of what is possible, given that it is positive; so far that is known
    if effects do not differ.
    """
    variances = np.diag(covariances)
    weights = 1 / variances / (1 / variances).sum()
    apart = np.eye(len(effects)) - weights
    distances = (apart @ effects) ** 2
    noise = np.diag(apart @ covariances @ apart.T)
    second = weights @ (distances - noise) / (weights @ (apart**2).sum(axis=1))
    second = max(float(second), 2 * float((weights**2 * noise**2).sum() / (weights @ noise)))
    fourth = weights @ (distances**2 - 6 * noise * distances + 3 * noise**2)
    least = 1 + 32 * (weights**2 * noise**4).sum() / (second**2 * (weights @ noise**2))
    return second, max(float(fourth / second**2), float(least))


def _reaches(squares: FloatArray, kurtosis: float, level: float) -> FloatArray:
    """How many standard errors intervals reach, for biases of some mean squares."""
    ends = float(squares.min()), float(squares.max())
    nodes = np.geomspace(*ends, _N_SQUARES) if ends[1] > 1.001 * ends[0] else np.array(ends[1:])
    found = [_reach(node, kurtosis, level) for node in nodes]
    return np.asarray(np.interp(np.log(squares), np.log(nodes), found))


def _reach(square: float, kurtosis: float, level: float) -> float:
    """The least reach at which no bias of a mean square and a kurtosis misses more often."""
    low, high = quantile(level), np.sqrt((1 + square) / (1 - level))  # Chebyshev's
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_enough = _most_missed(square, kurtosis, middle) <= 1 - level
        low, high = (low, middle) if is_enough else (middle, high)
    return float(high)


def _most_missed(square: float, kurtosis: float, reach: float) -> float:
    """The largest chance to miss, over all biases of a mean square and a kurtosis at most.

    A linear program: the chance is linear in the distribution of biases, and so are both moments.
    """
    from scipy.optimize import linprog
    from scipy.special import ndtr

    square = max(square, _LEAST_SQUARE)
    largest = 4 * reach + 10 * np.sqrt(square)
    biases = np.union1d(np.linspace(0, largest, _N_BIASES), [np.sqrt(square)])
    missed = ndtr(biases - reach) + ndtr(-biases - reach)
    if kurtosis > _ANY_KURTOSIS:
        return _hull_at(biases**2, missed, square)
    unit = max(square, 1.0)
    scaled, known = biases**2 / unit, square / unit
    moments = np.stack([np.ones_like(scaled), scaled])
    found = linprog(
        -missed, A_eq=moments, b_eq=[1, known], A_ub=[scaled**2], b_ub=[kurtosis * known**2]
    )
    return float(-found.fun)


def _hull_at(places: FloatArray, values: FloatArray, at: float) -> float:
    """The least concave function above some values, at a place."""
    below, above = places <= at, places > at
    gaps = places[above][:, np.newaxis] - places[below]
    shares = (at - places[below]) / gaps
    mixed = shares * values[above][:, np.newaxis] + (1 - shares) * values[below]
    return float(mixed.max())


def possible_ranks(limits: FloatArray) -> IntArray:
    """The best and the worst place of each segment, the largest effect first.

    A segment is ahead of another where its simultaneous interval is.

    Args:
        limits: Simultaneous intervals; axes `[segment, end]`.
    """
    low, high = limits.T
    ahead = (low[:, np.newaxis] > high).sum(axis=0)
    behind = (high[:, np.newaxis] < low).sum(axis=0)
    return np.stack([1 + ahead, len(limits) - behind], axis=-1)
