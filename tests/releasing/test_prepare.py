"""Preparing a release: sources by name, frames of every kind, what is pooled and what is not."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.engines.local.engine import LocalEngine
from clusterdp.releasing.prepare import prepare
from clusterdp.sources.source import NamedSource
from clusterdp.spec.clusters import PublicClusters
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from pathlib import Path

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",))


def test_names_and_frames_are_prepared_alike(
    table: pl.DataFrame, source: Path, tmp_path: Path
) -> None:
    query = NamedSource(name="duckdb://", query=f"select * from '{source}'")
    expected = prepare(table, columns=COLUMNS, spaces=(SPACE,))
    counts = expected.count().counted.questions[0].counts
    with ExitStack() as stack:
        engine = LocalEngine(stack)
        given: list[Any] = [table.to_pandas(), table.lazy(), source, str(source), query]
        for one in given:
            out = str(tmp_path / "out")
            found = prepare(one, columns=COLUMNS, spaces=(SPACE,), engine=engine, out=out)
            assert found.layout.clusters == expected.layout.clusters
            assert found.notes == ()
            assert (found.count().counted.questions[0].counts == counts).all()


def test_small_clusters_are_pooled_and_counted_in_words(table: pl.DataFrame) -> None:
    place = pl.int_range(pl.len()).over("market", "treated")
    most = table.filter((pl.col("market") > 1) | (place < 40))
    prepared = prepare(
        most, columns=COLUMNS, spaces=(SPACE,), clusters=PublicClusters(min_cell_size=50)
    )
    (note,) = prepared.notes
    assert note == (
        "2 clusters of at most 80 units were pooled into 'pooled' (160 units), because they expect "
        "fewer than 50 units in some arm."
    )
    assert prepared.layout.clusters == ("2", "3", "4", "pooled")


def test_a_name_that_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(cdp.DataError, match="there is no file"):
        prepare(tmp_path / "none.parquet", columns=COLUMNS, spaces=(SPACE,))


def test_groups_that_arms_were_assigned_to_have_one_arm(table: pl.DataFrame) -> None:
    by_school = table.with_columns(school=pl.col("user") // 10 * 2 + pl.col("treated"))
    columns = replace(COLUMNS, cluster=None, randomization_unit="school")
    prepared = prepare(by_school, columns=columns, spaces=(SPACE,))
    assert prepared.table.columns.public == ("user", "treated", "school")
    mixed = by_school.with_columns(school=pl.col("user") // 10)
    with pytest.raises(cdp.DataError, match="have units in several arms"):
        prepare(mixed, columns=columns, spaces=(SPACE,))
