"""Releases with a look as the tests run them: interrupted, resumed, and run again undisturbed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

import clusterdp as cdp
from clusterdp.engines.local.table import LocalTable
from clusterdp.ledger.reservation import Reservation
from clusterdp.owner.job import python_job
from clusterdp.planning.decide import Draft
from clusterdp.releasing import stages
from clusterdp.releasing.journal import DRAWN, LOOKED, Event, NoJournal
from clusterdp.releasing.stages import run
from clusterdp.releasing.targets import FolderTarget
from clusterdp.rows.keys import ReleaseKey
from clusterdp.statistics.pilot import NoisyPilot
from clusterdp.storage.folder import LocalFolder
from runs import spec_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from clusterdp.ledger.ledger import Ledger
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.provenance import Provenance

N_PLAYERS = 4000
EPSILON = 3
PILOT = cdp.optimal(epsilon=EPSILON, pilot=0.2, sums=cdp.SumShares(totals=0.1))
ASKED: dict[str, Any] = {
    "outcomes": {"rounds": "number:0..1000000"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
}


def players() -> pl.DataFrame:
    """A table whose rounds lie far below the end of their range."""
    number = pl.int_range(N_PLAYERS)
    return pl.select(
        user=number,
        treated=number % 2,
        market=number // 2 % 2,
        rounds=number.hash() % 6,
    )


def publish_players(folder: Path, ledger: Ledger) -> None:
    """Publish the table, paid for by a ledger that is new."""
    paid: dict[str, Any] = {"ledger": ledger, "population": "players", "new_population": True}
    cdp.publish(players(), out=folder, mechanism=PILOT, **paid, **ASKED)


def prepared_players() -> OpenTable:
    """The table as `publish_players` prepares it."""
    task = python_job(players(), None, ASKED)
    return task.open_table(Draft.from_request(task.request), task.open_engine(ExitStack()), None)


class KilledError(BaseException):
    """The end of a process, as far as this one can play it."""


class Clock:
    """Kills a run at one of the points where it passes from one step to the next.

    Attributes:
        passed: How many points were passed.
        deadly: At which one the run ends; never if it is 0.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passed, self.deadly = 0, 0
        for owner, name in (
            (LocalTable, "run"),
            (NoisyPilot, "draw"),
            (stages, "settle"),
            (stages, "draw_together"),
            *((Reservation, name) for name in ("recall", "begin_rows", "keep", "seal")),
        ):
            self._watch(patch, owner, name)

    def _watch(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        honest = getattr(owner, name)

        def watched(*args: Any, **named: Any) -> Any:
            self._tick()
            result = honest(*args, **named)
            self._tick()
            return result

        patch.setattr(owner, name, watched)

    def _tick(self) -> None:
        self.passed += 1
        if self.passed == self.deadly:
            raise KilledError


@dataclass(frozen=True, slots=True)
class Replay(NoJournal):
    """The journal of an undisturbed run, with a key, a pilot and noise that are known."""

    rows_by: ReleaseKey = field(default_factory=ReleaseKey.from_system)
    pilot: bytes = b""
    drawn: bytes = b""

    @property
    def row_key(self) -> ReleaseKey:
        """The key of rows."""
        return self.rows_by

    def recall(self, event: Event) -> bytes | None:
        """The pilot, or the noise."""
        return {LOOKED: self.pilot, DRAWN: self.drawn}.get(event)


def publish_again(
    folder: Path, journal: Replay, mechanism: cdp.Mechanism, provenance: Provenance
) -> None:
    """What is published undisturbed, with the key, the noise and the provenance of a release."""
    target = LocalFolder(folder)
    opened = prepared_players()
    spec = spec_for(opened, (mechanism,), provenance)
    run(opened, spec, FolderTarget(target), journal=journal)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
