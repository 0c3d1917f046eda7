"""What Spark's event log tells: nothing that depends on outcomes but sizes in bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp._progress import NoProgress
from clusterdp.engines.spark.table import SparkTable
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare_table
from clusterdp.rows.keys import KeyRing, response_key
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from event_logs import comparable, read_log
from runs import write_with
from spark_releases import KEY, SPACE

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = Columns(
    unit="user",
    arm="treated",
    cluster="market",
    outcomes=("clicks",),
    kept=("secret", "group", "name"),
)
WITH_TOTALS = replace(COLUMNS, breakdowns=(("group",),), folds=2)
SUMS = cdp.SumShares(totals=0.1, breakdowns=((("group",), 0.1),))
MECHANISMS = {
    "counts": (COLUMNS, cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5)),
    "totals": (WITH_TOTALS, cdp.optimal(epsilon=2, sums=SUMS)),
}


def logged_release(
    table: pl.DataFrame, spark: SparkSession, folder: Path, published: str = "counts"
) -> Counter[str]:
    """The log of a release of a table."""
    columns, mechanism = MECHANISMS[published]
    rows = spark.createDataFrame(table.to_arrow()).repartition(3, "user")
    before = len(read_log(spark))
    opened = SparkTable(rows=rows, columns=columns, spaces=(SPACE,), clip=False)
    write(opened, LocalFolder(folder), mechanism)
    return comparable(read_log(spark)[before:], folder, folder.with_name(f".{folder.name}.partial"))


def write(table: SparkTable, target: LocalFolder, mechanism: cdp.Mechanism) -> None:
    """Write a release with both sources of randomness fixed."""
    write_with(
        prepare_table(table),
        (mechanism,),
        target,
        NoProgress(),
        journal=NoJournal(KEY),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )


def neighbours(table: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two tables that differ in one outcome, which nobody else has."""
    here = table.with_columns(
        clicks=pl.col("clicks").clip(0, 2), group=pl.col("user") % 7, name=pl.lit("a")
    )
    changed = pl.when(pl.int_range(pl.len()) == 17).then(3).otherwise("clicks")
    return here, here.with_columns(clicks=changed)


@pytest.mark.parametrize("published", MECHANISMS)
def test_the_log_is_the_same_for_neighbours(
    published: str, table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    one, other = neighbours(table)
    logs = [
        logged_release(rows, spark, tmp_path / name, published)
        for rows, name in ((one, "one"), (other, "other"))
    ]
    assert sum(logs[0].values()) > 100
    assert KeyRing(KEY)[response_key(("clicks",))].hex() not in str(logs[0])
    assert logs[0] - logs[1] == logs[1] - logs[0]


def test_the_log_is_not_the_same_for_other_public_columns(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    """What is compared is able to differ."""
    here, _ = neighbours(table)
    more = here.with_columns(group=pl.col("user") % 8)
    logs = [
        logged_release(rows, spark, tmp_path / name)
        for rows, name in ((here, "one"), (more, "other"))
    ]
    assert logs[0] != logs[1]


def test_a_frames_log_is_the_same_for_neighbours(table: pl.DataFrame, spark: SparkSession) -> None:
    def release(rows: Any) -> None:
        cdp.release(
            rows,
            mechanism=cdp.optimal(epsilon=1),
            outcomes={"clicks": "0..3"},
            unit="user",
            arm="treated",
            cluster="market",
            passthrough=("group",),
        )

    logs = []
    for given in neighbours(table):
        # Shuffled by Spark's own choice, which then would choose how many tasks read it.
        rows = spark.createDataFrame(given.to_arrow()).repartition("user")
        before = len(read_log(spark))
        release(rows)
        logs.append(comparable(read_log(spark)[before:]))
    assert logs[0] - logs[1] == logs[1] - logs[0]
