"""A full disk, a denied permission, a database that goes away: clear errors, and nothing lost."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from typer.testing import CliRunner

from clusterdp.cli.app import app
from clusterdp.ledger._store import LedgerStore
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from soak.owner import release_options, write_table
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clusterdp.ledger._store import Transaction
    from soak.postgres import Server

_NOBODY = 65534


class Outcome(NamedTuple):
    """What an outage led to.

    Attributes:
        clear: Whether the command failed with one error that names the cause.
        published: Whether there is a folder.
        status: The release's status in the ledger; None if it is not there.
        told: What the command said.
    """

    clear: bool
    published: bool
    status: str | None
    told: str


class Trial:
    """One table, one ledger, one release that an outage falls into."""

    def __init__(self, where: str, folder: Path, n_rows: int = 2000) -> None:
        """Make the table and the ledger."""
        self.where, self.target = where, folder / "out"
        self.source = write_table(folder / "table.parquet", n_rows)
        self.ledger = Ledger.create(where, 2)

    def release(self, cause: str, target: Path | None = None) -> Outcome:
        """Run the release; it is expected to fail for a cause."""
        target = target or self.target
        result = CliRunner().invoke(app, self._command(target))
        # A long line goes on below, indented.
        errors = re.findall(r"^error: .+(?:\n .+)*", result.stderr, re.MULTILINE)
        return Outcome(
            clear=result.exit_code == 2 and len(errors) == 1 and cause in _unwrapped(errors[0]),
            published=target.exists(),
            status=None,
            told=result.stderr,
        )

    def status(self) -> str | None:
        """What the ledger says of the release."""
        spendings = self.ledger.releases()
        return spendings[0].status if spendings else None

    def finish(self, target: Path | None = None) -> list[str]:
        """Resume, or release anew where nothing was reserved; returns what is wrong then."""
        target = target or self.target
        begun = self.ledger.releases()
        if begun and begun[0].is_unfinished:
            release = begun[0].release_id
            command = ["release", "--resume", release, "--ledger", self.where]
            command += ["--out", str(target)]
        else:
            command = self._command(target)
        result = CliRunner().invoke(app, command)
        wrong = [] if result.exit_code == 0 else [result.stderr.strip()]
        wrong += Ledger(self.where).verify()
        wrong += [check.problem for check in verify_folder(target) if check.problem]
        if [one.status for one in self.ledger.balance("people").spent] != ["committed"]:
            wrong.append("the budget is not spent once")
        return wrong

    def _command(self, target: Path) -> list[str]:
        """The release that nothing was reserved for yet, so that its population is new."""
        return [
            *release_options(self.source, target),
            *("--epsilon", "2", "--ledger", self.where),
            *("--population", "people", "--new-population"),
        ]


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def run_database_outages(server: Server, names: Callable[[str], str], folder: Path) -> Line:
    """Stop PostgreSQL before each of the five times that a release writes to its ledger.

    Args:
        server: A server of our own.
        names: Makes a fresh database of a name, and returns its URL.
        folder: Where to work.
    """
    steps = ("reserving", "beginning rows", "keeping what was drawn", "sealing", "committing")
    lost, overspent, partial = list[str](), 0, 0
    for number, step in enumerate(steps):
        place = folder / f"step-{number}"
        place.mkdir()
        trial = Trial(names(f"outage{number}"), place)
        with _stopped_before(server, number):
            outcome = trial.release("cannot be reached")
        server.start()
        expected = (None, "reserved", "randomizing", "drawn", "drawn")[number]
        overspent += trial.status() != expected
        # Published before it could be committed is published: the error says so.
        late = step == "committing"
        partial += outcome.published != late
        if not outcome.clear or (late and "is published, but" not in _unwrapped(outcome.told)):
            lost.append(f"{step}: {outcome.told}")
        lost += [f"{step}: {text}" for text in trial.finish()]
    return Line(
        trial="PostgreSQL stopped midway, started again, resumed",
        runs=2 * len(steps),
        faults=len(steps),
        lost=len(lost),
        overspent=overspent,
        partial=partial,
        details="stopped before " + ", ".join(steps) + "".join(f"; {text}" for text in lost),
    )


@contextmanager
def _stopped_before(server: Server, number: int) -> Iterator[None]:
    """Stop the server just before it is written to for the so-many-th time."""
    writing, written = LedgerStore.writing, 0

    @contextmanager
    def stopping(self: LedgerStore) -> Iterator[Transaction]:
        nonlocal written
        if written == number:
            server.stop()
        written += 1
        with writing(self) as transaction:
            yield transaction

    with mock.patch.object(LedgerStore, "writing", stopping):
        yield


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk with little room; needs root."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    subprocess.run(mount, check=True)  # noqa: S603 - fixed arguments
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)  # noqa: S603, S607 - fixed arguments


def run_disk_outages(folder: Path) -> Line:
    """Fill the disk of the folder, and that of the ledger."""
    lost, overspent, partial = list[str](), 0, 0
    folder.mkdir(exist_ok=True)
    trial = Trial(str(folder / "budget.db"), folder, n_rows=200_000)
    with small_disk(folder / "disk", "256k") as disk:
        outcome = trial.release("No space left", disk / "out")
        partial += outcome.published + len(list(disk.iterdir()))
        overspent += trial.status() != "randomizing"
        lost += [] if outcome.clear else [outcome.told]
    lost += trial.finish()
    with small_disk(folder / "books", "128k") as disk:
        place = folder / "second"
        place.mkdir()
        trial = Trial(str(disk / "budget.db"), place)
        (disk / "filler").write_bytes(bytes(_free(disk)))
        outcome = trial.release("the disk is full")
        partial += outcome.published
        (disk / "filler").unlink()
        overspent += trial.status() is not None
        lost += [] if outcome.clear else [outcome.told]
        lost += trial.finish()
    return Line(
        trial="disk full: the folder's, the ledger's; then resumed",
        runs=4,
        faults=2,
        lost=len(lost),
        overspent=overspent,
        partial=partial,
        details="No space left for rows; no room for a ledger entry"
        + "".join(f"; {text}" for text in lost),
    )


def _free(disk: Path) -> int:
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


def run_permission_outages(folder: Path) -> Line:
    """Deny writing to the folder's place, and to the ledger; run by root, as somebody else."""
    lost, overspent, partial = list[str](), 0, 0
    # Somebody else may not read the libraries: they are loaded before.
    (folder / "first").mkdir(parents=True)
    lost += Trial(str(folder / "first" / "budget.db"), folder / "first").finish()
    for denied in ("place", "ledger"):
        place, books = folder / denied, folder / denied / "books"
        books.mkdir(parents=True)
        trial = Trial(str(books / "budget.db"), place)
        with _as_somebody(place):
            kept = place if denied == "place" else books / "budget.db"
            mode = kept.stat().st_mode
            kept.chmod(0o555 if denied == "place" else 0o400)
            outcome = trial.release("permission denied")
            kept.chmod(mode)
            partial += outcome.published + len(list(place.glob(".out*")))
            overspent += trial.status() is not None
            lost += [] if outcome.clear else [outcome.told]
            lost += trial.finish()
    return Line(
        trial="permission denied: the folder's place, the ledger; then allowed",
        runs=4,
        faults=2,
        lost=len(lost),
        overspent=overspent,
        partial=partial,
        details="refused before anything was reserved" + "".join(f"; {text}" for text in lost),
    )


@contextmanager
def _as_somebody(place: Path) -> Iterator[None]:
    """Root may write anywhere: act as somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    for path in [place, *place.rglob("*")]:
        os.chown(path, _NOBODY, _NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
