"""A plan refuses what a release would refuse for public reasons, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp

if TYPE_CHECKING:
    from pathlib import Path

N_UNITS = 120
UNITS = pl.DataFrame(
    {
        "user": range(N_UNITS),
        "arm": [unit % 2 for unit in range(N_UNITS)],
        "market": [unit // 2 % 3 for unit in range(N_UNITS)],
        "tier": ["low" if unit % 3 else "high" for unit in range(N_UNITS)],
        "visit": [0, 1, 1] * (N_UNITS // 3),
    }
)
ASKED: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "market",
    "outcomes": {"visit": "0,1"},
    "epsilon": 2,
}
LABELLED = {"cluster": "tier", "private_cluster": 0.5, "labels": "low,high"}
FIRST = pl.col("user") == 0
A_LIST = pl.concat_list("market", "market")

REFUSED: dict[str, tuple[dict[str, pl.Expr], dict[str, Any]]] = {
    "no such unit": ({}, {"unit": "nobody"}),
    "no such kept column": ({}, {"passthrough": "nothing"}),
    "no such breakdown": ({}, {"breakdown": "nothing"}),
    "no such groups": ({}, {"randomization_unit": "nothing"}),
    "no such private cluster": ({}, {**LABELLED, "cluster": "nothing"}),
    "ids with decimals": ({"user": pl.col("user") / 2}, {}),
    "an id is missing": ({"user": pl.when(~FIRST).then("user")}, {}),
    "an id twice": ({"user": pl.col("user") // 2}, {}),
    "an id that cannot be shown": ({"user": pl.format("{}\x07", "user")}, {}),
    "kept lists": ({"tier": A_LIST}, {"passthrough": "tier"}),
    "kept text that cannot be shown": ({"tier": pl.lit("\x1b")}, {"passthrough": "tier"}),
    "an arm is missing": ({"arm": pl.when(~FIRST).then("arm")}, {}),
    "no such control": ({}, {"control": 7}),
    "a unit in two arms": ({"user": pl.col("user") // 2}, {"aggregate": "max"}),
    "a unit with two kept values": (
        {"user": pl.col("user") // 6 * 2 + pl.col("arm"), "market": pl.lit(0)},
        {"aggregate": "max", "passthrough": "tier"},
    ),
    "arms are lists": ({"arm": A_LIST}, {}),
    "clusters are lists": ({"market": A_LIST}, {}),
    "a breakdown by lists": ({"tier": A_LIST}, {"breakdown": "tier"}),
    "a breakdown by numbers": ({"tier": pl.col("user") / 2}, {"breakdown": "tier"}),
    "a cluster that is pooled, broken down": (
        {},
        {"min_cell_size": 30, "breakdown": "market"},
    ),
    "a private cluster that is crossed": ({}, {**LABELLED, "cluster": ["tier", "market"]}),
    "labels that cannot be pooled": (
        {},
        {**LABELLED, "assignment": "low=0.5,high=0.5", "min_cell_size": 5},
    ),
    "a title of two lines": ({}, {"title": "one\ntwo"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_plans_refuse_what_releases_refuse(case: str, tmp_path: Path) -> None:
    changed, other = REFUSED[case]
    table, asked = UNITS.with_columns(**changed), {**ASKED, **other}
    said = []
    # A plan never reads outcomes, so it says so without them, too.
    for act in (
        lambda: cdp.plan(table, **asked),
        lambda: cdp.plan(table.with_columns(visit=None), **asked),
        lambda: cdp.publish(table, out=tmp_path / "out", **asked),
    ):
        with pytest.raises(cdp.ClusterDPError) as caught:
            act()
        said.append(str(caught.value))
    assert len(set(said)) == 1


A_DATE = pl.date(2026, 1, 1)
NO_OUTCOMES: dict[str, tuple[pl.Expr, str]] = {
    "dates": (A_DATE, "0,1"),
    "times": (A_DATE.cast(pl.Datetime), "0,1"),
    "lists": (A_LIST, "0,1"),
    "bytes": (pl.lit(b"1"), "0,1"),
    "dates for labels": (A_DATE, "no,yes"),
    "numbers for labels": (pl.col("visit"), "no,yes"),
}


@pytest.mark.parametrize("case", NO_OUTCOMES)
def test_plans_refuse_outcomes_by_their_types(case: str, tmp_path: Path) -> None:
    values, declared = NO_OUTCOMES[case]
    table, path = UNITS.with_columns(visit=values), tmp_path / "units.parquet"
    asked = {**ASKED, "outcomes": {"visit": declared}}
    table.write_parquet(path)
    said = set()
    for act in (
        lambda: cdp.plan(table, **asked),
        lambda: cdp.plan(path, **asked),
        lambda: cdp.release(table, **asked),
    ):
        with pytest.raises(cdp.DataError, match=r"'visit' \(outcome\) holds") as caught:
            act()
        said.add(str(caught.value))
    assert len(said) == 1


def test_a_table_of_cells_needs_no_other_columns() -> None:
    cells = UNITS.group_by("market", "arm").len("n").with_columns(pl.col("n").cast(int))
    assert "120 units" in repr(cdp.plan(cells, **ASKED, passthrough="tier", size="n"))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "ndjson"])
def test_a_file_without_an_outcome_is_said(suffix: str, tmp_path: Path) -> None:
    """It may be planned before there are outcomes; or their name is misspelt."""
    path = tmp_path / f"units.{suffix}"
    getattr(UNITS, {"csv": "write_csv", "parquet": "write_parquet"}.get(suffix, "write_ndjson"))(
        path
    )
    for name, said in (("vist", True), ("visit", False)):
        words = repr(cdp.plan(path, **{**ASKED, "outcomes": {name: "0,1"}})).split()
        assert ("Did you mean 'visit'?" in " ".join(words)) == said
