"""Variances where arms were assigned to groups of units as a whole.

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
    from clusterdp._arrays import FloatArray, IntArray


class GroupScores(NamedTuple):
    """What groups say of the variance of an arm's mean.

    Attributes:
        scores: e/√(1 − w); their squares add up to the variance, and products with those of
            another segment to a covariance. NaN where one group is all of the arm. Axes `[group]`.
        degrees: Degrees of freedom of the variance.
    """

    scores: FloatArray
    degrees: float

    @property
    def variance(self) -> float:
        """The variance of the arm's mean, noise of privacy included."""
        return float(self.scores @ self.scores)


def profile_scores(
    assigned: IntArray, shares: FloatArray, totals: FloatArray
) -> tuple[GroupScores, ...]:
    """The scores of groups for the means of some arms.

    Args:
        assigned: The group of each profile.
        shares: What profiles weigh in the mean of each arm; axes `[arm, profile]`.
        totals: What they add to it, as distances from any one number; axes `[arm, profile]`.
    """

    def by_group(terms: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(assigned, terms), np.float64)

    return tuple(
        group_scores(by_group(weighed), by_group(added))
        for weighed, added in zip(shares, totals, strict=True)
    )


def group_scores(shares: FloatArray, totals: FloatArray) -> GroupScores:
    """The scores of groups for an arm's mean.

    Args:
        shares: w, what each group weighs in the mean; they add up to one. Axes `[group]`.
        totals: T, what each group adds to the mean; axes `[group]`.
    """
    there = shares > 0
    if there.sum() < 2:
        return GroupScores(np.where(there, np.nan, 0.0), 1.0)
    factors = 1 / (1 - shares)
    residuals = np.where(there, totals - shares * totals.sum(), 0.0)
    return GroupScores(residuals * np.sqrt(factors), _degrees(shares[there], factors[there]))


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
