"""Tables in an object store: files, folders and globs, as on a disk."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import PARTS, assert_refused, release, run
from clusterdp.published.verification import verify_folder
from clusterdp.sources.opening import _find_files, find_objects, open_source, scan_files
from clusterdp.sources.source import ColumnRequest, NamedSource
from store_releases import WRITERS, as_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from soak import s3


pytestmark = pytest.mark.store

NAMES = (
    "a.parquet",
    "a/part-1.parquet",
    "a/part-2.parquet",
    "a/part-10.csv",
    "a/_SUCCESS",
    "a/.hidden.parquet",
    "a/b/part-3.parquet",
    "a/.b/part-4.parquet",
    "a-b/part-5.parquet",
    "a+b c/é.parquet",
)
SOURCES = (
    "a.parquet",
    "a",
    "a/",
    "a/b",
    "a/*.parquet",
    "a/part-?.*",
    "a/part-[0-9].parquet",
    "a/part-[!1].parquet",
    "**/*.parquet",
    "a/**/part-*.parquet",
    "a*/part-*",
    "a+b c/*",
    "*/*/*.parquet",
)


@pytest.fixture
def tree(tmp_path: Path, bucket: s3.Bucket) -> Path:
    """The same files on a disk and in a bucket."""
    for name in NAMES:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        bucket.put(f"tree/{name}", b"x")
    return tmp_path / "tree"


def test_the_same_files_are_found_in_the_same_order(tree: Path, bucket: s3.Bucket) -> None:
    for source in SOURCES:
        here = [path.relative_to(tree).as_posix() for path in _find_files(f"{tree}/{source}")]
        found, _ = find_objects(f"{bucket.uri}/tree/{source}")
        there = [str(address).removeprefix(f"{bucket.uri}/tree/") for address in found]
        assert there == here, source


@pytest.mark.parametrize("source", ["none", "a/none-*", "a/none/"])
def test_no_files(source: str, tree: Path, bucket: s3.Bucket) -> None:
    with pytest.raises(cdp.DataError, match="there is no file s3://"):
        find_objects(f"{bucket.uri}/tree/{source}")


WANTED = ColumnRequest(outcomes=("clicks",), unit="user")
ODD = ("a b", "a+é", "a%41", "a#x", "a?x", "a&b=c", "a*b", "a[1]", "a:b", "a.")


def test_any_name_is_read(table: pl.DataFrame, bucket: s3.Bucket, tmp_path: Path) -> None:
    for name in ODD:
        source = bucket.put(f"{name}/{name}.parquet", as_bytes(table))
        read = open_source(NamedSource(name=source), WANTED, lambda: tmp_path)
        assert read.select(table.columns).collect(engine="streaming").equals(table), name


def test_any_name_can_be_that_of_a_folder(source: Path, bucket: s3.Bucket) -> None:
    out = f"{bucket.uri}/out/{'-'.join(ODD)}"
    assert release(source, out).exit_code == 0
    assert not [one for one in verify_folder(out) if one.problem]


@pytest.mark.parametrize("name", ["a//b", "./a", "a/../b"])
def test_names_that_name_nothing(name: str, source: Path, bucket: s3.Bucket) -> None:
    message = "has an empty name in it, or . or .. Fix: write s3://bucket/folder"
    assert_refused(release(source, f"{bucket.uri}/{name}"), message)
    assert_refused(release(f"{bucket.uri}/{name}/t.csv", "out"), message)


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_file_is_read_without_a_copy(
    kind: str, table: pl.DataFrame, bucket: s3.Bucket, tmp_path: Path
) -> None:
    halves = table.head(300), table.tail(300)
    for number, half in enumerate(halves):
        bucket.put(f"rows/part-{number}.{kind}", as_bytes(half, kind))

    def no_scratch() -> Path:
        raise AssertionError

    before = set(tmp_path.iterdir())
    read = open_source(NamedSource(name=f"{bucket.uri}/rows"), WANTED, no_scratch)
    assert (
        read.select(table.columns)
        .collect(engine="streaming")
        .equals(table.with_columns(pl.col("clicks").cast(read.collect_schema()["clicks"])))
    )
    assert set(tmp_path.iterdir()) == before


_OPENED = """
import sys
from clusterdp.sources.opening import open_source
from clusterdp.sources.source import NamedSource, ColumnRequest
wanted = ColumnRequest(public=("user", "market"), outcomes=("clicks",), unit="user")
print(len(open_source(NamedSource(name=sys.argv[1]), wanted, None).collect(engine="streaming")))
"""


@pytest.mark.parametrize("kind", WRITERS)
def test_reading_leaves_no_copy_on_the_disk(
    kind: str, table: pl.DataFrame, bucket: s3.Bucket, tmp_path: Path
) -> None:
    """Polars finds types from a copy in the system's folder, and does not remove it."""
    bucket.put(f"rows.{kind}", as_bytes(table, kind))
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", _OPENED, f"{bucket.uri}/rows.{kind}"],
        env={**os.environ, "TMPDIR": str(tmp_path), "POLARS_TEMP_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == len(table)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_json_in_a_store_is_refused(table: pl.DataFrame, bucket: s3.Bucket) -> None:
    """Its types can only be found from a copy on the disk."""
    bucket.put("rows.ndjson", table.write_ndjson().encode())
    with pytest.raises(cdp.DataError, match="read from disk only; copy it here"):
        scan_files(NamedSource(name=f"{bucket.uri}/rows.ndjson"), WANTED)


def test_a_query_is_released_into_a_store(
    table: pl.DataFrame, bucket: s3.Bucket, source: Path
) -> None:
    """The rows of a query are stored privately on this machine while it runs, and nowhere else."""
    out = f"{bucket.uri}/out"
    done = release("duckdb://", out, "--query", f"select * from '{source}'")
    assert done.exit_code == 0, done.output
    assert cdp.read_release(out).layout.n_units == len(table)
    assert bucket.names("out") <= {
        *("manifest.json", "README.md", "index.html", "units.parquet", "cells.parquet"),
        *("channels.parquet", "totals.parquet"),
    }


def test_plans_dry_runs_and_segments_take_addresses(
    table: pl.DataFrame, bucket: s3.Bucket, published: Path
) -> None:
    source = bucket.put("t.parquet", as_bytes(table))
    planned = run(
        "plan", source, *PARTS[2:], "--epsilon", 2, "--out", published.parent / "plan.toml"
    )
    assert planned.exit_code == 0, planned.output
    dry = release(source, f"{bucket.uri}/out", "--dry-run")
    assert dry.exit_code == 0, dry.output
    own = bucket.put("crm.csv", as_bytes(table.select("user", half=pl.col("user") % 2), "csv"))
    found = run("estimate", published, "--segments", own, "--on", "user", "--by", "half")
    assert found.exit_code == 0, found.output
    assert bucket.names() == {"t.parquet", "crm.csv"}


def test_stores_of_spark_alone_are_said_to_be(source: Path) -> None:
    result = release(source, "hdfs://somewhere/out")
    assert "is in object storage that Spark reaches: give --engine spark" in result.stderr
