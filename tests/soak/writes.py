"""SIGKILL at the writes of ledgered releases: what is on disk is what the ledger says.

After each kill the release is resumed, resumed elsewhere, resumed with another table, or ended.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

import clusterdp as cdp
from clusterdp.errors import LedgerError
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from clusterdp.storage.folder import UNITS
from soak.deadly import DEADLY, LISTED, TABLE
from soak.kills import differences, undisturbed_run
from soak.owner import Owner, release_options, write_table
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np

    from clusterdp.ledger.history import ReleaseRecord

# Releases of one pass, of one pass after a pilot, of two passes, of two after labels were given,
# and of two questions.
MECHANISMS = (
    ("--epsilon", "2", "--mechanism", "uniform-prior-dp"),
    ("--epsilon", "2", "--pilot", "0.1"),
    ("--epsilon", "2", "--mechanism", "cluster-dp", "--noise-scale", "8", "--prior-floor", "0.05"),
    ("--epsilon", "2", "--private-cluster", "0.5", "--labels", ",".join(map(str, range(50)))),
    ("--epsilon", "2", "--outcome", "visits=0..5", "--question", "clicks", "--question", "visits"),
)
# Of the rows of two tables by one key, all would agree but for the people whose outcomes changed.
# By two keys, each agrees with probability below 0.9 at this epsilon.
_SAME_KEY = 0.98


class _Killed(NamedTuple):
    """A release that was killed.

    Attributes:
        record: What the ledger says of it.
        target: Where it was going to be published.
        rows: The rows that it left, if they can be read.
    """

    record: ReleaseRecord
    target: Path
    rows: pl.DataFrame | None


@dataclass(slots=True)
class _Trial:
    """What kills have in common, and how they ended."""

    folder: Path
    source: Path
    changed: Path
    ends: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    overspent: int = 0

    @property
    def where(self) -> str:
        return str(self.folder / "budget.db")

    def kill(self, name: str, mechanism: tuple[str, ...], deadly: int) -> Path:
        """Kill a release at a write, or at none if that is 0; where it was to be published."""
        target = self.folder / name / "out"
        target.parent.mkdir()
        paid = ("--ledger", self.where, "--population", name, "--new-population")
        listed = {LISTED: str(self.folder / "listed"), DEADLY: str(deadly)}
        owner = Owner(*release_options(self.source, target), *paid, *mechanism, environment=listed)
        owner.begin()
        code, told = owner.wait()
        assert code in ({0} if deadly == 0 else {0, -9}), told
        return target

    def note(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1


def run_write_kills(
    n_kills: int,
    n_rows: int,
    rng: np.random.Generator,
    folder: Path,
    report: Callable[[int], None] = lambda _: None,
) -> Line:
    """Kill releases at writes that are spread over each, and go on with what they left.

    Args:
        n_kills: How many.
        n_rows: How large their table is.
        rng: At which writes, and what follows.
        folder: Where to work.
        report: Called after each.
    """
    source = write_table(folder / "table.parquet", n_rows)
    changed = folder / "changed.parquet"
    one_person = pl.when(pl.col("user") == n_rows // 2).then(5 - pl.col("clicks"))
    pl.read_parquet(source).with_columns(clicks=one_person.otherwise("clicks")).write_parquet(
        changed
    )
    trial = _Trial(folder, source, changed)
    Ledger.create(trial.where, 4)
    writes = []
    for number, mechanism in enumerate(MECHANISMS):
        trial.kill(f"whole-{number}", mechanism, 0)
        writes.append((folder / "listed").read_text().splitlines())
    for number, (kind, deadly) in enumerate(_points(n_kills, writes, rng)):
        target = trial.kill(f"people-{number}", MECHANISMS[kind], deadly)
        _judge(trial, target, int(rng.integers(4)))
        report(number + 1)
    trial.wrong += Ledger(trial.where).verify()
    ended = ", ".join(f"{count} {end}" for end, count in sorted(trial.ends.items()))
    return Line(
        trial="SIGKILL at a write, then resume, another table, or an end",
        runs=n_kills,
        faults=n_kills,
        lost=len(trial.wrong),
        overspent=trial.overspent,
        partial=0,
        details=f"{ended}; of {[*map(len, writes)]} writes"
        + "".join(f"; {one}" for one in trial.wrong[:3]),
    )


def _points(
    n_kills: int, writes: list[list[str]], rng: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """A mechanism and a write for every kill: every other one while rows are written."""
    for number in range(n_kills):
        kind = number % len(MECHANISMS)
        names = writes[kind]
        first = names.index(TABLE)
        last = next(place for place in range(first, len(names)) if names[place] != TABLE)
        rows = number // len(MECHANISMS) % 2 == 0
        yield kind, int(rng.integers(first + 1, last + 1) if rows else rng.integers(1, len(names)))


def _judge(trial: _Trial, target: Path, choice: int) -> None:
    """Compare what is on disk with what the ledger says, and go on in one of four ways."""
    population = target.parent.name
    ledger = Ledger(trial.where)
    found = [one for one in ledger.releases() if one.population == population]
    left = [
        path for path in target.parent.rglob("*") if path.is_file() and target not in path.parents
    ]
    if not found:
        trial.note("killed before the reservation")
        trial.wrong += [f"{path.name} is off the record" for path in left]
        return
    (record,) = found
    kinds = {".parquet", ".arrow", ".ipc"}
    drawn = [path for path in left if path.suffix in kinds or path.name == ".hidden"]
    if drawn and not record.has_drawn:
        trial.wrong.append(f"{drawn[0].name} was drawn, and the ledger says {record.status}")
    shown = str(ledger.show(population))
    if record.has_drawn and "It drew nothing" in shown:
        trial.wrong.append("the ledger says that nothing was drawn")
    killed = _Killed(record, target, _readable(target))
    if record.status == "committed":
        trial.note("finished")
    elif choice == 0 or target.exists():
        _resume(trial, killed, target)
    elif choice == 1:
        _resume(trial, killed, target.with_name("elsewhere"))
    elif choice == 2:
        _resume_changed(trial, killed)
    else:
        _end(trial, killed)
    _check_left(trial, target.parent)


def _readable(target: Path) -> pl.DataFrame | None:
    """The rows that a killed run left, if their file is complete."""
    try:
        return pl.read_parquet(target.with_name(f".{target.name}.partial") / UNITS)
    except (OSError, pl.exceptions.PolarsError):
        return None


def _resume(trial: _Trial, killed: _Killed, place: Path) -> None:
    record, ledger = killed.record, Ledger(trial.where)
    key = ledger.resume(record.release_id).key
    cdp.resume(record.release_id, ledger=trial.where, out=place)
    trial.note(f"resumed when {record.status}")
    balance = ledger.balance(record.population)
    trial.overspent += balance.basic != record.guarantee
    trial.wrong += [check.problem for check in verify_folder(place) if check.problem]
    (now,) = balance.releases
    # The same labels by the same key: nothing is drawn twice. Of two questions, `verify` recomputes
    # who was asked which.
    if now.labelled_sha256 is not None or len(now.terms.questions) > 1:
        return
    again = undisturbed_run(place, trial.source, key, now)
    trial.wrong += differences(place, again)
    shutil.rmtree(again)


def _resume_changed(trial: _Trial, killed: _Killed) -> None:
    """Another table is refused, or has rows of its own by another key."""
    record, target = killed.record, killed.target
    try:
        cdp.resume(record.release_id, trial.changed, ledger=trial.where)
    except cdp.DataError as error:
        refused = "not the one that the release began with" in str(error) and record.has_drawn
        trial.wrong += [] if refused else [str(error)]
        trial.note(f"another table refused when {record.status}")
        _end(trial, killed)
        return
    trial.note(f"another table published when {record.status}")
    if record.labelled_sha256 or record.drawn_sha256 or record.looked_sha256:
        trial.wrong.append(f"another table was published when {record.status}")
    if killed.rows is not None:
        published = cdp.read_release(target).units.collect()
        agree = (published["response"] == killed.rows["response"]).mean()
        if not isinstance(agree, float) or agree > _SAME_KEY:
            trial.wrong.append("two tables had rows by one key")


def _end(trial: _Trial, killed: _Killed) -> None:
    """Cancel it if it drew nothing; else it can only be closed, and stays spent."""
    record, ledger = killed.record, Ledger(trial.where)
    try:
        ended = ledger.cancel(record.release_id)
    except LedgerError:
        ended = ledger.close(record.release_id)
    trial.note(f"{ended.status} when {record.status}")
    if (ended.status == "cancelled") != (record.status == "reserved"):
        trial.wrong.append(f"{ended.status} when {record.status}")
    spent = bool(ledger.balance(record.population).spent)
    trial.overspent += spent == (ended.status == "cancelled")


def _check_left(trial: _Trial, folder: Path) -> None:
    """Nothing is left but what was published."""
    left = [path.name for path in folder.iterdir() if path.name not in {"out", "elsewhere"}]
    trial.wrong += [f"{name} is left" for name in left]
