"""What a killed run leaves: it is on record, and removed with the release."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.engines.local.table import LocalTable
from clusterdp.errors import LedgerError, OutputError
from clusterdp.ledger.ledger import Ledger
from clusterdp.ledger.reservation import OvertakenError, Reservation, absolute, worker_name
from clusterdp.owner.job import ReleaseJob
from clusterdp.storage.folder import (
    UNITS,
    has_scheme,
    scratch_folder,
    working_folder,
    working_of,
)
from ledger_runs import reserve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from soak.s3 import Bucket

ASKED: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "mechanism": cdp.optimal(epsilon=2),
    "population": "us",
    "new_population": True,
}

COUNTED = cdp.cluster_dp(noise_scale=4, prior_floor=0.02, epsilon=2)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", 2)


class KilledError(BaseException):
    """The end of a process, which cleans up nothing."""


def killed(
    table: pl.DataFrame, out: Path, ledger: Ledger, patch: pytest.MonkeyPatch
) -> pl.DataFrame:
    """A release that is killed after its rows were written, before noise is drawn; these rows."""
    honest = LocalTable.check

    def kill(*_: object) -> None:
        raise KilledError

    with patch.context() as patched:
        patched.setattr(LocalTable, "check", kill)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            cdp.publish(table, out=out, ledger=ledger, **ASKED)
    assert LocalTable.check is honest
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


PRIVATE: dict[str, Any] = {
    "private_cluster": 0.5,
    "labels": "0,1,2,3,4",
    "mechanism": "cluster-dp",
    "epsilon": 2,
}


def rows_left(out: Path) -> list[pl.DataFrame]:
    """What can be read of the rows that a killed run left."""
    found = []
    for path in out.with_name(f".{out.name}.partial").rglob("*"):
        for read in (pl.read_parquet, pl.read_ipc):
            with suppress(pl.exceptions.PolarsError, OSError):
                frame = read(path)
                found += [frame] if "user" in frame.columns else []
    return found


@pytest.mark.parametrize("kept", ["sealed", "labels"])
def test_rows_that_keep_a_key_cannot_be_read_before_the_table_is_compared(
    kept: str, table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is replaced after it was compared, and the run is killed before it notices."""
    source, out = tmp_path / "t.parquet", tmp_path / "out"
    table.write_parquet(source)
    asked = ASKED | ({"mechanism": COUNTED} if kept == "sealed" else PRIVATE)
    honest = LocalTable.run

    def kill(*_: object) -> None:
        raise KilledError

    def swap(opened: LocalTable, asked: Any) -> Any:
        if asked.randomizer is None:
            return honest(opened, asked)
        changed(table).write_parquet(source)
        with suppress(cdp.DataError):
            honest(opened, asked)
        raise KilledError

    begin = partial(cdp.publish, str(source), out=out, ledger=ledger, **asked)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        if kept == "sealed":
            with patched.context() as at_the_end:
                at_the_end.setattr("clusterdp.storage.folder._publish", kill)
                with pytest.raises(KilledError):
                    begin()
            assert rows_left(out)
            begin = partial(cdp.resume, only(ledger).release_id, ledger=ledger)
        patched.setattr(LocalTable, "run", swap)
        with pytest.raises(KilledError):
            begin()
    assert only(ledger).has_drawn
    assert list(out.with_name(".out.partial").iterdir())
    assert not rows_left(out)
    table.write_parquet(source)
    cdp.resume(only(ledger).release_id, ledger=ledger)
    assert only(ledger).status == "committed"
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
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    release = only(ledger).release_id
    with pytest.raises(LedgerError, match=r"on the machine .*: resume it there, or close it"):
        cdp.resume(release, table, ledger=ledger)
    closed = ledger.close(release)
    assert closed.ended is not None
    assert "cannot be removed from here" in closed.ended["left"]


def test_rows_in_a_folder_that_was_moved_are_not_forgotten(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "share"
    place.mkdir()
    killed(table, place / "out", ledger, monkeypatch)
    place.rename(tmp_path / "moved")
    release = only(ledger).release_id
    with pytest.raises(LedgerError, match=r"out of reach.*: resume it there, or close it"):
        cdp.resume(release, table, ledger=ledger, out=tmp_path / "out")
    closed = ledger.close(release)
    assert closed.ended is not None
    assert "out of reach" in closed.ended["left"]
    assert list((tmp_path / "moved").glob(".*"))  # which nothing said was removed


def test_a_name_that_is_too_long_is_found_before_anything_is_spent(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger
) -> None:
    with pytest.raises(OutputError, match="no folder can be made"):
        cdp.publish(table, out=tmp_path / ("n" * 250), ledger=ledger, **ASKED)
    assert not ledger.releases()


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


def test_a_run_whose_place_another_run_took_draws_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """What it left would be where nobody looks for it."""
    first = reserve(ledger, place=str(tmp_path / "one"))
    second = ledger.resume(first.release_id)
    second.begin_at(str(tmp_path / "two"))
    with pytest.raises(OvertakenError, match="another run works on"):
        first.begin_rows()
    second.begin_rows()
    assert only(ledger).n_attempts == 1


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_a_run_that_is_killed_after_its_release_was_ended(
    end: str, ledger: Ledger, tmp_path: Path
) -> None:
    """It cannot remove what it made any more; the release is ended once more, and that does."""
    release = reserve(ledger, place=str(tmp_path / "out")).release_id
    with working_folder(tmp_path / "out") as folder:
        (folder / UNITS).write_bytes(b"rows")
        ended = getattr(ledger, end)(release).ended
        assert ended["at_work"] == str(tmp_path / "out")
        with pytest.raises(LedgerError, match="another run is writing"):
            getattr(ledger, end)(release)
    assert folder.exists()
    getattr(ledger, end)(release)
    assert not list(tmp_path.glob(".*"))
    assert ledger.verify() == []


@pytest.mark.store
def test_what_is_left_of_an_upload_is_found_in_another_environment(
    ledger: Ledger, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run works on this machine follows from its environment, and is on record."""
    place = f"{bucket.uri}/out"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "first"))
    release = reserve(ledger, place=place).release_id
    with working_folder(working_of(place)) as folder:
        (folder / UNITS).write_bytes(b"rows")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "second"))
    assert "left" not in (ledger.close(release).ended or {})
    assert not folder.exists()


def test_true_rows_are_gone_before_a_release_is_on_record_as_published(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after that entry, nobody would look for them any more."""
    table.write_parquet(tmp_path / "table.parquet")
    honest, left = Reservation.commit, list[object]()

    def commit(reservation: Reservation, place: str) -> None:
        left.extend(tmp_path.glob(".out.*"))
        honest(reservation, place)

    monkeypatch.setattr(Reservation, "commit", commit)
    query = f"select * from '{tmp_path / 'table.parquet'}'"
    cdp.publish("duckdb://", query=query, out=tmp_path / "out", ledger=ledger, **ASKED)
    assert left == []
    assert only(ledger).status == "committed"


def test_true_rows_are_gone_before_a_budget_is_given_back(
    table: pl.DataFrame, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.with_columns(clicks=pl.lit(9)).write_parquet(tmp_path / "table.parquet")
    honest, left = Reservation.cancel, list[object]()

    def cancel(reservation: Reservation) -> None:
        left.extend(tmp_path.glob(".out.*"))
        honest(reservation)

    monkeypatch.setattr(Reservation, "cancel", cancel)
    monkeypatch.setattr(ReleaseJob, "check_rows", lambda _, opened, __=None: opened)
    query = f"select * from '{tmp_path / 'table.parquet'}'"
    with pytest.raises(cdp.DataError, match="given back"):
        cdp.publish("duckdb://", query=query, out=tmp_path / "out", ledger=ledger, **ASKED)
    assert left == []
    assert only(ledger).status == "cancelled"


def test_a_run_that_stores_a_query_is_at_work(ledger: Ledger, tmp_path: Path) -> None:
    """It holds true rows before it begins the folder that is published."""
    release = reserve(ledger, place=str(tmp_path / "out")).release_id
    with scratch_folder(tmp_path / "out") as scratch:
        (scratch / "query.parquet").write_bytes(b"true outcomes")
        ended = ledger.close(release).ended
        assert ended is not None
        assert ended["at_work"] == str(tmp_path / "out")


def test_a_run_that_closes_its_own_release_says_where_it_works(
    ledger: Ledger, tmp_path: Path
) -> None:
    reservation = reserve(ledger, place=str(tmp_path / "out"))
    with working_folder(tmp_path / "out") as folder:
        (folder / UNITS).write_bytes(b"rows")
        reservation.give_up("the table changed")
    assert folder.exists()
    ledger.close(reservation.release_id)
    assert not folder.exists()


@pytest.mark.store
def test_a_published_release_is_recorded_from_another_environment(
    table: pl.DataFrame,
    ledger: Ledger,
    tmp_path: Path,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its run was killed between the upload and its entry; what it left is not here."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()

    def kill(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(tmp_path / "first"))
        patched.setattr(Reservation, "commit", kill)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            cdp.publish(table, out=f"{bucket.uri}/out", ledger=ledger, **ASKED)
    assert list((tmp_path / "first").iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "second"))
    cdp.resume(only(ledger).release_id, table, ledger=ledger)
    assert only(ledger).status == "committed"
    assert not list((tmp_path / "first").iterdir())


def test_what_a_run_stores_after_its_release_was_closed_is_found(
    ledger: Ledger, tmp_path: Path
) -> None:
    """It had begun, and stored nothing when the release was closed; then it was killed."""
    release = reserve(ledger, place=str(tmp_path / "out")).release_id
    ledger.close(release)
    with pytest.raises(LedgerError, match="there is nothing to close"):
        ledger.close(release)
    with working_folder(tmp_path / "out") as folder:
        (folder / UNITS).write_bytes(b"rows")
    with pytest.raises(LedgerError, match="there is nothing to cancel"):
        ledger.cancel(release)
    assert ledger.close(release).status == "closed"
    assert not folder.exists()


def test_a_run_about_to_publish_is_seen_from_another_machine_on_the_same_disk(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = reserve(ledger, place=str(tmp_path / "out"))
    reservation.keep("drawn", b"noise")
    reservation.seal(b"manifest")
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    with (
        working_folder(tmp_path / "out"),
        pytest.raises(LedgerError, match="about to publish"),
    ):
        ledger.close(reservation.release_id)


def test_places_of_hadoop_are_addresses() -> None:
    for place in ("s3://bucket/out", "hdfs:///data/out", "file:/data/out"):
        assert has_scheme(place)
        assert absolute(place) == place
        assert worker_name(place) != worker_name("/data/out")
    for place in ("/data/out", "out", "a:b/out", "./file:/out"):
        assert not has_scheme(place)
