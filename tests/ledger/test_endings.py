"""Releases that are closed or cancelled instead of published; on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from clusterdp.errors import LedgerError, ParameterError
from clusterdp.ledger import store as books
from clusterdp.ledger.encryption import Vault
from clusterdp.ledger.ledger import Ledger, verify_books
from clusterdp.ledger.store import Books
from clusterdp.privacy.accounting import Guarantee
from clusterdp.storage.files import MANIFEST
from clusterdp.storage.folder import staged_folder
from ledger_runs import SPACE, edit, finish, reserve, some_drawn

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
    return Ledger.create(where, Guarantee(epsilon=3), Vault())


def draw(reservation: Reservation) -> None:
    reservation.keep(some_drawn(reservation))


def nothing(reservation: Reservation) -> None:
    del reservation


@pytest.mark.parametrize("before", [nothing, draw])
def test_a_closed_release_stays_spent_and_is_wiped(
    before: Callable[[Reservation], None], ledger: Ledger, where: str
) -> None:
    reservation = reserve(ledger, 2)
    before(reservation)
    spent, room = ledger.account("us").basic, ledger.account("us").room
    closed = ledger.close(reservation.release, "the table is gone")
    assert closed.status == "closed"
    entry = ledger.head()
    assert (entry.event, entry.release) == ("closed", reservation.release)
    assert closed.ended == {"at": entry.at, "who": entry.who, "reason": "the table is gone"}
    assert entry.who == books._user()  # noqa: SLF001 - who runs this test
    assert Books(where).secrets(reservation.release) is None
    assert Books(where).unfinished() == []
    assert (ledger.account("us").basic, ledger.account("us").room) == (spent, room)
    assert len(ledger.account("us").spent) == 1
    with pytest.raises(LedgerError, match="does not allow it"):
        reserve(ledger, 2)
    with pytest.raises(LedgerError, match="is closed: there is nothing to resume"):
        ledger.resume(reservation.release)
    assert verify_books(Books(where)) == []


def test_closed_releases_count_in_both_totals(tmp_path: Path) -> None:
    cap = Guarantee(epsilon=3, delta=1e-6)
    ledger = Ledger.create(str(tmp_path / "budget.db"), cap, Vault(), tight=True)
    ledger.close(reserve(ledger, 2).release)
    together = ledger.account("us").tight_epsilon()
    assert together is not None
    assert together > 1.5
    assert not ledger.account("us").allows(
        Guarantee(epsilon=2), cdp.uniform_prior_dp(epsilon=2).loss(SPACE)
    )


def test_the_key_of_a_closed_release_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = Ledger.create(str(path), Guarantee(epsilon=3), Vault())
    closed, cancelled = reserve(ledger), reserve(ledger)
    draw(closed)
    for reservation in (closed, cancelled):
        assert reservation.key.expose() in path.read_bytes()
    drawn = Books(str(path)).secrets(closed.release)
    assert drawn is not None
    assert drawn.drawn is not None
    ledger.close(closed.release)
    ledger.cancel(cancelled.release)
    for secret in (closed.key.expose(), cancelled.key.expose(), drawn.drawn[:64]):
        assert secret not in path.read_bytes()


def test_a_release_that_drew_nothing_can_be_cancelled(ledger: Ledger, where: str) -> None:
    first = reserve(ledger, 3)
    cancelled = ledger.cancel(first.release, "the wrong table")
    assert (cancelled.status, ledger.account("us").room) == ("cancelled", 3)
    assert cancelled.ended is not None
    assert cancelled.ended["reason"] == "the wrong table"
    second = reserve(ledger, 3)
    draw(second)
    with pytest.raises(LedgerError, match=r"has drawn noise.*ledger close .* " + second.release):
        ledger.cancel(second.release)
    assert ledger.account("us").room == 0
    assert ledger.resume(second.release).has_drawn
    assert verify_books(Books(where)) == []


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_nothing_is_ended_twice(end: str, ledger: Ledger) -> None:
    first, second = reserve(ledger), reserve(ledger)
    finish(first)
    for status, release in (("committed", first.release), ("closed", second.release)):
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
            end(reservation.release, reason)
    assert ledger.resume(reservation.release).key == reservation.key


def test_a_run_at_work_notices_that_its_release_was_ended(ledger: Ledger, where: str) -> None:
    before_keep, cancelled, before_seal = (reserve(ledger, 0.9) for _ in range(3))
    draw(before_seal)
    ledger.close(before_keep.release)
    ledger.cancel(cancelled.release)
    ledger.close(before_seal.release)
    who = books._user()  # noqa: SLF001 - who runs this test
    with pytest.raises(LedgerError, match=f"{before_keep.release} was closed by {who} while"):
        draw(before_keep)
    with pytest.raises(LedgerError, match=f"{cancelled.release} was cancelled by {who} while"):
        draw(cancelled)
    with pytest.raises(LedgerError, match=f"{before_seal.release} was closed by {who} while"):
        before_seal.seal(b"manifest")
    with pytest.raises(LedgerError, match="was closed by"):
        before_keep.cancel()
    assert [one.status for one in ledger.spendings()] == ["closed", "cancelled", "closed"]
    assert verify_books(Books(where)) == []


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
        release = reserve(ledger, 0.5).release
        results = at_once(
            lambda release=release: Ledger(where).close(release),  # type: ignore[misc]
            lambda release=release: Ledger(where).cancel(release),  # type: ignore[misc]
            lambda release=release: Ledger(where).close(release),  # type: ignore[misc]
        )
        assert results.count("") == 1
        assert sum("there is nothing to" in told for told in results) == 2
    assert verify_books(Books(where)) == []


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_an_ending_races_with_a_run(end: str, ledger: Ledger, where: str) -> None:
    """Whoever is second is told so; a release that drew is never cancelled."""
    for _ in range(5):
        reservation = reserve(ledger, 0.5)
        drew, ended = at_once(
            lambda reservation=reservation: finish(reservation),  # type: ignore[misc]
            lambda release=reservation.release: getattr(Ledger(where), end)(release),  # type: ignore[misc]
        )
        (spending,) = (one for one in ledger.spendings() if one.release == reservation.release)
        assert (drew == "") == (spending.status == "committed")
        assert (ended == "") == (spending.status in ("closed", "cancelled"))
        if end == "cancel" and ended == "":
            assert spending.drawn_sha256 is None
    assert Books(where).unfinished() == []
    assert verify_books(Books(where)) == []


def sealed(ledger: Ledger, place: Path, manifest: bytes = b"manifest") -> Reservation:
    reservation = reserve(ledger)
    reservation.place = str(place)
    draw(reservation)
    reservation.seal(manifest)
    return reservation


def test_what_is_published_is_committed_and_not_closed(
    ledger: Ledger, where: str, tmp_path: Path
) -> None:
    reservation = sealed(ledger, tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).write_bytes(b"manifest")
    recorded = ledger.close(reservation.release)
    assert recorded.status == "committed"
    assert recorded.folder == str(tmp_path / "out")
    assert recorded.manifest_sha256 == sha256(b"manifest").hexdigest()
    assert Books(where).unfinished() == []
    assert verify_books(Books(where)) == []


def test_a_run_that_is_about_to_publish_is_not_closed(ledger: Ledger, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with staged_folder(target) as folder:
        reservation = sealed(ledger, target)
        with pytest.raises(LedgerError, match=r"a run is about to publish .* end that run"):
            ledger.close(reservation.release)
        (folder / MANIFEST).write_bytes(b"manifest")
    reservation.commit(str(target))
    assert ledger.spendings()[0].status == "committed"


@pytest.mark.parametrize("place", ["out", "s3a://bucket/out"])
def test_a_sealed_release_that_is_nowhere_to_be_seen(
    place: str, ledger: Ledger, where: str, tmp_path: Path
) -> None:
    place = place if "://" in place else str(tmp_path / place)
    reservation = reserve(ledger)
    reservation.place = place
    draw(reservation)
    reservation.seal(b"manifest")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).write_bytes(b"another release")
    closed = ledger.close(reservation.release)
    assert closed.status == "closed"
    assert closed.ended is not None
    assert closed.ended["sealed_sha256"] == sha256(b"manifest").hexdigest()
    assert closed.ended["sealed_for"] == place
    with pytest.raises(LedgerError, match="was closed by"):
        reservation.commit(place)
    assert ledger.account("us").spent
    assert verify_books(Books(where)) == []


def test_lost_secrets_can_be_closed_and_not_cancelled(ledger: Ledger, where: str) -> None:
    release = reserve(ledger).release
    edit(where, "delete from clusterdp_secrets")
    assert any("cannot be finished" in one for one in verify_books(Books(where)))
    with pytest.raises(LedgerError, match="its secrets are lost, so its budget stays spent"):
        ledger.cancel(release)
    with pytest.raises(LedgerError, match=r"its secrets are lost; close it with: clusterdp ledger"):
        ledger.resume(release)
    ledger.close(release)
    assert ledger.account("us").spent
    assert verify_books(Books(where)) == []


@pytest.mark.parametrize(
    "change", ["place = '/'", "place = x'00ff'", "place = char(0)", "sealed = x'00ff'", "place = 7"]
)
def test_a_spoilt_place_does_not_keep_a_release_open(change: str, tmp_path: Path) -> None:
    where = str(tmp_path / "budget.db")
    ledger = Ledger.create(where, Guarantee(epsilon=3), Vault())
    release = sealed(ledger, tmp_path / "out").release
    edit(where, f"update clusterdp_secrets set {change}")
    assert ledger.close(release).status == "closed"
    assert verify_books(Books(where)) == []


def test_a_release_without_its_key_file_can_be_closed(where: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(64)))
    key_file.chmod(0o600)
    ledger = Ledger.create(where, Guarantee(epsilon=3), Vault.new(key_file=key_file))
    ledger.unlock(key_file=key_file)
    reservation = reserve(ledger)
    key_file.unlink()
    assert Ledger(where).close(reservation.release).status == "closed"


def test_a_closed_release_cannot_be_opened_by_an_entry(ledger: Ledger, where: str) -> None:
    reservation = reserve(ledger)
    ledger.close(reservation.release)
    with Books(where).writing() as transaction:
        transaction.append(event="cancelled", release=reservation.release, content={})
    assert verify_books(Books(where)) == ["entry 3 is out of turn"]
    with pytest.raises(LedgerError, match="out of turn"):
        Ledger(where)
