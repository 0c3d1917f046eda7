"""Intervals of effects on those exposed cover: a part of `make bench-metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.exposure_coverage import TOLD, Rates
from bench.exposure_draws import CONFOUNDED, Units
from bench.metric_draws import draw
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA

if TYPE_CHECKING:
    import numpy as np

N_REPLICATES = 500
# Units, how many, the share of the segment, ε.
CASES: dict[str, tuple[Units, int, float, float]] = {
    "few exposed": (Units.of(0.05, two_sided=False), 2_000, 1.0, 2.0),
    "many exposed": (Units.of(0.8, two_sided=False), 20_000, 0.2, 1.0),
    "two-sided": (Units.of(0.3, two_sided=True), 20_000, 1.0, 0.5),
    "weak": (CONFOUNDED, 2_000, 1.0, 4.0),
}


def rates(case: str, told: str, rng: np.random.Generator) -> Rates:
    units, n_units, share, epsilon = CASES[case]
    mechanism = cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=0.1))
    drawn = draw(units.experiment(), n_units, share, N_REPLICATES, rng)
    return Rates.of(TOLD[told](drawn, mechanism, rng), units.truth)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("told", TOLD)
def test_intervals_cover(case: str, told: str, rng: np.random.Generator) -> None:
    """False alarms: ALPHA for each if intervals cover 93.5%."""
    fewest = stats.binom.ppf(ALPHA, N_REPLICATES, 0.935) / N_REPLICATES
    assert rates(case, told, rng).covered >= fewest


def test_standard_errors_do_not_cover_weak_exposure(rng: np.random.Generator) -> None:
    """The negative control: the estimate and 1.96 standard errors hold the truth in 65%."""
    found = rates("weak", "A public column", rng)
    fewest = stats.binom.ppf(ALPHA, N_REPLICATES, 0.935) / N_REPLICATES
    assert found.wald < fewest <= found.covered
