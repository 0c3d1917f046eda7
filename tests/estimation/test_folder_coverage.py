"""Intervals of several folders together: each of another size, with another ε."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.folder_coverage import experiment
from scipy import stats

from assertions import ALPHA

if TYPE_CHECKING:
    import numpy as np

N_EXPERIMENTS = 60


@pytest.mark.slow
def test_intervals_of_three_folders_cover(rng: np.random.Generator) -> None:
    """No rarer than 93.5%; without the noise of privacy they would be far too short.

    Intervals of an experiment depend on each other, so that each line is tested by itself.
    """
    found = [experiment(rng) for _ in range(N_EXPERIMENTS)]
    for key in found[0]:
        n_covered = sum(one[key][0] for one in found)
        test = stats.binomtest(n_covered, N_EXPERIMENTS, 0.935, alternative="less")
        assert test.pvalue > ALPHA / len(found[0]), key
    n_near = sum(one["clicks", "tier=gold"][1] for one in found)
    too_short = stats.binomtest(n_near, N_EXPERIMENTS, 0.935, alternative="less")
    assert too_short.pvalue < ALPHA
