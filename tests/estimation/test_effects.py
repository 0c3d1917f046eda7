from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.means.arms import true_effects
from clusterdp.estimation.means.responses import CellMoments
from clusterdp.estimation.means.weights import arm_variances, weigh
from clusterdp.estimation.report.screen import estimate_text
from populations import make_layout, three_arms, true_moments

if TYPE_CHECKING:
    import pandas as pd

SPACE = cdp.OutcomeSpace.integers(0, 3)
COLUMNS: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
PARTS: dict[str, Any] = {**COLUMNS, "outcomes": {"clicks": SPACE}}
MECHANISM = cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5)


def released(table: pl.DataFrame, mechanism: cdp.Mechanism = MECHANISM) -> cdp.Release:
    return cdp.release(table, mechanism=mechanism, **PARTS)


def regression(frame: pd.DataFrame, outcome: str) -> tuple[float, float]:
    """Effect and HC2 variance by ordinary least squares: Neyman's estimator, by statsmodels."""
    fit = smf.ols(f"{outcome} ~ treated", frame).fit(cov_type="HC2")
    return float(fit.params["treated"]), float(fit.bse["treated"]) ** 2


def stratified_by_statsmodels(frame: pd.DataFrame, outcome: str) -> tuple[float, float]:
    parts = [
        (len(part) / len(frame), *regression(part, outcome)) for _, part in frame.groupby("market")
    ]
    effect = sum(weight * effect for weight, effect, _ in parts)
    return effect, sum(weight**2 * variance for weight, _, variance in parts)


def test_stratified_rows_against_statsmodels(table: pl.DataFrame) -> None:
    release = released(table.sample(fraction=0.9))
    estimate = cdp.estimate(release, use="rows")
    effect, variance = stratified_by_statsmodels(release.units.to_pandas(), "clicks_debiased")
    assert estimate.effect == pytest.approx(effect)
    assert estimate.std_error**2 == pytest.approx(variance)


def test_unstratified_rows_against_statsmodels(table: pl.DataFrame) -> None:
    release = released(table)
    estimate = cdp.estimate(release, estimator="unstratified", use="rows")
    effect, variance = regression(release.units.to_pandas(), "clicks_debiased")
    assert estimate.effect == pytest.approx(effect)
    assert estimate.std_error**2 == pytest.approx(variance)


def test_true_outcomes_against_statsmodels(table: pl.DataFrame) -> None:
    estimate = cdp.estimate_without_privacy(table, **PARTS)
    effect, variance = stratified_by_statsmodels(table.to_pandas(), "clicks")
    assert estimate.effect == pytest.approx(effect)
    assert estimate.std_error**2 == pytest.approx(variance)
    assert estimate.effects[0].privacy_variance_share == 0
    assert "not private" in str(estimate)


def test_kancharla_and_kangs_estimator(table: pl.DataFrame) -> None:
    """With two outcomes: the difference of released means over 1−λ."""
    binary = table.with_columns(clicks=pl.col("clicks") > 1)
    release = cdp.release(
        binary,
        mechanism=cdp.uniform_prior_dp(resample_prob=0.25),
        outcomes={"clicks": cdp.OutcomeSpace.binary()},
        **COLUMNS,
    )
    means = dict(release.units.group_by("treated").agg(pl.col("response").mean()).iter_rows())
    theirs = (means[1] - means[0]) / 0.75
    assert cdp.estimate(release, estimator="unstratified", use="rows").effect == pytest.approx(
        theirs
    )


def test_another_control_turns_the_effect_around(table: pl.DataFrame) -> None:
    release = released(table)
    there, back = cdp.estimate(release), cdp.estimate(release, control=1)
    assert back.effect == pytest.approx(-there.effect)
    assert back.std_error == pytest.approx(there.std_error)
    contrasts = released(table, cdp.noisy_horvitz_thompson(epsilon=1))
    with pytest.raises(cdp.ParameterError, match="no other control is possible"):
        cdp.estimate(contrasts, control=1)


@pytest.mark.parametrize(
    "mechanism",
    [cdp.noisy_horvitz_thompson(epsilon=2), cdp.noisy_histogram(epsilon=2)],
    ids=lambda mechanism: mechanism.name,
)
def test_aggregates_have_stratified_effects_only(
    mechanism: cdp.Mechanism, table: pl.DataFrame
) -> None:
    release = released(table, mechanism)
    estimate = cdp.estimate(release)
    true = cdp.estimate_without_privacy(table, **PARTS)
    assert abs(estimate.effect - true.effect) < 6 * estimate.std_error
    with pytest.raises(cdp.ParameterError, match="stratified effects only"):
        cdp.estimate(release, estimator="unstratified")


def test_three_arms_each_against_control(rng: np.random.Generator) -> None:
    population = three_arms(rng)
    counts = population.assign(1, rng)[0]
    moments = true_moments(counts, population.space)
    both = true_effects(moments, population.layout, "stratified")
    assert both.effects.shape == (2,)
    weights = population.layout.sizes.sum(axis=1) / population.layout.n_units
    for position, arm in enumerate((1, 2)):
        by_hand = weights @ (moments.means[:, arm] - moments.means[:, 0])
        assert both.effects[position] == pytest.approx(by_hand)


def test_cells_of_one_unit_are_compared_with_their_arm() -> None:
    """Control's first cell has one unit of a cluster of three; all are pooled with it."""
    layout = make_layout([[1, 2], [3, 2]])
    moments = CellMoments(
        sizes=layout.sizes,
        means=np.array([[4.0, 1.0], [2.0, 1.0]]),
        squares=np.array([[0.0, 2.0], [6.0, 0.0]]),
        noise=np.zeros((2, 2)),
    )
    weights = weigh(layout.sizes, layout, [0, 1])
    np.testing.assert_allclose(weights.shares, [[3 / 8, 3 / 8], [5 / 8, 5 / 8]])
    mean = (3 * 4 + 5 * 2) / 8
    lone = (3 / 8) ** 2 * (4 - mean) ** 2 * 3 / (3 - 1)
    others = (5 / 8) ** 2 * 6 / (3 - 1) / 3
    factors = weights.pool_factors()[0]
    found = arm_variances(moments, weights)
    assert found[0] == pytest.approx(factors[0] * (lone + others))
    assert found[1] == pytest.approx(factors[1] * (3 / 8) ** 2 * 2 / (2 - 1) / 2)


def test_an_arm_of_one_unit_has_no_standard_error(table: pl.DataFrame) -> None:
    pair = table.head(2).with_columns(market=pl.lit("here"))
    estimate = cdp.estimate(released(pair))
    assert np.isnan(estimate.std_error)
    assert any("fewer than 50 units" in note for note in estimate.method)
    assert "is not reported: an arm has too few units" in str(estimate)


def test_unequal_shares_are_pointed_out(table: pl.DataFrame) -> None:
    uneven = table.filter((pl.col("market") > 0) | (pl.col("user") % 2 == 0))
    uneven = uneven.filter(
        (pl.col("market") != 1) | (pl.col("treated") == 1) | (pl.col("user") < 300)
    )
    warnings = cdp.estimate(released(uneven), estimator="unstratified").warnings
    assert any("different shares" in warning for warning in warnings)
    even = cdp.estimate(released(table), estimator="unstratified").warnings
    assert not any("shares" in warning for warning in even)


def test_the_variance_is_split_into_sampling_and_privacy(table: pl.DataFrame) -> None:
    (effect,) = cdp.estimate(released(table)).effects
    assert effect.sampling_variance + effect.privacy_variance == pytest.approx(effect.std_error**2)
    assert 0 < effect.privacy_variance_share <= 1


def test_an_estimate_in_every_form(table: pl.DataFrame) -> None:
    estimate = cdp.estimate(released(table))
    low, high = estimate.ci(0.95)
    assert high - low == pytest.approx(2 * 1.959964 * estimate.std_error, rel=1e-6)
    assert estimate.ci(0.99)[0] < low
    as_dict = json.loads(json.dumps(estimate.to_dict()))
    assert as_dict["effects"][0]["effect"] == estimate.effect
    assert as_dict["epsilon"] == estimate.guarantee.epsilon  # type: ignore[union-attr]
    stream = pa.RecordBatchReader.from_stream(estimate).read_all()
    assert stream.column("effect").to_pylist() == [estimate.effect]
    assert pl.DataFrame(estimate)["ci_low"].to_list() == [low]
    text, page = estimate_text(estimate, 80, verbose=True), estimate._repr_html_()
    (effect,) = estimate.effects
    decimals = 1 - math.floor(math.log10(effect.std_error))
    for number in (effect.effect, effect.std_error, effect.treated_mean, effect.control_mean):
        assert number is not None
        sign = "+" if number is effect.effect else ""
        assert f" {sign}{number:.{decimals}f}" in text
        assert f"<td>{sign}{number:.{decimals}f}</td>" in page
    assert effect.treated_mean - effect.control_mean == pytest.approx(effect.effect)  # type: ignore[operator]
    assert as_dict["effects"][0]["treated_mean"] == effect.treated_mean
    assert stream.column("control_std_error").to_pylist() == [effect.control_std_error]
    with pytest.raises(cdp.ParameterError, match="level"):
        estimate.ci(95)


def test_html_escapes_labels(table: pl.DataFrame) -> None:
    marked = table.with_columns(treated=pl.col("treated").replace_strict({0: "<b>", 1: "&"}))
    release = cdp.release(marked, mechanism=MECHANISM, control="<b>", **PARTS)
    page = cdp.estimate(release)._repr_html_()
    assert "<b>" not in page
    assert "&amp;" in page


def test_several_arms_are_taken_by_label(table: pl.DataFrame) -> None:
    arms = table.with_columns(treated=pl.int_range(pl.len()) % 3)
    release = cdp.release(arms, mechanism=MECHANISM, control=0, **PARTS)
    estimate = cdp.estimate(release, use="rows")
    assert [effect.of.arm for effect in estimate.effects] == [1, 2]
    assert estimate[2].effect == estimate["2"].effect
    with pytest.raises(cdp.ParameterError, match=r"choose one with estimate\[metric\]"):
        _ = estimate.effect
    with pytest.raises(KeyError):
        _ = estimate["none"]


@pytest.mark.parametrize("wrong", ["median", None, ""])
def test_unknown_estimators(wrong: Any, table: pl.DataFrame) -> None:
    with pytest.raises(cdp.ParameterError, match="estimator must be"):
        cdp.estimate(released(table), estimator=wrong)


def test_p_values() -> None:
    layout = make_layout([[50, 50]])
    assert layout.n_units == 100
    effect = cdp.Effect(
        of=EffectTarget(metric="clicks", arm=1, control=0),
        effect=1.959964,
        std_error=1.0,
        sampling_variance=0.5,
        privacy_variance=0.5,
        n_treated=50,
        n_control=50,
    )
    assert effect.p_value == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("n_users", [15, 40])
def test_few_units_are_compared_by_welchs_t(n_users: int, rng: np.random.Generator) -> None:
    """Against scipy, which has the same degrees of freedom. No arm's outcomes are all alike."""
    few = pl.DataFrame(
        {
            "user": np.arange(n_users),
            "treated": np.arange(n_users) % 3 // 2,
            "market": "here",
            "clicks": rng.permutation(np.arange(n_users) % 4),
        }
    )
    (effect,) = cdp.estimate_without_privacy(few, **PARTS).effects
    samples = [few.filter(pl.col("treated") == arm)["clicks"].to_numpy() for arm in (1, 0)]
    theirs = stats.ttest_ind(*samples, equal_var=False)
    assert effect.p_value == pytest.approx(theirs.pvalue)
    assert effect.ci(0.9) == pytest.approx(tuple(theirs.confidence_interval(0.9)))
    assert effect.degrees == pytest.approx(theirs.df)


def test_many_units_are_compared_by_the_normal(table: pl.DataFrame) -> None:
    (effect,) = cdp.estimate_without_privacy(table, **PARTS).effects
    assert math.isinf(effect.degrees)
    assert effect.to_dict()["degrees"] is None


def test_students_intervals_of_few_units_cover(rng: np.random.Generator) -> None:
    """Six and nine units: normal intervals cover 91%. False alarms: below ALPHA."""
    n_draws = 20_000
    layout = make_layout([[6, 9]])
    draws = [rng.normal(size=(n_draws, size)) for size in (6, 9)]
    moments = CellMoments(
        sizes=np.broadcast_to(layout.sizes, (n_draws, 1, 2)),
        means=np.stack([draw.mean(axis=1) for draw in draws], axis=1)[:, np.newaxis],
        squares=np.stack([draw.var(axis=1) * draw.shape[1] for draw in draws], axis=1)[
            :, np.newaxis
        ],
        noise=np.zeros((n_draws, 1, 2)),
    )
    found = true_effects(moments, layout, "stratified")
    distance = np.abs(found.effects / np.sqrt(found.variances))
    lowest = stats.binom(n_draws, 0.94).ppf(ALPHA)  # Welch's is approximate: 94.6 to 95.1% here
    assert (distance <= stats.t(found.degrees).isf(0.025)).sum() >= lowest
    assert (distance <= stats.norm.isf(0.025)).sum() < lowest


def an_effect(effect: float, std_error: float, control: float, control_error: float) -> cdp.Effect:
    return cdp.Effect(
        of=EffectTarget(metric="clicks", arm=1, control=0),
        effect=effect,
        std_error=std_error,
        sampling_variance=std_error**2,
        privacy_variance=0.0,
        n_treated=500,
        n_control=500,
        control_mean=control,
        control_std_error=control_error,
    )


def test_lift_is_fiellers() -> None:
    """At both ends the effect is as many standard errors from θ·control as the level says."""
    effect = an_effect(0.3, 0.2, 1.0, 0.15)
    lift = effect.lift(0.9)
    assert lift is not None
    assert lift[0] == pytest.approx(0.3)
    assert lift[1] < 0.3 < lift[2]
    for theta in lift[1:]:
        treated, control = 0.2**2 - 0.15**2, 0.15**2
        std_error = np.sqrt(treated + (1 + theta) ** 2 * control)
        assert abs(0.3 - theta * 1.0) / std_error == pytest.approx(stats.norm.isf(0.05))


def test_lift_is_cut_to_what_is_possible() -> None:
    """Nothing falls by more than all of it."""
    effect = replace(an_effect(-0.505, 0.02, 0.5, 0.01), possible=(0.0, 1.0))
    lift = effect.lift()
    assert lift is not None
    assert lift[:2] == (-1.0, -1.0)
    assert -1 < lift[2] < -0.9
    # What is far below all of it is no effect at all.
    assert replace(an_effect(-1.2, 0.02, 0.5, 0.01), possible=(0.0, 1.0)).lift() is None


def test_lift_without_bounds_is_not_told() -> None:
    assert an_effect(0.3, 0.2, 0.29, 0.15).lift() is None  # less than 1.96 standard errors
    assert an_effect(0.3, 0.2, 0.30, 0.15).lift() is not None
    assert an_effect(0.3, 0.2, -1.0, 0.15).lift() is None
    assert an_effect(0.3, np.nan, 1.0, 0.15).lift() is None


def test_lift_misses_as_often_on_either_side(rng: np.random.Generator) -> None:
    """Control's mean is 5.5 standard errors above zero. The delta method misses on one side."""
    n_draws, error = 20_000, 0.18
    control, treated = rng.normal(1.0, error, n_draws), rng.normal(1.2, error, n_draws)
    std_error = math.sqrt(2) * error
    lifts = [
        an_effect(b - a, std_error, a, error).lift() for a, b in zip(control, treated, strict=True)
    ]
    above = sum(lift is not None and lift[1] > 0.2 for lift in lifts)
    below = sum(lift is not None and lift[2] < 0.2 for lift in lifts)
    untold = sum(lift is None for lift in lifts)
    low, high = stats.binom(n_draws, 0.025).ppf([ALPHA / 2, 1 - ALPHA / 2])
    assert low - untold <= above <= high
    assert low - untold <= below <= high
    ratio = treated / control - 1
    delta = stats.norm.isf(0.025) * error * np.sqrt(1 + (1 + ratio) ** 2) / control
    assert (ratio + delta < 0.2).sum() > high
