"""Releases that somebody closes or cancels at random points, while a process is at work on them."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from clusterdp.errors import LedgerError
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from soak.owner import Owner, release_options, write_table
from soak.report import Line

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


def run_closings(n_runs: int, n_rows: int, rng: np.random.Generator, folder: Path) -> Line:
    """Close or cancel releases at work: each is published and recorded, or ended and not there.

    Args:
        n_runs: How many.
        n_rows: How large their table is.
        rng: When to end them.
        folder: Where to work.
    """
    source, where = write_table(folder / "table.parquet", n_rows), str(folder / "budget.db")
    ledger = Ledger.create(where, 2)
    seconds, wrong = _undisturbed(ledger, source, folder / "whole"), list[str]()
    for run in range(n_runs):
        end = ("close", "cancel")[run % 2]
        wrong += _trial(ledger, source, folder / f"out-{run}", end, rng.uniform(0, seconds))
    statuses = Counter(one.status for one in ledger.releases())
    wrong += Ledger(where).verify()
    return Line(
        trial="closed or cancelled while a process is at work",
        runs=n_runs,
        faults=statuses["closed"] + statuses["cancelled"],
        lost=len(wrong),
        overspent=sum(_misspent(ledger, one.population) for one in ledger.releases()),
        partial=0,
        details=(
            f"{statuses['closed']} closed, {statuses['cancelled']} cancelled, "
            f"{statuses['committed']} published" + "".join(f"; {text}" for text in wrong[:3])
        ),
    )


def _reserved(ledger: Ledger, source: Path, target: Path) -> Owner:
    """A process that has just reserved a release of a population of its own."""
    owner = Owner(
        *release_options(source, target),
        *("--epsilon", 2, "--ledger", str(ledger)),
        *("--population", target.name, "--new-population"),
    )
    owner.begin()
    while owner.runs() and not ledger.balance(target.name).releases:
        time.sleep(0.001)
    return owner


def _undisturbed(ledger: Ledger, source: Path, target: Path) -> float:
    """How long a release takes from when it is reserved until it is published."""
    owner = _reserved(ledger, source, target)
    begun = time.perf_counter()
    while owner.runs() and not target.exists():
        time.sleep(0.001)
    seconds = time.perf_counter() - begun
    code, told = owner.wait()
    assert code == 0, told
    return seconds


def _trial(ledger: Ledger, source: Path, target: Path, end: str, seconds: float) -> list[str]:
    """One release, ended so long after it was reserved; returns what is wrong then."""
    owner = _reserved(ledger, source, target)
    time.sleep(seconds)
    (record,) = ledger.balance(target.name).releases
    recorded = False
    # Otherwise it drew, is about to be published, or is finished.
    with suppress(LedgerError):
        recorded = getattr(ledger, end)(record.release_id).status == "committed"
    code, told = owner.wait()
    (record,) = ledger.balance(target.name).releases
    if record.status == "committed":
        problems = [check.problem for check in verify_folder(target) if check.problem]
        return problems if code == 0 or recorded else [*problems, told]
    left = list(target.parent.glob(f"*{target.name}*"))
    clear = code == 2 and f"was {record.status} by" in told and "published nothing" in told
    return ([] if clear else [told]) + [f"{path.name} is left" for path in left]


def _misspent(ledger: Ledger, population: str) -> bool:
    """Whether a cancelled release counts, or one that drew does not."""
    balance = ledger.balance(population)
    (one,) = balance.releases
    if one.status == "cancelled":
        return bool(balance.spent) or one.drawn_sha256 is not None
    return balance.basic != one.guarantee
