"""52 weekly folders estimated together, beside one folder of as many units, in one run.

    make bench

Each side is a process of its own, as `clusterdp estimate` is, alternating; the best of some runs
counts. Prints seconds, seconds of processor time and their ratios: the goal is at most 2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

WEEKS, UNITS = 52, 10_000
GOAL = 2.0


def make(folder: Path, n_weeks: int, n_units: int) -> None:
    """A folder for each week, and one of all units; two arms in ten markets, three tiers."""
    import clusterdp as cdp

    rng = np.random.default_rng(0)
    n_rows = n_weeks * n_units
    arms = rng.integers(0, 2, n_rows)
    table = pl.DataFrame(
        {
            "user": np.arange(n_rows),
            "arm": arms,
            "market": rng.integers(0, 10, n_rows),
            "visit": (rng.random(n_rows) < 0.3 + 0.03 * arms).astype(np.int8),
            "clicks": rng.integers(0, 4, n_rows, dtype=np.int8),
            "tier": rng.choice(["basic", "gold", "silver"], n_rows),
        }
    )
    parts = {f"week{week:02}": table[week * n_units :][:n_units] for week in range(n_weeks)}
    for name, part in {**parts, "whole": table}.items():
        cdp.publish(
            part,
            out=folder / name,
            unit="user",
            arm="arm",
            control=0,
            cluster="market",
            outcomes={"visit": "0,1", "clicks": "0..3"},
            epsilon=2,
            passthrough=["tier"],
        )


def seconds_of(side: str, folder: Path, n_weeks: int) -> dict[str, float]:
    """How long the command of a side takes, from its start to its end."""
    weeks = [str(folder / f"week{week:02}") for week in range(n_weeks)]
    paths = weeks if side == "weeks" else [str(folder / "whole")]
    command = [sys.executable, "-c", "from clusterdp.cli.app import app; app()", "estimate"]
    start, before = time.perf_counter(), _children()
    done = subprocess.run([*command, *paths, "--by", "tier"], check=True, capture_output=True)  # noqa: S603 - this program
    assert done.stdout  # noqa: S101 - it found effects
    return {"seconds": time.perf_counter() - start, "processor": _children() - before}


def _children() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Both sides in turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weeks", type=int, default=WEEKS)
    parser.add_argument("--units", type=int, default=UNITS)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, given.weeks, given.units)
        runs: dict[str, list[dict[str, float]]] = {"whole": [], "weeks": []}
        for _ in range(given.repeats):
            for side, found in runs.items():
                found.append(seconds_of(side, folder, given.weeks))
    best = {
        side: {what: min(one[what] for one in found) for what in found[0]}
        for side, found in runs.items()
    }
    print(f"{given.weeks} folders of {given.units:,} units, against one of all")
    for side, one in best.items():
        print(f"  {side:6s} {one['seconds']:6.2f} s, {one['processor']:6.2f} s of processors")
    ratios = {what: best["weeks"][what] / best["whole"][what] for what in best["whole"]}
    print(
        f"  ratio  {ratios['seconds']:6.2f}, {ratios['processor']:.2f} of processors "
        f"(goal: at most {GOAL:g})"
    )
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
