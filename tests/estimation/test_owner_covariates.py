"""Overall effects adjusted by a covariate that stays with the owner."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import EffectArrays
from clusterdp.estimation.means.arms import ArmMeans
from clusterdp.estimation.means.owner_covariates import adjusted_by_owner
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.spec.experiment import ExperimentFile, write_experiment
from clusterdp.spec.parse import parse, parse_options
from clusterdp.statistics.base import CovariateMoments
from clusterdp.statistics.covariates import (
    STEPS,
    Covariate,
    NoisyCovariates,
    true_moments,
)
from drafts import draft_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from clusterdp._arrays import IntArray

N_UNITS = 6000
COVARIATE = {"spend": {"column": "before", "range": [0, 100], "correlation": 0.9}}
OPTIONS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "market",
    "outcomes": {"spend": "number:0..60", "visit": "0,1"},
    "baseline": {"spend": "mean:25,std:9", "visit": "0.3"},
    "covariate": COVARIATE,
    "epsilon": 4,
}


def table(n_units: int = N_UNITS, effect: float = 0.5) -> pl.DataFrame:
    """Users whose spend a covariate predicts well."""
    rng = np.random.default_rng()
    before, arm = rng.normal(50, 15, n_units), rng.permutation(np.arange(n_units) % 2)
    spend = 25 + 0.5 * (before - 50) + 3.5 * rng.standard_normal(n_units) + effect * arm
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": arm,
            "market": rng.integers(0, 4, n_units),
            "spend": np.clip(spend, 0, 60),
            "visit": (rng.random(n_units) < 0.3).astype(np.int64),
            "before": before,
        }
    )


@pytest.fixture(scope="module")
def release() -> cdp.Release:
    return cdp.release(table(), **OPTIONS)


def of_metric(estimate: cdp.Estimate, metric: str) -> dict[bool, Any]:
    """Overall effects on a metric, by whether they are adjusted."""
    every = [one for one in estimate.effects if one.of.metric == metric and not one.of.segment]
    return {one.of.adjusted: one for one in every}


def test_an_adjusted_effect_is_more_precise_and_reported(release: cdp.Release) -> None:
    estimate = cdp.estimate(release)
    found = of_metric(estimate, "spend")
    # A correlation of 0.9 leaves 0.19 of the variance of sampling, and all that privacy adds.
    assert found[True].sampling_variance < 0.5 * found[False].sampling_variance
    assert found[True].std_error < 0.85 * found[False].std_error
    assert found[True].to_report
    assert not found[False].to_report
    # Both have the same mean, but for chance.
    apart = abs(found[True].effect - found[False].effect)
    assert apart < 6 * math.sqrt(found[False].std_error ** 2 + found[True].std_error ** 2)
    assert set(of_metric(estimate, "visit")) == {False}
    said = "adjusted by the owner's covariate (not published): spend by before."
    assert said in " ".join(str(estimate).split())
    assert estimate.owner_covariates == (("spend", "before"),)
    assert estimate.to_dict()["owner_covariates"] == {"spend": "before"}
    assert "(not published): spend by before" in " ".join(estimate.to_html().split())


def test_what_is_reported_is_one_family(release: cdp.Release) -> None:
    reported = [one for one in cdp.estimate(release).effects if one.to_report]
    assert {(one.of.metric, one.of.adjusted) for one in reported} == {
        ("spend", True),
        ("visit", False),
    }
    assert {one.family_size for one in reported} == {2}


@pytest.mark.parametrize(
    "asked", [{"fold": 0}, {"use": "rows"}, {"estimator": "unstratified"}], ids=str
)
def test_other_estimates_are_not_adjusted(release: cdp.Release, asked: dict[str, Any]) -> None:
    estimate = cdp.estimate(release, **asked)
    assert not any(one.of.adjusted for one in estimate.effects)
    assert "owner's" not in str(estimate)


def test_segments_are_not_adjusted(release: cdp.Release) -> None:
    effects = cdp.estimate(release, by="market").effects
    assert {bool(one.of.segment) for one in effects if one.of.adjusted} == {False}


def test_a_folder_gives_the_same_estimate_and_no_covariate(tmp_path: Path) -> None:
    folder, made = tmp_path / "out", table()
    published = cdp.publish(made, out=folder, **OPTIONS)
    assert all(check.problem is None for check in verify_folder(folder))
    estimate = cdp.estimate(folder)
    assert of_metric(estimate, "spend")[True].to_report
    held = b"".join(path.read_bytes() for path in folder.rglob("*.parquet"))
    names = [name for path in folder.rglob("*.parquet") for name in pl.read_parquet_schema(path)]
    assert "before" not in names
    assert made["before"][0].hex().encode() not in held
    assert "before: no value is published" in " ".join(str(published).split()) + " ".join(
        (folder / "README.md").read_text().replace("`", "").split()
    )


@pytest.mark.parametrize(
    "more",
    [
        {"question": ["spend", "visit"]},
        {"pilot": 0.1},
        {"mechanism": "cluster-dp"},
        {"covariate": {**COVARIATE, "visit": "before:0..100"}},
    ],
    ids=["questions", "pilot", "cluster-dp", "two outcomes"],
)
def test_covariates_work_with(more: dict[str, Any]) -> None:
    made = cdp.release(table(), **{**OPTIONS, **more})
    assert made.guarantee.epsilon <= OPTIONS["epsilon"]
    assert True in of_metric(cdp.estimate(made), "spend")


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ({"before": None}, {}, "(covariate) has missing values; fill them before"),
        ({"before": math.nan}, {}, "(covariate) has missing values; fill them before"),
        ({}, {"passthrough": "before"}, "column 'before' has two parts"),
        ({}, {"missing": ["spend"]}, "'spend' may be missing"),
        ({}, {"covariate": {"sale": "before:0..1"}}, "there is no outcome 'sale'"),
        ({}, {"covariate": "spend"}, "covariate must be OUTCOME=COLUMN:LOW..HIGH"),
        ({}, {"covariate": "spend=before:9..1"}, "the smaller first; got 9 and 1"),
        ({}, {"covariate": "spend=before:0..1 correlation 2"}, "must lie in [-1, 1]"),
        ({}, {"covariate": "spend=absent:0..1"}, "covariate=..., --covariate"),
        ({}, {"covariate": ["spend=before:0..1"] * 2}, "gives an outcome twice"),
        ({}, {"mechanism": "noisy-histogram"}, "a mechanism that releases rows"),
        ({}, {"randomization_unit": "market", "cluster": None}, "assigned unit by unit"),
        ({}, {"covariate_share": 0.0}, "covariate_share must be above 0"),
    ],
)
def test_what_cannot_be_adjusted_is_rejected(
    change: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    made = table(200)
    for name, value in change.items():
        replaced = pl.when(pl.col("user") == 7).then(pl.lit(value)).otherwise(pl.col(name))
        made = made.with_columns(replaced.alias(name))
    with pytest.raises(cdp.ClusterDPError) as caught:
        cdp.release(made, **{**OPTIONS, **more})
    assert said in str(caught.value)


def test_a_mechanism_made_by_hand_has_no_covariate() -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "epsilon"}
    with pytest.raises(cdp.ParameterError, match="covariate belongs to a mechanism by name"):
        cdp.release(table(200), mechanism=cdp.optimal(epsilon=1), **options)


def test_several_rows_of_a_unit_have_one_covariate() -> None:
    made = table(400)
    options = {**OPTIONS, "aggregate": "mean", "outcomes": {"spend": "number:0..60"}}
    options["baseline"] = {"spend": "mean:25,std:9"}
    cdp.release(pl.concat([made, made]), **options)
    other = made.with_columns(pl.col("before") + 1)
    with pytest.raises(cdp.DataError, match="several values of one unit"):
        cdp.release(pl.concat([made, other]), **options)


def test_a_plan_shows_what_it_saves() -> None:
    made = table(20_000).drop("spend", "visit")
    plan = cdp.plan(made, **OPTIONS)
    text = " ".join(str(plan).split())
    assert "Adjusted by before, the overall effect on spend has an MDE of" in text
    assert "covariates (overall effect)" in text
    assert plan.options.covariate_share
    without = cdp.plan(made, **{**OPTIONS, "covariate": {"spend": "before:0..100"}})
    assert "Declare the correlation that you expect" in " ".join(str(without).split())
    hardly = cdp.plan(made, **{**OPTIONS, "covariate": "spend=before:0..100 correlation 0.1"})
    assert "makes hardly any difference" in " ".join(str(hardly).split())


def test_options_of_a_file_and_a_lock_read_back(tmp_path: Path) -> None:
    options = parse_options({**OPTIONS, "out": str(tmp_path / "out"), "input": "t.csv"})
    assert options.covariate == ["spend=before:0..100 correlation 0.9"]
    assert parse(parse(options).options.to_dict()) == parse(options)
    write_experiment(options, tmp_path / "experiment.toml")
    text = (tmp_path / "experiment.toml").read_text()
    assert 'spend = { column = "before", range = [0, 100], correlation = 0.9 }' in text
    assert ExperimentFile.read(tmp_path / "experiment.toml").options.covariate == options.covariate


def test_imbalance_is_zero_on_average_over_all_assignments() -> None:
    """So the adjusted effect is unbiased for any slope, whatever clusters and shares are."""
    rng = np.random.default_rng()
    clusters = [rng.integers(0, STEPS, 5), rng.integers(0, STEPS, 6)]
    treated = (2, 3)
    sizes = np.array([[3, 2], [3, 3]])
    layout = Layout(clusters=("a", "b"), arms=(0, 1), control=0, sizes=sizes)
    found = []
    chosen = [
        itertools.combinations(range(len(values)), n)
        for values, n in zip(clusters, treated, strict=True)
    ]
    for picks in itertools.product(*map(list, chosen)):
        sums = np.zeros((2, 2, 4), dtype=np.int64)
        for cluster, (values, pick) in enumerate(zip(clusters, picks, strict=True)):
            for place, value in enumerate(values.tolist()):
                sums[cluster, int(place in pick), 0] += value
        found.append(true_moments(sums, layout)[0])
    # Cells are rounded to whole numbers, of which there are 256 in a step.
    assert np.abs(np.mean(found, axis=0)).max() <= len(clusters) / 2
    assert np.std(found) > 1000


def means_of(outcomes: list[np.ndarray]) -> tuple[EffectArrays, ArmMeans]:
    """The plain effect of two arms from true outcomes."""
    means = np.array([one.mean() for one in outcomes])
    variances = np.array([one.var(ddof=1) / len(one) for one in outcomes])
    nothing = np.zeros(2)
    degrees = np.array([float(len(one) - 1) for one in outcomes])
    arms = ArmMeans(means, variances, nothing, degrees, nothing, nothing)
    sizes = np.array([[len(one) for one in outcomes]])
    return arms.effects(Layout(clusters=("all",), arms=(0, 1), control=0, sizes=sizes)), arms


def test_without_noise_it_is_the_regression_of_least_variance() -> None:
    """Tyranny-of-the-minority weights: as efficient as a slope for each arm (Lin, 2013)."""
    rng = np.random.default_rng()
    sizes = (300, 80)
    covariates = [rng.normal(0, 2, size) for size in sizes]
    slopes = (0.8, -0.3)
    outcomes = [
        slope * one + rng.standard_normal(len(one))
        for slope, one in zip(slopes, covariates, strict=True)
    ]
    arrays, means = means_of(outcomes)
    weights = 1 / np.array(sizes)
    every = np.concatenate(covariates).mean()
    moments = CovariateMoments(
        column="x",
        imbalance=np.array([one.mean() - every for one in covariates]),
        squares=np.array([one.var(ddof=1) for one in covariates]),
        products=np.array([np.cov(*pair)[0, 1] for pair in zip(covariates, outcomes, strict=True)]),
        imbalance_noise=np.zeros(2),
        products_noise=np.zeros(2),
    )
    layout = Layout(clusters=("all",), arms=(0, 1), control=0, sizes=np.array([sizes]))
    found = adjusted_by_owner(arrays, means, weights, moments, [0, 1], layout)
    explained, spread = weights @ moments.products, weights @ moments.squares
    slope = explained / spread
    residuals = [
        one - slope * (of_unit - every) for one, of_unit in zip(outcomes, covariates, strict=True)
    ]
    expected, of_arms = means_of(residuals)
    np.testing.assert_allclose(found.effects, expected.effects)
    np.testing.assert_allclose(found.variances, expected.variances)
    for name in ("control_means", "control_variances", "treated_means", "treated_variances"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name))
    # No other slope has less variance.
    for other in slope + np.array([-0.1, 0.1]):
        moved = [one - other * of_unit for one, of_unit in zip(outcomes, covariates, strict=True)]
        assert means_of(moved)[0].variances[0] > found.variances[0]
    assert of_arms.means.shape == (2,)


def test_noise_of_covariates_is_stated() -> None:
    """What noise adds to the effect, and to what is stated of its variance; by simulation."""
    rng = np.random.default_rng()
    outcomes = [rng.standard_normal(200), rng.standard_normal(200)]
    arrays, means = means_of(outcomes)
    layout = Layout(clusters=("all",), arms=(0, 1), control=0, sizes=np.array([[200, 200]]))
    weights, n_draws = np.full(2, 1 / 200), 20_000
    true = CovariateMoments(
        column="x",
        imbalance=np.zeros(2),
        squares=np.ones(2),
        products=np.full(2, 0.6),
        imbalance_noise=np.full(2, 4e-4),
        products_noise=np.full(2, 0.01),
    )
    effects, variances = [], []
    for _ in range(n_draws):
        drawn = true._replace(
            imbalance=true.imbalance + rng.normal(0, 0.02, 2),
            products=true.products + rng.normal(0, 0.1, 2),
        )
        found = adjusted_by_owner(arrays, means, weights, drawn, [0, 1], layout)
        effects.append(found.effects[0])
        variances.append(found.variances[0])
    # With true covariances, 0.36 of the variance of sampling is explained, but for noise on d.
    of_d = 2 / 200 + 2 * 4e-4
    left = means.sampling.sum() - (0.6 / 100) ** 2 / of_d + (2 * 0.01 / 200**2) / of_d
    assert np.mean(variances) == pytest.approx(left, rel=0.02)
    by_noise = np.var(effects)
    slope = 0.6 / 100 / of_d
    assert by_noise == pytest.approx(slope**2 * 2 * 4e-4, rel=0.15)


def sums_of(source: Any) -> IntArray:
    """What is counted of covariates in a table, by the engine that it needs."""
    draft = draft_of({**OPTIONS, "question": ["spend,visit"]})
    opened = prepare(source, columns=draft.columns, spaces=draft.spaces)
    moments = NoisyCovariates(
        epsilon=1, covariate_epsilon=1, covariates=draft.request.budget.covariates
    )
    mechanism = msgspec.structs.replace(cdp.optimal(epsilon=2), statistics=(moments,))
    (totals,) = opened.count([asked_of(mechanism, opened.layout)]).counted.totals
    assert totals.covariates is not None
    return totals.covariates


def test_sums_are_those_of_the_table() -> None:
    made = table(500)
    steps = Covariate(outcome="spend", column="before", low=0, high=100).steps
    before = steps(made["before"].to_numpy())
    cells = 2 * made["market"].to_numpy() + made["arm"].to_numpy()
    expected = [np.bincount(cells, before**power, 8) for power in (1, 2)]
    np.testing.assert_array_equal(
        sums_of(made)[:, :, 0, :2].reshape(8, 2), np.stack(expected, axis=1)
    )


@pytest.mark.spark
def test_spark_counts_the_same(spark: SparkSession, tmp_path: Path) -> None:
    made = table(2000)
    path = tmp_path / "table.parquet"
    made.write_parquet(path)
    rows = spark.read.parquet(str(path))
    np.testing.assert_array_equal(sums_of(rows), sums_of(made))
    release = cdp.release(rows, **OPTIONS)
    assert of_metric(cdp.estimate(release), "spend")[True].to_report
