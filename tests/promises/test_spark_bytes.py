"""The bytes that Spark writes: a function of key, noise, public columns and released rows."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from pyarrow import parquet

import clusterdp as cdp
from clusterdp.engines.spark import _randomizing
from clusterdp.engines.spark import table as spark_engine
from clusterdp.engines.spark._sources import open_spark_source
from clusterdp.sources.source import NamedSource
from fixed_release import checksums
from spark_releases import WIDE_WANTED, write_wide

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def wide(rng: np.random.Generator) -> pl.DataFrame:
    n_rows = 3000
    return pl.DataFrame(
        {
            "user": rng.permutation(n_rows),
            "treated": np.arange(n_rows) % 2,
            "market": np.arange(n_rows) // 2 % 5,
            "clicks": rng.choice([0, 1, 100_000_000], n_rows),
            "name": [f"né {number % 17}" for number in range(n_rows)],
            "spend": rng.integers(0, 1000, n_rows) / 4,
        }
    )


def changed_alike(table: pl.DataFrame, spark: SparkSession, folder: Path) -> pl.DataFrame:
    """The table with other outcomes, wherever that changes nothing that is released."""
    other = pl.col("clicks").replace_strict({0: 100_000_000, 1: 0, 100_000_000: 1})
    changed = table.with_columns(clicks=other)
    released = []
    for name, rows in (("as it is", table), ("changed", changed)):
        write_wide(spark.createDataFrame(rows.to_arrow()), folder / name)
        released.append(cdp.read_release(folder / name).units.collect().sort("user"))
    alike = released[0].filter(pl.col("response") == released[1]["response"])["user"]
    assert 0 < len(alike) < len(table)
    where = pl.col("user").is_in(alike.implode())
    return table.with_columns(clicks=pl.when(where).then(other).otherwise("clicks"))


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def test_true_outcomes_inputs_and_partitions_change_no_byte(
    wide: pl.DataFrame,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_files = 3
    monkeypatch.setattr(_randomizing, "ROWS_PER_PART", len(wide) // n_files)
    changed = changed_alike(wide, spark, tmp_path)
    assert (changed["clicks"] != wide["clicks"]).sum() > 100
    found: dict[str, dict[str, str]] = {}
    for name, table in (("as it is", wide), ("changed", changed)):
        rows = spark.createDataFrame(table.to_arrow())
        for n_parts in (1, 7):
            found[f"{name}, {n_parts} parts"] = write_wide(
                rows.repartition(n_parts), tmp_path / f"{name} {n_parts}"
            )
        by_outcome = rows.repartition("clicks").sort("clicks")
        found[f"{name}, by outcome"] = write_wide(by_outcome, tmp_path / f"{name} by outcome")
        for kind in ("parquet", "csv"):
            source = tmp_path / f"{name}.{kind}"
            if kind == "csv":
                table.write_csv(source)
            else:
                table.write_parquet(source, row_group_size=500)
            with setting(spark, "spark.sql.files.maxPartitionBytes", "16384"):
                read = open_spark_source(spark, NamedSource(name=str(source)), WIDE_WANTED)
                assert read.rdd.getNumPartitions() > 1
                found[f"{name}, {kind}"] = write_wide(read, tmp_path / f"{name} {kind}")
    first = found["as it is, 1 parts"]
    assert len([name for name in first if name.startswith("units/")]) == n_files
    assert {name for name, files in found.items() if files != first} == set()


def test_rows_stand_in_the_order_of_ids_as_bytes(
    wide: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    letters = ["z", "é", "Z", "𝒵", "", "\uff5a"]  # UTF-16 has another order
    ids = [f"{letters[number % 6]}{number}" for number in range(len(wide))]
    table = wide.with_columns(user=pl.Series(ids))
    write_wide(spark.createDataFrame(table.to_arrow()), tmp_path / "out")
    found = cdp.read_release(tmp_path / "out").units.collect()["user"].to_list()
    assert found == sorted(ids, key=str.encode)


def test_row_groups_and_encodings_are_fixed(
    wide: pl.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet makes groups smaller where many files are written at a time."""
    monkeypatch.setitem(spark_engine._WRITING, "parquet.block.row.count.limit", "1000")  # noqa: SLF001 - in small
    rows = spark.createDataFrame(wide.to_arrow())
    write_wide(rows, tmp_path / "out")
    parts = sorted((tmp_path / "out" / "units").iterdir())
    groups = parquet.ParquetFile(parts[0]).metadata
    assert [groups.row_group(place).num_rows for place in range(3)] == [1000, 1000, 1000]
    for column in range(groups.num_columns):
        # Of several, Java lists the names in an order of its own in each process.
        assert len(groups.row_group(0).column(column).encodings) == 1


# In a process of its own: cores and memory are given when Java starts.
_RELEASE = """
import sys
from pathlib import Path
from clusterdp.sources.source import NamedSource
from clusterdp.engines.spark.session import started_session
from clusterdp.engines.spark._sources import open_spark_source
from spark_releases import WIDE_WANTED, write_wide

with started_session(sys.argv[1]) as spark:
    source = NamedSource(name=sys.argv[2])
    write_wide(open_spark_source(spark, source, WIDE_WANTED), Path(sys.argv[3]))
"""


def test_cores_change_no_byte(wide: pl.DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "t.parquet"
    wide.write_parquet(source, row_group_size=500)
    here = write_wide(spark.read.parquet(str(source)), tmp_path / "here")
    out: Any = tmp_path / "there"
    command = [sys.executable, "-c", _RELEASE, "local[3]", str(source), str(out)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    assert checksums(out) == here
