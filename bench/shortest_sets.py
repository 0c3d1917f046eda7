"""How short confidence sets of quantiles could be at best, on average, whatever their method.

A set that holds the true value in 95% of cases, whatever the distribution, is a test at 5% of every
value: it is rejected if the set does not hold it. So (Pratt, 1961) the expected number of values in
the set is the sum over all values of how often their tests do not reject. By Neyman and Pearson, no
test of a value rejects more often than that of the nearest distribution which has it, against the
true one. Where estimated shares are near normal, with tails S, covariances Σ and δ² the least of
(s − S)'Σ⁻¹(s − S) over tails s that have the value, that test rejects in a share Φ(δ − 1.645) of
all cases.

So the sum of Φ(1.645 − δ) over all values, less one, is a bound on the mean length of sets of
values one apart. It is no interval that anybody could use: each value is tested against the truth.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import clarabel  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from scipy import sparse, stats

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.metrics._composed import ArmEstimates

_ALPHA = 0.05
# Of the variances of estimated shares, so that their covariances can be inverted.
_LEAST_VARIANCE = 1e-9


def shortest_difference(
    estimates: list[tuple[ArmEstimates, ArmEstimates]], tails: FloatArray, share: float
) -> float:
    """A bound on the mean length of valid sets of the difference of two arms' quantiles.

    Args:
        estimates: Tail shares of both arms in each replicate, which tell their covariances.
        tails: The true ones, S_1, S_2, …; axes `[arm, level − 1]`.
        share: q.
    """
    control, treated = (
        _distances(np.array([both[arm].means for both in estimates]), tails[arm], 1 - share)
        for arm in (0, 1)
    )
    nearest: dict[int, float] = {}
    for first, second in itertools.product(range(len(control)), repeat=2):
        apart = float(treated[first] + control[second])
        nearest[first - second] = min(nearest.get(first - second, np.inf), apart)
    reach = np.sqrt(list(nearest.values()))
    return float(stats.norm.cdf(stats.norm.isf(_ALPHA) - reach).sum() - 1)


def _distances(estimated: FloatArray, tails: FloatArray, rest: float) -> FloatArray:
    """δ² of each value, which is a quantile if S is at least 1 − q there and at most that after."""
    covariances = np.atleast_2d(np.cov(estimated.T))
    covariances += _LEAST_VARIANCE * covariances.diagonal().max() * np.eye(len(tails))
    precision = np.asarray(np.linalg.inv(covariances), dtype=np.float64)
    return np.array([_distance(precision, tails, rest, level) for level in range(len(tails) + 1)])


def _distance(precision: FloatArray, tails: FloatArray, rest: float, level: int) -> float:
    """The least (s − S)'Σ⁻¹(s − S) over decreasing s between 0 and 1 with a quantile: a program.

    In units of the least standard error, so that the solver meets numbers near one.
    """
    unit = 1 / np.sqrt(precision.diagonal().max())
    n_tails = len(tails)
    steps = np.diff(np.eye(n_tails), axis=0)  # s_{k+1} − s_k ≤ 0
    one, rows = np.eye(n_tails), [*steps]
    limits = [0.0] * len(rows)
    rows += [one[0], -one[-1]]
    limits += [1.0, 0.0]
    if level > 0:
        rows.append(-one[level - 1])
        limits.append(-rest)
    if level < n_tails:
        rows.append(one[level])
        limits.append(rest)
    matrix = np.array(rows)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solved = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(precision) * unit**2),
        np.zeros(n_tails),
        sparse.csc_matrix(matrix),
        (np.array(limits) - matrix @ tails) / unit,
        [clarabel.NonnegativeConeT(len(limits))],
        settings,
    ).solve()
    moved = np.array(solved.x) * unit
    return max(float(moved @ precision @ moved), 0.0)
