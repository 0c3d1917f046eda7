"""SIGKILL at random points of ledgered releases, then resume."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import clusterdp as cdp
from categories import one_outcome
from clusterdp.errors import ClusterDPError
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import DRAWN, LOOKED, Event, NoJournal, pack_entry
from clusterdp.releasing.prepare import OpenTable
from clusterdp.releasing.prepare import prepare as prepare_release
from clusterdp.releasing.stages import run as run_pipeline
from clusterdp.releasing.targets import FolderTarget
from clusterdp.spec.columns import Columns
from clusterdp.storage.folder import LocalFolder
from released import Drawn, drawn_of
from runs import spec_for
from soak.owner import Owner, release_options, run, write_table
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.engines.base import Engine
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.statistics.pilot import DrawnPilot

# One for each kind of channel and of statistics.
_MECHANISMS = (
    ("--epsilon", "2"),
    ("--epsilon", "2", "--mechanism", "cluster-dp", "--noise-scale", "8", "--prior-floor", "0.05"),
    ("--epsilon", "2", "--mechanism", "uniform-prior-dp"),
    ("--epsilon", "2", "--pilot", "0.1"),
)


_SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 5))


@dataclass(slots=True)
class _Tally:
    before: int = 0
    resumed: int = 0
    published: int = 0
    finished: int = 0
    lost: list[str] = field(default_factory=list)
    overspent: int = 0
    partial: int = 0


def run_kills(
    n_kills: int,
    n_rows: int,
    rng: np.random.Generator,
    folder: Path,
    report: Callable[[int], None] = lambda _: None,
) -> Line:
    """Kill releases, resume them, and compare with undisturbed runs.

    Args:
        n_kills: How many.
        n_rows: How large their table is.
        rng: When to kill.
        folder: Where to work.
        report: Called after each.
    """
    source = write_table(folder / "table.parquet", n_rows)
    where = folder / "budget.db"
    Ledger.create(str(where), 2)
    seconds = [
        _undisturbed(_command(source, folder / f"whole-{name}", where, f"whole-{name}"), options)
        for name, options in enumerate(_MECHANISMS)
    ]
    tally = _Tally()
    for kill in range(n_kills):
        name, target = f"people-{kill}", folder / f"out-{kill}"
        kind = kill % len(_MECHANISMS)
        owner = Owner(*_command(source, target, where, name), *_MECHANISMS[kind])
        owner.begin()
        time.sleep(rng.uniform(0, 1.05 * seconds[kind]))
        owner.kill()
        owner.wait()
        _judge(tally, str(where), name, target, source)
        report(kill + 1)
    problems = Ledger(str(where)).verify()
    return Line(
        trial="SIGKILL at random points, then resume",
        runs=n_kills,
        faults=n_kills - tally.finished,
        lost=len(tally.lost) + len(problems),
        overspent=tally.overspent,
        partial=tally.partial,
        details=(
            f"{tally.before} killed before the reservation, {tally.resumed} after it and resumed, "
            f"{tally.published} between publishing and committing, {tally.finished} too late; "
            f"{n_rows:,} rows" + "".join(f"; {text}" for text in tally.lost[:3])
        ),
    )


def _command(source: Path, target: Path, where: Path, population: str) -> list[str]:
    ledger = ["--ledger", str(where), "--population", population, "--new-population"]
    return [*release_options(source, target), *ledger]


def _undisturbed(command: list[str], options: tuple[str, ...]) -> float:
    """How long a release takes from when it is ready until it is published."""
    target = Path(command[command.index("--out") + 1])
    owner = Owner(*command, *options)
    begun = time.perf_counter()
    owner.begin()
    while not target.exists() and owner.runs():
        time.sleep(0.001)
    seconds = time.perf_counter() - begun
    code, told = owner.wait()
    assert code == 0, told
    return seconds


def _judge(tally: _Tally, where: str, population: str, target: Path, source: Path) -> None:
    """What the kill left behind, and what resuming makes of it."""
    ledger = Ledger(where)
    found = [one for one in ledger.releases() if one.population == population]
    if not found:
        tally.before += 1
        tally.partial += target.exists()
        return
    (record,) = found
    if record.status == "committed":
        tally.finished += 1
        tally.lost += _problems(target)
        return
    reservation = ledger.resume(record.release_id)
    key, kept = reservation.key, reservation.recall("drawn")
    if target.exists():
        tally.published += 1
    else:
        tally.resumed += 1
        tally.partial += sum(_is_accepted(left) for left in target.parent.glob(f".{target.name}*"))
    code, told = run("release", "--resume", record.release_id, "--ledger", where)
    if code != 0:
        tally.lost.append(told.strip())
        return
    balance = ledger.balance(population)
    once = [(one.release_id, one.status) for one in balance.spent] == [
        (record.release_id, "committed")
    ]
    tally.overspent += not once or balance.basic != record.guarantee
    tally.lost += _problems(target)
    if kept is not None and not _same_statistics(kept, target):
        tally.lost.append("other noise than was drawn")
    (now,) = balance.releases
    tally.lost += differences(target, undisturbed_run(target, source, key, now))


def _is_accepted(folder: Path) -> bool:
    try:
        cdp.read_release(folder)
    except ClusterDPError:
        return False
    return True


def _problems(target: Path) -> list[str]:
    return [check.problem for check in verify_folder(target) if check.problem]


def _same_statistics(kept: bytes, target: Path) -> bool:
    published = cdp.read_release(target)
    drawn = drawn_of(kept, published)
    for ours, theirs in zip(
        drawn.questions[0].statistics, published.questions[0].statistics, strict=True
    ):
        one, other = ours.arrays(), theirs.arrays()
        if one.keys() != other.keys():
            return False
        if not all(np.array_equal(one[name], other[name]) for name in one):
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(NoJournal):
    """The journal of an undisturbed run, with a key and noise that are known."""

    rows_by: ReleaseKey
    drawn: Drawn
    pilots: tuple[DrawnPilot | None, ...] = ()

    @property
    def row_key(self) -> ReleaseKey:
        """The key of rows."""
        return self.rows_by

    def recall(self, event: Event) -> bytes | None:
        """The noise; or the pilots, if there are some.

        Nobody asks which table pilots are of: all was drawn.
        """
        if event == DRAWN:
            return bytes(self.drawn)
        noisy = {str(at): one.noisy_counts for at, one in enumerate(self.pilots) if one is not None}
        return pack_entry(noisy, b"") if noisy and event == LOOKED else None


def prepare(source: Path, engine: Engine | None = None) -> OpenTable:
    """The table of a trial; by default the local engine reads it."""
    columns = Columns(
        unit="user",
        arm="treated",
        cluster="market",
        outcomes=("clicks",),
        kept=("tier",),
        folds=2,
    )
    return prepare_release(source, columns=columns, spaces=(_SPACE,), engine=engine)


def undisturbed_run(
    target: Path,
    source: Path,
    key: ReleaseKey,
    record: ReleaseRecord,
    engine: Engine | None = None,
) -> Path:
    """What an engine publishes undisturbed, with the key and the noise of a release."""
    again = target.with_name(f"{target.name}-again")
    publish_again(cdp.read_release(target), prepare(source, engine), key, record, again)
    return again


def publish_again(
    published: cdp.Release, prepared: OpenTable, key: ReleaseKey, record: ReleaseRecord, again: Path
) -> None:
    """Publish a release once more on a disk, undisturbed, with its key and its noise.

    Args:
        published: The release.
        prepared: Its table.
        key: Its key.
        record: What the ledger says of it now.
        again: Where to publish it.
    """
    seen = prepared.count().seen
    drawn = Drawn(published.questions, key.tag(seen))
    journal = Replay(
        key=key,
        rows_by=key.for_attempt(record.n_attempts),
        drawn=drawn,
        pilots=published.pilots,
    )
    spec = spec_for(prepared, record.terms.mechanisms, published.provenance)
    run_pipeline(prepared, spec, FolderTarget(LocalFolder(again)), journal=journal)


def differences(one: Path, other: Path) -> list[str]:
    """The files in which two folders are not alike."""
    names = {path.name for path in one.iterdir()} | {path.name for path in other.iterdir()}
    return [
        f"{name} differs from an undisturbed run's"
        for name in sorted(names)
        if (one / name).read_bytes() != (other / name).read_bytes()
    ]
