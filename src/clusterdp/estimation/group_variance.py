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

from clusterdp.estimation.calibration import Functional

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.calibration import Calibration
    from clusterdp.estimation.profiles import ProfileSums

# More groups than these are not calibrated one by one: so many know their variance by rows.
_MOST_CALIBRATED = 1000


class GroupScores(NamedTuple):
    """What groups say of the variance of an arm's mean.

    Attributes:
        scores: e/√(1 − w); their squares add up to the variance, and products with those of
            another segment to a covariance. NaN where one group is all of the arm. Axes `[group]`.
        degrees: Degrees of freedom of the variance.
        noise: What noise of privacy adds to the variance.
        most: What the variance is at most without noise, whatever outcomes are.
    """

    scores: FloatArray
    degrees: float
    noise: float = 0.0
    most: float = np.inf

    @property
    def variance(self) -> float:
        """The variance of the arm's mean, with what noise of privacy adds to it."""
        return float(self.scores @ self.scores)


def profile_scores(
    assigned: IntArray,
    part: ProfileSums,
    places: IntArray,
    each: FloatArray,
    calibration: Calibration,
) -> GroupScores:
    """The scores of groups for the mean of an arm.

    What a group adds to the mean is a weighted sum over rows itself, and calibrated like the mean:
    by totals of the groups, where these are published.

    Args:
        assigned: The group of each profile.
        part: The rows of each profile.
        places: Which of all profiles these are.
        each: The weight of a unit of each profile in the mean.
        calibration: By published sums.
    """
    labels, groups = np.unique(assigned, return_inverse=True)

    def by_group(terms: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(groups, terms), np.float64)

    shares = by_group(each * part.sizes)
    if len(labels) > _MOST_CALIBRATED:
        totals = by_group(each * part.sums)
        covariances = np.diag(by_group(each**2 * part.noise))
    else:
        mine = groups == np.arange(len(labels))[:, np.newaxis]
        found = calibration.apply(Functional.of_rows(part, np.where(mine, each, 0.0), places))
        totals = found.values
        covariances, _ = calibration.covariances(
            coefficients=found.coefficients, noise_sums=found.noise_sums
        )
        np.fill_diagonal(covariances, found.privacy)
    scores = group_scores(shares, totals, covariances)
    by_label = np.zeros(int(labels[-1]) + 1)
    by_label[labels] = scores.scores
    most = calibration.unit_noise.most_spread * float(shares @ shares)
    return scores._replace(scores=by_label, most=most)


def group_scores(
    shares: FloatArray, totals: FloatArray, noise: FloatArray | None = None
) -> GroupScores:
    """The scores of groups for an arm's mean.

    Args:
        shares: w, what each group weighs in the mean; they add up to one. Axes `[group]`.
        totals: T, what each group adds to the mean; axes `[group]`.
        noise: Covariances of the noise of privacy in T, axes `[group, group]`; None without.
    """
    there = shares > 0
    if there.sum() < 2:
        return GroupScores(np.where(there, np.nan, 0.0), 1.0)
    factors = 1 / (1 - shares)
    residuals = np.where(there, totals - shares * totals.sum(), 0.0)
    added = 0.0
    if noise is not None:
        of_residuals = np.diag(noise) - 2 * shares * noise.sum(axis=1) + shares**2 * noise.sum()
        added = float((factors * of_residuals)[there].sum())
    degrees = _degrees(shares[there], factors[there])
    return GroupScores(residuals * np.sqrt(factors), degrees, added)


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
