"""What cannot be mended after a release is asked for, checked or refused before it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.owner import job as owner_task

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

FUNNEL: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "outcomes": {"visit": "0,1", "sale": "0,1", "clicks": "0..9"},
    "constraint": ["sale -> visit"],
    "metric": ["sale*clicks"],
    "epsilon": 2,
}


@pytest.fixture
def funnel(rng: np.random.Generator) -> pl.DataFrame:
    """A table in which one sale is without a visit."""
    numbers = pl.int_range(400, eager=True)
    visit, clicks = (numbers % 3 == 0).cast(pl.Int64), rng.integers(0, 7, 400)
    table = pl.DataFrame({"user": numbers, "treated": numbers % 2, "visit": visit, "sale": visit})
    return table.with_columns(
        clicks=pl.Series(clicks), sale=pl.when(pl.col("user") == 1).then(1).otherwise("sale")
    )


def never(*_: object) -> None:
    raise AssertionError("a mechanism was chosen")


def test_rows_are_checked_before_anything_slow(
    funnel: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_task, "decide", never)
    for make in (cdp.release, lambda *a, **k: cdp.publish(*a, out=tmp_path / "out", **k)):
        with pytest.raises(cdp.DataError, match="constraints rule out") as refused:
            make(funnel, **FUNNEL)
        assert "row" not in str(refused.value).partition(";")[0]
        with pytest.raises(cdp.DataError, match=r"rule out .* in 1 row;"):
            make(funnel, show_row_counts=True, **FUNNEL)
    assert not list(tmp_path.iterdir())


def test_what_a_ledger_does_not_allow_is_refused_before_an_outcome_is_read(
    funnel: pl.DataFrame, tmp_path: Path
) -> None:
    cdp.Ledger.create(tmp_path / "ledger.db", 1)
    whose: dict[str, Any] = {"ledger": tmp_path / "ledger.db", "population": "us"}
    asked = {**FUNNEL, "mechanism": "uniform-prior-dp", "new_population": True, **whose}
    with pytest.raises(cdp.LedgerError, match="No outcome was read"):
        cdp.publish(funnel, out=tmp_path / "out", **asked)


def test_a_preview_asks_for_what_cannot_be_added_later(table: pl.DataFrame, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"clicks": "0..3"}}
    plan = cdp.plan(table, epsilon=1, mechanism="optimal", **asked)
    shown = " ".join(repr(cdp.preview(table, plan)).split())
    assert "Not stated title, description, contact, license (cannot be added later" in shown
    titled = cdp.plan(table, epsilon=1, mechanism="optimal", title="Clicks", **asked)
    assert "Not stated description" in " ".join(repr(cdp.preview(table, titled)).split())
    cdp.publish(table, titled, out=tmp_path / "out")
    assert "# Clicks" in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize(
    ("labels", "warned"),
    [("true,false", True), ("Yes,no", True), ("no,yes", False), ("a,b", False)],
)
def test_labels_in_the_other_order_are_said(labels: str, *, warned: bool) -> None:
    first, second = labels.split(",")
    numbers = pl.int_range(200, eager=True)
    texts = pl.select(pl.when(numbers % 3 == 0).then(pl.lit(first)).otherwise(pl.lit(second)))
    table = pl.DataFrame({"user": numbers, "treated": numbers % 2, "visit": texts.to_series()})
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"visit": labels}}
    told = f"visit={labels} counts {first!r} as 0"
    assert any(told in note for note in cdp.plan(table, epsilon=1, **asked).notes) == warned
    with pytest.warns(cdp.OwnerNotice) as shown:
        cdp.release(table.sort("visit"), epsilon=1, keep_order=True, **asked)
    assert any(told in str(one.message) for one in shown) == warned


def test_the_environment_can_make_a_ledger_compulsory(
    table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"clicks": "0..3"}}
    asked |= {"epsilon": 1, "mechanism": cdp.optimal(epsilon=1)}
    del asked["epsilon"]
    monkeypatch.setenv("CLUSTERDP_REQUIRE_LEDGER", "1")
    with pytest.raises(cdp.ParameterError, match="CLUSTERDP_REQUIRE_LEDGER is set"):
        cdp.publish(table, out=tmp_path / "out", **asked)
    with pytest.raises(cdp.ParameterError, match=r"use clusterdp\.publish"):
        cdp.release(table, **asked)
    ledger = cdp.Ledger.create(tmp_path / "ledger.db", 4)
    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    assert cdp.publish(table, out=tmp_path / "out", **whose, **asked).release_id
    monkeypatch.setenv("CLUSTERDP_REQUIRE_LEDGER", "0")
    assert cdp.release(table, **asked) is not None


def test_an_audit_has_a_row_for_each_release_with_its_reason(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    where = tmp_path / "ledger.db"
    cdp.Ledger.create(where, 4)
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"clicks": "0..3"}}
    asked |= {"mechanism": cdp.optimal(epsilon=1), "ledger": where, "population": "us"}
    said = {"reason": "as legal asked, in 2024", "approved_by": "Ada", "title": "Clicks"}
    first: dict[str, Any] = {"new_population": True, **said}
    for place, more in enumerate((first, {})):
        cdp.publish(table, out=tmp_path / f"out {place}", **asked, **more)
    shown = run("ledger", "show", where, "--csv").stdout
    rows = pl.read_csv(io.StringIO(shown))
    assert rows.height == 2
    assert rows["reason"].to_list() == [said["reason"], None]
    assert rows["approved_by"].to_list() == ["Ada", None]
    assert rows["status"].to_list() == ["published"] * 2
    assert rows["epsilon"].to_list() == [1.0, 1.0]
    assert shown.strip() == cdp.Ledger(where).show().to_csv().strip()
