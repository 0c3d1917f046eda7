"""Everything the command line must refuse, each in one clear line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from cli_runs import assert_refused, release, run, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Spoil = Callable[[pl.DataFrame, Path], object]


def text_file(folder: Path) -> Path:
    path = folder / "t.parquet"
    path.write_text("this is no table")
    return path


def late_text(table: pl.DataFrame, folder: Path) -> Path:
    """A CSV whose outcome column turns into text long after its types were taken."""
    path = folder / "t.csv"
    many = pl.concat([table] * 200).with_columns(user=pl.int_range(pl.len()))
    path.write_text(many.write_csv() + "999999,1,1,word4321,0.5\n")
    return path


def ragged(table: pl.DataFrame, folder: Path) -> Path:
    """A CSV with one field too many in a row, which shifts an outcome into a kept column."""
    path = folder / "t.csv"
    path.write_text(table.write_csv() + "999999,1,1,0,3,0.5\n")
    return path


BAD_TABLES: dict[str, tuple[Spoil, tuple[object, ...], str]] = {
    "no such file": (lambda t, d: d / "none.parquet", (), "there is no file"),
    "not parquet": (lambda t, d: text_file(d), (), "cannot be read as parquet"),
    "unknown kind": (
        lambda t, d: shutil.copy(write(t, d), d / "t.xls"),
        (),
        "unsupported file type",
    ),
    "unknown column": (lambda t, d: write(t.drop("market"), d), (), "no column 'market'"),
    "duplicate ids": (
        lambda t, d: write(pl.concat([t, t.head(2)]), d),
        (),
        "has duplicate ids in 2 rows",
    ),
    "duplicate text ids": (
        lambda t, d: write(pl.concat([t, t.head(2)]).with_columns(pl.col("user").cast(str)), d),
        (),
        "has duplicate ids in 2 rows",
    ),
    "null outcome": (
        lambda t, d: write(t.with_columns(clicks=pl.col("clicks").replace(3, None)), d),
        (),
        "missing values",
    ),
    "null id": (
        lambda t, d: write(t.with_columns(user=pl.col("user").replace(3, None)), d),
        (),
        "'user' (unit) has 1 missing value",
    ),
    "outside": (
        lambda t, d: write(t.with_columns(clicks=pl.col("clicks").replace(3, 4321)), d),
        (),
        "outside the allowed values",
    ),
    "one-armed cluster": (
        lambda t, d: write(t.filter(pl.col("market") % 2 == pl.col("treated")), d),
        (),
        "whole clusters were assigned",
    ),
    "epsilon 0": (write, ("--epsilon", 0), "epsilon must be"),
    "epsilon below 0": (write, ("--epsilon", -1), "epsilon must be"),
    "bad outcomes": (write, ("--outcome", "clicks=few"), "an outcome's allowed values must be"),
    "outcome kept": (write, ("--passthrough", "clicks"), "must all differ"),
    "no such folder": (
        write,
        ("--out", "/nowhere/at/all"),
        "there is no folder /nowhere/at",
    ),
    "csv that changes type": (
        late_text,
        (),
        "'clicks' (outcome) is text and has",
    ),
    "csv with a field too many": (
        ragged,
        ("--passthrough", "secret"),
        "more fields than its header",
    ),
    "one arm": (lambda t, d: write(t.with_columns(treated=1), d), (), "at least 2 arms"),
    "no place to write": (write, ("--out", "/proc/out"), "cannot write in"),
    "bad baseline": (write, ("--baseline", "a"), "declare numbers"),
    "query that quotes a value": (
        lambda t, d: "duckdb://",
        (
            "--query",
            "select 1 as user, 1 as treated, 1 as market, cast('word4321' as int) as clicks",
        ),
        "DuckDB could not run the query",
    ),
    "bad query": (lambda t, d: "duckdb://", ("--query", "select nothing"), "DuckDB rejected"),
    "no query": (lambda t, d: "duckdb://", (), "a duckdb source needs a query"),
    "empty query": (lambda t, d: "sqlite:///a.db", ("--query", " ; "), "needs a query"),
    "no database": (lambda t, d: "duckdb:///none.db", ("--query", "select 1"), "no database"),
    "a query to a file": (write, ("--query", "select 1"), "query (--query) belongs to a database"),
    "a query in the name": (
        lambda t, d: "duckdb:x.db",
        ("--query", "x"),
        "reads duckdb:///file.db",
    ),
    "a password": (
        lambda t, d: "postgresql://me:word4321@localhost/x",
        ("--query", "select 1"),
        "leave it out, and give it as PGPASSWORD",
    ),
    "a password behind": (
        lambda t, d: "postgresql://me@localhost/x?password=word4321",
        ("--query", "select 1"),
        "leave it out, and give it as PGPASSWORD",
    ),
    "a password with a slash": (
        lambda t, d: "postgresql://me:word4321/x@localhost/x",
        ("--query", "select 1"),
        "leave it out, and give it as PGPASSWORD",
    ),
    "a password behind a name": (
        lambda t, d: "postgresql://me@localhost/x#y?password=word4321",
        ("--query", "select 1"),
        "leave it out, and give it as PGPASSWORD",
    ),
    "no server": (
        lambda t, d: "postgresql://me@127.0.0.1:9/x",
        ("--query", "select 1"),
        "postgresql://me@127.0.0.1:9/x cannot be reached",
    ),
    "a long delimiter": (write, ("--delimiter", ";;"), "delimiter (--delimiter) is one character"),
    "a delimiter of Parquet": (write, ("--delimiter", ";"), "belongs to text files"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_input_is_one_clear_line(case: str, table: pl.DataFrame, tmp_path: Path) -> None:
    spoil, options, message = BAD_TABLES[case]
    result = release(spoil(table, tmp_path), tmp_path / "out", *options)
    assert_refused(result, message)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_an_existing_folder_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    assert_refused(release(source, target), "exists already")
    assert not list(target.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk(table: pl.DataFrame, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    many = pl.concat([table] * 400).with_columns(user=pl.int_range(pl.len()), noise=pl.lit(0.0))
    rng = np.random.default_rng()
    many = many.with_columns(noise=pl.Series(rng.normal(size=len(many)))).sample(
        fraction=1.0, shuffle=True
    )
    path = write(many, tmp_path)
    mounted = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],  # noqa: S607
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        result = release(path, disk / "out", "--passthrough", "noise")
        assert_refused(result, "No space left")
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)  # noqa: S603, S607


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--adjust", "response"), "not a covariate"),
        (("--adjust", "treated"), "not a covariate"),
        (("--adjust", "secret,secret"), "listed twice"),
        (("--by", "colour"), "No column 'colour' to segment by"),
        (("--level", 95), "level must lie between 0 and 1"),
        (("--plot", "forest.jpg"), ".svg, .png or .pdf"),
        (("--csv", "/nowhere/x.csv"), "Cannot write"),
        (("--csv", "x.xlsx"), "--csv writes a CSV file"),
        (("--control", "B"), "is not an arm"),
        (("--shares", "half"), "Cannot read --shares"),
        (("--segments", "none.csv"), "there is no file"),
    ],
)
def test_estimates_that_make_no_sense(
    options: tuple[object, ...], message: str, published: Path
) -> None:
    assert_refused(run("estimate", published, *options), message)


def test_rows_are_counted_for_an_owner_who_asks_and_never_in_json(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    """Six refusals that count would add up to a histogram."""
    wild = write(table.with_columns(clicks=pl.col("clicks").replace(3, 9)), tmp_path)
    n_wild = int((table["clicks"] == 3).sum())
    quiet = release(wild, tmp_path / "out", "--json")
    assert_refused(quiet, "has values outside the allowed values; declare")
    told = release(wild, tmp_path / "out", "--show-row-counts")
    assert_refused(told, f"has values outside the allowed values in {n_wild} rows")
    clipped = release(wild, tmp_path / "one", "--clip", "--json")
    assert "warning: Owner only: some values of 'clicks' were outside" in clipped.stderr
    assert "clipped" not in clipped.stdout
    told = release(wild, tmp_path / "two", "--clip", "--json", "--show-row-counts")
    assert f"in {n_wild} rows were outside its allowed values" in told.stderr
    assert "clipped" not in told.stdout


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("estimate", "published", "--sgements", "x"), "--segments"),
        (("plan", "experiment.toml", "--epsilom", "2"), "--epsilon"),
        (("ask", "published", "--epsilon", "2"), None),
    ],
)
def test_a_mistyped_option_gets_the_nearest_one(words: tuple[str, ...], near: str | None) -> None:
    shown = run(*words, width=80).output
    assert f"no such option: {words[2]}" in shown
    assert re.findall(r"Did you mean (.+)\?", shown) == ([near] if near else [])
    assert "Fix: write it as in:" in shown
