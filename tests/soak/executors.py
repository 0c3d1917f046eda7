"""Executors that die in pass 1 and in pass 2 of a Spark release, with speculation on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from unittest import mock

import polars as pl

import clusterdp as cdp
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from soak.kills import undisturbed_run
from soak.owner import Owner, release_options, write_table
from soak.processes import running_program
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Two executors with a core each: one is killed, the other goes on.
_CLUSTER = ("--engine", "spark", "--master", "local-cluster[2,1,1024]")
_SETTINGS = (
    "--conf spark.speculation=true --conf spark.speculation.multiplier=1.1 "
    "--conf spark.speculation.quantile=0.5 --conf spark.sql.files.maxPartitionBytes=1m "
    "--conf spark.sql.shuffle.partitions=8 --conf spark.ui.enabled=false pyspark-shell"
)
_EXECUTOR = "CoarseGrainedExecutorBackend"
_PATIENCE = 300


def run_executor_kills(
    folder: Path, n_rows: int = 5_000_000, passes: tuple[int, ...] = (1, 2)
) -> list[Line]:
    """Kill an executor in each pass; compare with an undisturbed run on the local engine."""
    source = write_table(folder / "table.parquet", n_rows)
    where = folder / "budget.db"
    ledger = Ledger.create(str(where), 2)
    return [_kill_in(number, source, where, ledger, n_rows) for number in passes]


def _kill_in(number: int, source: Path, where: Path, ledger: Ledger, n_rows: int) -> Line:
    target, population = source.with_name(f"pass-{number}"), f"pass-{number}"
    partial = target.with_name(f".{target.name}.partial")
    begun: dict[int, Path] = {1: partial, 2: partial / "units"}
    with mock.patch.dict(os.environ, {"PYSPARK_SUBMIT_ARGS": _SETTINGS}):
        owner = Owner(
            *release_options(source, target),
            *("--epsilon", 2, "--ledger", where),
            *("--population", population, "--new-population"),
            *_CLUSTER,
        )
    owner.begin()
    _wait(owner, lambda: any(one.population == population for one in ledger.releases()))
    (record,) = (one for one in ledger.releases() if one.population == population)
    key = ledger.resume(record.release_id).key
    _wait(owner, lambda: begun[number].exists() or target.exists())
    # Into the work of the stage, and not before its first task.
    time.sleep(0.5)
    executors = running_program(owner.pid, _EXECUTOR)
    with suppress(ProcessLookupError):
        for process in executors[:1]:
            os.kill(process, signal.SIGKILL)
    still_working = not target.exists()
    code, told = owner.wait()
    if code != 0:
        lost = [told.strip()]
    else:
        lost = [check.problem for check in verify_folder(target) if check.problem]
        lost += _differences(target, undisturbed_run(target, source, key, record))
    status = [one.status for one in ledger.balance(population).spent]
    return Line(
        trial=f"Spark: an executor killed in pass {number}, speculation on",
        runs=1,
        faults=int(still_working),
        lost=len(lost),
        overspent=int(status != ["committed"]),
        partial=0,
        details=(
            f"{len(executors)} executors before, {n_rows:,} rows, the same rows as the local "
            "engine's" + "".join(f"; {text}" for text in lost)
        ),
    )


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
