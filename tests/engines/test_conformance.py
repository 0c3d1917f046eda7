"""Every engine gives the same release: the same rows, cells, guarantee and refusals.

And so does the local engine from a store into a store, to the last byte.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp._progress import NoProgress
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.engines.base import RANDOMIZING
from clusterdp.engines.local.engine import LocalEngine
from clusterdp.engines.local.table import LocalTable
from clusterdp.engines.spark.table import SparkTable
from clusterdp.errors import TableChangedError
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare, prepare_table
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.clusters import PrivateClusters
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from clusterdp.storage.store_folder import StoreFolder
from conformance_cases import CASES, COLUMNS, MARKETS, SPACE, Case
from refused_tables import REFUSALS
from runs import release_in_memory, run_release, write_with
from store_releases import as_bytes, write_fixed
from two_questions import COLUMNS as BLOCK_COLUMNS
from two_questions import MECHANISMS as BLOCK_MECHANISMS
from two_questions import SPACES as BLOCK_SPACES
from two_questions import asked_of_some, release_questions, some_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from clusterdp.engines.base import EngineTable
    from clusterdp.releasing.prepare import OpenTable
    from soak.s3 import Bucket


def to_spark(spark: SparkSession, table: pl.DataFrame) -> Any:
    """The table as a Spark frame in two partitions. (A shuffle would be run for every job.)"""
    return spark.createDataFrame(table.to_arrow())


def release(frame: Any, case: Case, columns: Columns = COLUMNS) -> cdp.Release:
    """A release with both sources of randomness fixed."""
    return run_release(
        frame,
        mechanism=case.mechanism,
        space=case.space,
        columns=columns,
        control=None,
        clip=case.clip,
        aggregates=case.aggregates,
        clusters=case.clusters,
        key=ReleaseKey(b"k" * 32),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
@pytest.mark.parametrize("name", CASES)
def test_frames_are_released_alike(name: str, table: pl.DataFrame, spark: SparkSession) -> None:
    case = CASES[name]
    given = case.change(table)
    ours = release(given, case, case.columns())
    theirs = release(to_spark(spark, given), case, case.columns())
    assert theirs.guarantee == ours.guarantee
    assert theirs.notes == ours.notes
    assert [one.space for one in theirs.questions] == [one.space for one in ours.questions]
    assert pl.DataFrame(theirs.cells.toArrow()).equals(ours.cells)
    for one, other in zip(
        theirs.questions[0].statistics, ours.questions[0].statistics, strict=True
    ):
        for drawn, own in zip(one.arrays().values(), other.arrays().values(), strict=True):
            np.testing.assert_array_equal(drawn, own)
    if ours.units is None:
        assert theirs.units is None
    else:
        rows = pl.DataFrame(theirs.units.toArrow())
        assert rows.equals(rows.sort("user"))
        assert rows.sort("user").equals(ours.units.sort("user"))
    assert str(cdp.estimate(theirs)) == str(cdp.estimate(ours))


@pytest.mark.spark
def test_private_clusters_of_blocks_are_released_alike(
    rng: np.random.Generator, spark: SparkSession, tmp_path: Path
) -> None:
    """With looks at those asked; in memory and in a folder. Labels are as many as markets."""
    table = some_table(400, rng)
    labels = PrivateClusters(
        response=ClusterResponse.for_epsilon(["0", "1", "2", "3"], 0.7), shares=(1.0,) * 4
    )
    columns = replace(BLOCK_COLUMNS, private_cluster=True)
    mechanisms = asked_of_some(
        cdp.optimal(epsilon=1.2, pilot=0.1), cdp.optimal(epsilon=1.2, pilot=0.1, noise_scale=20)
    )
    released = {}
    for name, frame in {"local": table, "spark": to_spark(spark, table)}.items():
        prepared = prepare(frame, columns=columns, spaces=BLOCK_SPACES, clusters=labels)
        key, noise = ReleaseKey(b"k" * 32), simulated_noise(np.random.default_rng(0))
        made = release_in_memory(prepared, mechanisms, key, noise)
        again = simulated_noise(np.random.default_rng(0))
        target, journal = LocalFolder(tmp_path / name), NoJournal(key)
        write_with(prepared, mechanisms, target, NoProgress(), journal=journal, add_noise=again)
        read = cdp.read_release(tmp_path / name)
        rows = made.units if name == "local" else pl.DataFrame(made.units.toArrow())
        assert read.units.collect().sort("user").equals(rows.sort("user"))
        assert [check.problem for check in verify_folder(tmp_path / name) if check.problem] == []
        released[name] = (rows.sort("user"), str(cdp.estimate(read, by="market", metrics="sale")))
        assert made.guarantee == read.guarantee
    assert released["spark"][0].equals(released["local"][0])
    assert released["spark"][1] == released["local"][1]
    local, spark_pilot = (tmp_path / name / "pilot.parquet" for name in ("local", "spark"))
    assert local.read_bytes() == spark_pilot.read_bytes()
    given = table.select("user", own="market").join(released["local"][0], on="user")
    assert 0 < (given["own"].cast(pl.String) == given["market_noisy"]).sum() < len(table)


@pytest.mark.spark
def test_kept_columns_that_reveal_a_private_cluster_are_noticed(
    table: pl.DataFrame, spark: SparkSession
) -> None:
    """By both engines, and no other column is."""
    given = table.with_columns(twin=10 - 2 * pl.col("market"), other=pl.col("user") % 5)
    case = Case(kept=("twin", "other"), clusters=MARKETS)
    for frame in (given, to_spark(spark, given)):
        with pytest.warns(
            cdp.OwnerNotice, match="column 'twin' almost certainly reveals 'market'"
        ) as said:
            release(frame, case, case.columns())
        assert len([one for one in said if "passthrough column" in str(one.message)]) == 1


@pytest.mark.spark
def test_blocks_are_released_alike(
    rng: np.random.Generator, spark: SparkSession, tmp_path: Path
) -> None:
    """Bit for bit, in memory and in a folder."""
    table, key = some_table(300, rng), ReleaseKey(b"k" * 32)
    ours, theirs = (
        release_questions(frame, key, simulated_noise(np.random.default_rng(0)))
        for frame in (table, to_spark(spark, table))
    )
    assert theirs.guarantee == ours.guarantee
    assert pl.DataFrame(theirs.cells.toArrow()).equals(ours.cells)
    rows = pl.DataFrame(theirs.units.toArrow()).sort("user")
    assert rows.equals(ours.units)
    assert rows.columns[4:7] == ["fold", "question", "response"]
    assert str(cdp.estimate(theirs)) == str(cdp.estimate(ours))
    of_questions: dict[str, Any] = {"columns": BLOCK_COLUMNS, "spaces": BLOCK_SPACES}
    tables: dict[str, EngineTable] = {
        "local": LocalTable(rows=table.lazy(), **of_questions),
        "spark": SparkTable(rows=to_spark(spark, table), **of_questions),
    }
    for name, opened in tables.items():
        write(opened, LocalFolder(tmp_path / name), mechanisms=BLOCK_MECHANISMS)
    ours, theirs = cdp.read_release(tmp_path / "local"), cdp.read_release(tmp_path / "spark")
    assert theirs.units.collect().equals(ours.units.collect())
    for name in ("cells.parquet", "totals.parquet", "channels.parquet"):
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "spark" / name).read_bytes()
    for name in tables:
        assert [check.problem for check in verify_folder(tmp_path / name) if check.problem] == []


@pytest.mark.spark
def test_folders_are_released_alike(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    columns = Columns(
        unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("secret",)
    )
    tables: dict[str, EngineTable] = {
        "local": LocalTable(rows=table.lazy(), columns=columns, spaces=(SPACE,), clip=False),
        "spark": SparkTable(
            rows=to_spark(spark, table), columns=columns, spaces=(SPACE,), clip=False
        ),
    }
    for name, opened in tables.items():
        write(opened, LocalFolder(tmp_path / name))
        checks = verify_folder(tmp_path / name)
        assert [check.problem for check in checks] == [None] * len(checks)
    ours, theirs = cdp.read_release(tmp_path / "local"), cdp.read_release(tmp_path / "spark")
    assert theirs.units.collect().equals(ours.units.collect().sort("user"))
    assert theirs.cells.equals(ours.cells)
    assert str(cdp.estimate(theirs, by="market")) == str(cdp.estimate(ours, by="market"))


# Noisy counts decide its channel, so that every engine needs two passes.
COUNTED = (cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2),)


def write(
    table: EngineTable,
    target: LocalFolder | StoreFolder,
    progress: Any = None,
    mechanisms: tuple[cdp.Mechanism, ...] = (cdp.optimal(epsilon=2),),
) -> None:
    """Write a release with both sources of randomness fixed."""
    write_with(
        prepare_table(table),
        mechanisms,
        target,
        progress or NoProgress(),
        journal=NoJournal(ReleaseKey(b"k" * 32)),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )


@pytest.mark.spark
@pytest.mark.parametrize("name", REFUSALS)
def test_tables_are_refused_alike(name: str, table: pl.DataFrame, spark: SparkSession) -> None:
    refusal = REFUSALS[name]
    given = refusal.change(table)
    case, said = Case(space=refusal.space, breakdowns=refusal.breakdowns, kept=refusal.kept), []
    for frame in (given, to_spark(spark, given)):
        with pytest.raises(cdp.DataError) as caught:
            release(frame, case, case.columns())
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert refusal.message in said[0]
    assert "4321" not in said[0]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_table_that_changes_between_passes_is_not_published(
    engine: str, table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    table.write_parquet(path, compression="uncompressed")
    columns: Any = {"columns": COLUMNS, "spaces": (SPACE,), "clip": False}
    opened: EngineTable = (
        LocalTable(rows=pl.scan_parquet(path), **columns)
        if engine == "local"
        else SparkTable(rows=spark.read.parquet(str(path)), **columns)
    )

    class Meddler:
        def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
            if name == RANDOMIZING:
                # Of the same length, and yet others.
                other = table.with_columns(clicks=3 - pl.col("clicks"))
                other.write_parquet(path, compression="uncompressed")
            return lambda _: None

    with pytest.raises(TableChangedError):
        write(opened, LocalFolder(tmp_path / "out"), Meddler(), COUNTED)
    assert not list(tmp_path.glob("*out*"))


# All but the one whose channels take seconds to design.
IN_STORES = [name for name in CASES if name != "missing outcomes"]


def open_for(source: str, case: Case) -> OpenTable:
    """A file, by its name on a disk or in a store."""
    return prepare(
        source,
        columns=case.columns(),
        spaces=(case.space,),
        clip=case.clip,
        aggregates=case.aggregates,
        clusters=case.clusters,
    )


@pytest.mark.store
@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
@pytest.mark.parametrize("name", IN_STORES)
def test_stores_are_released_alike(
    name: str, table: pl.DataFrame, bucket: Bucket, tmp_path: Path
) -> None:
    case, here = CASES[name], tmp_path / "t.parquet"
    case.change(table).write_parquet(here)
    there = bucket.put("t.parquet", here.read_bytes())
    write_fixed(open_for(str(here), case), (case.mechanism,), LocalFolder(tmp_path / "out"))
    write_fixed(open_for(there, case), (case.mechanism,), StoreFolder.at(f"{bucket.uri}/out"))
    assert bucket.read("out") == {
        path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()
    }


@pytest.mark.store
@pytest.mark.parametrize("name", REFUSALS)
def test_stores_refuse_alike(
    name: str, table: pl.DataFrame, bucket: Bucket, tmp_path: Path
) -> None:
    refusal, here = REFUSALS[name], tmp_path / "t.parquet"
    refusal.change(table).write_parquet(here)
    there = bucket.put("t.parquet", here.read_bytes())
    case, engine = (
        Case(space=refusal.space, breakdowns=refusal.breakdowns, kept=refusal.kept),
        LocalEngine(ExitStack()),
    )
    said = []
    for source, out in ((str(here), str(tmp_path / "out")), (there, f"{bucket.uri}/out")):
        target = engine.place(out)
        with pytest.raises(cdp.DataError) as caught:
            write_fixed(open_for(source, case), (case.mechanism,), target)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert refusal.message in said[0]
    assert "4321" not in said[0]
    assert bucket.names() == {"t.parquet"}


@pytest.mark.store
def test_an_object_that_changes_between_passes_is_not_published(
    table: pl.DataFrame, bucket: Bucket
) -> None:
    source = bucket.put("t.parquet", as_bytes(table))
    opened = open_for(source, Case())

    class Meddler:
        def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
            if name == RANDOMIZING:
                bucket.put("t.parquet", as_bytes(table.with_columns(clicks=3 - pl.col("clicks"))))
            return lambda _: None

    with pytest.raises(TableChangedError):
        write(opened.table, StoreFolder.at(f"{bucket.uri}/out"), Meddler(), COUNTED)
    assert bucket.names() == {"t.parquet"}
