"""Channels that exist for every space of categories and every ε, exact in integers.

They serve where no channel of least variance was found. Both are made of two weights, the least
`low` with high = T − (n − 1)·low ≤ ratio·low, n the number of outputs and T = TABLE_TOTAL:

- k-ary randomized response releases the category itself with weight `high`, and each other one with
  weight `low`. Decoded as m + (y − m)·T/(high − low), m the mean of a metric's values, it is
  unbiased in every metric.
- Duchi's two points, for one metric: the upper one has weight `low` for the lowest value, `high`
  for the largest one, and for others what lies between in proportion, rounded.

Weights of an output lie between `low` and `high`, so no ratio exceeds the largest one allowed. For
ε ≥ 0.01 and at most 2^16 categories high − low > 0, so both can be decoded. Outputs are rounded to
doubles once, which moves a mean by at most 2^-53 of the largest output; rounding the weight of a
point moves it by at most 1/T of that. Both are far below `MOST_BIAS`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.integers import TABLE_TOTAL

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

# With more categories, two points are better at any ε of use, and the other table is large.
_MOST_K_ARY = 1024


def plain_design(
    prior: FloatArray, values: FloatArray, max_ratio: Fraction
) -> tuple[IntArray, FloatArray]:
    """The better of the two for a prior; it always exists.

    Args:
        prior: How likely categories are thought to be; axes `[category]`.
        values: What categories count as; axes `[metric, category]`.
        max_ratio: No output is likelier than this many times under another category.

    Returns:
        Weights over TABLE_TOTAL, axes `[true, released]`, and outputs `[metric, released]`.
    """
    if len(values) > 1:
        return k_ary_response(values, max_ratio)
    table, numbers = plain_channel(prior, values[0], max_ratio)
    return table, numbers[np.newaxis]


def plain_channel(
    prior: FloatArray, values: FloatArray, max_ratio: Fraction
) -> tuple[IntArray, FloatArray]:
    """The better of the two for one metric.

    Args:
        prior: How likely outcomes are thought to be; axes `[outcome]`.
        values: The outcome values; axes `[outcome]`.
        max_ratio: No output is likelier than this many times under another outcome.

    Returns:
        Weights over TABLE_TOTAL, axes `[true, released]`, and outputs.
    """
    made = [two_points(values, max_ratio)]
    if len(values) <= _MOST_K_ARY:
        made.append(k_ary(values, max_ratio))
    return min(made, key=lambda channel: _expected_square(prior, values, *channel))


def two_points(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """Duchi's two-point mechanism; returns as `plain_channel`, outputs increasing."""
    exact = [Fraction(value) for value in values.tolist()]
    least, largest = min(exact), max(exact)
    low, high = _weights(2, max_ratio)
    rise = Fraction(high - low) / (largest - least) if largest > least else Fraction(0)
    upper = np.array([low + round((value - least) * rise) for value in exact])
    middle = (least + largest) / 2
    reach = (largest - least) / 2 * Fraction(TABLE_TOTAL, high - low)
    outputs = np.array([float(middle - reach), float(middle + reach)])
    return np.stack([TABLE_TOTAL - upper, upper], axis=1), outputs


def k_ary(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """k-ary randomized response for one metric; returns as `plain_channel`."""
    table, outputs = k_ary_response(values[np.newaxis], max_ratio)
    return table, outputs[0]


def k_ary_response(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """k-ary randomized response for any number of metrics; returns as `plain_design`."""
    n_categories = values.shape[1]
    low, high = _weights(n_categories, max_ratio)
    table = np.full((n_categories, n_categories), low)
    np.fill_diagonal(table, high)
    stretch = Fraction(TABLE_TOTAL, high - low)
    return table, np.array([_stretched(metric, stretch) for metric in values.tolist()])


def _stretched(values: list[float], stretch: Fraction) -> list[float]:
    """Values moved away from their mean, exactly, then rounded once."""
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return [float(mean + (value - mean) * stretch) for value in exact]


def _weights(n_outputs: int, max_ratio: Fraction) -> tuple[int, int]:
    """The least weight of an output that n − 1 others can share, and what is left for the last."""
    low = -(-TABLE_TOTAL // (max_ratio + n_outputs - 1))
    return low, TABLE_TOTAL - (n_outputs - 1) * low


def _expected_square(
    prior: FloatArray, values: FloatArray, table: IntArray, outputs: FloatArray
) -> float:
    distance = outputs - values[:, np.newaxis]
    return float(prior @ (table * distance**2).sum(axis=1))
