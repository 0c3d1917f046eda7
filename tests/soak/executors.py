"""Executors that die in pass 1 and in pass 2 of a Spark release, with speculation on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

import polars as pl
import psutil

import clusterdp as cdp
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from soak.kills import undisturbed_run
from soak.owner import Owner, release_options, write_table
from soak.processes import family, running_program
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.rows.keys import ReleaseKey

# Two executors with a core each: one is killed, the other goes on.
_CLUSTER = ("--engine", "spark", "--master", "local-cluster[2,1,1024]")
_SETTINGS = (
    "--conf spark.speculation=true --conf spark.speculation.multiplier=1.1 "
    "--conf spark.speculation.quantile=0.5 --conf spark.sql.files.maxPartitionBytes=1m "
    "--conf spark.sql.shuffle.partitions=8 --conf spark.ui.enabled=false pyspark-shell"
)
_EXECUTOR = "CoarseGrainedExecutorBackend"
_PATIENCE = 900


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a release, and where it runs.

    Attributes:
        what: What is killed, in words.
        where: The options that say where it runs.
        settings: Spark's settings.
        kill: Kills, given the process of the owner; returns how many processes it killed.
    """

    what: str
    where: tuple[str, ...]
    settings: str
    kill: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A release that was disturbed in one of its passes, and finished.

    Attributes:
        fault: What happened to it.
        number: In which pass.
        source: The table.
        target: Where it was published.
        key: Its key.
        record: What the ledger knows of it.
        n_killed: How many processes were killed while it was at work.
        problems: What went wrong, as far as one release can tell.
        overspent: Whether the ledger has anything but one committed release.
    """

    fault: Fault
    number: int
    source: Path
    target: Path
    key: ReleaseKey
    record: ReleaseRecord
    n_killed: int
    problems: tuple[str, ...]
    overspent: bool

    def line(self, compare: Callable[[Disturbed], list[str]], same: str) -> Line:
        """What to report, once it was compared with what it should be."""
        lost = list(self.problems) or compare(self)
        return Line(
            trial=f"Spark: {self.fault.what} killed in pass {self.number}",
            runs=1,
            faults=int(self.n_killed > 0),
            lost=len(lost),
            overspent=int(self.overspent),
            partial=0,
            details="; ".join([f"{self.n_killed} processes killed", same, *lost]),
        )


def run_executor_kills(
    folder: Path, n_rows: int = 5_000_000, passes: tuple[int, ...] = (1, 2)
) -> list[Line]:
    """Kill an executor in each pass; compare with an undisturbed run on the local engine."""
    source = write_table(folder / "table.parquet", n_rows)
    fault = Fault("an executor, speculation on,", _CLUSTER, _SETTINGS, _kill_executor)
    same = f"{n_rows:,} rows, the same as the local engine's"
    found = [disturb(source, number, fault) for number in passes]
    return [one.line(_differences_from_local, same) for one in found]


def _kill_executor(owner: int) -> int:
    executors = running_program(owner, _EXECUTOR)
    with suppress(ProcessLookupError):
        for process in executors[:1]:
            os.kill(process, signal.SIGKILL)
    return len(executors[:1])


def disturb(source: Path, number: int, fault: Fault) -> Disturbed:
    """Release a table, with a fault in one of the passes."""
    target = source.with_name(f"pass-{number}")
    where, population = source.with_name(f"budget-{number}.db"), "everyone"
    ledger = Ledger.create(str(where), 2)
    partial = target.with_name(f".{target.name}.partial")
    begun: dict[int, Path] = {1: partial, 2: partial / "units"}
    with mock.patch.dict(os.environ, {"PYSPARK_SUBMIT_ARGS": fault.settings}):
        owner = Owner(
            *release_options(source, target),
            *("--epsilon", 2, "--ledger", where),
            *("--population", population, "--new-population"),
            *fault.where,
        )
    with _ended(owner):
        owner.begin()
        _wait(owner, lambda: bool(ledger.releases()))
        (record,) = ledger.releases()
        key = ledger.resume(record.release_id).key
        _wait(owner, lambda: begun[number].exists() or target.exists())
        # Into the work of the stage, and not before its first task.
        time.sleep(0.5)
        n_killed = fault.kill(owner.pid)
        still_working = not target.exists()
        code, told = owner.wait()
    problems = [told.strip()] if code != 0 else []
    if code == 0:
        problems = [check.problem for check in verify_folder(target) if check.problem]
    status = [one.status for one in ledger.balance(population).spent]
    return Disturbed(
        fault=fault,
        number=number,
        source=source,
        target=target,
        key=key,
        record=record,
        n_killed=n_killed if still_working else 0,
        problems=tuple(problems),
        overspent=status != ["committed"],
    )


def _differences_from_local(one: Disturbed) -> list[str]:
    return _differences(one.target, undisturbed_run(one.target, one.source, one.key, one.record))


@contextmanager
def _ended(owner: Owner) -> Iterator[None]:
    """Leave no process of an owner behind, whatever happens."""
    try:
        yield
    finally:
        if owner.runs():
            for process in reversed(family(owner.pid)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            owner.wait()


def _wait(owner: Owner, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if not owner.runs() or time.monotonic() > deadline:
            raise RuntimeError(owner.wait()[1] if not owner.runs() else "Spark is too slow")
        time.sleep(0.01)


def _differences(one: Path, other: Path) -> list[str]:
    """What two releases do not share, rows in whatever order."""
    ours, theirs = cdp.read_release(one), cdp.read_release(other)
    differences = []
    if not ours.cells.equals(theirs.cells):
        differences.append("cells differ")
    by_unit = [release.units.collect().sort("user") for release in (ours, theirs)]
    # Engines store small numbers in types of their own.
    first, second = (rows.with_columns(pl.selectors.integer().cast(pl.Int64)) for rows in by_unit)
    if not first.equals(second):
        differences.append("rows differ")
    return differences
