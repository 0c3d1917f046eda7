"""Ratios of means: Fieller's interval, and differences and lifts of two arms' ratios."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from assertions import ALPHA
from clusterdp.estimation.effects.intervals import ArmPair
from clusterdp.estimation.metrics._composed import ArmEstimates
from clusterdp.estimation.metrics.ratio import ArmRatio, Covariance

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

NOTHING = Covariance(0.0, 0.0, 0.0, 0.0)
N_DRAWS = 3000
# What the means of numerator and denominator are in control and treatment, and their covariances.
MEANS = {"strong": ((0.6, 0.4), (0.7, 0.45)), "weak": ((0.6, 0.07), (0.7, 0.07))}
SPREAD = np.array([[0.004, 0.001], [0.001, 0.002]])


def arm_ratio(means: FloatArray, covariances: FloatArray = SPREAD) -> ArmRatio:
    spread = Covariance(covariances[0, 0], covariances[1, 1], *[covariances[0, 1]] * 2)
    return ArmRatio(float(means[0]), float(means[1]), spread, NOTHING, math.inf)


def test_fieller_holds_the_ratios_that_are_not_rejected() -> None:
    ratio = arm_ratio(np.array([0.6, 0.4]))
    low, high = ratio.limits(0.9)
    for tried in np.linspace(0, 5, 2001):
        distance = ratio.above - tried * ratio.below
        spread = SPREAD[0, 0] - 2 * tried * SPREAD[0, 1] + tried**2 * SPREAD[1, 1]
        kept = abs(distance) <= stats.norm.isf(0.05) * math.sqrt(spread)
        assert kept == (low <= tried <= high)


def test_a_denominator_near_zero_has_no_bounds() -> None:
    ratio = arm_ratio(np.array([0.6, 0.05]))
    assert ratio.limits(0.95) == (-math.inf, math.inf)
    pair = ArmPair(arm_ratio(np.array([0.6, 0.4])), ratio)
    assert pair.ci(0.95) == (-math.inf, math.inf)
    assert pair.lift(0.95) is None
    assert pair.p_value > 0.05


def polarized(variances: FloatArray, factor: float) -> Covariance:
    """The covariances of N and D that follow from the variances of N, D and N − kD."""
    arm = ArmEstimates(np.zeros(3), variances, np.zeros(3), math.inf)
    return ArmRatio.polarized(arm, factor).sampling


def test_covariances_follow_from_three_variances() -> None:
    for factor in (-2.0, 0.3, 4.0):
        third = SPREAD[0, 0] - 2 * factor * SPREAD[0, 1] + factor**2 * SPREAD[1, 1]
        found = polarized(np.array([SPREAD[0, 0], SPREAD[1, 1], third]), factor)
        assert found[2:] == pytest.approx([SPREAD[0, 1]] * 2)
    impossible = polarized(np.array([1.0, 1.0, 9.0]), 1.0)
    assert impossible[2:] == (-1.0, -1.0)
    assert impossible.of_difference(-1.0) == 0.0


@pytest.mark.parametrize("case", MEANS)
def test_ratios_differences_and_lifts_are_covered(case: str, rng: np.random.Generator) -> None:
    """False alarms: ALPHA for each of three rates if intervals cover 94%.

    The negative control takes the ratio to be normal, with a denominator that is often small.
    """
    truths = [above / below for above, below in MEANS[case]]
    both = [rng.multivariate_normal(means, SPREAD, N_DRAWS) for means in MEANS[case]]
    held = {"ratio": 0, "difference": 0, "lift": 0, "normal": 0}
    for control, treated in zip(*both, strict=True):
        pair = ArmPair(arm_ratio(treated), arm_ratio(control))
        low, high = pair.control.limits(0.95)
        held["ratio"] += low <= truths[0] <= high
        low, high = pair.ci(0.95)
        held["difference"] += low <= truths[1] - truths[0] <= high
        lift = pair.lift(0.95)
        held["lift"] += lift is None or lift[1] <= truths[1] / truths[0] - 1 <= lift[2]
        reach = 1.96 * math.sqrt(pair.control.variances[0])
        held["normal"] += abs(pair.control.value - truths[0]) <= reach
    fewest = stats.binom.ppf(ALPHA, N_DRAWS, 0.94)
    assert held["ratio"] >= fewest
    assert held["difference"] >= fewest
    assert held["lift"] >= fewest
    if case == "weak":
        assert held["normal"] < fewest


def test_a_p_value_is_where_zero_leaves_the_interval(rng: np.random.Generator) -> None:
    """Almost uniform under the null; false alarms ALPHA each."""
    draws = rng.multivariate_normal(MEANS["strong"][0], SPREAD, (2, 800))
    p_values = []
    for control, treated in zip(*draws, strict=True):
        pair = ArmPair(arm_ratio(treated), arm_ratio(control))
        p_values.append(pair.p_value)
        if 1e-9 < pair.p_value < 0.99:
            inside, outside = pair.ci(1 - pair.p_value * 0.999), pair.ci(1 - pair.p_value * 1.001)
            assert inside[0] <= 0 <= inside[1]
            assert not outside[0] <= 0 <= outside[1]
    rejected = np.mean(np.array(p_values) < 0.05)
    assert rejected <= stats.binom.isf(ALPHA, 800, 0.06) / 800
