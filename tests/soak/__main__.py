"""`make soak`: every trial at full length, and a table of what went wrong; it should be empty."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from soak import (
    closings,
    designs,
    executors,
    kills,
    later,
    malformed,
    outages,
    postgres,
    races,
    s3,
    scaling,
    stores,
    workers,
    writes,
)
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable

_CONSOLE = Console()


def main() -> int:
    """Run the trials that were asked for; returns 1 if something went wrong."""
    trials: dict[str, Callable[[], list[Line]]] = {
        "kills": _kills,
        "stores": _stores,
        "races": _races,
        "closings": _closings,
        "outages": _outages,
        "executors": _executors,
        "workers": _workers,
        "malformed": _malformed,
        "designs": _designs,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "trials", nargs="*", metavar="TRIAL", help=f"{', '.join(trials)}, scaling; all by default"
    )
    wanted = parser.parse_args().trials or [*trials, "scaling"]
    lines = []
    for name in wanted:
        if name == "scaling":
            _scaling()
            continue
        _CONSOLE.print(f"[bold]{name}[/] ...")
        found = trials[name]()
        for line in found:
            _CONSOLE.print(
                f"  {line.trial}: {'passed' if line.passed else 'FAILED'}; {line.details}"
            )
        lines += found
    if lines:
        _show(lines)
    return 0 if all(line.passed for line in lines) else 1


def _show(lines: list[Line]) -> None:
    table = Table("trial", "details", box=None, pad_edge=False)
    for name in ("runs", "faults", "data lost", "over-spent", "partial accepted"):
        table.add_column(name, justify="right")
    for line in lines:
        numbers = (line.runs, line.faults, line.lost, line.overspent, line.partial)
        style = None if line.passed else "bold red"
        table.add_row(line.trial, line.details, *(f"{one:,}" for one in numbers), style=style)
    _CONSOLE.print(table)
    verdict = "all zeros" if all(line.passed for line in lines) else "NOT all zeros"
    _CONSOLE.print(f"data lost, over-spent, partial accepted: {verdict}")


def _generator() -> np.random.Generator:
    seed = secrets.randbits(64)
    _CONSOLE.print(f"  seed {seed}")
    return np.random.default_rng(seed)


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="clusterdp-soak-"))
    folder.chmod(0o755)
    return folder


def _kills() -> list[Line]:
    def told(done: int) -> None:
        if done % 10 == 0:
            _CONSOLE.print(f"  {done} kills")

    return [
        kills.run_kills(100, 1_000_000, _generator(), _folder(), told),
        writes.run_write_kills(200, 20_000, _generator(), _folder(), told),
        later.run_later_kills(200, 20_000, _generator(), _folder(), told),
    ]


def _stores() -> list[Line]:
    def told(done: int) -> None:
        if done % 10 == 0:
            _CONSOLE.print(f"  {done} kills")

    with s3.running_store() as server:
        return [
            stores.run_store_kills(50, 300_000, _generator(), _folder(), server, report=told),
            stores.run_store_race(10, 2, _folder(), server),
        ]


def _races() -> list[Line]:
    folder = _folder()
    lines = [races.run_race(str(folder / "budget.db"), "SQLite", 32, 10, folder)]
    with postgres.running_server() as server:
        where = server.new_database("race")
        lines.append(races.run_race(where, "PostgreSQL", 32, 10, _folder()))
        for kind in ("answer", "batch"):
            place = _folder()
            stores = {"SQLite": str(place / "b.db"), "PostgreSQL": server.new_database(kind)}
            for store, where in stores.items():
                begun = later.Beginning.make(_folder(), where, 5000)
                lines.append(later.run_later_race(kind, store, begun, 16))
    return lines


def _closings() -> list[Line]:
    return [closings.run_closings(50, 1_000_000, _generator(), _folder())]


def _outages() -> list[Line]:
    lines = [
        outages.run_disk_outages(_folder()),
        outages.run_permission_outages(_folder()),
    ]
    with postgres.running_server() as server:
        lines.append(outages.run_database_outages(server, server.new_database, _folder()))
    return lines


def _executors() -> list[Line]:
    return executors.run_executor_kills(_folder())


def _workers() -> list[Line]:
    return workers.run_worker_kills(_folder())


def _malformed() -> list[Line]:
    report, n_aborted = malformed.run_apart(10_000, _generator())
    _CONSOLE.print(f"  {report}", markup=False)
    n_tried = sum(report.tried.values())
    return [
        Line(
            trial="malformed inputs",
            runs=n_tried,
            faults=n_tried,
            lost=len(report.tracebacks),
            overspent=0,
            partial=len(report.accepted),
            details=(
                f"{report.refused:,} refused in one line, {report.harmless + report.sound:,} that "
                f"nothing can tell from sound ones, {len(report.tracebacks)} tracebacks; Polars "
                f"aborted {n_aborted} times"
            ),
        )
    ]


def _designs() -> list[Line]:
    return [designs.run_designs(1000, _generator())]


def _scaling() -> None:
    def told(one: scaling.Measured) -> None:
        _CONSOLE.print(
            f"  {one.engine}: {one.n_rows:,} rows, {one.n_clusters:,} clusters: "
            f"{one.seconds:.1f} s, {one.peak_bytes / 1e9:.2f} GB"
        )

    _CONSOLE.print("[bold]scaling[/] ...")
    found = scaling.run_scaling(_folder(), report=told)
    print(scaling.as_table(found), scaling.as_guide(found), sep="\n\n")


if __name__ == "__main__":
    sys.exit(main())
