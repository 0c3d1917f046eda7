"""Errors of databases: what is reported follows from their codes, not from names or messages."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa

from clusterdp.errors import LedgerError
from clusterdp.ledger import _store
from clusterdp.ledger._store import explain_failure
from clusterdp.ledger.ledger import Ledger
from ledger_runs import edit, reserve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from soak.postgres import Server


def lock(path: Path) -> None:
    with sqlite3.connect(path) as first, sqlite3.connect(path, timeout=0) as second:
        first.execute("begin immediate")
        second.execute("begin immediate")


def fill(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("pragma max_page_count = 1")
        connection.execute("create table disk (quota)")
        connection.execute("insert into disk values (zeroblob(100000))")


def write_to_what_is_read_only(path: Path) -> None:
    sqlite3.connect(path).close()
    path.touch()
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        connection.execute("create table a (b)")


def open_what_is_none(path: Path) -> None:
    path.write_text("full, locked, readonly: no database" * 1000)
    sqlite3.connect(path).execute("select * from a")


def read_what_is_not_there(path: Path) -> None:
    sqlite3.connect(path).execute("select * from fullsearch")


def open_in_no_folder(path: Path) -> None:
    sqlite3.connect(path / "none" / "budget.db")


def read_bytes_as_text(path: Path) -> None:
    sqlite3.connect(path).execute("select cast(x'ff' as text)").fetchall()


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (lock, "is locked by another command; try again later"),
        (fill, "cannot be written: the disk is full"),
        (write_to_what_is_read_only, "cannot be written: permission denied"),
        (open_what_is_none, "is not a ledger"),
        (read_what_is_not_there, "is not a ledger that this version can read"),
        (open_in_no_folder, "cannot be opened; check the permissions"),
        (read_bytes_as_text, "is damaged"),
    ],
)
def test_sqlite(fail: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error) as failed:
        fail(tmp_path / "locked full readonly.db")
    error = sa.exc.OperationalError("statement", {}, failed.value)
    assert explain_failure(error).startswith(reason)


@pytest.mark.parametrize("name", ["fullsearch", "readonly", "is locked", "not a database"])
def test_a_database_that_does_not_exist(name: str, postgres: Server) -> None:
    with pytest.raises(LedgerError, match="check that the database exists") as refused:
        Ledger(postgres.url(name))
    assert "disk" not in str(refused.value)


def test_a_user_that_does_not_exist(postgres: Server) -> None:
    url = postgres.url().replace(f"{postgres.user}@", "full@")
    with pytest.raises(LedgerError, match="that the user may use it"):
        Ledger(url)


def test_a_server_that_does_not_answer(postgres: Server, tmp_path: Path) -> None:
    url = postgres.url("full").replace(str(postgres.folder), str(tmp_path))
    with pytest.raises(LedgerError, match="cannot be reached"):
        Ledger(url)


def test_a_database_that_cannot_be_written(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_database(tmp_path.name)
    Ledger.create(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role onlooker login")
    reader = url.replace(f"{postgres.user}@", "onlooker@")
    with pytest.raises(LedgerError, match="permission denied"):
        Ledger(reader)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter role onlooker set default_transaction_read_only = on")
        connection.execute("grant select on clusterdp_entries to onlooker")
    with (
        pytest.raises(LedgerError, match="permission denied"),
        _store.LedgerStore(reader).writing() as transaction,
    ):
        transaction.append(event="closed", release_id="none", content={})


def test_a_database_that_is_locked(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database(tmp_path.name)
    ledger = Ledger.create(url)
    monkeypatch.setattr(_store, "LOCK_TIMEOUT", 1)
    with (
        _store.LedgerStore(url).writing(),
        pytest.raises(LedgerError, match="is locked by another command"),
    ):
        ledger.close("none")


@pytest.mark.postgres
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_server_whose_transactions_see_the_past(
    level: str, postgres: Server, tmp_path: Path
) -> None:
    """A writer that had to wait sees what the one before it wrote, whatever the default."""
    url = postgres.new_database(tmp_path.name)
    edit(url, f"alter database {tmp_path.name} set default_transaction_isolation = '{level}'")
    ledger = Ledger.create(url, 3)
    first = reserve(ledger, 3).release_id
    with ThreadPoolExecutor(1) as threads:
        with _store.LedgerStore(url).writing() as transaction:
            later = threads.submit(reserve, ledger, 3)
            time.sleep(0.5)  # until it waits for the lock; too short, and it just comes second
            transaction.append(event="cancelled", release_id=first, content={})
            transaction.wipe(first)
        later.result()
    assert [one.status for one in ledger.releases()] == ["cancelled", "reserved"]
