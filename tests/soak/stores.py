"""SIGKILL of releases from a store into a store, then resume; and owners that race for a place."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import clusterdp as cdp
from clusterdp.errors import ClusterDPError
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from clusterdp.storage.folder import CLAIM, MANIFEST
from clusterdp.storage.store_folder import StoreFolder
from soak.kills import prepare, publish_again
from soak.owner import Owner, release_options, run, write_table
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import numpy as np

    from clusterdp.ledger.history import ReleaseRecord
    from soak.s3 import Bucket, Server

# One with counts that are drawn, and one whose channels are designed from them.
_MECHANISMS = (
    ("--epsilon", "2"),
    ("--epsilon", "2", "--mechanism", "cluster-dp", "--noise-scale", "8", "--prior-floor", "0.05"),
)
# How the owner who was too late is told.
_TAKEN = ("another run is publishing at", "exists already")


@dataclass(slots=True)
class _Tally:
    """How kills ended.

    Attributes:
        before: Nothing was reserved.
        hidden: Reserved, and nothing was visible in the store; resumed.
        claimed: The claim alone was visible; resumed.
        partial: Files were visible without a manifest; resumed.
        published: Published, and not committed; committed when it was resumed.
        finished: The kill came too late.
        lost: What could not be finished, or came out other than undisturbed.
        overspent: Budgets that were not spent once.
        accepted: Places that were taken for a release, or for free, and were neither.
    """

    before: int = 0
    hidden: int = 0
    claimed: int = 0
    partial: int = 0
    published: int = 0
    finished: int = 0
    lost: list[str] = field(default_factory=list)
    overspent: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class _Trial:
    """What kills of releases have in common."""

    server: Server
    bucket: Bucket
    folder: Path
    source: Path
    tally: _Tally

    @property
    def where(self) -> str:
        return str(self.folder / "budget.db")

    def command(self, name: str, kind: int) -> list[str]:
        ledger = ["--ledger", self.where, "--population", name, "--new-population"]
        uploaded = f"{self.bucket.uri}/table.parquet"
        place = f"{self.bucket.uri}/{name}"
        return [*release_options(uploaded, place), *ledger, *_MECHANISMS[kind]]

    def n_written(self, name: str) -> int:
        """How often a release has written to its place."""
        path = f"/{self.bucket.name}/{name}/"
        asked = self.server.requests(self.bucket)
        return sum(one.path.startswith(path) and one.method in {"PUT", "POST"} for one in asked)


def run_store_kills(
    n_kills: int,
    n_rows: int,
    rng: np.random.Generator,
    folder: Path,
    server: Server,
    *,
    report: Callable[[int], None] = lambda _: None,
) -> Line:
    """Kill releases, resume them, and compare them with undisturbed runs on a disk.

    Every other kill comes at a random time, and the others at a random request of those that write:
    they take a small part of a run.

    Args:
        n_kills: How many.
        n_rows: How large their table is.
        rng: When to kill.
        folder: Where to work.
        server: The store.
        report: Called after each.
    """
    scratch = folder / "scratch"
    scratch.mkdir()
    with _variables({**server.environment(), "TMPDIR": str(scratch)}):
        trial = _Trial(
            server=server,
            bucket=server.new_bucket(),
            folder=folder,
            source=write_table(folder / "table.parquet", n_rows),
            tally=_Tally(),
        )
        trial.bucket.put("table.parquet", trial.source.read_bytes())
        Ledger.create(trial.where, 2)
        kinds = [kill // 2 % len(_MECHANISMS) for kill in range(n_kills)]
        whole = {kind: _undisturbed(trial, kind) for kind in set(kinds)}
        for kill, kind in enumerate(kinds):
            name, (seconds, n_writes) = f"people-{kill}", whole[kind]
            owner = Owner(*trial.command(name, kind))
            owner.begin()
            if kill % 2:
                _await_writes(trial, owner, name, int(rng.integers(1, n_writes + 1)))
            else:
                time.sleep(rng.uniform(0, 1.05 * seconds))
            owner.kill()
            owner.wait()
            _judge(trial, name)
            report(kill + 1)
        left = [path.name for path in scratch.iterdir()]
        return _line(trial, n_kills, n_rows, left)


def _line(trial: _Trial, n_kills: int, n_rows: int, left: list[str]) -> Line:
    tally, problems = trial.tally, Ledger(trial.where).verify()
    lost = [*tally.lost, *problems, *(f"{name} was left on this machine" for name in left)]
    return Line(
        trial="SIGKILL of releases into a store, then resume",
        runs=n_kills,
        faults=n_kills - tally.finished,
        lost=len(lost),
        overspent=tally.overspent,
        partial=tally.accepted,
        details=(
            f"{tally.before} killed before the reservation, {tally.hidden} with nothing visible, "
            f"{tally.claimed} with the claim alone, {tally.partial} with some files, all resumed; "
            f"{tally.published} between publishing and committing, {tally.finished} too late; "
            f"{trial.bucket.unfinished_uploads()} uploads in parts left to the store; "
            f"{n_rows:,} rows" + "".join(f"; {text}" for text in lost[:3])
        ),
    )


def _undisturbed(trial: _Trial, kind: int) -> tuple[float, int]:
    """How long a release takes, and how often it writes."""
    name = f"whole-{kind}"
    owner = Owner(*trial.command(name, kind))
    begun = time.perf_counter()
    owner.begin()
    code, told = owner.wait()
    assert code == 0, told
    return time.perf_counter() - begun, trial.n_written(name)


def _await_writes(trial: _Trial, owner: Owner, name: str, n_writes: int) -> None:
    while owner.runs() and trial.n_written(name) < n_writes:
        time.sleep(0.005)


def _judge(trial: _Trial, name: str) -> None:
    """What the kill left behind, and what resuming makes of it."""
    tally, ledger = trial.tally, Ledger(trial.where)
    visible, place = trial.bucket.names(name), f"{trial.bucket.uri}/{name}"
    found = [one for one in ledger.releases() if one.population == name]
    if not found:
        tally.before += 1
        tally.overspent += bool(visible)
        return
    (record,) = found
    if record.status == "committed":
        tally.finished += 1
        tally.lost += _problems(place)
        return
    _count_state(trial, visible, record, place)
    key = ledger.resume(record.release_id).key
    code, told = run("release", "--resume", record.release_id, "--ledger", trial.where)
    if code != 0:
        tally.lost.append(told.strip())
        return
    (spent,) = ledger.balance(name).spent
    tally.overspent += spent.status != "committed"
    tally.overspent += ledger.balance(name).basic != record.guarantee
    tally.lost += _problems(place)
    again = trial.folder / f"{name}-again"
    publish_again(cdp.read_release(place), prepare(trial.source), key, spent, again)
    whole = {path.name: path.read_bytes() for path in again.iterdir()}
    if trial.bucket.read(name) != whole:
        tally.lost.append(f"{name} differs from an undisturbed run")


def _count_state(trial: _Trial, visible: set[str], record: ReleaseRecord, place: str) -> None:
    """Files are visible only of what is spent, and are no release without a manifest."""
    tally = trial.tally
    tally.overspent += bool(visible - {CLAIM}) and record.drawn_sha256 is None
    if MANIFEST in visible:
        tally.published += 1
        return
    tally.accepted += _is_accepted(place)
    tally.accepted += bool(visible) and not _is_refused(place)
    tally.hidden += not visible
    tally.claimed += visible == {CLAIM}
    tally.partial += len(visible) > 1


def _is_accepted(place: str) -> bool:
    try:
        cdp.read_release(place)
    except ClusterDPError:
        return False
    return True


def _is_refused(place: str) -> bool:
    """Whether another owner cannot publish there."""
    try:
        StoreFolder.at(place).check_free("somebody else's claim")
    except ClusterDPError:
        return True
    return False


def _problems(place: str) -> list[str]:
    return [check.problem for check in verify_folder(place) if check.problem]


def run_store_race(n_rounds: int, n_owners: int, folder: Path, server: Server) -> Line:
    """Let owners on machines of their own, with ledgers of their own, race for one place.

    Args:
        n_rounds: How many places they race for.
        n_owners: How many they are.
        folder: Where to work.
        server: The store.
    """
    source = write_table(folder / "race.parquet", 5000)
    lost: list[str] = []
    n_won = n_partial = 0
    with _variables(server.environment()):
        bucket = server.new_bucket()
        for number in range(n_rounds):
            place = f"{bucket.uri}/round-{number}"
            owners, ledgers = [], []
            for owner in range(n_owners):
                own = folder / f"round-{number}-{owner}"
                own.mkdir()
                ledgers.append(str(own / "budget.db"))
                Ledger.create(ledgers[-1], 2)
                options = ("--epsilon", "1", "--ledger", ledgers[-1], "--population", "p")
                command = [*release_options(source, place), *options, "--new-population"]
                owners.append(Owner(*command, environment={"TMPDIR": str(own)}))
            for one in owners:
                one.begin()
            ended = [one.wait() for one in owners]
            winners = [code == 0 for code, _ in ended]
            n_won += sum(winners)
            lost += [] if sum(winners) == 1 else [f"{sum(winners)} owners won"]
            lost += [
                told for code, told in ended if code and not any(text in told for text in _TAKEN)
            ]
            n_partial += len(_problems(place))
            lost += _finish_elsewhere(ledgers, winners, place)
    return Line(
        trial=f"{n_owners} owners race for one place in a store",
        runs=n_rounds * n_owners,
        faults=0,
        lost=len(lost),
        overspent=0,
        partial=n_partial,
        details=f"{n_won} won {n_rounds} places, the others were told so and published elsewhere"
        + "".join(f"; {text}" for text in lost[:3]),
    )


def _finish_elsewhere(ledgers: list[str], winners: list[bool], place: str) -> list[str]:
    """What is wrong with the ledgers of a race; those who lost publish at another place."""
    problems = []
    for number, (where, won) in enumerate(zip(ledgers, winners, strict=True)):
        records = Ledger(where).releases()
        if won:
            problems += [] if [one.status for one in records] == ["committed"] else ["not recorded"]
            continue
        for record in records:  # none if the place was taken before it was reserved
            other = f"{place}-{number}"
            code, told = run(
                "release", "--resume", record.release_id, "--ledger", where, "--out", other
            )
            problems += [told] if code else _problems(other)
    return problems


@contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for as long as the block lasts."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
