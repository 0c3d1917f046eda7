"""Plans and releases of Spark's tables, in Python and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp
from cli_runs import PARTS, assert_refused, run

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
}


def test_a_plan_is_the_same_on_spark(
    table: pl.DataFrame, source: Path, spark: SparkSession, tmp_path: Path
) -> None:
    import polars as pl

    ours = cdp.plan(table, **NAMES, epsilon=1).to_dict()
    rows = spark.createDataFrame(table.to_arrow())
    assert cdp.plan(rows, **NAMES, epsilon=1).to_dict() == ours
    assert cdp.plan(source, **NAMES, epsilon=1, engine="spark").to_dict() == ours
    sizes = table.group_by("market", "treated").agg(n=pl.len().cast(pl.Int64))
    cells = spark.createDataFrame(sizes.to_arrow())
    assert cdp.plan(cells, **NAMES, epsilon=1, size="n").to_dict() == ours
    public = (*PARTS, "--epsilon", 1)
    more = ("--engine", "spark")
    uri = f"file://{source}"
    ran = run("plan", uri, *public, *more, "--out", tmp_path / "experiment.toml")
    assert ran.exit_code == 0, ran.output
    assert_refused(run("plan", f"{uri}x", *public, *more), "there is no file")
    assert_refused(run("plan", uri, *public, *more, "--size", "n"), "no column 'n'")
    released = run(
        "release", tmp_path / "experiment.toml", "--out", tmp_path / "out",
    )  # fmt: skip
    assert released.exit_code == 0, released.output


def test_a_frame_of_spark_is_published(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame(table.to_arrow())
    plan = cdp.plan(rows, **{**NAMES, "cluster": ["market", "treated"][:1]}, epsilon=1)
    published = cdp.publish(rows, plan, out=tmp_path / "out")
    assert published.read().layout.n_units == len(table)
    assert cdp.release(rows, plan).units.count() == len(table)
