"""The variance of an arm's mean where arms were assigned to groups of units as a whole.

Units of a group share their arm and much else, so that what counts is how groups differ. With w_g
the share of a group in its arm's mean and T_g what it adds to the mean m, the residual is
e_g = T_g − w_g·m. A large group pulls the mean towards itself; e_g²/(1 − w_g) makes up for that
(Bell and McCaffrey, 2002). Few groups know their variance badly: degrees of freedom follow from the
shares, if groups differ by as much whatever their size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray


class GroupVariance(NamedTuple):
    """A variance that was estimated from the differences of groups, and its degrees of freedom."""

    variance: float
    degrees: float


def group_variance(shares: FloatArray, totals: FloatArray) -> GroupVariance:
    """The variance of an arm's mean; NaN where one group is all of it.

    Args:
        shares: w, what each group weighs in the mean; they add up to one. Axes `[group]`.
        totals: T, what each group adds to the mean; axes `[group]`.
    """
    there = shares > 0
    shares, totals = shares[there], totals[there]
    if len(shares) < 2:
        return GroupVariance(np.nan, 1.0)
    residuals = totals - shares * totals.sum()
    factors = 1 / (1 - shares)
    return GroupVariance(float(factors @ residuals**2), _degrees(shares, factors))


def _degrees(shares: FloatArray, factors: FloatArray) -> float:
    """Satterthwaite's (tr ΩM)²/tr (ΩM)², Ω = diag(w²).

    The variance is T'MT with M_ij = d_i·[i = j] − a_i − a_j + c, d the factors, a = dw and
    c = Σ dw².
    """
    spread, pulled = shares**2, factors * shares
    shared = factors @ spread
    diagonal = spread * (factors - 2 * pulled + shared)
    # Σ_ij Ω_i·Ω_j·(c − a_i − a_j)², then the diagonal, which also has d.
    total, first, second = spread.sum(), spread @ pulled, spread @ pulled**2
    everywhere = (
        shared**2 * total**2 - 4 * shared * total * first + 2 * total * second + 2 * first**2
    )
    without = spread * (shared - 2 * pulled)
    squared = everywhere + (diagonal**2 - without**2).sum()
    return float(max(diagonal.sum() ** 2 / squared, 1.0))
