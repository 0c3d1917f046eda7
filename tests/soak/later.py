"""What comes after a release: SIGKILL at writes of answers and of batches, and owners who race.

Each trial has a ledger with one release, a follow-up about it and a table of new units. An answer
may be drawn once and costs its ε once; a batch costs no more than the release that it continues.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import clusterdp as cdp
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import DRAWN, unpack_entry
from clusterdp.storage.folder import TOTALS
from soak.deadly import DEADLY, LISTED
from soak.owner import Owner, release_options, run, write_table
from soak.report import Line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp.ledger.history import ReleaseRecord

_RELEASED, _ANSWERED = 2, 0.5
_MECHANISM = ("--epsilon", _RELEASED, "--mechanism", "uniform-prior-dp")
_PEOPLE = "people"
# What the ledger says in the end, by what was done.
_SPENT = {"answer": _RELEASED + _ANSWERED, "batch": _RELEASED}


@dataclass(frozen=True, slots=True)
class Beginning:
    """A release with a follow-up about it, and a table of new units.

    Attributes:
        folder: Where they are.
        where: The ledger.
    """

    folder: Path
    where: str

    @classmethod
    def make(cls, folder: Path, where: str, n_rows: int) -> Beginning:
        """Publish a release, ask about it, and write a table of new units."""
        made = cls(folder, where)
        source = write_table(folder / "week1.parquet", n_rows)
        more = pl.read_parquet(source).with_columns(pl.col("user") + n_rows)
        more.write_parquet(folder / "week2.parquet")
        Ledger.create(where, 4)
        paid = ("--ledger", where, "--population", _PEOPLE)
        code, told = run(*release_options(source, folder / "week1"), *_MECHANISM, *paid)
        assert code == 0, told
        cdp.ask(folder / "week1", by="tier", out=folder / "followup")
        return made

    def command(self, kind: str, out: Path, where: str | None = None) -> list[object]:
        """The command that answers the follow-up, or publishes the new units."""
        ledger = ("--ledger", where or self.where)
        if kind == "answer":
            asked = ("answer", self.folder / "followup", "--epsilon", _ANSWERED, "--yes")
            return [*asked, *ledger, "--out", out]
        options = release_options(self.folder / "week2.parquet", out)
        continues = ("--population", _PEOPLE, "--continues", self.folder / "week1")
        return [*options, *_MECHANISM, *ledger, *continues]


@dataclass(slots=True)
class _Found:
    """How kills ended, and what was wrong."""

    ends: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    overspent: int = 0

    def note(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1


def run_later_kills(
    n_kills: int,
    n_rows: int,
    rng: np.random.Generator,
    folder: Path,
    report: Callable[[int], None] = lambda _: None,
) -> Line:
    """Kill answers and batches at writes, in turns, and finish them.

    Args:
        n_kills: How many.
        n_rows: How many units the release has, and the batch.
        rng: At which writes.
        folder: Where to work.
        report: Called after each.
    """
    begun = Beginning.make(folder, str(folder / "budget.db"), n_rows)
    found, writes = _Found(), dict[str, int]()
    for kind in _SPENT:
        _kill(begun, kind, folder / f"whole-{kind}", 0)
        writes[kind] = len((folder / f"whole-{kind}" / "listed").read_text().splitlines())
    for number in range(n_kills):
        kind = tuple(_SPENT)[number % 2]
        place = folder / f"kill-{number}"
        _kill(begun, kind, place, int(rng.integers(1, writes[kind])))
        _judge(found, begun, kind, place)
        report(number + 1)
    ended = ", ".join(f"{count} {end}" for end, count in sorted(found.ends.items()))
    return Line(
        trial="SIGKILL at a write of an answer or a batch, then the same command or resume",
        runs=n_kills,
        faults=n_kills,
        lost=len(found.wrong),
        overspent=found.overspent,
        partial=0,
        details=f"{ended}; of {[*writes.values()]} writes"
        + "".join(f"; {one}" for one in found.wrong[:3]),
    )


def _kill(begun: Beginning, kind: str, place: Path, deadly: int) -> None:
    """Kill a command at a write, or at none if that is 0, with a ledger of its own."""
    place.mkdir()
    where = shutil.copy(begun.where, place / "budget.db")
    listed = {LISTED: str(place / "listed"), DEADLY: str(deadly)}
    owner = Owner(*begun.command(kind, place / "out", str(where)), environment=listed)
    owner.begin()
    code, told = owner.wait()
    assert code in ({0} if deadly == 0 else {0, -9}), told


def _judge(found: _Found, begun: Beginning, kind: str, place: Path) -> None:
    """What is on record; then finish it, and compare what was drawn with what is published."""
    where, out = str(place / "budget.db"), place / "out"
    ledger = Ledger(where)
    record = _made(ledger, begun)
    kept = None
    if record is None:
        found.note(f"{kind} killed before the reservation")
        left = {path.name for path in place.iterdir()} - {"budget.db"}
        # A folder for rows is made before; nothing is in it.
        found.wrong += [one for one in left if any((place / one).rglob("*.parquet"))]
    else:
        found.note(f"{kind} killed when {record.status}")
        if record.is_unfinished:
            kept = ledger.resume(record.release_id).recall(DRAWN)
    if kind == "batch" and record is not None:
        words: list[object] = ["release", "--resume", record.release_id, "--ledger", where]
    else:
        words = begun.command(kind, out, where)
    if record is None or record.is_unfinished or kind == "answer":
        code, told = run(*words)
        if code != 0:
            found.wrong.append(told)
            return
    now = _made(ledger, begun)
    if now is None or now.status != "committed" or (record and now.release_id != record.release_id):
        found.wrong.append("it is not finished as it began")
    found.overspent += round(ledger.balance(_PEOPLE).basic.epsilon, 6) != _SPENT[kind]
    found.wrong += [one.problem for one in verify_folder(out) if one.problem] + ledger.verify()
    if kind == "answer" and kept is not None and not _is_drawn(kept, out):
        found.wrong.append("other noise than was drawn")
    left = {path.name for path in place.iterdir()} - {"budget.db", "out", "listed"}
    found.wrong += [f"{name} is left" for name in sorted(left)]


def _made(ledger: Ledger, begun: Beginning) -> ReleaseRecord | None:
    """The answer or batch of a ledger, next to the release."""
    first = str(begun.folder / "week1")
    others = [one for one in ledger.releases() if one.folder != first]
    assert len(others) <= 1, "it began twice"
    return others[0] if others else None


def _is_drawn(kept: bytes, out: Path) -> bool:
    """Whether an answer has the sums that were journaled."""
    sums = unpack_entry(kept)[0]["0.0.noisy_sum"]
    published = np.array(pl.read_parquet(out / TOTALS)["noisy_sum_in_units"].to_list())
    return np.array_equal(sums.reshape(published.shape), published)


def run_later_race(kind: str, store: str, begun: Beginning, n_processes: int) -> Line:
    """Owners who answer the same follow-up at once, or publish the same new units.

    Args:
        kind: "answer" or "batch".
        store: What to call the ledger's store.
        begun: A release with nothing after it.
        n_processes: How many owners.
    """
    targets = [begun.folder / f"{kind}-{number}" for number in range(n_processes)]
    owners = [Owner(*begun.command(kind, target)) for target in targets]
    for owner in owners:
        owner.begin()
    ended = [owner.wait() for owner in owners]
    ledger = Ledger(begun.where)
    record = _made(ledger, begun)
    published = [target for target in targets if target.exists()]
    succeeded = sum(code == 0 for code, _ in ended)
    refused = sum(code == 2 and "error:" in told for code, told in ended)
    wrong = [told for code, told in ended if code not in (0, 2)] + ledger.verify()
    if record is None or record.status != "committed" or len(published) != 1:
        wrong.append(f"{len(published)} were published")
    wrong += [one.problem for place in published for one in verify_folder(place) if one.problem]
    return Line(
        trial=f"{n_processes} owners with the same {kind} at once, {store}",
        runs=n_processes,
        faults=0,
        lost=len(wrong) + (succeeded < 1),
        overspent=round(ledger.balance(_PEOPLE).basic.epsilon, 6) != _SPENT[kind],
        partial=0,
        details=f"{succeeded} ended well, {refused} refused clearly"
        + "".join(f"; {one}" for one in wrong[:3]),
    )
