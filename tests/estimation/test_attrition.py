"""Effects on those observed, warnings and bounds: against exact truths, and over real releases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from bench.attrition import SCENARIOS, SPACES, Units, make_units, measure
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.metrics.observed import _Arm, _bounds
from clusterdp.estimation.metrics.ratio import ArmRatio, Covariance

N_RELEASES = 60
PARTS: dict[str, Any] = {"unit": "unit", "arm": "arm", "cluster": "cluster", "missing": ["y"]}
# At ε = 20 less than one row in 1,000 is released as another; each moves a mean by at most 0.003.
CLOSE = 0.02
CERTAIN = Covariance(0.0, 0.0, 0.0, 0.0)


def exact_arm(units: Units, arm: int) -> _Arm:
    """An arm whose means are known."""
    weights, outcomes = units.probs * units.observed[:, arm], units.outcomes[:, arm]
    ratio = ArmRatio(float(weights @ outcomes), float(weights.sum()), CERTAIN, CERTAIN, np.inf)
    tails = {
        sign: [
            (level, float(weights @ np.maximum(sign * (outcomes - level), 0)), 0.0)
            for level in np.unique(units.outcomes).tolist()
        ]
        for sign in (-1, 1)
    }
    return ratio, tails


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_bounds_are_those_of_trimming(scenario: str, space: str) -> None:
    """The largest of t − E[R(t − y)₊]/π is the mean of the lowest, by trimming one by one."""
    units = make_units(scenario, space)
    control, treated = exact_arm(units, 0), exact_arm(units, 1)
    found = _bounds(EffectTarget("y", 1, 0), control, treated, 0.95, from_ends=False)
    low, high = units.sharpest_bounds()
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.limits == pytest.approx((low, high), abs=1e-9)
    assert found.low - 1e-9 <= units.in_either_arm <= found.high + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["at random", "by arm and outcome"])
def test_what_is_stated_holds(scenario: str, rng: np.random.Generator) -> None:
    """False alarms: ALPHA for each of bias, coverage (of 93.5%), limits (of 95%) and warnings.

    The negative control is the interval of those observed, for those observed in either arm.
    """
    line = measure(scenario, "0..5", 2.0, rng, N_RELEASES)
    fewest = stats.binom(N_RELEASES, 0.935).ppf(ALPHA) / N_RELEASES
    assert abs(line.bias) <= stats.t(N_RELEASES - 1).isf(ALPHA / 2)
    assert line.covered(line.units.of_those_observed) >= fewest
    assert line.limited() >= stats.binom(N_RELEASES, 0.95).ppf(ALPHA) / N_RELEASES
    if scenario == "at random":
        assert line.warned.sum() <= stats.binom(N_RELEASES, 0.01).isf(ALPHA)
    else:
        assert line.warned.all()
        assert line.covered(line.units.in_either_arm) < fewest


def test_a_share_that_differs_is_warned_of(rng: np.random.Generator) -> None:
    """The shares are 20 standard errors apart."""
    table = make_units("by arm", "0..5").table(rng)
    mechanism = cdp.optimal(epsilon=8, sums=cdp.SumShares(totals=0.1))
    released = cdp.release(table, outcomes={"y": "0..5"}, mechanism=mechanism, **PARTS)
    estimate = cdp.estimate(released)
    assert any(
        note.startswith("Attrition: response rates differ")
        for note in estimate.warnings + estimate.notes
    )
    bounds = estimate.bounds[0]
    assert bounds.trimmed == 0
    assert bounds.limits[0] <= bounds.low <= bounds.high <= bounds.limits[1]
    assert "Lee bounds for y" in repr(estimate)
    # The means of those observed, from the published columns alone.
    means = released.units.group_by("arm").agg(
        pl.col("y_times_observed_debiased").mean() / pl.col("y_observed_debiased").mean()
    )
    by_rows = dict(means.iter_rows())
    alone = cdp.estimate(released, use="rows", estimator="unstratified")["y"]
    assert alone.effect == pytest.approx(by_rows[1] - by_rows[0])
    assert alone.control_mean == pytest.approx(by_rows[0])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_bounds_hold_the_effect_on_those_observed(scenario: str) -> None:
    """Whatever noise does to them: it lies between the true ones. That they were moved is said."""
    units = make_units(scenario, "0..5")
    control, treated = exact_arm(units, 0), exact_arm(units, 1)
    effect = treated[0].value - control[0].value
    for error in (-0.9, 0.9):
        noisy = [
            (
                ratio,
                {
                    sign: [(threshold, mean + error, 1e-4) for threshold, mean, _ in tails]
                    for sign, tails in every.items()
                },
            )
            for ratio, every in (control, treated)
        ]
        found = _bounds(EffectTarget("y", 1, 0), noisy[0], noisy[1], 0.95, from_ends=False)
        assert found.limits[0] <= found.low <= effect <= found.high <= found.limits[1]
        assert found.widened == (error < 0)


def test_bounds_that_were_widened_are_said_to_be(rng: np.random.Generator) -> None:
    table = make_units("by arm", "0..5").table(rng).head(400)
    released = cdp.release(table, outcomes={"y": "0..5"}, mechanism=cdp.optimal(epsilon=2), **PARTS)
    estimate = cdp.estimate(released)
    (bounds,), said = estimate.bounds, "widened to include"
    assert bounds.low - 1e-9 <= estimate["y"].effect <= bounds.high + 1e-9
    for is_widened in (False, True):
        changed = replace(estimate, bounds=(replace(bounds, widened=is_widened),))
        assert (said in repr(changed)) == is_widened


def test_thresholds_are_of_those_observed(rng: np.random.Generator) -> None:
    """Next to no noise: what is estimated is what the table says."""
    table = make_units("by outcome", "0..5").table(rng)
    released = cdp.release(
        table, outcomes={"y": "0..5"}, metric=["y>=2"], mechanism=cdp.optimal(epsilon=20), **PARTS
    )
    estimate = cdp.estimate(released, estimator="unstratified")
    assert estimate.metrics == ("y", "y_observed", "y>=2")
    seen = table.filter(pl.col("y").is_not_nan())
    for name, true in {"y": pl.col("y"), "y>=2": pl.col("y") >= 2}.items():
        means = dict(seen.group_by("arm").agg(true.mean()).iter_rows())
        assert estimate[name].effect == pytest.approx(means[1] - means[0], abs=CLOSE)


def test_true_effects_are_of_those_observed(rng: np.random.Generator) -> None:
    """Against the difference of two means and its standard error, those observed taken as drawn."""
    table = make_units("by outcome", "0..5").table(rng)
    parts = {**PARTS, "outcomes": {"y": "0..5"}, "estimator": "unstratified"}
    true = cdp.estimate_without_privacy(table, **parts)["y"]
    control, treated = (
        table.filter((pl.col("arm") == arm) & pl.col("y").is_not_nan())["y"].to_numpy()
        for arm in range(2)
    )
    assert true.effect == pytest.approx(treated.mean() - control.mean())
    assert true.control_mean == pytest.approx(control.mean())
    variance = sum(one.var(ddof=1) / len(one) for one in (control, treated))
    assert true.std_error == pytest.approx(np.sqrt(variance), rel=0.01)


def test_metrics_are_asked_of_those_observed(rng: np.random.Generator) -> None:
    table = make_units("by outcome", "0..5").table(rng)
    mechanism = cdp.optimal(epsilon=20)
    released = cdp.release(table, outcomes={"y": "0..5"}, mechanism=mechanism, **PARTS)
    asked = ["y>=2", "y/y_observed", "y", "y_observed"]
    estimate = cdp.estimate(released, metrics=asked, estimator="unstratified")
    assert estimate.metrics == tuple(asked)
    seen = table.filter(pl.col("y").is_not_nan())
    means = dict(seen.group_by("arm").agg((pl.col("y") >= 2).mean()).iter_rows())
    assert estimate["y>=2"].effect == pytest.approx(means[1] - means[0], abs=CLOSE)
    assert estimate["y/y_observed"].effect == pytest.approx(estimate["y"].effect)
    with pytest.raises(cdp.ParameterError, match="'y' may be missing"):
        cdp.estimate(released, metrics="p90(y)")


def test_in_segments_and_beside_what_is_not_given(rng: np.random.Generator) -> None:
    table = make_units("by arm", "0..5").table(rng).with_columns(vip=pl.col("unit") % 2 == 0)
    released = cdp.release(
        table,
        outcomes={"y": "0..5"},
        passthrough=["vip"],
        mechanism=cdp.optimal(epsilon=4),
        **PARTS,
    )
    estimate = cdp.estimate(released, by="vip", differences="rest")
    assert estimate["y", "vip=True"].std_error > estimate["y", "overall"].std_error
    assert any(
        "means only. y is shown without" in note for note in estimate.warnings + estimate.notes
    )


def test_where_rows_do_not_tell_the_distribution(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of the outcome bound it still, and less sharply.

    No channel that we design is of this kind; that of another prior or program may be.
    """
    table = make_units("by arm", "0..5").table(rng)
    mechanism = cdp.optimal(epsilon=8, sums=cdp.SumShares(totals=0.1))
    released = cdp.release(table, outcomes={"y": "0..5"}, mechanism=mechanism, **PARTS)
    sharp = cdp.estimate(released).bounds[0]
    unknown = lambda _, values, __: (np.zeros_like(values), False)  # noqa: E731 - a stand-in
    monkeypatch.setattr(OptimalChannel, "decode_function", unknown)
    estimate = cdp.estimate(released)
    wide = estimate.bounds[0]
    assert (sharp.from_ends, wide.from_ends) == (False, True)
    assert "They use the declared range" in repr(estimate)
    assert wide.high > sharp.high  # a third of outcomes are at the lower end, which is sharp there
