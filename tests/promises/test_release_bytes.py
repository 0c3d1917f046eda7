"""The bytes of a release follow from the key, the noise, public columns and released outcomes.

Nothing else of the table may show in them: not in how many batches it was read, in which order, how
its outcomes were written down, nor how many threads there were.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from clusterdp.sources.opening import open_source
from clusterdp.sources.source import ColumnRequest, NamedSource
from clusterdp.storage.store_folder import StoreFolder
from fixed_release import (
    COLUMNS,
    KEY,
    LONG,
    MECHANISMS,
    SPACE,
    blind_noise,
    checksums,
    release_file,
    release_into,
    release_rows,
)
from runs import run_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import clusterdp as cdp
    from soak.s3 import Bucket, Server

N_ROWS = 300_000
WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    "csv": lambda table, path: table.write_csv(path),
    "parquet": lambda table, path: table.write_parquet(path, row_group_size=70_001),
    "arrow": lambda table, path: table.write_ipc(path, record_batch_size=33_333),
}


def spending(n_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Outcomes that take one character, or nine."""
    return pl.DataFrame(
        {
            "user": rng.permutation(n_rows),
            "treated": np.arange(n_rows) % 2,
            "market": np.arange(n_rows) // 2 % 4,
            "spend": rng.choice([0, LONG], n_rows),
            "tier": pl.Series(["gold", "silver", None]).gather(rng.integers(0, 3, n_rows)),
        }
    )


def in_chunks(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """The same rows, cut anywhere."""
    cuts = [0, *np.sort(rng.choice(np.arange(1, len(table)), 12, replace=False)), len(table)]
    parts = [table[start:end] for start, end in itertools.pairwise(cuts)]
    return pl.concat(parts, rechunk=False)


def in_memory(table: Any, mechanism: str = "rows", **options: Any) -> cdp.Release:
    return run_release(
        table,
        mechanism=MECHANISMS[mechanism],
        space=SPACE,
        columns=COLUMNS,
        control=None,
        clip=False,
        key=KEY,
        add_noise=blind_noise,
        **options,
    )


def redrawn_alike(table: pl.DataFrame, mechanism: str) -> pl.DataFrame:
    """The table with other outcomes for everyone whose released outcome stays what it was."""
    other = table.with_columns(spend=LONG - pl.col("spend"))
    one, two = (
        in_memory(each, mechanism).units.select("user", "response") for each in (table, other)
    )
    alike = one.filter(one["response"] == two["response"])["user"]
    assert len(alike) > len(table) / 10
    flipped = pl.col("user").is_in(alike.implode())
    changed = pl.when(flipped).then(LONG - pl.col("spend")).otherwise("spend")
    return table.with_columns(spend=changed)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(("mechanism", "keep_order"), [("rows", True), ("channels", False)])
def test_outcomes_that_are_redrawn_alike_give_the_same_bytes(
    kind: str, mechanism: str, keep_order: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    """Many outcomes are others, written with more or fewer characters; statistics coincide."""
    table = spending(N_ROWS, rng)
    published = []
    for number, each in enumerate((table, redrawn_alike(table, mechanism))):
        path = tmp_path / f"{number}.{kind}"
        WRITERS[kind](each, path)
        out = tmp_path / f"out{number}"
        published.append(release_file(path, out, mechanism, keep_order=keep_order))
    assert published[0] == published[1]
    assert set(published[0]) >= {"units.parquet", "cells.parquet", "manifest.json", "README.md"}


@pytest.mark.store
def test_a_store_is_sent_the_same_whatever_outcomes_are_redrawn_alike(
    rng: np.random.Generator, bucket: Bucket, store_server: Server, tmp_path: Path
) -> None:
    """The same bytes, in the same requests and the same order."""
    table, sent = spending(20_000, rng), []
    for number, each in enumerate((table, redrawn_alike(table, "channels"))):
        WRITERS["csv"](each, tmp_path / f"{number}.csv")
        source = bucket.put(f"{number}.csv", (tmp_path / f"{number}.csv").read_bytes())
        wanted = ColumnRequest(outcomes=COLUMNS.outcomes, unit=COLUMNS.unit)
        rows = open_source(NamedSource(name=source), wanted, lambda: tmp_path)
        out = StoreFolder.at(f"{bucket.uri}/out{number}")
        before = len(store_server.requests(bucket))
        release_into(rows, out, "channels", keep_order=False)
        asked = store_server.requests(bucket)[before:]
        at_the_place = (one for one in asked if f"/out{number}" in one.path)
        wrote = [(one.method, one.path.rpartition("/")[2], one.only_new) for one in at_the_place]
        sent.append((wrote, bucket.read(f"out{number}")))
    assert sent[0] == sent[1]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("keep_order", [False, True])
def test_neither_format_nor_chunks_nor_threads_show(
    mechanism: str, keep_order: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    table = spending(N_ROWS, rng)
    expected = release_rows(
        in_chunks(table, rng).lazy(), tmp_path / "chunks", mechanism, keep_order=keep_order
    )
    for kind, threads in (("csv", 1), ("csv", 2), ("csv", 8), ("parquet", 2), ("arrow", 8)):
        path, out = tmp_path / f"t.{kind}", tmp_path / f"{kind}{threads}"
        WRITERS[kind](table, path)
        order = "table" if keep_order else "ids"
        program = [sys.executable, "-m", "fixed_release", str(path), str(out), mechanism, order]
        subprocess.run(  # noqa: S603 - our own interpreter and our own code
            program,
            check=True,
            env={**os.environ, "POLARS_MAX_THREADS": str(threads)},
        )
        assert checksums(out) == expected, (kind, threads)


def test_row_groups_do_not_follow_outcomes(rng: np.random.Generator, tmp_path: Path) -> None:
    """One outcome of 300,000 is another: the same groups of rows, and one row that may differ."""
    table = spending(N_ROWS, rng).with_columns(spend=0)
    neighbour = table.with_columns(
        spend=pl.when(pl.int_range(pl.len()) == 150_000).then(LONG).otherwise(0)
    )
    groups, rows = [], []
    for number, each in enumerate((table, neighbour)):
        path, out = tmp_path / f"{number}.csv", tmp_path / f"out{number}"
        each.write_csv(path)
        release_file(path, out, "rows", keep_order=True)
        metadata = pq.ParquetFile(out / "units.parquet").metadata
        groups.append([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)])
        rows.append(pl.read_parquet(out / "units.parquet"))
    assert groups[0] == groups[1]
    differ = (rows[0]["response"] != rows[1]["response"]).to_numpy()
    assert set(np.flatnonzero(differ)) <= {150_000}


@pytest.mark.parametrize("kind", ["int", "text", "falling", "negative", "in many parts"])
def test_rows_are_sorted_the_same_within_little_memory(
    kind: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spending(20_000, rng)
    if kind == "text":
        table = table.with_columns(user=pl.format("né {}", pl.col("user")))
    if kind == "falling":
        table = table.sort("user", descending=True)
    if kind == "negative":
        table = table.with_columns(user=(pl.col("user") - 10_000).cast(pl.Int32))
    expected = release_rows(table.lazy(), tmp_path / "memory", "channels", keep_order=False)
    monkeypatch.setattr(
        "clusterdp.rows.ids._ROWS_IN_MEMORY", 250 if kind == "in many parts" else 3000
    )
    assert release_rows(table.lazy(), tmp_path / "disk", "channels", keep_order=False) == expected
    assert checksums(tmp_path / "disk").keys() == expected.keys()  # nothing else is left there
    ids = pl.read_parquet(tmp_path / "disk" / "units.parquet")["user"]
    assert ids.equals(table["user"].sort())


CONVERSIONS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda table: table,
    "arrow": lambda table: table.to_arrow(),
    "pandas": lambda table: table.to_pandas(),
}


@pytest.mark.parametrize("kind", CONVERSIONS)
@pytest.mark.parametrize("keep_order", [False, True])
def test_released_frames_are_one_chunk(
    kind: str, keep_order: bool, rng: np.random.Generator
) -> None:
    table = in_chunks(spending(5000, rng), rng)
    released = in_memory(CONVERSIONS[kind](table), "channels", keep_order=keep_order)
    for frame in (released.units, released.cells):
        if kind == "polars":
            assert set(frame.n_chunks("all")) == {1}
        if kind == "arrow":
            assert {column.num_chunks for column in frame.columns} == {1}
    ids = pl.Series(released.units["user"])
    assert ids.to_list() == (table["user"] if keep_order else table["user"].sort()).to_list()


def test_a_frame_read_from_text_and_written_shows_no_outcomes(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    """As a notebook does it: read_csv, release, write_parquet."""
    table = spending(N_ROWS, rng)
    written = []
    for number, each in enumerate((table, redrawn_alike(table, "rows"))):
        each.write_csv(tmp_path / f"{number}.csv")
        read = pl.read_csv(tmp_path / f"{number}.csv")
        path = tmp_path / f"{number}.parquet"
        in_memory(read, keep_order=True).units.write_parquet(path)
        written.append(path.read_bytes())
    assert written[0] == written[1]
