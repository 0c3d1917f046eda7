"""Outcomes of two labels: declared in order, read row by row, shown wherever values are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release, run
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.rows.column_types import NO_NUMBER, with_numbers

if TYPE_CHECKING:
    from pathlib import Path

LABELS = {"visited": ("no", "yes")}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("no,yes", ("no", "yes")),
        (" FALSE , TRUE ", ("FALSE", "TRUE")),
        (["lost", "kept"], ("lost", "kept")),
        ("nicht gekauft,gekauft", ("nicht gekauft", "gekauft")),
    ],
)
def test_two_labels_are_a_space_that_reads_back(given: Any, names: tuple[str, str]) -> None:
    space = OutcomeSpace.parse(given)
    assert space.names == names
    assert space.values == (0, 1)
    assert OutcomeSpace.parse(str(space)) == space
    record = declare({"visited": given}).record()
    assert record.outcomes[0].space == ",".join(names)
    assert record.declared() == declare({"visited": given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no,yes,maybe", "has two, as in visited=no,yes; got 3"),
        ("Yes,yes", "differ by more than capitals"),
        ("no,`yes`", "a label has letters, digits"),
        (f"no,{'y' * 41}", "at most 40"),
        ("yes", "an outcome's allowed values must be"),
        ("0,l", "an outcome's allowed values must be"),
        ("no,1", "an outcome's allowed values must be"),
        ("no,", "an outcome's allowed values must be"),
    ],
)
def test_what_is_no_pair_of_labels_is_refused(given: str, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        OutcomeSpace.parse(given)


def test_each_label_is_its_number() -> None:
    texts = ["no", " Yes", "YES ", "maybe", "", None]
    expected = [0.0, 1.0, 1.0, NO_NUMBER, None, None]
    for kind in (pl.String, pl.Categorical):
        rows = pl.LazyFrame({"visited": pl.Series(texts, dtype=kind)})
        assert with_numbers(rows, LABELS).collect()["visited"].to_list() == expected
    booleans = pl.LazyFrame({"visited": [False, True, None]})
    found = with_numbers(booleans, {"visited": ("FALSE", "TRUE")}).collect()
    assert found["visited"].to_list() == [0.0, 1.0, None]


def test_numbers_are_not_taken_for_labels() -> None:
    with pytest.raises(cdp.DataError, match=r"holds Int64.*labels no,yes.*visited=0,1"):
        with_numbers(pl.LazyFrame({"visited": [0, 1]}), LABELS)


def labelled(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(
        clicks=pl.when(pl.col("clicks") > 1).then(pl.lit("yes")).otherwise(pl.lit("no"))
    )


def test_labels_are_released_and_shown(table: pl.DataFrame, tmp_path: Path) -> None:
    labelled(table).write_csv(tmp_path / "t.csv")
    done = release(tmp_path / "t.csv", tmp_path / "out", "--outcome", "clicks=no,yes")
    assert done.exit_code == 0, done.output
    told = cdp.read_release(tmp_path / "out")
    assert "no (0) or yes (1)" in (tmp_path / "out" / "README.md").read_text()
    assert "no (0) or yes (1)" in (tmp_path / "out" / "index.html").read_text()
    assert "no (0) or yes (1)" in run("inspect", tmp_path / "out", "-v").stdout
    assert "no (0) or yes (1)" in repr(told)
    assert run("verify", tmp_path / "out").exit_code == 0
    estimated = run("estimate", tmp_path / "out")
    assert estimated.exit_code == 0
    assert "'yes'" in estimated.stdout


def test_a_label_that_is_neither_is_refused_and_never_clipped(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    odd = pl.when(pl.int_range(pl.len()) == 99).then(pl.lit("word4321")).otherwise("clicks")
    spoiled = labelled(table).with_columns(clicks=odd)
    spoiled.write_csv(tmp_path / "t.csv")
    spoiled.write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        for options in ((), ("--clip",), ("--missing", "clicks")):
            asked = ("--outcome", "clicks=no,yes", *options)
            refused = release(tmp_path / name, tmp_path / "out", *asked)
            assert_refused(refused, "outside the allowed values")


@pytest.mark.parametrize("rule", ["any", "max", "sum", "mean"])
def test_a_label_that_is_neither_is_refused_in_aggregates(
    rule: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    rows = labelled(table)
    events = pl.concat([rows, rows[:1].with_columns(clicks=pl.lit("word4321"))])
    refused = release(
        write_events(events, tmp_path),
        *(tmp_path / "out", "--outcome", "clicks=no,yes", "--aggregate", rule),
    )
    assert_refused(refused, "outside the allowed values")


def test_any_label_of_several_rows(table: pl.DataFrame, tmp_path: Path) -> None:
    rows = labelled(table)
    events = pl.concat([rows.with_columns(clicks=pl.lit("no")), rows])
    options: Any = {
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
        "outcomes": {"clicks": ["no", "yes"]},
        "aggregate": "any",
        "epsilon": 50,
    }
    made = cdp.release(events, **options)
    at_once = cdp.release(rows, **{**options, "aggregate": None})
    # At this ε a row is changed with a probability below 1e-20.
    assert made.units.sort("user")["response"].equals(at_once.units.sort("user")["response"])


def write_events(events: pl.DataFrame, folder: Path) -> Path:
    events.write_parquet(folder / "events.parquet")
    return folder / "events.parquet"
