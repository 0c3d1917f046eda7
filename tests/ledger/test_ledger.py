"""Budgets: what is reserved, refused, resumed and committed; on SQLite and on PostgreSQL."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from categories import one_question
from clusterdp.errors import LedgerError
from clusterdp.ledger.ledger import Ledger
from clusterdp.mechanisms.draw import Question, release_cells
from clusterdp.privacy.accounting import Guarantee
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import add_exact_noise
from ledger_runs import LAYOUT, SPACE, edit, finish, reserve, some_drawn, stored_secrets
from released import Drawn

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
    return Ledger.create(where, 3)


@pytest.mark.parametrize(
    "mechanism",
    [
        cdp.cluster_dp(
            noise_scale=3, prior_floor=0.05, epsilon=2, sums=cdp.SumShares(clusters=0.2)
        ),
        cdp.cluster_free_dp(noise_scale=3, prior_floor=0.05, epsilon=2),
        cdp.optimal(epsilon=1, sums=cdp.SumShares(clusters=0.4)),
        cdp.uniform_prior_dp(epsilon=1),
        cdp.noisy_histogram(epsilon=1),
        cdp.noisy_horvitz_thompson(epsilon=1),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_what_was_drawn_comes_back_exactly(mechanism: cdp.Mechanism) -> None:
    counts = np.stack([LAYOUT.sizes] + [np.zeros_like(LAYOUT.sizes)] * 3, axis=-1)
    totals = CellTotals.from_counts(counts, SPACE)
    question = Question(space=SPACE, mechanism=mechanism)
    cells = release_cells(totals, LAYOUT, SPACE, mechanism, add_exact_noise)
    drawn = Drawn((question.released(*cells),), b"tag")
    again = Drawn.from_bytes(bytes(drawn), [question], LAYOUT)
    assert again.table_tag == b"tag"
    for one, other in zip(
        drawn.questions[0].statistics, again.questions[0].statistics, strict=True
    ):
        assert type(one) is type(other)
        for name, array in one.arrays().items():
            assert np.array_equal(array, other.arrays()[name])
            assert array.dtype == other.arrays()[name].dtype


def test_a_release_from_reservation_to_commit(ledger: Ledger, where: str) -> None:
    reservation = reserve(ledger)
    assert ledger.balance("us").basic == Guarantee(epsilon=reservation.record.guarantee.epsilon)
    assert reservation.recall("drawn") is None
    again = Ledger(where).resume(reservation.release_id)
    assert again.key == reservation.key
    drawn = some_drawn(reservation)
    reservation.keep("drawn", drawn)
    kept = Ledger(where).resume(reservation.release_id).recall("drawn")
    assert kept == drawn
    reservation.seal(b"manifest")
    assert Ledger(where).resume(reservation.release_id).sealed == reservation.sealed
    reservation.commit("out")
    (record,) = ledger.releases()
    assert record.status == "committed"
    assert record.manifest_sha256 == reservation.sealed
    assert Ledger(where).verify() == []
    with pytest.raises(LedgerError, match="is committed: there is nothing to resume"):
        ledger.resume(reservation.release_id)
    with pytest.raises(LedgerError, match="another run has finished"):
        reservation.commit("out")


def test_the_cap_holds_for_each_population(ledger: Ledger) -> None:
    reserve(ledger, 1.5)
    reserve(ledger, 1.5)
    with pytest.raises(LedgerError, match=r"not enough budget for 'us'.*nothing was spent"):
        reserve(ledger, 0.5)
    assert len(ledger.balance("us").spent) == 2
    reserve(ledger, 3, "ca")
    assert [balance.population for balance in ledger.balances()] == ["us", "ca"]
    assert ledger.balance("us").remaining == 0


def test_what_remains_can_be_spent(ledger: Ledger) -> None:
    reserve(ledger, 1.25)
    remaining = ledger.balance("us").remaining
    assert remaining == pytest.approx(1.75)
    reserve(ledger, remaining)


def test_many_small_releases_fit_where_a_delta_is_allowed(tmp_path: Path) -> None:
    mechanism = cdp.uniform_prior_dp(epsilon=0.25)

    def count(name: str, *, tight: bool) -> int:
        ledger = Ledger.create(tmp_path / name, 2, 1e-5, tight=tight)
        for n_releases in range(100):
            try:
                ledger.reserve("us", terms=one_question(SPACE, mechanism), about={}, place="x")
            except LedgerError:
                balance = ledger.balance("us")
                together = balance.tight_epsilon()
                assert together is None or together <= 2
                return n_releases
        raise AssertionError

    assert count("basic", tight=False) == 8
    assert count("tight", tight=True) > 8


def test_deltas_count(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", 10, 1e-3)
    reserve(ledger, delta=6e-4)
    with pytest.raises(LedgerError):
        reserve(ledger, delta=6e-4)
    reserve(ledger, delta=3e-4)


def test_a_cancelled_release_gives_its_budget_back(ledger: Ledger, where: str) -> None:
    first = reserve(ledger, 3)
    first.cancel()
    assert ledger.releases()[0].status == "cancelled"
    second = reserve(ledger, 3)
    second.keep("drawn", some_drawn(second))
    with pytest.raises(LedgerError, match="its budget stays spent"):
        second.cancel()
    assert Ledger(where).verify() == []


def test_of_two_runs_one_draws(ledger: Ledger) -> None:
    one = reserve(ledger)
    other = ledger.resume(one.release_id)
    one.keep("drawn", some_drawn(one))
    with pytest.raises(LedgerError, match="another run is finishing"):
        other.keep("drawn", some_drawn(other))
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
    problems = Ledger(where).verify()
    assert any(problem in one for one in problems), problems
    if "secrets" not in statement:
        with pytest.raises(LedgerError, match="was edited"):
            Ledger(where).show()
        with pytest.raises(LedgerError, match="was edited"):
            reserve(ledger)


def test_a_shortened_or_rewritten_history_is_noticed_by_its_hash(
    ledger: Ledger, where: str
) -> None:
    finish(reserve(ledger))
    head = ledger.head().hash
    finish(reserve(ledger))
    assert Ledger(where).verify(head) == []
    edit(where, "delete from clusterdp_entries where number >= 2")
    edit(where, "delete from clusterdp_secrets")
    assert any("history was changed" in one for one in Ledger(where).verify(head))


def test_keys_do_not_outlive_their_release(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = Ledger.create(str(path), 3)
    reservation = reserve(ledger)
    secret = reservation.key.expose()
    reservation.keep("drawn", some_drawn(reservation))
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
    ledger = Ledger.create(where, 3, **given)
    with pytest.raises(LedgerError, match=f"are encrypted; give its {kind}"):
        reserve(Ledger(where))
    with pytest.raises(LedgerError, match=f"this is not the ledger's {kind}"):
        Ledger(where, **wrong)
    reservation = reserve(ledger)
    reservation.keep("drawn", some_drawn(reservation))
    kept = stored_secrets(where, reservation.release_id)
    assert kept is not None
    assert reservation.key.expose() not in kept.key
    assert kept.drawn is not None
    assert not kept.drawn.startswith(b"PK")
    again = Ledger(where, **given)
    assert again.resume(reservation.release_id).key == reservation.key


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_key_cannot_be_moved_to_another_release(
    encrypted: bool, where: str, tmp_path: Path
) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(64)))
    key_file.chmod(0o600)
    ledger = Ledger.create(where, 3, key_file=key_file if encrypted else None)
    first, second = reserve(ledger), reserve(ledger)
    edit(
        where,
        "update clusterdp_secrets set key = (select key from clusterdp_secrets where release_id = "
        f"'{first.release_id}') where release_id = '{second.release_id}'",
    )
    with pytest.raises(LedgerError, match="its key was changed"):
        ledger.resume(second.release_id)
    (problem,) = ledger.verify()
    assert "its key was changed" in problem


def test_places_that_are_no_ledger(tmp_path: Path, where: str) -> None:
    if "://" in where:
        with pytest.raises(LedgerError, match="is not a ledger"):
            Ledger(where)
        Ledger.create(where, 1)
        with pytest.raises(LedgerError, match="there is a ledger already"):
            Ledger.create(where, 1)
        return
    with pytest.raises(LedgerError, match=r"(?i)there is no ledger .*budget\.db"):
        Ledger(where)
    Ledger.create(where, 1)
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(where, 1)
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
        Ledger.create(str(tmp_path / "l"), cap[0], cap[1])
    assert not list(tmp_path.iterdir())
