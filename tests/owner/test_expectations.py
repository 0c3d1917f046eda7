"""What is expected of outcomes is declared in numbers: no table is read for it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "epsilon": 2,
}
CALLS = [cdp.plan, cdp.preview, cdp.publish]


def hard_link(table: pl.DataFrame, source: Path) -> str:
    link = source.with_name("other.parquet")
    link.hardlink_to(source)
    return str(link)


def file_of_the_folder(table: pl.DataFrame, source: Path) -> str:
    return str(source.parent / "cl*.parquet")


def folder(table: pl.DataFrame, source: Path) -> str:
    return str(source.parent)


def database(table: pl.DataFrame, source: Path) -> str:
    path = source.with_name("own.db")
    with sqlite3.connect(path) as connection:
        connection.execute("create table own (user, treated, market, clicks)")
        rows = table.select("user", "treated", "market", "clicks").rows()
        connection.executemany("insert into own values (?, ?, ?, ?)", rows)
    return f"sqlite:///{path}"


def past(table: pl.DataFrame, source: Path) -> str:
    """An earlier batch: other people, whose outcomes are as private as those of this one."""
    path = source.with_name("past.csv")
    table.with_columns(pl.col("user") + 10_000).write_csv(path)
    return str(path)


@pytest.mark.parametrize("call", CALLS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("named", [hard_link, file_of_the_folder, folder, database, past])
def test_no_table_is_a_baseline(
    call: Callable[..., Any], named: Callable[..., str], table: pl.DataFrame, source: Path
) -> None:
    """Its exact shares would be published: in the manifest, the plan, the ledger, the channels."""
    name = named(table, source)
    more = {} if call is cdp.plan else {"out": source.with_name("out")}
    with pytest.raises(cdp.ParameterError, match="because a baseline is published"):
        call(source, baseline=name, **NAMES, **more)
    assert not source.with_name("out").exists()


def test_no_table_is_a_reference_of_a_command(table: pl.DataFrame, source: Path) -> None:
    plan = source.with_name("plan.toml")
    refused = run(
        *("plan", source, "--arm", "treated", "--outcome", "clicks=0..3", "--epsilon", 2),
        *("--baseline", past(table, source), "--out", plan),
    )
    assert refused.exit_code == 2
    assert "never taken from the table" in " ".join(refused.output.split())
    assert not plan.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"baseline": "0.4,0.3,0.2,0.1"}, "Assumes the owner's baselines: clicks 1."),
        ({}, "No baseline was declared, so all values are assumed equally likely."),
    ],
)
def test_the_folder_states_where_expectations_come_from(
    given: dict[str, Any], said: str, source: Path, tmp_path: Path
) -> None:
    cdp.publish(source, out=tmp_path / "out", counts_share=0, **NAMES, **given)
    assert said in " ".join((tmp_path / "out/README.md").read_text(encoding="utf-8").split())
