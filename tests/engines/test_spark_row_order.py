"""The order of a table of Parquet files, kept by Spark: the local engine's, whoever reads what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp._progress import NoProgress
from clusterdp.engines.base import TableOptions
from clusterdp.engines.local.table import LocalTable
from clusterdp.engines.spark import _randomizing
from clusterdp.engines.spark.engine import SparkEngine
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare_table
from clusterdp.sources.source import named_source
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from fixed_release import checksums
from runs import write_with
from spark_releases import KEY, WIDE_COLUMNS, WIDE_SPACE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from clusterdp.engines.base import EngineTable

pytestmark = pytest.mark.spark

ASKED = TableOptions(WIDE_COLUMNS, (WIDE_SPACE,), keep_order=True)
N_ROWS = 1000


def in_order(source: Any, spark: SparkSession) -> EngineTable:
    """A source as a table of Spark's whose order is kept."""
    return SparkEngine(spark).table(named_source(source), ASKED, None)


@pytest.fixture
def wide(rng: np.random.Generator) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "user": rng.permutation(N_ROWS),
            "treated": np.arange(N_ROWS) % 2,
            "market": np.arange(N_ROWS) // 2 % 5,
            "clicks": rng.choice([0, 1, 100_000_000], N_ROWS),
            "name": [f"né {number % 17}" for number in range(N_ROWS)],
            "spend": rng.integers(0, 1000, N_ROWS) / 4,
        }
    )


def write(table: EngineTable, folder: Path) -> dict[str, str]:
    write_with(
        prepare_table(table),
        (cdp.uniform_prior_dp(epsilon=1),),
        LocalFolder(folder),
        NoProgress(),
        journal=NoJournal(KEY),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )
    return checksums(folder)


def write_parts(table: pl.DataFrame, folder: Path, ends: list[int], **options: Any) -> str:
    """The table as Parquet files of these rows, the last of which Spark would read first."""
    folder.mkdir()
    for start, end in zip([0, *ends], [*ends, len(table)], strict=True):
        table[start:end].write_parquet(folder / f"part {start:04}.parquet", **options)
    return str(folder)


def test_the_order_is_kept_and_files_do_not_follow_the_tables(
    wide: pl.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_randomizing, "ROWS_PER_PART", 300)
    sources = {
        "one file": write_parts(wide, tmp_path / "one file in", []),
        "several": write_parts(
            wide, tmp_path / "several in", [7, 200, 390], row_group_size=50, compression="snappy"
        ),
    }
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    try:
        with pytest.warns(cdp.OwnerNotice, match="Spark does not check"):
            found = {
                name: write(
                    SparkEngine(spark).table(named_source(source), ASKED, None), tmp_path / name
                )
                for name, source in sources.items()
            }
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert found["one file"] == found["several"]
    assert len([name for name in found["several"] if name.startswith("units/")]) == 4
    write(LocalTable(rows=wide.lazy(), **ASKED.by_name()), tmp_path / "local")
    theirs, ours = (cdp.read_release(tmp_path / name) for name in ("several", "local"))
    assert theirs.units.collect()["user"].equals(wide["user"])
    assert theirs.units.collect().equals(ours.units.collect())
    manifest = json.loads((tmp_path / "several" / "manifest.json").read_bytes())
    assert manifest["row_order"] == "table"


def test_what_has_no_order_is_refused(
    wide: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    wide.write_csv(tmp_path / "t.csv")
    for source in (str(tmp_path / "t.csv"), spark.range(3)):
        with pytest.raises(cdp.ParameterError, match="write the table as Parquet"):
            in_order(source, spark)
