"""Releases that are closed or cancelled instead of published; on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from clusterdp.errors import LedgerError, ParameterError
from clusterdp.ledger import _store
from clusterdp.ledger._store import LedgerStore
from clusterdp.ledger.ledger import Ledger
from clusterdp.privacy.accounting import Guarantee
from clusterdp.storage.folder import MANIFEST, LocalFolder
from ledger_runs import SPACE, edit, finish, reserve, some_drawn, stored_secrets, with_secrets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp.ledger.reservation import Reservation
    from soak.postgres import Server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a new ledger."""
    if request.param == "sqlite":
        return str(tmp_path / "budget.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_database(tmp_path.name)


@pytest.fixture
def ledger(where: str) -> Ledger:
    return Ledger.create(where, 3)


def draw(reservation: Reservation) -> None:
    reservation.keep("drawn", some_drawn(reservation))


def nothing(reservation: Reservation) -> None:
    del reservation


@pytest.mark.parametrize("before", [nothing, draw])
def test_a_closed_release_stays_spent_and_is_wiped(
    before: Callable[[Reservation], None], ledger: Ledger, where: str
) -> None:
    reservation = reserve(ledger, 2)
    before(reservation)
    spent, remaining = ledger.balance("us").basic, ledger.balance("us").remaining
    closed = ledger.close(reservation.release_id, "the table is gone")
    assert closed.status == "closed"
    entry = ledger.head()
    assert (entry.event, entry.release_id) == ("closed", reservation.release_id)
    expected = {"at": entry.at, "who": entry.who, "reason": "the table is gone"}
    assert closed.ended is not None
    assert closed.ended.items() >= expected.items()
    assert set(closed.ended) == {*expected, "worked_at", "worker"}
    assert entry.who == _store.current_user()
    assert stored_secrets(where, reservation.release_id) is None
    assert with_secrets(where) == []
    assert (ledger.balance("us").basic, ledger.balance("us").remaining) == (spent, remaining)
    assert len(ledger.balance("us").spent) == 1
    with pytest.raises(LedgerError, match="not enough budget"):
        reserve(ledger, 2)
    with pytest.raises(LedgerError, match="is closed: there is nothing to resume"):
        ledger.resume(reservation.release_id)
    assert Ledger(where).verify() == []


def test_closed_releases_count_in_both_totals(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", 3, 1e-6, tight=True)
    ledger.close(reserve(ledger, 2).release_id)
    together = ledger.balance("us").tight_epsilon()
    assert together is not None
    assert together > 1.5
    assert not ledger.balance("us").allows(
        Guarantee(epsilon=2), [cdp.uniform_prior_dp(epsilon=2).loss(SPACE)]
    )


def test_the_key_of_a_closed_release_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = Ledger.create(str(path), 3)
    closed, cancelled = reserve(ledger), reserve(ledger)
    draw(closed)
    for reservation in (closed, cancelled):
        assert reservation.key.expose() in path.read_bytes()
    drawn = stored_secrets(str(path), closed.release_id)
    assert drawn is not None
    assert drawn.drawn is not None
    ledger.close(closed.release_id)
    ledger.cancel(cancelled.release_id)
    for secret in (closed.key.expose(), cancelled.key.expose(), drawn.drawn[:64]):
        assert secret not in path.read_bytes()


def test_a_release_that_drew_nothing_can_be_cancelled(ledger: Ledger, where: str) -> None:
    first = reserve(ledger, 3)
    cancelled = ledger.cancel(first.release_id, "the wrong table")
    assert (cancelled.status, ledger.balance("us").remaining) == ("cancelled", 3)
    assert cancelled.ended is not None
    assert cancelled.ended["reason"] == "the wrong table"
    second = reserve(ledger, 3)
    draw(second)
    with pytest.raises(LedgerError, match=r"has drawn noise.*ledger close .* " + second.release_id):
        ledger.cancel(second.release_id)
    assert ledger.balance("us").remaining == 0
    assert not ledger.resume(second.release_id).may_be_cancelled
    assert Ledger(where).verify() == []


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_nothing_is_ended_twice(end: str, ledger: Ledger) -> None:
    first, second = reserve(ledger), reserve(ledger)
    finish(first)
    for status, release in (("committed", first.release_id), ("closed", second.release_id)):
        if status == "closed":
            ledger.close(release)
        with pytest.raises(LedgerError, match=f"is {status}: there is nothing to {end}"):
            getattr(ledger, end)(release)
    with pytest.raises(LedgerError, match="has no release none"):
        getattr(ledger, end)("none")


@pytest.mark.parametrize("reason", ["two\nlines", "\x1b[31mred", "x" * 501])
def test_a_reason_is_one_line(reason: str, ledger: Ledger) -> None:
    reservation = reserve(ledger)
    for end in (ledger.close, ledger.cancel):
        with pytest.raises(ParameterError, match="reason must be one line"):
            end(reservation.release_id, reason)
    assert ledger.resume(reservation.release_id).key == reservation.key


def test_a_run_at_work_notices_that_its_release_was_ended(ledger: Ledger, where: str) -> None:
    before_keep, cancelled, before_seal = (reserve(ledger, 0.9) for _ in range(3))
    draw(before_seal)
    ledger.close(before_keep.release_id)
    ledger.cancel(cancelled.release_id)
    ledger.close(before_seal.release_id)
    who = _store.current_user()
    with pytest.raises(LedgerError, match=f"{before_keep.release_id} was closed by {who} while"):
        draw(before_keep)
    with pytest.raises(LedgerError, match=f"{cancelled.release_id} was cancelled by {who} while"):
        draw(cancelled)
    with pytest.raises(LedgerError, match=f"{before_seal.release_id} was closed by {who} while"):
        before_seal.seal(b"manifest")
    with pytest.raises(LedgerError, match="was closed by"):
        before_keep.cancel()
    assert [one.status for one in ledger.releases()] == ["closed", "cancelled", "closed"]
    assert Ledger(where).verify() == []


def at_once(*actions: Callable[[], object]) -> list[str]:
    """Run actions in threads that start together; what each came to, or its error."""
    barrier = threading.Barrier(len(actions))
    results = [""] * len(actions)

    def act(number: int) -> None:
        barrier.wait()
        try:
            actions[number]()
        except LedgerError as error:
            results[number] = str(error)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_simultaneous_endings_one_happens(ledger: Ledger, where: str) -> None:
    for _ in range(5):
        release = reserve(ledger, 0.5).release_id
        results = at_once(
            lambda release=release: Ledger(where).close(release),  # type: ignore[misc]
            lambda release=release: Ledger(where).cancel(release),  # type: ignore[misc]
            lambda release=release: Ledger(where).close(release),  # type: ignore[misc]
        )
        assert results.count("") == 1
        assert sum("there is nothing to" in error for error in results) == 2
    assert Ledger(where).verify() == []


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_an_ending_races_with_a_run(end: str, ledger: Ledger, where: str) -> None:
    """The second fails with an error; a release that drew is never cancelled."""
    for _ in range(5):
        reservation = reserve(ledger, 0.5)
        drew, ended = at_once(
            lambda reservation=reservation: finish(reservation),  # type: ignore[misc]
            lambda release=reservation.release_id: getattr(Ledger(where), end)(release),  # type: ignore[misc]
        )
        (record,) = (one for one in ledger.releases() if one.release_id == reservation.release_id)
        assert (drew == "") == (record.status == "committed")
        assert (ended == "") == (record.status in ("closed", "cancelled"))
        if end == "cancel" and ended == "":
            assert record.drawn_sha256 is None
    assert with_secrets(where) == []
    assert Ledger(where).verify() == []


def sealed(ledger: Ledger, place: Path, manifest: bytes = b"manifest") -> Reservation:
    reservation = reserve(ledger, place=str(place))
    draw(reservation)
    reservation.seal(manifest)
    return reservation


def test_what_is_published_is_committed_and_not_closed(
    ledger: Ledger, where: str, tmp_path: Path
) -> None:
    reservation = sealed(ledger, tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).write_bytes(b"manifest")
    recorded = ledger.close(reservation.release_id)
    assert recorded.status == "committed"
    assert recorded.folder == str(tmp_path / "out")
    assert recorded.manifest_sha256 == sha256(b"manifest").hexdigest()
    assert with_secrets(where) == []
    assert Ledger(where).verify() == []


def test_a_run_that_is_about_to_publish_is_not_closed(ledger: Ledger, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with LocalFolder(target).staged("") as (folder, _):
        reservation = sealed(ledger, target)
        with pytest.raises(LedgerError, match=r"a run is about to publish .* end that run"):
            ledger.close(reservation.release_id)
        (folder / MANIFEST).write_bytes(b"manifest")
    reservation.commit(str(target))
    assert ledger.releases()[0].status == "committed"


@pytest.mark.parametrize("place", ["out", "s3a://bucket/out"])
def test_a_sealed_release_that_is_nowhere_to_be_seen(
    place: str, ledger: Ledger, where: str, tmp_path: Path
) -> None:
    place = place if "://" in place else str(tmp_path / place)
    reservation = reserve(ledger, place=place)
    draw(reservation)
    reservation.seal(b"manifest")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).write_bytes(b"another release")
    closed = ledger.close(reservation.release_id)
    assert closed.status == "closed"
    assert closed.ended is not None
    assert closed.ended["sealed_sha256"] == sha256(b"manifest").hexdigest()
    assert closed.ended["sealed_for"] == place
    with pytest.raises(LedgerError, match="was closed by"):
        reservation.commit(place)
    assert ledger.balance("us").spent
    assert Ledger(where).verify() == []


def test_lost_secrets_can_be_closed_and_not_cancelled(ledger: Ledger, where: str) -> None:
    release = reserve(ledger).release_id
    edit(where, "delete from clusterdp_secrets")
    assert any("cannot be finished" in one for one in Ledger(where).verify())
    with pytest.raises(LedgerError, match="its secrets are lost, so its budget stays spent"):
        ledger.cancel(release)
    with pytest.raises(LedgerError, match=r"its secrets are lost; close it with: clusterdp ledger"):
        ledger.resume(release)
    ledger.close(release)
    assert ledger.balance("us").spent
    assert Ledger(where).verify() == []


@pytest.mark.parametrize(
    "change", ["place = '/'", "place = x'00ff'", "place = char(0)", "sealed = x'00ff'", "place = 7"]
)
def test_a_spoilt_place_does_not_keep_a_release_open(change: str, tmp_path: Path) -> None:
    where = str(tmp_path / "budget.db")
    ledger = Ledger.create(where, 3)
    release = sealed(ledger, tmp_path / "out").release_id
    edit(where, f"update clusterdp_secrets set {change}")
    assert ledger.close(release).status == "closed"
    assert Ledger(where).verify() == []


def test_a_release_without_its_key_file_can_be_closed(where: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(64)))
    key_file.chmod(0o600)
    ledger = Ledger.create(where, 3, key_file=key_file)
    reservation = reserve(ledger)
    key_file.unlink()
    assert Ledger(where).close(reservation.release_id).status == "closed"


def test_a_closed_release_cannot_be_opened_by_an_entry(ledger: Ledger, where: str) -> None:
    reservation = reserve(ledger)
    ledger.close(reservation.release_id)
    with LedgerStore(where).writing() as transaction:
        transaction.append(event="cancelled", release_id=reservation.release_id, content={})
    assert Ledger(where).verify() == ["entry 3 has an event that is not allowed there"]
    with pytest.raises(LedgerError, match="not allowed there"):
        Ledger(where).show()
