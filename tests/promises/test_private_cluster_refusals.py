"""Publish or refuse, and how many units there are: neither follows from private clusters.

An owner is warned where ids tell them; that decides nothing.

Clusters are read one by one. If all of them together decided how each is read, as numbers or as
text, the cluster of one unit would decide whether those of others are declared labels. And where a
unit has several rows, rows are put together by public columns alone.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.engines.local.engine import LocalEngine
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.stages import label_units
from clusterdp.rows.keys import KeyRing, ReleaseKey
from clusterdp.rows.tally import CountRequest
from clusterdp.sources.source import NamedSource
from clusterdp.spec.clusters import PrivateClusters
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from clusterdp.releasing.prepare import OpenTable

# Alone they are whole numbers; with the third they are numbers with a point, with the last text.
CLUSTERS: tuple[Any, ...] = (1, 2, 2.5, "west")
LABELS = PrivateClusters(
    response=ClusterResponse.for_epsilon([*map(str, CLUSTERS)], 0.7), shares=(1.0,) * 4
)
COLUMNS = Columns(unit="user", arm="arm", cluster="region", outcomes=("y",), private_cluster=True)
SPACE = one_outcome("y", cdp.OutcomeSpace.binary())
N_UNITS = 40
Row = dict[str, Any]


def people(last: Any) -> list[Row]:
    """Forty units, of which the last one is in a given cluster."""
    clusters = [*(CLUSTERS[unit // 2 % 2] for unit in range(N_UNITS - 1)), last]
    return [
        {"user": unit, "arm": unit % 2, "region": cluster, "y": unit // 2 % 2}
        for unit, cluster in enumerate(clusters)
    ]


def as_csv(rows: list[Row], folder: Path) -> NamedSource:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    return NamedSource(name=str(folder / "people.csv"))


def as_lines(rows: list[Row], folder: Path) -> NamedSource:
    (folder / "people.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return NamedSource(name=str(folder / "people.ndjson"))


def as_sqlite(rows: list[Row], folder: Path) -> NamedSource:
    with closing(sqlite3.connect(folder / "people.db")) as database, database:
        database.execute("create table people (user, arm, region, y)")
        database.executemany("insert into people values (:user, :arm, :region, :y)", rows)
    return NamedSource(name=f"sqlite:///{folder / 'people.db'}", query="select * from people")


def as_pandas(rows: list[Row], folder: Path) -> pd.DataFrame:
    del folder
    given = pd.Series([row["region"] for row in rows], dtype=object)
    return pd.DataFrame(rows).assign(region=given)


FORMS = {"csv": as_csv, "ndjson": as_lines, "sqlite": as_sqlite, "pandas": as_pandas}


def labelled(prepared: OpenTable) -> OpenTable:
    return label_units(prepared, NoJournal(ReleaseKey(bytes(32))))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("last", CLUSTERS)
def test_every_table_of_declared_labels_is_published(
    last: Any, form: Callable[[list[Row], Path], Any], tmp_path: Path
) -> None:
    source = form(people(last), tmp_path)
    with ExitStack() as stack:
        engine = LocalEngine(stack)
        prepared = prepare(
            source,
            columns=COLUMNS,
            spaces=(SPACE,),
            clusters=LABELS,
            engine=engine,
            out=str(tmp_path / "out"),
        )
        assert labelled(prepared).layout.n_units == N_UNITS


@pytest.mark.spark
@pytest.mark.parametrize("last", CLUSTERS[::2])
def test_spark_reads_each_label_by_itself(last: Any, spark: SparkSession, tmp_path: Path) -> None:
    from clusterdp.engines.spark.engine import SparkEngine

    engine = SparkEngine(spark, allow_unencrypted=False)
    source = as_csv(people(last), tmp_path)
    prepared = prepare(source, columns=COLUMNS, spaces=(SPACE,), clusters=LABELS, engine=engine)
    assert labelled(prepared).layout.n_units == N_UNITS


def check_rows_of_units(frames: Iterable[Any]) -> None:
    """Frames whose second row is another one of the first unit, in the same cluster or another."""
    one_cluster, two_clusters = (
        prepare(frame, columns=COLUMNS, spaces=(SPACE,), clusters=LABELS, aggregates={"y": "max"})
        for frame in frames
    )
    assert one_cluster.layout.sizes.tolist() == two_clusters.layout.sizes.tolist()
    assert labelled(one_cluster).layout.n_units == N_UNITS
    with pytest.raises(cdp.DataError, match="or several labels of one unit;") as refused:
        labelled(two_clusters)
    assert "1" not in str(refused.value)


def several_rows(second: str) -> pl.DataFrame:
    rows = [{**row, "region": str(row["region"])} for row in people("west")]
    return pl.DataFrame([rows[0], {**rows[0], "region": second}, *rows[1:]])


def test_rows_of_a_unit_are_put_together_by_public_columns() -> None:
    check_rows_of_units(map(several_rows, ("1", "west")))


@pytest.mark.spark
def test_spark_puts_them_together_likewise(spark: SparkSession) -> None:
    check_rows_of_units(
        spark.createDataFrame(several_rows(second).to_pandas()) for second in ("1", "west")
    )


def test_a_preview_reads_no_private_cluster() -> None:
    """Nor is a query evaluated for one."""
    rows = several_rows("1")[1:].lazy()
    broken = rows.with_columns(pl.col("region").cast(pl.Int64))
    shown = cdp.preview(
        broken,
        unit="user",
        arm="arm",
        cluster="region",
        outcomes={"y": "0,1"},
        mechanism=cdp.optimal(epsilon=1.5),
        private_cluster=0.5,
        labels=[*map(str, CLUSTERS)],
    )
    assert shown.content["n_units"] == N_UNITS


@pytest.mark.parametrize("is_sorted", [True, False])
def test_ids_that_follow_private_clusters_are_noticed(
    is_sorted: bool, rng: np.random.Generator
) -> None:
    n_units = 400
    regions = rng.choice([*map(str, CLUSTERS)], n_units)
    given = pl.DataFrame(
        {
            "user": range(n_units),
            "arm": rng.integers(0, 2, n_units),
            "region": np.sort(regions) if is_sorted else regions,
            "y": rng.integers(0, 2, n_units),
        }
    )
    prepared = labelled(prepare(given, columns=COLUMNS, spaces=(SPACE,), clusters=LABELS))
    keys = KeyRing(ReleaseKey(bytes(32)))
    found = prepared.table.run(prepared.pass_with(keys, counts=[CountRequest()])).notices
    assert [("reveals 'region'" in notice) for notice in found] == [True] * is_sorted
