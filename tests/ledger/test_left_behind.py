"""What a killed run leaves: it is on record, and removed with the release."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.engines.local.table import LocalTable
from clusterdp.errors import LedgerError
from clusterdp.ledger.ledger import Ledger
from clusterdp.storage.files import UNITS
from ledger_runs import reserve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ASKED: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "mechanism": cdp.optimal(epsilon=2),
    "population": "us",
    "new_population": True,
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", 2)


class KilledError(BaseException):
    """The end of a process, which cleans up nothing."""


def killed(
    table: pl.DataFrame, out: Path, ledger: Ledger, patch: pytest.MonkeyPatch
) -> pl.DataFrame:
    """A release that is killed after its rows were written, before noise is drawn; these rows."""
    honest = LocalTable.checked

    def kill(*_: object) -> None:
        raise KilledError

    with patch.context() as patched:
        patched.setattr(LocalTable, "checked", kill)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            cdp.publish(table, out=out, ledger=ledger, **ASKED)
    assert LocalTable.checked is honest
    return pl.read_parquet(out.with_name(f".{out.name}.partial") / UNITS)


def only(ledger: Ledger) -> Any:
    (record,) = ledger.releases()
    return record


def test_rows_that_were_drawn_are_never_off_the_record(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(table, tmp_path / "out", ledger, monkeypatch)
    assert only(ledger).status == "randomizing"
    assert "it drew nothing" not in str(ledger.show())
    with pytest.raises(LedgerError, match="it has drawn rows, so its budget stays spent"):
        ledger.cancel(only(ledger).release_id)
    assert ledger.balance("us").remaining == 0


def changed(table: pl.DataFrame) -> pl.DataFrame:
    """The same table, but for one person's outcome."""
    mine = pl.when(pl.col("user") == 7).then(3 - pl.col("clicks"))
    return table.with_columns(clicks=mine.otherwise("clicks"))


def same(table: pl.DataFrame) -> pl.DataFrame:
    return table


@pytest.mark.parametrize("given", [same, changed])
def test_a_second_run_takes_another_key(
    given: Callable[[pl.DataFrame], pl.DataFrame],
    table: pl.DataFrame,
    tmp_path: Path,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows which table the first run read. By one key, all rows but one would agree.

    By two keys each row agrees with probability below 0.9; that 98% of 300 do has one below 1e-7.
    """
    first = killed(table, tmp_path / "out", ledger, monkeypatch)
    cdp.resume(only(ledger).release_id, given(table), ledger=ledger)
    second = pl.read_parquet(tmp_path / "out" / UNITS)
    assert first["user"].equals(second["user"])
    assert len(first) >= 300
    assert (first["response"] == second["response"]).sum() < 0.98 * len(first)
    assert only(ledger).n_attempts == 2
    assert ledger.verify() == []


def refused(table: pl.DataFrame) -> pl.DataFrame:
    """A table with an outcome outside the declared ones."""
    mine = pl.when(pl.col("user") == 7).then(4)
    return table.with_columns(clicks=mine.otherwise("clicks"))


def test_a_refusal_gives_the_budget_back_once_its_rows_are_removed(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger
) -> None:
    with pytest.raises(cdp.DataError, match="the budget was given back"):
        cdp.publish(refused(table), out=tmp_path / "out", ledger=ledger, **ASKED)
    assert [path.name for path in tmp_path.iterdir()] == ["budget.db"]
    record = only(ledger)
    assert (record.status, record.n_attempts) == ("cancelled", 1)
    assert ledger.balance("us").remaining == 2
    assert ledger.verify() == []


def test_rows_that_cannot_be_removed_stay_spent(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(shutil, "rmtree", denied)
    with pytest.raises(cdp.OutputError, match=r"cannot be removed.*The budget stays reserved"):
        cdp.publish(refused(table), out=tmp_path / "out", ledger=ledger, **ASKED)
    assert ledger.balance("us").remaining == 0


def test_a_refusal_after_a_kill_stays_spent(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the first run may have been seen: each draw would else be for free."""
    killed(table, tmp_path / "out", ledger, monkeypatch)
    with pytest.raises(cdp.DataError, match="The budget stays reserved"):
        cdp.resume(only(ledger).release_id, refused(table), ledger=ledger)
    assert ledger.balance("us").remaining == 0
    assert not list(tmp_path.glob(".*"))


def close(ledger: Ledger, table: pl.DataFrame, tmp_path: Path) -> None:
    del table, tmp_path
    ledger.close(only(ledger).release_id)


def resume_elsewhere(ledger: Ledger, table: pl.DataFrame, tmp_path: Path) -> None:
    cdp.resume(only(ledger).release_id, table, ledger=ledger, out=tmp_path / "elsewhere")


@pytest.mark.parametrize("end", [close, resume_elsewhere])
def test_an_end_removes_what_a_killed_run_left(
    end: Callable[[Ledger, pl.DataFrame, Path], None],
    table: pl.DataFrame,
    tmp_path: Path,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed(table, tmp_path / "out", ledger, monkeypatch)
    scratch = tmp_path / ".out.scratch"
    scratch.mkdir(mode=0o700)
    (scratch / "rows.parquet").write_bytes(b"true outcomes")
    end(ledger, table, tmp_path)
    assert not list(tmp_path.glob(".*"))
    assert only(ledger).status in {"closed", "committed"}


def test_cancelling_removes_true_rows_too(ledger: Ledger, tmp_path: Path) -> None:
    release = reserve(ledger, place=str(tmp_path / "out")).release_id
    scratch = tmp_path / ".out.scratch"
    scratch.mkdir(mode=0o700)
    (scratch / "rows.parquet").write_bytes(b"true outcomes")
    assert ledger.cancel(release).status == "cancelled"
    assert not scratch.exists()


def test_rows_on_another_machine_are_not_drawn_once_more(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(table, tmp_path / "out", ledger, monkeypatch)
    monkeypatch.setattr("clusterdp.ledger.reservation.machine_name", lambda: "another")
    monkeypatch.setattr("clusterdp.ledger.closing.machine_name", lambda: "another")
    release = only(ledger).release_id
    with pytest.raises(LedgerError, match=r"on the machine .*: resume it there, or close it"):
        cdp.resume(release, table, ledger=ledger)
    closed = ledger.close(release)
    assert closed.ended is not None
    assert "cannot be removed from here" in closed.ended["left"]


def test_two_runs_of_one_release_do_not_both_randomize(ledger: Ledger) -> None:
    first = reserve(ledger)
    second = ledger.resume(first.release_id)
    first.begin_rows()
    with pytest.raises(LedgerError, match="another run is finishing"):
        second.begin_rows()
    third = ledger.resume(first.release_id)
    third.begin_rows()
    assert third.row_key != first.row_key
    with pytest.raises(LedgerError, match="stays spent"):
        third.cancel()
