"""Channels that exist for every outcome space and every ε, exact in integers.

They serve where no channel of least variance was found. Both are made of two weights, the least
`low` with high = T − (n − 1)·low ≤ ratio·low, n the number of outputs and T = TABLE_TOTAL:

- k-ary randomized response releases the outcome itself with weight `high`, and each other one with
  weight `low`. Decoded as m + (y − m)·T/(high − low), m the mean of the values, it is unbiased.
- Duchi's two points: the upper one has weight `low` for the lowest outcome, `high` for the largest
  one, and for others what lies between in proportion, rounded.

Weights of an output lie between `low` and `high`, so no ratio exceeds the largest one allowed. For
ε ≥ 0.01 and at most 2^16 outcomes high − low > 0, so both can be decoded. Outputs are rounded to
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

# With more outcomes, two points are better at any ε of use, and the other table is large.
_MOST_K_ARY = 1024


def plain_channel(
    prior: FloatArray, values: FloatArray, max_ratio: Fraction
) -> tuple[IntArray, FloatArray]:
    """The better of the two for a prior; it always exists.

    Args:
        prior: How likely outcomes are thought to be; axes `[outcome]`.
        values: The outcome values, increasing; axes `[outcome]`.
        max_ratio: No output is likelier than this many times under another outcome.

    Returns:
        Weights over TABLE_TOTAL, axes `[true, released]`, and outputs, increasing.
    """
    made = [two_points(values, max_ratio)]
    if len(values) <= _MOST_K_ARY:
        made.append(k_ary(values, max_ratio))
    return min(made, key=lambda channel: _expected_square(prior, values, *channel))


def two_points(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """Duchi's two-point mechanism; returns as `plain_channel`."""
    exact = [Fraction(value) for value in values.tolist()]
    low, high = _weights(2, max_ratio)
    rise = Fraction(high - low) / (exact[-1] - exact[0])
    upper = np.array([low + round((value - exact[0]) * rise) for value in exact])
    middle = (exact[0] + exact[-1]) / 2
    reach = (exact[-1] - exact[0]) / 2 * Fraction(TABLE_TOTAL, high - low)
    outputs = np.array([float(middle - reach), float(middle + reach)])
    return np.stack([TABLE_TOTAL - upper, upper], axis=1), outputs


def k_ary(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """k-ary randomized response; returns as `plain_channel`."""
    exact = [Fraction(value) for value in values.tolist()]
    low, high = _weights(len(exact), max_ratio)
    mean, stretch = sum(exact, Fraction(0)) / len(exact), Fraction(TABLE_TOTAL, high - low)
    table = np.full((len(exact), len(exact)), low)
    np.fill_diagonal(table, high)
    return table, np.array([float(mean + (value - mean) * stretch) for value in exact])


def _weights(n_outputs: int, max_ratio: Fraction) -> tuple[int, int]:
    """The least weight of an output that n − 1 others can share, and what is left for the last."""
    low = -(-TABLE_TOTAL // (max_ratio + n_outputs - 1))
    return low, TABLE_TOTAL - (n_outputs - 1) * low


def _expected_square(
    prior: FloatArray, values: FloatArray, table: IntArray, outputs: FloatArray
) -> float:
    distance = outputs - values[:, np.newaxis]
    return float(prior @ (table * distance**2).sum(axis=1))
