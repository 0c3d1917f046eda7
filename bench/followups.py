"""A question asked after the release, against the same breakdown declared before it, and its time.

    make bench

Two million units, conversions 0.3%, ε = 2, no declared breakdown. An analyst asks about a segment
with a tenth of the units, the owner answers at ε = 0.2. Beside it are the standard errors by rows
alone, and of a release whose owner declared the segment and paid as much for it. Each command runs
in a process of its own; next to it is one plain Polars pass over the files that it reads. On a busy
machine, go by processor time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp

if TYPE_CHECKING:
    from collections.abc import Callable

EPSILON, ANSWERED, TOTALS = 2.0, 0.2, 0.1
RATE = 0.003
# The goals: of the standard error, of its ratio to a declared breakdown, and of times.
LARGEST_ERROR, LARGEST_RATIO, LARGEST_TIMES, MORE_SECONDS = 0.0004, 1.05, 1.5, 3.0
_COMMAND = "from clusterdp.cli.app import app; app()"


def make(folder: Path, n_units: int) -> None:
    """The owner's table, and the analyst's labels in another order."""
    rng = np.random.default_rng()
    ids = rng.permutation(10 * n_units)[:n_units]
    table = pl.DataFrame(
        {
            "user": ids,
            "arm": rng.integers(0, 2, n_units),
            "conversion": (rng.random(n_units) < RATE).astype(np.int8),
            "tier": rng.choice(["gold", "other"], n_units, p=[0.1, 0.9]),
        }
    )
    table.drop("tier").write_parquet(folder / "owner.parquet")
    table.write_parquet(folder / "declared.parquet")
    table.select("user", "tier").sample(fraction=1.0, shuffle=True).write_parquet(
        folder / "crm.parquet"
    )


def publish(folder: Path) -> None:
    """A release without the segment, and one with it that costs what both folders do."""
    asked: dict[str, Any] = {
        "unit": "user",
        "arm": "arm",
        "outcomes": {"conversion": "0,1"},
        "baseline": [f"conversion={RATE}"],
    }
    cdp.Ledger.create(folder / "budget.db", 4)
    cdp.publish(
        str(folder / "owner.parquet"),
        out=folder / "published",
        mechanism=cdp.optimal(
            epsilon=EPSILON, prior=[1 - RATE, RATE], sums=cdp.SumShares(totals=TOTALS / EPSILON)
        ),
        ledger=folder / "budget.db",
        population="users",
        **asked,
    )
    whole = EPSILON + ANSWERED
    shares = cdp.SumShares(
        totals=TOTALS / whole, breakdowns=((("tier",), ANSWERED / whole),), noise_in_rows=None
    )
    cdp.publish(
        str(folder / "declared.parquet"),
        out=folder / "declared",
        mechanism=cdp.optimal(epsilon=whole, prior=[1 - RATE, RATE], sums=shares),
        breakdown="tier",
        **asked,
    )


class Seconds(NamedTuple):
    """How long a process took, and how long processors worked for it."""

    wall: float
    processor: float


def run_python(folder: Path, script: str, *words: str) -> Seconds:
    """Run a script in a process of its own."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", script, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    after = os.times()
    worked = after.children_user - before.children_user
    worked += after.children_system - before.children_system
    return Seconds(time.perf_counter() - begun, worked)


def command(folder: Path, *words: str) -> Seconds:
    """Seconds of a command."""
    return run_python(folder, _COMMAND, *words)


def plain_pass(folder: Path, table: str, outcome: str) -> Seconds:
    """Seconds of a Polars query: means by label and arm."""
    query = (
        "import polars as pl; "
        f"pl.scan_parquet('{table}').join(pl.scan_parquet('crm.parquet'), on='user', how='left')"
        f".group_by('tier', 'arm').agg(pl.len(), pl.col('{outcome}').mean(), "
        f"pl.col('{outcome}').var().alias('var')).collect(engine='streaming')"
    )
    return run_python(folder, query)


def std_error(place: Path, **more: Any) -> float:
    """The standard error of the effect in the segment."""
    estimate = cdp.estimate(place, by="tier", **more)
    return next(
        one.std_error for one in estimate.effects if dict(one.of.segment) == {"tier": "gold"}
    )


def show_goal(name: str, found: float, most: float) -> None:
    """A number with its goal."""
    print(f"{name:58} {found:10.5f}   goal: at most {most:.5f}   {'met' * (found <= most)}")


def main() -> None:
    """Print standard errors and times, with the goals."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--units", type=int, default=2_000_000)
    n_units = parser.parse_args().units
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make(folder, n_units)
        publish(folder)
        asked = ("ask", "published", "--segments", "crm.parquet", "--by", "tier", "--out", "asked")
        paid = ("--epsilon", str(ANSWERED), "--ledger", "budget.db", "--out", "answer", "--yes")
        used = ("estimate", "published", "--answer", "answer", "--by", "tier")
        steps: dict[str, tuple[Callable[[], Seconds], Callable[[], Seconds]]] = {
            "ask": (
                lambda: command(folder, *asked),
                lambda: plain_pass(folder, "published/units.parquet", "conversion_debiased"),
            ),
            "answer": (
                lambda: command(folder, "answer", "asked", *paid),
                lambda: plain_pass(folder, "owner.parquet", "conversion"),
            ),
            "estimate": (
                lambda: command(folder, *used),
                lambda: plain_pass(folder, "published/units.parquet", "conversion_debiased"),
            ),
        }
        for name, (ours, plain) in steps.items():
            query, found = plain(), ours()
            for kind, took, of_query in zip(Seconds._fields, found, query, strict=True):
                show_goal(f"{name}: {kind} seconds", took, LARGEST_TIMES * of_query + MORE_SECONDS)
        rows = std_error(folder / "published", segments=str(folder / "crm.parquet"))
        answered = std_error(folder / "published", answers=[folder / "answer"])
        declared = std_error(folder / "declared")
        print(f"{'SE of a tenth by rows':58} {rows:10.5f}")
        show_goal(f"SE of a tenth, answered at ε = {ANSWERED:g}", answered, LARGEST_ERROR)
        show_goal("the same over that of a declared one", answered / declared, LARGEST_RATIO)


if __name__ == "__main__":
    main()
