"""Every engine gives the same release: the same rows, cells, guarantee and refusals.

And so does the local engine from a store into a store, to the last byte.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.channels.label_response import LabelResponse
from clusterdp.engines.base import RANDOMIZING
from clusterdp.engines.local.engine import LocalEngine
from clusterdp.engines.local.table import LocalTable
from clusterdp.engines.spark.table import SparkTable
from clusterdp.experiment.categories import Categories
from clusterdp.experiment.declared import declare
from clusterdp.experiment.grid import Grid
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.in_memory import release_in_memory, run_release
from clusterdp.releasing.journal import Unrecorded
from clusterdp.releasing.labelling import DeclaredLabels
from clusterdp.releasing.prepare import prepare, prepare_table
from clusterdp.releasing.to_folder import Silence, write_with
from clusterdp.rows.columns import Columns
from clusterdp.rows.keys import ReleaseKey
from clusterdp.rows.labels import TABLE_CHANGED
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from clusterdp.storage.store_folder import StoreFolder
from store_releases import as_bytes, write_fixed
from two_blocks import COLUMNS as BLOCK_COLUMNS
from two_blocks import MECHANISMS as BLOCK_MECHANISMS
from two_blocks import SPACES as BLOCK_SPACES
from two_blocks import release_blocks, some_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from clusterdp.engines.base import Table
    from clusterdp.releasing.prepare import Prepared
    from soak.s3 import Bucket

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",))
CLUSTER_DP = cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5)


class Case(NamedTuple):
    """A table to release, from the small table of all tests, and how."""

    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda table: table
    mechanism: cdp.Mechanism = CLUSTER_DP
    space: Categories = SPACE
    kept: tuple[str, ...] = ()
    clip: bool = False
    min_cell_size: int | None = None
    cluster: str | None = "market"
    breakdowns: tuple[tuple[str, ...], ...] = ()
    folds: int = 1
    aggregates: dict[str, str] | None = None
    labels: DeclaredLabels | None = None

    def columns(self) -> Columns:
        """The parts that columns play."""
        return Columns(
            unit="user",
            arm="treated",
            cluster=self.cluster,
            outcomes=self.space.declared.names,
            missing=self.space.declared.missing,
            kept=self.kept,
            breakdowns=self.breakdowns,
            folds=self.folds,
            private_cluster=self.labels is not None,
        )


def with_visits(table: pl.DataFrame) -> pl.DataFrame:
    """Three outcomes: a visit, a sale after a visit, and spend, a number."""
    clicks = pl.col("clicks")
    return table.with_columns(
        visit=(clicks > 0).cast(pl.Int64),
        sale=clicks > 1,
        spend=pl.when(clicks > 1).then(pl.col("secret").abs() * 20).otherwise(0.0),
    )


def with_missing(table: pl.DataFrame) -> pl.DataFrame:
    """The same, where some sales and some numbers are missing: null, or NaN."""
    user = pl.col("user")
    spend = pl.when(user % 7 == 0).then(None).otherwise(pl.col("spend"))
    return with_visits(table).with_columns(
        sale=pl.when(user % 5 == 0).then(None).otherwise(pl.col("sale")),
        spend=pl.when(user % 11 == 0).then(float("nan")).otherwise(spend),
    )


def with_groups(table: pl.DataFrame) -> pl.DataFrame:
    """Public columns of every type that groups can be of, beside three outcomes."""
    user = pl.col("user")
    return with_visits(table).with_columns(
        half=user % 2,
        region=pl.format("région {}", user % 3),
        new=user % 5 == 0,
        since=pl.date(2024, 1, 1) + pl.duration(days=user % 4),
        size=(user % 2).cast(pl.Int16),
    )


def shares_of(*breakdowns: tuple[str, ...]) -> cdp.SumShares:
    """A little of ε for totals, and for each of some breakdowns."""
    return cdp.SumShares(totals=0.1, breakdowns=tuple((by, 0.1) for by in breakdowns))


EVERY_TYPE = (("region",), ("new", "since"), ("size",))
SPEND = cdp.Number(0, 40)
SEVERAL = Categories(
    declared=declare(
        {"visit": "0,1", "sale": "0,1", "spend": SPEND},
        implications=["sale -> visit", "spend>0 -> sale"],
        metrics=["visit*spend"],
    ),
    grids=(Grid(number=SPEND, points=(0, 1, SPEND.n_steps // 4, SPEND.n_steps)),),
)

WITH_MISSING = Categories(
    declared=declare(
        {"visit": "0,1", "sale": "0,1", "spend": SPEND},
        implications=["sale -> visit", "spend>0 -> sale"],
        missing=["sale", "spend"],
    ),
    grids=(Grid(number=SPEND, points=(0, 1, SPEND.n_steps // 4, SPEND.n_steps)),),
)

FAR = Categories(
    declared=declare({"spend": cdp.Number(0, 100_000)}),
    grids=(Grid(number=cdp.Number(0, 100_000), points=(0, cdp.Number(0, 100_000).n_steps)),),
)

MARKETS = DeclaredLabels(
    response=LabelResponse.for_epsilon([str(market) for market in range(5)], 1.0), shares=(1.0,) * 5
)
# A label that nobody has is given, too.
RARE = replace(MARKETS, response=LabelResponse.for_epsilon([*MARKETS.response.labels, "none"], 6.0))
ASSIGNED = replace(MARKETS, assignment=dict.fromkeys(MARKETS.response.labels, "0.5"))
LABELLED = one_outcome("clicks", cdp.OutcomeSpace.labels("no", "Yes"))


def with_labels(table: pl.DataFrame) -> pl.DataFrame:
    """Clicks as labels, with capitals and spaces as people write them."""
    texts = pl.Series(["no", "NO ", " yes", "Yes"])
    return table.with_columns(clicks=texts.gather(table["clicks"]))


CASES = {
    "private clusters": Case(kept=("secret",), folds=2, labels=MARKETS),
    "private clusters that are pooled": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("half",))),
        breakdowns=(("half",),),
        min_cell_size=20,
        labels=replace(RARE, shares=(1.0,) * 6),
    ),
    "private clusters with probabilities of arms": Case(
        lambda t: t.with_columns(user=pl.format("né {}", pl.col("user") ** 5)),
        cdp.optimal(epsilon=2, sums=shares_of()),
        folds=2,
        labels=ASSIGNED,
    ),
    "missing outcomes": Case(
        with_missing,
        cdp.optimal(epsilon=4, noise_scale=2, sums=shares_of()._replace(clusters=0.1)),
        WITH_MISSING,
        folds=2,
    ),
    "several outcomes": Case(with_visits, cdp.optimal(epsilon=2), SEVERAL),
    "several outcomes, sums and counts": Case(
        with_visits,
        cdp.optimal(epsilon=4, noise_scale=2, sums=cdp.SumShares(clusters=0.2)),
        SEVERAL,
    ),
    "several outcomes redrawn": Case(
        with_visits, cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5), SEVERAL
    ),
    "totals": Case(mechanism=cdp.optimal(epsilon=2, sums=shares_of())),
    "breakdowns and folds": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(*EVERY_TYPE)),
        breakdowns=EVERY_TYPE,
        folds=2,
    ),
    "breakdowns of several outcomes": Case(
        lambda t: with_groups(t).with_columns(user=pl.format("né {}", pl.col("user") ** 5)),
        cdp.optimal(epsilon=4, noise_scale=2, sums=shares_of(*EVERY_TYPE)._replace(clusters=0.1)),
        SEVERAL,
        breakdowns=EVERY_TYPE,
        folds=3,
    ),
    "clusters as a breakdown": Case(
        lambda t: t.with_columns(treated=pl.col("treated").cast(pl.Boolean)),
        cdp.uniform_prior_dp(epsilon=2, sums=shares_of(("market",))),
        breakdowns=(("market",),),
        folds=2,
    ),
    "no clusters": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("region",))),
        SEVERAL,
        cluster=None,
        breakdowns=(("region",),),
        folds=2,
    ),
    "crossed clusters": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("half",))),
        cluster="market,half",
        breakdowns=(("half",),),
        folds=2,
    ),
    "crossed clusters that are pooled": Case(
        with_groups,
        cdp.optimal(epsilon=2, sums=shares_of(("half", "region"))),
        cluster="market,half",
        breakdowns=(("half", "region"),),
        min_cell_size=30,
    ),
    "a look, pooled clusters and breakdowns": Case(
        with_groups,
        cdp.optimal(epsilon=8, look=0.6, sums=shares_of(("half", "region"))),
        FAR,
        cluster="market,half",
        breakdowns=(("half", "region"),),
        min_cell_size=30,
        folds=2,
    ),
    "64-bit ids": Case(lambda t: t.with_columns(user=pl.col("user") * 2**53 - 2**62)),
    "ids, arms and clusters as text": Case(
        lambda t: t.with_columns(
            user=pl.format("né {}", pl.col("user") ** 5),
            market="market " + pl.col("market").cast(pl.String),
            treated=pl.col("treated").cast(pl.Boolean),
        )
    ),
    "small types": Case(
        lambda t: t.with_columns(
            pl.col("user").cast(pl.Int32), pl.col("treated").cast(pl.Int8), pl.col("clicks") / 1
        )
    ),
    "one prior for all": Case(mechanism=cdp.uniform_prior_dp(epsilon=1)),
    "an optimal channel": Case(mechanism=cdp.optimal(epsilon=2)),
    "aggregates alone": Case(mechanism=cdp.noisy_histogram(epsilon=1)),
    "kept columns": Case(
        lambda t: t.with_columns(
            day=pl.date(2024, 1, 1) + pl.duration(days=pl.col("user") % 7),
            at=pl.datetime(2024, 1, 1, time_zone="UTC") + pl.duration(minutes=pl.col("user")),
        ),
        kept=("secret", "day", "at"),
    ),
    "bins": Case(
        lambda t: t.with_columns(clicks=pl.col("clicks") * 7.5),
        space=one_outcome("clicks", cdp.OutcomeSpace.bins([0, 1, 10, 20, 30])),
    ),
    "several rows of a unit": Case(
        lambda t: pl.concat([with_visits(t), with_visits(t).filter(pl.col("user") % 3 > 0)]),
        cdp.optimal(epsilon=2),
        SEVERAL,
        aggregates={"visit": "any", "sale": "max", "spend": "mean"},
    ),
    "clipping": Case(lambda t: t.with_columns(clicks=pl.col("clicks") * 2 - 1), clip=True),
    "pooling": Case(
        lambda t: t.with_columns(
            market=pl.when(pl.int_range(pl.len()) < 16)
            .then(pl.int_range(pl.len()) // 4 + 10)
            .otherwise("market")
        ),
        min_cell_size=3,
    ),
    "skewed clusters": Case(
        lambda t: t.with_columns(
            market=pl.when(pl.int_range(pl.len()) < 40).then("market").otherwise(0)
        )
    ),
    "labels": Case(with_labels, space=LABELLED),
    "labels of several rows": Case(
        lambda t: pl.concat([with_labels(t), with_labels(t).filter(pl.col("user") % 3 > 0)]),
        space=LABELLED,
        aggregates={"clicks": "any"},
    ),
    "booleans as labels": Case(
        lambda t: t.with_columns(clicks=pl.col("clicks") > 1),
        space=one_outcome("clicks", cdp.OutcomeSpace.labels("FALSE", "TRUE")),
    ),
    "odd names": Case(
        lambda t: t.with_columns(pl.col("secret").alias('a.b "c"'), Market="secret"),
        kept=('a.b "c"', "Market"),
    ),
}


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
        min_cell_size=case.min_cell_size,
        aggregates=case.aggregates,
        labels=case.labels,
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
    assert [one.space for one in theirs.blocks] == [one.space for one in ours.blocks]
    assert pl.DataFrame(theirs.cells.toArrow()).equals(ours.cells)
    for one, other in zip(theirs.blocks[0].statistics, ours.blocks[0].statistics, strict=True):
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
    """In memory and in a folder; labels are as many as markets."""
    table = some_table(400, rng)
    labels = DeclaredLabels(
        response=LabelResponse.for_epsilon(["0", "1", "2", "3"], 0.7), shares=(1.0,) * 4
    )
    columns = replace(BLOCK_COLUMNS, private_cluster=True)
    released = {}
    for name, frame in {"local": table, "spark": to_spark(spark, table)}.items():
        prepared = prepare(frame, columns=columns, spaces=BLOCK_SPACES, labels=labels)
        key, noise = ReleaseKey(b"k" * 32), simulated_noise(np.random.default_rng(0))
        made = release_in_memory(prepared, BLOCK_MECHANISMS, key, noise)
        again = simulated_noise(np.random.default_rng(0))
        target, journal = LocalFolder(tmp_path / name), Unrecorded(key)
        write_with(prepared, BLOCK_MECHANISMS, target, Silence(), journal=journal, add_noise=again)
        assert [check.problem for check in verify_folder(tmp_path / name) if check.problem] == []
        read = cdp.read_release(tmp_path / name)
        rows = made.units if name == "local" else pl.DataFrame(made.units.toArrow())
        assert read.units.collect().sort("user").equals(rows.sort("user"))
        released[name] = (rows.sort("user"), str(cdp.estimate(read, by="market", metrics="sale")))
        assert made.guarantee == read.guarantee
    assert released["spark"][0].equals(released["local"][0])
    assert released["spark"][1] == released["local"][1]
    given = table.select("user", own="market").join(released["local"][0], on="user")
    assert 0 < (given["own"].cast(pl.String) == given["market"]).sum() < len(table)


@pytest.mark.spark
def test_kept_columns_that_reveal_a_private_cluster_are_noticed(
    table: pl.DataFrame, spark: SparkSession
) -> None:
    """By both engines, and no other column is."""
    given = table.with_columns(twin=10 - 2 * pl.col("market"), other=pl.col("user") % 5)
    case = Case(kept=("twin", "other"), labels=MARKETS)
    for frame in (given, to_spark(spark, given)):
        with pytest.warns(
            cdp.OwnerNotice, match="column 'twin' is kept and gives 'market'"
        ) as said:
            release(frame, case, case.columns())
        assert len([one for one in said if "is kept" in str(one.message)]) == 1


@pytest.mark.spark
def test_blocks_are_released_alike(
    rng: np.random.Generator, spark: SparkSession, tmp_path: Path
) -> None:
    """Bit for bit, in memory and in a folder."""
    table, key = some_table(300, rng), ReleaseKey(b"k" * 32)
    ours, theirs = (
        release_blocks(frame, key, simulated_noise(np.random.default_rng(0)))
        for frame in (table, to_spark(spark, table))
    )
    assert theirs.guarantee == ours.guarantee
    assert pl.DataFrame(theirs.cells.toArrow()).equals(ours.cells)
    assert pl.DataFrame(theirs.units.toArrow()).sort("user").equals(ours.units)
    assert str(cdp.estimate(theirs)) == str(cdp.estimate(ours))
    of_blocks: dict[str, Any] = {"columns": BLOCK_COLUMNS, "spaces": BLOCK_SPACES}
    tables: dict[str, Table] = {
        "local": LocalTable(rows=table.lazy(), **of_blocks),
        "spark": SparkTable(rows=to_spark(spark, table), **of_blocks),
    }
    for name, opened in tables.items():
        write(opened, LocalFolder(tmp_path / name), mechanisms=BLOCK_MECHANISMS)
        assert [check.problem for check in verify_folder(tmp_path / name) if check.problem] == []
    ours, theirs = cdp.read_release(tmp_path / "local"), cdp.read_release(tmp_path / "spark")
    assert theirs.units.collect().equals(ours.units.collect())
    for name in ("cells.parquet", "totals.parquet", "channels.parquet"):
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "spark" / name).read_bytes()


@pytest.mark.spark
def test_folders_are_released_alike(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    columns = Columns(
        unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("secret",)
    )
    tables: dict[str, Table] = {
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
    table: Table,
    target: LocalFolder | StoreFolder,
    progress: Any = None,
    mechanisms: tuple[cdp.Mechanism, ...] = (cdp.optimal(epsilon=2),),
) -> None:
    """Write a release with both sources of randomness fixed."""
    write_with(
        prepare_table(table),
        mechanisms,
        target,
        progress or Silence(),
        journal=Unrecorded(ReleaseKey(b"k" * 32)),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )


class Refusal(NamedTuple):
    """A table that cannot be released, and a part of what is said of it."""

    change: Callable[[pl.DataFrame], pl.DataFrame]
    message: str
    space: Categories = SPACE
    breakdowns: tuple[tuple[str, ...], ...] = ()


def some(column: str, value: Any) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A change of three rows."""
    chosen = pl.when(pl.col("user").is_in([4, 44, 444])).then(pl.lit(value)).otherwise(column)
    return lambda table: table.with_columns(chosen.alias(column))


REFUSALS = {
    "no id": Refusal(some("user", None), "'user' (unit) has 3 missing values"),
    "no arm": Refusal(some("treated", None), "'treated' (arm) has 3 missing values"),
    "no cluster": Refusal(some("market", None), "'market' (cluster) has 3 missing values"),
    "no outcome": Refusal(some("clicks", None), "'clicks' (outcome) has missing values,"),
    "not a number": Refusal(
        lambda t: some("clicks", float("nan"))(t.with_columns(pl.col("clicks").cast(float))),
        "'clicks' (outcome) has missing values,",
    ),
    "outside": Refusal(some("clicks", 4321), "has values outside the outcome space"),
    "repeated": Refusal(some("user", 4321), "repeats an id in 2 rows"),
    "repeated text": Refusal(
        lambda t: some("user", "4321")(t).with_columns(pl.col("user").cast(str)),
        "repeats an id in 2 rows",
    ),
    "no column": Refusal(lambda t: t.drop("market", "secret"), "there is no column 'market'"),
    "ids of another type": Refusal(
        lambda t: t.with_columns(pl.col("user").cast(float)), "ids must be integers or strings"
    ),
    "outcomes of another type": Refusal(
        lambda t: t.with_columns(pl.col("clicks").cast(pl.Decimal(10, 2))), "not numbers"
    ),
    "labels of another type": Refusal(
        lambda t: t.with_columns(market=pl.datetime(2024, 1, 1, time_zone="UTC")),
        "labels must be text",
    ),
    "a sale without a visit": Refusal(
        lambda t: some("visit", 0)(with_visits(t).with_columns(sale=1)),
        "combinations that the implications rule out",
        SEVERAL,
    ),
    "spend without a sale": Refusal(
        lambda t: some("spend", 4321.0)(with_visits(t).with_columns(sale=0)),
        "combinations that the implications rule out",
        SEVERAL,
    ),
    "a number is missing": Refusal(
        lambda t: some("spend", None)(with_visits(t)),
        "'visit', 'sale', 'spend' (outcomes) have missing values,",
        SEVERAL,
    ),
    "no rows": Refusal(lambda t: t.head(0), "the table has no rows"),
    "one arm in each cluster": Refusal(
        lambda t: t.filter(pl.col("market") % 2 == pl.col("treated")),
        "arms were assigned to clusters as a whole",
    ),
    "no group": Refusal(
        lambda t: some("region", None)(with_groups(t)),
        "'region' (breakdown) has 3 missing values",
        breakdowns=(("region",),),
    ),
    "fractional groups": Refusal(lambda t: t, "groups must be text", breakdowns=(("secret",),)),
    "too many groups": Refusal(
        lambda t: t.with_columns(page=pl.col("user") // 2, place=pl.col("user")),
        "has 180,000 groups, at most 10,000",
        breakdowns=(("page", "place"),),
    ),
    "a breakdown that is not there": Refusal(
        lambda t: t, "there is no column 'region'", breakdowns=(("region",),)
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", REFUSALS)
def test_tables_are_refused_alike(name: str, table: pl.DataFrame, spark: SparkSession) -> None:
    refusal = REFUSALS[name]
    given = refusal.change(table)
    case, said = Case(space=refusal.space, breakdowns=refusal.breakdowns), []
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
    opened: Table = (
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

    with pytest.raises(cdp.DataError, match=TABLE_CHANGED):
        write(opened, LocalFolder(tmp_path / "out"), Meddler(), COUNTED)
    assert not list(tmp_path.glob("*out*"))


# All but the one whose channels take seconds to design.
IN_STORES = [name for name in CASES if name != "missing outcomes"]


def open_for(source: str, case: Case) -> Prepared:
    """A file, by its name on a disk or in a store."""
    return prepare(
        source,
        columns=case.columns(),
        spaces=(case.space,),
        clip=case.clip,
        min_cell_size=case.min_cell_size,
        aggregates=case.aggregates,
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
        Case(space=refusal.space, breakdowns=refusal.breakdowns),
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

    with pytest.raises(cdp.DataError, match=TABLE_CHANGED):
        write(opened.table, StoreFolder.at(f"{bucket.uri}/out"), Meddler(), COUNTED)
    assert bucket.names() == {"t.parquet"}
