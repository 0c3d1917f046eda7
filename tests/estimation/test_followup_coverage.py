"""Intervals of asked segments cover, also of a segment that was chosen in the other fold.

A short line of `bench/followup_coverage.py`. If intervals cover 93.5% of the time, a test fails
with a probability of at most `ALPHA`. Of intervals half as long it fails in most runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from bench.followup_coverage import asked_segments, best_of_many, repeat
from scipy import stats

from assertions import ALPHA

N_UNITS = 6000

pytestmark = pytest.mark.slow


def least(n_intervals: int) -> float:
    """The share of intervals below which fewer cover than 93.5%."""
    return float(stats.binom.ppf(ALPHA, n_intervals, 0.935) / n_intervals)


def test_intervals_of_asked_segments_cover() -> None:
    found = repeat(asked_segments, 12, N_UNITS)
    covered = np.concatenate([np.array(one) for one in found.values()])
    assert covered.mean() >= least(len(covered))


def test_the_best_of_many_segments_is_confirmed_on_other_units() -> None:
    found = repeat(best_of_many, 12, N_UNITS)
    covered = np.array(found["best of 20, other units"])
    assert covered.mean() >= least(len(covered))


def test_short_intervals_would_be_found() -> None:
    """Planted: intervals half as long cover two times in three, and so many are never enough."""
    share = 2 * stats.norm.cdf(stats.norm.isf(0.025) / 2) - 1
    for n_intervals in (60, 276):
        assert stats.binom.cdf(least(n_intervals) * n_intervals, n_intervals, share) > 0.75
