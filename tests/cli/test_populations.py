"""Releases about the same people: what an owner is told of earlier ones, and asked to confirm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from categories import one_question
from cli_runs import PARTS, assert_refused, release, run
from clusterdp.cli.owner import NO_LEDGER
from clusterdp.engines.local.table import LocalTable
from clusterdp.errors import LedgerError
from clusterdp.ledger.balance import population_problem
from clusterdp.ledger.ledger import Ledger
from ledger_runs import SPACE, reserve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    assert run("ledger", "init", path, "--cap-epsilon", 9).exit_code == 0
    return path


def test_without_a_ledger_one_line_says_that_nothing_remembers(
    source: Path, tmp_path: Path
) -> None:
    assert "\n" not in NO_LEDGER
    assert "--ledger" in NO_LEDGER
    assert "No ledger: this release" in NO_LEDGER
    told = release(source, tmp_path / "first")
    assert told.stderr == NO_LEDGER + "\n"
    assert "remember" not in told.stdout
    told = release(source, tmp_path / "second", "--json")
    assert told.stderr == NO_LEDGER + "\n"
    assert json.loads(told.stdout)["folder"] == str(tmp_path / "second")
    assert release(source, tmp_path / "third", "--dry-run").stderr == ""


def test_with_a_ledger_it_is_not_said(source: Path, tmp_path: Path, where: Path) -> None:
    paid = ("--ledger", where, "--population", "us", "--new-population")
    told = release(source, tmp_path / "out", *paid)
    assert told.exit_code == 0, told.output
    assert "remember" not in told.output


def test_a_new_name_must_be_confirmed(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = ("--ledger", where, "--population")
    # In an empty ledger no name can be misspelled.
    first = release(source, tmp_path / "out", *paid, "us-users")
    assert first.exit_code == 0, first.output
    other = release(source, tmp_path / "other", *paid, "ca-users")
    assert_refused(other, "'ca-users' is new: the ledger has 'us-users'")
    assert_refused(other, "confirm it with --new-population.")
    again = release(source, tmp_path / "second", *paid, "us-users", "--new-population")
    assert_refused(again, "'us-users' is already in the ledger. Fix: leave out new_population")
    assert release(source, tmp_path / "second", *paid, "us-users").exit_code == 0
    for name in ("drivers", "us-merchants"):
        reserve(Ledger(str(where)), 1, name)
    # A typo is refused before the table is opened, with what it was meant to be first.
    monkeypatch.setattr(LocalTable, "read_layout", None)
    typo = release(source, tmp_path / "third", *paid, "us-user")
    assert_refused(typo, "the ledger has 'us-users', 'us-merchants', 'drivers'")
    assert len(Ledger(str(where)).releases()) == 4
    assert not (tmp_path / "third").exists()


def test_a_dry_run_says_what_would_be_needed(source: Path, tmp_path: Path, where: Path) -> None:
    reserve(Ledger(str(where)), 1, "us")
    paid = ("--dry-run", "--ledger", where, "--population")
    result = release(source, tmp_path / "out", *paid, "su")
    assert result.exit_code == 0, result.output
    assert "note: This release would be rejected: Population 'su' is new" in result.stdout
    assert "--new-population" in result.stdout
    result = release(source, tmp_path / "out", *paid, "us", "--new-population")
    assert result.exit_code == 0, result.output
    assert "This release would be rejected: Population 'us' is already" in result.stdout
    for fine in (("us",), ("su", "--new-population")):
        result = release(source, tmp_path / "out", *paid, *fine)
        assert result.exit_code == 0, result.output
        assert "would be rejected" not in result.stdout
    assert len(Ledger(str(where)).releases()) == 1


def test_it_is_confirmed_on_the_command_line_alone(
    source: Path, tmp_path: Path, where: Path
) -> None:
    """An experiment file is used again and again; a confirmation is for once."""
    file = tmp_path / "experiment.toml"
    file.write_text(f'[privacy]\nledger = "{where}"\npopulation = "us"\nnew_population = true\n')
    assert_refused(run("release", file), "line 4: there is no key 'new_population' in [privacy]")
    alone = release(source, tmp_path / "out", "--new-population")
    assert_refused(alone, "--new-population and --ledger-key-file) belong to a ledger")


def test_names_are_checked_where_the_budget_is_reserved(where: Path) -> None:
    """Between a pilot and a reservation another process may have opened the population."""
    ledger = Ledger(str(where))
    terms = one_question(SPACE, cdp.uniform_prior_dp(epsilon=1))
    asked: dict[str, Any] = {"terms": terms, "about": {}, "place": "x"}
    ledger.reserve("us", **asked, confirmed_new=False)
    with pytest.raises(LedgerError, match="is new: the ledger"):
        ledger.reserve("su", **asked, confirmed_new=False)
    with pytest.raises(LedgerError, match="is already in the ledger"):
        ledger.reserve("us", **asked, confirmed_new=True)
    ledger.reserve("us", **asked, confirmed_new=False)
    assert len(ledger.releases()) == 2


@pytest.mark.parametrize("name", ["US", "u s", "us\u200a.", "us2"])
def test_near_misses_are_new(name: str) -> None:
    told = population_problem(name, ["ca", "us", "uk"], confirmed=False)
    assert told is not None
    assert "the ledger has 'us'" in told


def test_many_names_stay_one_short_line() -> None:
    known = [f"population-{number}" for number in range(1000)]
    told = population_problem("population-07", known, confirmed=False)
    assert told is not None
    assert "and 980 more" in told
    assert len(told) < 700


def test_an_earlier_release_of_an_outcome_is_pointed_out(
    table: pl.DataFrame, tmp_path: Path, where: Path
) -> None:
    source = tmp_path / "both.parquet"
    table.with_columns(visits=pl.col("clicks")).write_parquet(source)
    paid = ("--ledger", where, "--population", "us")
    first = release(source, tmp_path / "1", *paid, "--new-population")
    assert "earlier release" not in first.output
    visits = [part.replace("clicks", "visits") for part in PARTS]
    other = run(
        *("release", source, *visits, "--epsilon", 1),
        *("--out", tmp_path / "2", *paid),
    )
    assert other.exit_code == 0, other.output
    assert "earlier release" not in other.output
    second = release(source, tmp_path / "3", *paid)
    assert (
        "note: The ledger has 1 earlier release of 'clicks' about 'us'. With this one, all "
        "releases about 'us' spend ε = 5.\n"
    ) in second.stdout
    third = json.loads(release(source, tmp_path / "4", *paid, "--json").stdout)
    assert any("The ledger has 2 earlier releases of 'clicks'" in n for n in third["plan"]["notes"])
    budget = third["plan"]["budget"]
    assert budget["earlier_releases_of_outcomes"] == 2
    assert (budget["spent_epsilon"], budget["after_epsilon"]) == pytest.approx((5, 7))


def test_closed_releases_count_as_earlier_and_cancelled_ones_do_not(
    source: Path, tmp_path: Path, where: Path
) -> None:
    ledger = Ledger(str(where))
    ledger.cancel(reserve(ledger, 1).release_id)
    paid = ("--ledger", where, "--population", "us", "--dry-run")
    columns = [part.replace("clicks", "y") for part in PARTS]
    renamed = tmp_path / "y.parquet"
    pl.read_parquet(source).rename({"clicks": "y"}).write_parquet(renamed)
    command = ("release", renamed, *columns, "--epsilon", 1, *paid)
    assert "earlier release" not in run(*command).stdout
    ledger.close(reserve(ledger, 1).release_id)
    assert "The ledger has 1 earlier release of 'y'" in run(*command).stdout
