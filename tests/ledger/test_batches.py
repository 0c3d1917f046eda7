"""Batches of new units: the largest loss of any person, and which batches a ledger rejects."""

from __future__ import annotations

import threading
from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp
from categories import one_question
from clusterdp.errors import LedgerError
from clusterdp.ledger.balance import Balance
from clusterdp.ledger.history import ReleaseRecord
from clusterdp.ledger.ledger import Ledger
from clusterdp.privacy.accounting import Guarantee
from ledger_runs import SPACE, some_drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np

    from clusterdp.ledger.reservation import Reservation


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", 3)


def manifest(name: str) -> bytes:
    return f"the manifest of {name}".encode()


def checksum(name: str) -> str:
    return sha256(manifest(name)).hexdigest()


def reserve(
    ledger: Ledger,
    epsilon: float = 1,
    *earlier: str,
    population: str = "us",
    answers: str | None = None,
) -> Reservation:
    """A reservation that continues earlier releases, by their names."""
    mechanism = cdp.cluster_dp(noise_scale=20, prior_floor=0.05, epsilon=epsilon)
    return ledger.reserve(
        population,
        terms=one_question(SPACE, mechanism),
        about={},
        place="x",
        continues=[checksum(name) for name in earlier],
        answers=None if answers is None else checksum(answers),
    )


def publish(
    ledger: Ledger, name: str, epsilon: float = 1, *earlier: str, **more: Any
) -> Reservation:
    reservation = reserve(ledger, epsilon, *earlier, **more)
    reservation.keep("drawn", some_drawn(reservation))
    reservation.seal(manifest(name))
    reservation.commit(name)
    return reservation


def spent(ledger: Ledger) -> float:
    """ε of the largest loss, without what rounding up adds to a mechanism's."""
    return round(ledger.balance("us").basic.epsilon, 6)


def test_many_batches_cost_what_one_does(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", 3, 1e-6)
    weeks: list[str] = []
    for week in range(8):
        publish(ledger, f"week{week}", 2, *weeks)
        weeks.append(f"week{week}")
        if week == 0:
            once, tight = ledger.balance("us").basic, ledger.balance("us").tight_epsilon()
    balance = ledger.balance("us")
    assert balance.basic == once
    assert balance.tight_epsilon() == tight
    assert balance.remaining == pytest.approx(1, abs=1e-6)
    assert "7 releases have new units only" in " ".join(str(ledger.show()).split())
    # Outside of the chain, everybody may have lost as much.
    publish(ledger, "a survey", 0.5)
    assert spent(ledger) == pytest.approx(2.5)
    with pytest.raises(LedgerError, match="not enough budget"):
        reserve(ledger, 1)
    assert ledger.verify() == []


def test_the_largest_batch_counts_with_its_answers(ledger: Ledger) -> None:
    publish(ledger, "week1", 1)
    publish(ledger, "week2", 1.5, "week1")
    assert spent(ledger) == 1.5
    publish(ledger, "answer", 0.25, answers="week1")
    assert spent(ledger) == 1.5
    publish(ledger, "another answer", 0.5, answers="week1")
    assert spent(ledger) == 1.75
    publish(ledger, "outside", 1)
    assert spent(ledger) == 2.75
    # People of week 2 have lost less, and may lose more.
    assert round(ledger.balance("us").answering(checksum("week2")).remaining, 4) == 0.5
    assert round(ledger.balance("us").answering(checksum("week1")).remaining, 4) == 0.25
    publish(ledger, "yet another", 0.5, answers="week2")
    assert spent(ledger) == 3
    with pytest.raises(LedgerError, match="has no release about 'us' with the manifest"):
        ledger.balance("us").answering(checksum("week9"))


def test_a_batch_spends_what_its_people_have_left(ledger: Ledger) -> None:
    publish(ledger, "week1", 2.5)
    publish(ledger, "outside", 0.5)
    assert ledger.balance("us").remaining == pytest.approx(0, abs=1e-4)
    balance = ledger.balance("us").continuing([checksum("week1")])
    assert round(balance.remaining, 4) == 2.5
    with pytest.raises(LedgerError, match=r"needs ε = 2\.75.* and 2\.\d* of 3 remains"):
        reserve(ledger, 2.75, "week1")
    publish(ledger, "week2", 2.5, "week1")
    assert spent(ledger) == 3


def test_what_cannot_be_continued(ledger: Ledger) -> None:
    publish(ledger, "week1")
    publish(ledger, "week2", 1, "week1")
    publish(ledger, "another experiment")
    publish(ledger, "theirs", population="them")
    cases: dict[tuple[str, ...], str] = {
        ("week1",): r"lack the one published at .*week2\. No .* Fix: name it in continues",
        ("week2",): r"lack the one published at .*week1\. No .* Fix: name it in continues",
        ("week1", "week2", "another experiment"): "do not continue each other",
        ("week1", "week2", "nothing"): "has no release about 'us' with the manifest",
        ("theirs",): "has no release about 'us' with the manifest",
    }
    before = ledger.head()
    for earlier, reason in cases.items():
        with pytest.raises(LedgerError, match=reason):
            reserve(ledger, 0.5, *earlier)
    assert ledger.head() == before
    # An answer is about people of a batch, and no batch itself.
    publish(ledger, "answer", 0.25, answers="week1")
    with pytest.raises(LedgerError, match="has no release about 'us' with the manifest"):
        reserve(ledger, 0.5, "week1", "week2", "answer")
    # In any order, which the ledger has from its history.
    record = publish(ledger, "week3", 1, "week2", "week1").record
    assert record.continues == (checksum("week1"), checksum("week2"))


def test_one_batch_is_open_at_a_time(ledger: Ledger) -> None:
    publish(ledger, "week1")
    first = reserve(ledger, 1, "week1")
    with pytest.raises(LedgerError, match=f"batch {first.release_id} .* is unfinished"):
        reserve(ledger, 1, "week1")
    first.cancel()
    second = reserve(ledger, 1, "week1")
    assert spent(ledger) == 1
    # Nobody can check who was in a batch that was closed: the next one adds to it.
    ledger.close(second.release_id)
    assert spent(ledger) == 1
    reserve(ledger, 1, "week1")
    assert spent(ledger) == 2
    assert ledger.verify() == []


def test_of_two_owners_one_continues(tmp_path: Path) -> None:
    where = tmp_path / "budget.db"
    publish(Ledger.create(where, 3), "week1")
    ready, done = threading.Barrier(4), list[str]()

    def race() -> None:
        ledger = Ledger(where)
        ready.wait()
        try:
            done.append(reserve(ledger, 1, "week1").release_id)
        except LedgerError as error:
            done.append(str(error))

    owners = [threading.Thread(target=race) for _ in range(4)]
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join()
    open_ones = [one.release_id for one in Ledger(where).releases() if one.is_unfinished]
    assert len(open_ones) == 1
    assert sum(said in open_ones for said in done) == 1
    assert sum("is unfinished" in said for said in done) == 3


@pytest.mark.parametrize("bug", ["overlapping", "incomplete", "of two chains"])
def test_planted_a_history_of_batches_that_could_overlap_is_noticed(
    bug: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("week1", "another experiment"):
        publish(ledger, name, 0.5)
    publish(ledger, "week2", 0.5, "week1")
    monkeypatch.setattr(Balance, "_chain_problem", lambda *_: None)
    earlier = {
        "overlapping": ("week1", "week2"),
        "incomplete": ("week1",),
        "of two chains": ("week1", "week2", "another experiment"),
    }[bug]
    if bug == "overlapping":
        reserve(ledger, 0.5, *earlier)
    publish(ledger, "week3", 0.5, *earlier)
    problem = "does not continue all earlier batches of its chain"
    assert [problem in one for one in ledger.verify()] == [True]
    with pytest.raises(LedgerError, match=problem):
        reserve(ledger, 0.5)


def test_a_history_is_what_its_people_can_have_lost(rng: np.random.Generator) -> None:
    """Of many histories, against all sets of releases that may share a person."""
    n_chained = 0
    for _ in range(300):
        records, disjoint = some_history(rng)
        balance = Balance(
            population="us", cap=Guarantee(epsilon=50), tight=False, releases=tuple(records)
        )
        counted = balance.spent
        assert balance.basic.epsilon == largest_loss(counted, disjoint)
        n_chained += balance.basic.epsilon < sum(one.guarantee.epsilon for one in counted)
    assert n_chained > 100


def test_what_people_of_one_release_have_lost(rng: np.random.Generator) -> None:
    """What one more answer about a release adds to, and one more batch of a chain."""
    n_less = 0
    for _ in range(150):
        records, disjoint = some_history(rng)
        balance = Balance(
            population="us", cap=Guarantee(epsilon=50), tight=False, releases=tuple(records)
        )
        whole = balance.basic.epsilon
        for one in balance.spent:
            if one.manifest_sha256 and one.answers is None:
                theirs = [other for other in balance.spent if not disjoint(one, other)]
                lost = balance.answering(one.manifest_sha256).basic.epsilon
                assert lost == largest_loss(theirs, disjoint)
                n_less += lost < whole
        for chain in balance.chains:
            batches = [one for one in chain if one.manifest_sha256 and one.answers is None]
            if not batches:
                continue
            # New units: of all that was published of the chain, nobody is in the next batch.
            named = [str(one.manifest_sha256) for one in batches]
            apart = {*named, *(one.release_id for one in chain if one.answers in named)}
            left = [one for one in balance.spent if one.release_id not in apart]
            lost = balance.continuing(named).basic.epsilon
            assert lost == largest_loss(left, disjoint)
            n_less += lost < whole
    assert n_less > 100


def largest_loss(
    releases: Sequence[ReleaseRecord], disjoint: Callable[[ReleaseRecord, ReleaseRecord], bool]
) -> float:
    """Of all sets of releases no two of which are known to share nobody, the largest Σε."""
    found = 0.0
    for size in range(1, len(releases) + 1):
        for some in combinations(releases, size):
            if not any(disjoint(*pair) for pair in combinations(some, 2)):
                found = max(found, sum(one.guarantee.epsilon for one in some))
    return found


def some_history(
    rng: np.random.Generator,
) -> tuple[list[ReleaseRecord], Callable[[ReleaseRecord, ReleaseRecord], bool]]:
    """A history that a ledger allows, and who is known to be in no two of its releases."""
    records: list[ReleaseRecord] = []
    chains: list[list[str]] = []
    units: dict[str, str] = {}  # whose people a release is about
    apart: set[frozenset[str]] = set()
    for number in range(8):
        name, status = f"r{number}", rng.choice(["committed", "committed", "closed", "cancelled"])
        content: dict[str, Any] = {}
        kind, earlier = rng.choice(["release", "batch", "batch", "answer"]), list[str]()
        if not chains:
            kind = "release"
        chain = [] if kind == "release" else chains[int(rng.integers(len(chains)))]
        if kind == "answer":
            content["answers"] = str(rng.choice(chain))
        elif kind == "batch":
            earlier = list(chain)
            content["continues"] = earlier
        units[name] = content.get("answers", name)
        apart |= {frozenset((name, one)) for one in earlier}
        is_committed = status == "committed"
        if kind != "answer" and is_committed:
            if kind == "release":
                chains.append([name])
            else:
                chain.append(name)
        record = ReleaseRecord(
            release_id=name,
            population="us",
            status=str(status),
            at="",
            who="",
            content=content,
            manifest_sha256=name if is_committed else None,
        )
        record.__dict__["guarantee"] = Guarantee(epsilon=int(rng.integers(1, 9)) / 4)
        records.append(record)

    def disjoint(one: ReleaseRecord, other: ReleaseRecord) -> bool:
        return frozenset((units[one.release_id], units[other.release_id])) in apart

    return records, disjoint
