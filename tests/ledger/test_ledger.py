"""Budgets: what is reserved, refused, resumed and committed; on SQLite and on PostgreSQL."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.channels.draw import draw_statistics
from clusterdp.channels.noise import add_exact_noise
from clusterdp.errors import LedgerError
from clusterdp.ledger.encryption import Vault
from clusterdp.ledger.ledger import Ledger, verify_books
from clusterdp.ledger.store import Books
from clusterdp.privacy.accounting import Guarantee
from clusterdp.releasing.journal import Drawn
from ledger_runs import LAYOUT, SPACE, edit, finish, reserve, some_drawn

if TYPE_CHECKING:
    from pathlib import Path

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


def assert_same(one: Drawn, other: Drawn) -> None:
    assert one.table_tag == other.table_tag
    for ours, theirs in zip(one.statistics, other.statistics, strict=True):
        assert type(ours) is type(theirs)
        for name in getattr(ours, "__slots__", ()):
            held, kept = getattr(ours, name), getattr(theirs, name)
            assert np.array_equal(held, kept), name
            assert np.asarray(held).dtype == np.asarray(kept).dtype


@pytest.mark.parametrize(
    "mechanism",
    [
        cdp.cluster_dp(noise_scale=3, prior_floor=0.05, epsilon=2, calibrate=0.2),
        cdp.cluster_free_dp(noise_scale=3, prior_floor=0.05, epsilon=2),
        cdp.optimal(epsilon=1, calibrate=0.4),
        cdp.uniform_prior_dp(epsilon=1),
        cdp.noisy_histogram(epsilon=1),
        cdp.noisy_horvitz_thompson(epsilon=1),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_what_was_drawn_comes_back_exactly(mechanism: cdp.Mechanism) -> None:
    counts = np.stack([LAYOUT.sizes] + [np.zeros_like(LAYOUT.sizes)] * 3, axis=-1)
    drawn = Drawn(draw_statistics(counts, LAYOUT, mechanism, add_exact_noise), b"tag")
    assert_same(drawn, Drawn.from_bytes(bytes(drawn)))


def test_a_release_from_reservation_to_commit(ledger: Ledger, where: str) -> None:
    reservation = reserve(ledger)
    assert ledger.account("us").basic == Guarantee(epsilon=reservation.spending.guarantee.epsilon)
    assert reservation.recall() is None
    again = Ledger(where).resume(reservation.release)
    assert again.key == reservation.key
    drawn = some_drawn(reservation)
    reservation.keep(drawn)
    kept = Ledger(where).resume(reservation.release).recall()
    assert kept is not None
    assert_same(drawn, kept)
    reservation.seal(b"manifest")
    assert Ledger(where).resume(reservation.release).sealed == reservation.sealed
    reservation.commit("out")
    (spending,) = ledger.spendings()
    assert spending.status == "committed"
    assert spending.manifest_sha256 == reservation.sealed
    assert verify_books(Books(where)) == []
    with pytest.raises(LedgerError, match="is committed: there is nothing to resume"):
        ledger.resume(reservation.release)
    with pytest.raises(LedgerError, match="another run has finished"):
        reservation.commit("out")


def test_the_cap_holds_for_each_population(ledger: Ledger) -> None:
    reserve(ledger, 1.5)
    reserve(ledger, 1.5)
    with pytest.raises(LedgerError, match=r"'us' does not allow it.*nothing was spent"):
        reserve(ledger, 0.5)
    assert len(ledger.account("us").spent) == 2
    reserve(ledger, 3, "ca")
    assert [account.population for account in ledger.accounts()] == ["us", "ca"]
    assert ledger.account("us").room == 0


def test_room_is_what_fits(ledger: Ledger) -> None:
    reserve(ledger, 1.25)
    room = ledger.account("us").room
    assert room == pytest.approx(1.75)
    reserve(ledger, room)


def test_many_small_releases_fit_where_a_delta_is_allowed(tmp_path: Path) -> None:
    mechanism = cdp.uniform_prior_dp(epsilon=0.25)

    def count(name: str, *, tight: bool) -> int:
        cap = Guarantee(epsilon=2, delta=1e-5)
        ledger = Ledger.create(str(tmp_path / name), cap, Vault(), tight=tight)
        for n_releases in range(100):
            try:
                ledger.reserve("us", outcome="y", space=SPACE, mechanism=mechanism, about={})
            except LedgerError:
                account = ledger.account("us")
                together = account.tight_epsilon()
                assert together is None or together <= cap.epsilon
                return n_releases
        raise AssertionError

    assert count("basic", tight=False) == 8
    assert count("tight", tight=True) > 8


def test_deltas_count(tmp_path: Path) -> None:
    cap = Guarantee(epsilon=10, delta=1e-3)
    ledger = Ledger.create(str(tmp_path / "l"), cap, Vault(), tight=False)
    reserve(ledger, delta=6e-4)
    with pytest.raises(LedgerError):
        reserve(ledger, delta=6e-4)
    reserve(ledger, delta=3e-4)


def test_a_cancelled_release_gives_its_budget_back(ledger: Ledger, where: str) -> None:
    first = reserve(ledger, 3)
    first.cancel()
    assert ledger.spendings()[0].status == "cancelled"
    second = reserve(ledger, 3)
    second.keep(some_drawn(second))
    with pytest.raises(LedgerError, match="its budget stays spent"):
        second.cancel()
    assert verify_books(Books(where)) == []


def test_of_two_runs_one_draws(ledger: Ledger) -> None:
    one = reserve(ledger)
    other = ledger.resume(one.release)
    one.keep(some_drawn(one))
    with pytest.raises(LedgerError, match="another run is finishing"):
        other.keep(some_drawn(other))
    with pytest.raises(LedgerError, match="another run is finishing"):
        other.cancel()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "update clusterdp_entries set content = replace(content, 'us', 'ca') where number = 1",
            "entry 1 was changed",
        ),
        ("update clusterdp_entries set who = 'nobody' where number = 2", "entry 2 was changed"),
        ("delete from clusterdp_entries where number = 1", "entry 1 is missing"),
        ("delete from clusterdp_entries where number = 0", "the first entry is missing"),
        ("update clusterdp_entries set content = '}' where number = 1", "entry 1 was changed"),
        ("delete from clusterdp_secrets", "its secrets are lost"),
    ],
)
def test_edited_history_is_noticed(
    ledger: Ledger, where: str, statement: str, problem: str
) -> None:
    finish(reserve(ledger))
    reserve(ledger)
    edit(where, statement)
    problems = verify_books(Books(where))
    assert any(problem in one for one in problems), problems
    if "secrets" not in statement:
        with pytest.raises(LedgerError, match="was edited"):
            Ledger(where)
        with pytest.raises(LedgerError, match="was edited"):
            reserve(ledger)


def test_a_shortened_or_rewritten_history_is_noticed_by_its_hash(
    ledger: Ledger, where: str
) -> None:
    finish(reserve(ledger))
    head = ledger.head().hash
    finish(reserve(ledger))
    assert verify_books(Books(where), head) == []
    edit(where, "delete from clusterdp_entries where number >= 2")
    edit(where, "delete from clusterdp_secrets")
    assert any("history was changed" in one for one in verify_books(Books(where), head))


def test_keys_do_not_outlive_their_release(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = Ledger.create(str(path), Guarantee(epsilon=3), Vault())
    reservation = reserve(ledger)
    secret = reservation.key.expose()
    reservation.keep(some_drawn(reservation))
    reservation.seal(b"manifest")
    assert secret in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    reservation.commit("out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["budget.db"]
    assert secret not in path.read_bytes()


@pytest.mark.parametrize("kind", ["passphrase", "key file"])
def test_encrypted_keys(kind: str, where: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(64)))
    key_file.chmod(0o600)
    given: dict[str, Any] = {"key_file": key_file}
    wrong: dict[str, Any] = {"key_file": tmp_path / "other"}
    (tmp_path / "other").write_bytes(bytes(64))
    (tmp_path / "other").chmod(0o600)
    if kind == "passphrase":
        given, wrong = {"passphrase": "correct horse"}, {"passphrase": "wrong horse"}
    ledger = Ledger.create(where, Guarantee(epsilon=3), Vault.new(**given))
    with pytest.raises(LedgerError, match=f"are encrypted; give its {kind}"):
        reserve(ledger)
    with pytest.raises(LedgerError, match=f"this is not the ledger's {kind}"):
        ledger.unlock(**wrong)
    ledger.unlock(**given)
    reservation = reserve(ledger)
    reservation.keep(some_drawn(reservation))
    kept = Books(where).secrets(reservation.release)
    assert kept is not None
    assert reservation.key.expose() not in kept.key
    assert kept.drawn is not None
    assert not kept.drawn.startswith(b"PK")
    again = Ledger(where)
    again.unlock(**given)
    assert again.resume(reservation.release).key == reservation.key


def test_a_secret_cannot_be_moved_to_another_release(where: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(64)))
    key_file.chmod(0o600)
    ledger = Ledger.create(where, Guarantee(epsilon=3), Vault.new(key_file=key_file))
    ledger.unlock(key_file=key_file)
    first, second = reserve(ledger), reserve(ledger)
    edit(
        where,
        "update clusterdp_secrets set key = (select key from clusterdp_secrets where release = "
        f"'{first.release}') where release = '{second.release}'",
    )
    with pytest.raises(LedgerError, match="secrets were changed"):
        _ = ledger.resume(second.release).key


def test_places_that_are_no_ledger(tmp_path: Path, where: str) -> None:
    if "://" in where:
        with pytest.raises(LedgerError, match="is not a ledger"):
            Ledger(where)
        with pytest.raises(LedgerError, match="create one first"):
            Ledger(where.replace("/test", "/none"))
        Ledger.create(where, Guarantee(epsilon=1), Vault())
        with pytest.raises(LedgerError, match="there is a ledger already"):
            Ledger.create(where, Guarantee(epsilon=1), Vault())
        return
    with pytest.raises(LedgerError, match=r"there is no ledger budget\.db"):
        Ledger(where)
    Ledger.create(where, Guarantee(epsilon=1), Vault())
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(where, Guarantee(epsilon=1), Vault())
    (tmp_path / "budget.db").chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        Ledger(where)
    text = tmp_path / "text.db"
    text.write_text("not a database " * 1000)
    text.chmod(0o600)
    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger(str(text))
    with pytest.raises(LedgerError, match="postgresql://user@host"):
        Ledger("mysql://host/database")


def test_a_password_is_never_shown() -> None:
    with pytest.raises(LedgerError) as refused:
        Ledger("postgresql://me:sesame@127.0.0.1:1/none")
    assert "cannot be reached" in str(refused.value)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("cap", [(0, 0), (-1, 0), (float("nan"), 0), (1, 1), (1, -0.1)])
def test_impossible_caps(cap: tuple[float, float], tmp_path: Path) -> None:
    with pytest.raises(cdp.ParameterError, match="cap_"):
        Ledger.create(str(tmp_path / "l"), Guarantee(epsilon=cap[0], delta=cap[1]), Vault())
    assert not list(tmp_path.iterdir())
