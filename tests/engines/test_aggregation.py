"""Several rows of a unit as one: every rule, every refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.engines.local.engine import one_row_per_unit
from clusterdp.spec.columns import RULES, parse_aggregates

if TYPE_CHECKING:
    from pathlib import Path

ASKED: dict[str, Any] = {"unit": "user", "arm": "treated", "epsilon": 2}


@pytest.fixture
def events(table: pl.DataFrame) -> pl.DataFrame:
    """One to three rows of each unit, in no order; clicks are missing in some of them."""
    rows = pl.concat([table, table.filter(pl.col("user") % 2 == 0), table.filter(user=4)])
    return rows.with_columns(
        clicks=pl.when(pl.int_range(pl.len()) % 5 > 0).then("clicks"), spend=pl.col("clicks") / 10
    ).sample(fraction=1, shuffle=True)


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_those_of_python(rule: str, events: pl.DataFrame) -> None:
    made: Any = {
        "sum": sum,
        "mean": lambda values: sum(values) / len(values),
        "max": max,
        "any": lambda values: float(any(values)),
    }[rule]
    ours = one_row_per_unit(events.lazy(), ("user", "market"), {"spend": rule}).collect()
    expected = {
        unit: made(sorted(values)) if values else None
        for (unit,), rows in events.group_by("user")
        for values in [rows["spend"].drop_nulls().to_list()]
    }
    assert dict(ours.select("user", "spend").iter_rows()) == expected
    assert ours.columns == ["user", "market", "spend"]


def test_a_unit_without_values_has_no_outcome() -> None:
    rows = pl.LazyFrame({"user": [1, 1, 2, 2], "y": [None, float("nan"), 3.0, None]})
    made = one_row_per_unit(rows, ("user",), {"y": "sum"}).sort("user").collect()
    assert made["y"].to_list() == [None, 3.0]


def test_events_are_released_as_units(events: pl.DataFrame, tmp_path: Path) -> None:
    given = events.with_columns(pl.col("clicks").fill_null(0))
    outcomes = {"clicks": "0..9", "spend": cdp.Number(0, 2)}
    rules = {"clicks": "sum", "spend": "max"}
    asked = {**ASKED, "outcomes": outcomes, "aggregate": rules, "cluster": "market"}
    n_units = given["user"].n_unique()
    plan = cdp.plan(given, **asked)
    assert plan.options.n_units == n_units
    assert f"{n_units:,}" in repr(cdp.preview(given, plan, unit="user"))
    published = cdp.publish(given, plan, unit="user", out=tmp_path / "out").read()
    units = published.units.collect()
    assert units["user"].to_list() == sorted(set(given["user"]))
    assert any("clicks (sum), spend (max)" in note for note in published.notes)
    truth = given.group_by("user", "treated", "market").agg(
        pl.col("clicks").sum(), pl.col("spend").max()
    )
    exact = cdp.estimate_without_privacy(
        truth, outcomes=outcomes, unit="user", arm="treated", cluster="market"
    )
    for one, other in zip(cdp.estimate(published).effects, exact.effects, strict=True):
        # Six standard errors: a false alarm in 1e8.
        assert abs(one.effect - other.effect) <= 6 * one.std_error


def test_a_file_is_aggregated_by_the_command_line(events: pl.DataFrame, tmp_path: Path) -> None:
    events.with_columns(pl.col("clicks").fill_null(0)).write_csv(tmp_path / "events.csv")
    asked = ["--unit", "user", "--arm", "treated", "--outcome", "clicks=0,1", "--epsilon", 1]
    made = run(
        "release", tmp_path / "events.csv", *asked, "--aggregate", "any", "--out", tmp_path / "out"
    )
    assert made.exit_code == 0, made.output
    assert cdp.read_release(tmp_path / "out").layout.n_units == events["user"].n_unique()


def test_what_is_refused(events: pl.DataFrame) -> None:
    given = events.with_columns(pl.col("clicks").fill_null(0))
    asked = {**ASKED, "outcomes": {"clicks": "0..9"}}
    with pytest.raises(cdp.DataError, match="--aggregate sum"):
        cdp.release(given, **asked)
    moved = given.with_columns(treated=pl.int_range(pl.len()) % 2)
    with pytest.raises(cdp.DataError, match="public columns differ from row to row"):
        cdp.release(moved, **asked, aggregate="sum")
    with pytest.raises(cdp.ParameterError, match="no order to keep"):
        cdp.release(given, **asked, aggregate="sum", keep_order=True)
    with pytest.raises(cdp.DataError, match="not numbers"):
        cdp.release(given.with_columns(clicks=pl.lit("secret")), **asked, aggregate="sum")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["total"], "one of sum, mean, max, any"),
        (["visits=sum"], "no outcome 'visits'"),
        (["clicks=sum"], "no rule for 'spend'"),
    ],
)
def test_rules_that_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        parse_aggregates(texts, ("clicks", "spend"))


def test_one_rule_serves_the_others() -> None:
    rules = parse_aggregates(["sum", "visit=any"], ("clicks", "visit"))
    assert rules == {"clicks": "sum", "visit": "any"}
