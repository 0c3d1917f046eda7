"""Rows moved by their calibration: means in any tool are those of `estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from pathlib import Path

PARTS: dict[str, Any] = {"unit": "user", "arm": "arm", "control": "A"}
NO_SUMS: dict[str, Any] = {"mechanism": cdp.optimal(epsilon=2), "breakdown": None, "cluster": None}
SUMS = cdp.SumShares(totals=0.1, clusters=0.2, breakdowns=((("tier",), 0.2),))


@pytest.fixture
def table(rng: np.random.Generator) -> pl.DataFrame:
    """Three arms, with shares that differ between markets; two outcomes."""
    n_users = 1500
    market = rng.integers(0, 6, n_users)
    arm = (rng.random(n_users) * (2 + market % 3)).astype(int).clip(0, 2)
    visits = rng.integers(0, 4, n_users)
    return pl.DataFrame(
        {
            "user": rng.permutation(n_users),
            "arm": pl.Series(["A", "B", "C"]).gather(arm),
            "market": market,
            "tier": pl.Series(["gold", "basic", "new"]).gather(rng.integers(0, 3, n_users)),
            "visits": visits,
            "bought": (visits > 1).astype(int),
        }
    )


def released(table: Any, **more: Any) -> cdp.Release:
    options: dict[str, Any] = {
        **PARTS,
        "cluster": "market",
        "outcomes": {"visits": "0..3", "bought": "0, 1"},
        "breakdown": "tier",
        "folds": 2,
        "mechanism": cdp.optimal(epsilon=2, sums=SUMS),
        **more,
    }
    return cdp.release(table, **options)


def means(estimate: cdp.Estimate, segment: str = "overall") -> dict[str, float]:
    """The mean of each arm, from effects on visits."""
    effects = {arm: estimate["visits", arm, segment] for arm in ("B", "C")}
    control = effects["B"].control_mean
    assert control is not None
    return {"A": control, **{arm: control + one.effect for arm, one in effects.items()}}


def by_arm(rows: pl.DataFrame, weight: pl.Expr, column: str = "calibrated") -> dict[str, float]:
    weighted = (pl.col(f"visits_{column}") * weight).sum() / weight.sum()
    return dict(rows.group_by("arm").agg(weighted.alias("mean")).iter_rows())


ALIKE, WITHIN = pl.col("user") * 0 + 1, pl.col("stratified_weight")


@pytest.mark.parametrize("fold", [None, 1])
def test_means_of_arms_are_those_of_estimate(table: pl.DataFrame, fold: int | None) -> None:
    release = released(table)
    rows = cdp.calibrated_rows(release, fold=fold)
    plain = means(cdp.estimate(release, estimator="unstratified", fold=fold))
    assert by_arm(rows, ALIKE) == pytest.approx(plain, abs=1e-9)
    within = means(cdp.estimate(release, fold=fold))
    assert by_arm(rows, WITHIN) == pytest.approx(within, abs=1e-9)
    assert by_arm(rows, ALIKE, "debiased") != pytest.approx(plain, abs=1e-6)


def test_so_are_those_of_any_segment(table: pl.DataFrame) -> None:
    release = released(table)
    rows = cdp.calibrated_rows(release)
    segments = table.select("user", fifth=pl.col("user") % 5 == 0)
    estimate = cdp.estimate(release, estimator="unstratified", segments=segments, by=["fifth"])
    found = by_arm(rows.join(segments, on="user").filter("fifth"), ALIKE)
    assert found == pytest.approx(means(estimate, "fifth=True"), abs=1e-9)
    declared = cdp.estimate(release, estimator="unstratified", by=["tier"])
    found = by_arm(rows.filter(pl.col("tier") == "gold"), ALIKE)
    assert found == pytest.approx(means(declared, "tier=gold"), abs=1e-9)


def test_compared_within_clusters_the_means_of_a_declared_group_are_close(
    table: pl.DataFrame,
) -> None:
    # Estimates take a bias of order 1/n from pooled clusters; weights of rows know no segment.
    release = released(table)
    estimate = cdp.estimate(release, by=["tier"])
    rows = cdp.calibrated_rows(release).filter(pl.col("tier") == "gold")
    closest = estimate["visits", "B", "tier=gold"].std_error / 20
    assert by_arm(rows, WITHIN) == pytest.approx(means(estimate, "tier=gold"), abs=closest)


def test_every_metric_has_a_column(table: pl.DataFrame) -> None:
    release = released(table, metric=["visits * bought"])
    rows = cdp.calibrated_rows(release)
    estimate = cdp.estimate(release, estimator="unstratified")
    metrics = list(dict.fromkeys(one.of.metric for one in estimate.effects))
    assert len(metrics) == 3
    for metric in metrics:
        control = rows.filter(pl.col("arm") == "A")[f"{metric}_calibrated"].mean()
        assert control == pytest.approx(estimate[metric, "B"].control_mean, abs=1e-9)


def test_what_may_be_missing_has_the_columns_of_the_release(table: pl.DataFrame) -> None:
    known = pl.when(pl.col("user") % 3 > 0).then("visits")
    options = {"missing": "visits", "metric": "visits>=2"}
    release = released(table.with_columns(visits=known), **options)
    rows = cdp.calibrated_rows(release)
    moved = [name for name in rows.columns if name.endswith("_calibrated")]
    names = ["visits_times_observed", "bought", "visits_observed", "visits>=2_times_observed"]
    assert moved == [f"{name}_calibrated" for name in names]
    plain = cdp.calibrated_rows(released(table.with_columns(visits=known), **options, **NO_SUMS))
    both = (plain[f"visits_times_observed_{one}"] for one in ("calibrated", "debiased"))
    assert np.allclose(*both)
    values = np.nan_to_num(release.questions[0].space.outcome_values()[0].astype(float))
    estimate = cdp.estimate(release, estimator="unstratified", metrics={"total": list(values)})
    control = rows.filter(pl.col("arm") == "A")[moved[0]].mean()
    assert control == pytest.approx(estimate["total", "B"].control_mean, abs=1e-9)


def test_without_sums_rows_stay_where_they_are(table: pl.DataFrame) -> None:
    rows = cdp.calibrated_rows(released(table, **NO_SUMS))
    assert np.allclose(rows["visits_calibrated"], rows["visits_debiased"], atol=1e-12)
    assert np.allclose(rows["stratified_weight"], 1, atol=1e-12)


def test_plain_standard_errors_are_too_large(table: pl.DataFrame) -> None:
    release = released(table)
    spread = (
        cdp.calibrated_rows(release)
        .group_by("arm")
        .agg(pl.col("visits_calibrated").var() / pl.len())
    )
    variances = dict(spread.iter_rows())
    effect = cdp.estimate(release, estimator="unstratified")["visits", "B"]
    assert variances["A"] + variances["B"] > 1.2 * effect.std_error**2


def test_rows_come_back_as_they_came(table: pl.DataFrame, tmp_path: Path) -> None:
    assert isinstance(cdp.calibrated_rows(released(table.to_pandas())), pd.DataFrame)
    relation = duckdb.from_arrow(table.to_arrow())
    assert isinstance(cdp.calibrated_rows(released(relation)), duckdb.DuckDBPyRelation)
    options = {**PARTS, "cluster": "market", "outcomes": {"visits": "0..3"}, "epsilon": 2}
    cdp.publish(table, out=tmp_path / "published", **options)
    rows = cdp.calibrated_rows(tmp_path / "published")
    assert isinstance(rows, pl.LazyFrame)
    units = cdp.read_release(tmp_path / "published").units.collect()
    assert rows.collect().select(units.columns).equals(units)


def test_what_has_no_rows_or_takes_the_name_is_refused(table: pl.DataFrame) -> None:
    counts = cdp.noisy_histogram(epsilon=2)
    aggregates = released(table, mechanism=counts, breakdown=None, folds=None, cluster=None)
    with pytest.raises(ParameterError, match="publishes no rows to calibrate"):
        cdp.calibrated_rows(aggregates)
    named = table.with_columns(visits_calibrated=pl.lit(0))
    with pytest.raises(DataError, match="already has a column 'visits_calibrated'"):
        cdp.calibrated_rows(released(named, passthrough=["visits_calibrated"]))
