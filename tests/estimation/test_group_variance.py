"""Variances between groups that were assigned as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from clusterdp.estimation.means.arms import group_scores


def test_groups_of_one_size_give_the_variance_of_their_mean() -> None:
    rng = np.random.default_rng()
    means = rng.normal(size=12)
    found = group_scores(np.full(12, 1 / 12), means / 12)
    assert found.variance == pytest.approx(means.var(ddof=1) / 12)
    assert found.degrees == pytest.approx(11)


def test_degrees_are_those_of_the_quadratic_form() -> None:
    rng = np.random.default_rng()
    shares = rng.dirichlet(np.ones(7))
    centre = np.eye(7) - np.outer(shares, np.ones(7))
    form = centre.T @ np.diag(1 / (1 - shares)) @ centre
    weighed = np.diag(shares**2) @ form
    expected = np.trace(weighed) ** 2 / np.trace(weighed @ weighed)
    assert group_scores(shares, rng.normal(size=7)).degrees == pytest.approx(max(expected, 1.0))


def test_one_group_has_no_variance() -> None:
    assert np.isnan(group_scores(np.ones(1), np.ones(1)).variance)
    assert np.isnan(group_scores(np.array([1.0, 0.0]), np.ones(2)).variance)


@pytest.mark.parametrize("n_groups", [5, 15, 50])
def test_intervals_between_groups_cover(n_groups: int) -> None:
    """Two arms of groups of very different sizes: 95% intervals cover in 93.5 to 98.5%.

    With 4,000 replicates the standard error is 0.35%; for a coverage of 95% a false alarm is 4.3
    of them away (2e-5).
    """
    rng = np.random.default_rng()
    covered = 0
    for _ in range(4000):
        effect = variance = below = 0.0
        for sign in (1, -1):
            sizes = rng.lognormal(0, 0.6, n_groups)
            shares = sizes / sizes.sum()
            totals = shares * rng.normal(size=n_groups)
            found = group_scores(shares, totals)
            effect += sign * totals.sum()
            variance += found.variance
            below += found.variance**2 / found.degrees
        limit = stats.t.ppf(0.975, variance**2 / below)
        covered += abs(effect) <= limit * np.sqrt(variance)
    assert 0.935 <= covered / 4000 <= 0.985
