"""Releases of a large file beside a plain Polars copy of the same columns, in one run.

    make bench

Each side runs in a process of its own, in turn with the others; the best of some runs counts.
Prints seconds and processor seconds as multiples of the copy's, with the goal of each; peak memory;
and where the time goes. On a machine that others use, compare processor seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.measuring import Measured, Stopwatch, measure, run_measured

if TYPE_CHECKING:
    from collections.abc import Mapping

COPY = "copy"
# A channel that follows from what is declared, with totals; and one that noisy counts decide.
KNOWN = cdp.optimal(epsilon=2, sums=cdp.SumShares(totals=0.1))
COUNTED = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2)
PEAK_GOAL = 1.5


class Side(NamedTuple):
    """A release, and what it may cost.

    Attributes:
        keep_order: Whether rows stay in the order of the table.
        counted: Whether noisy counts decide the channel, which then takes two passes.
        goal: How many times as long as the copy it may take.
        text_goal: The same with text as ids.
    """

    keep_order: bool
    counted: bool
    goal: float
    text_goal: float

    def release(self, source: Path, target: Path) -> dict[str, float]:
        """The release, with every check."""
        watch = Stopwatch()
        cdp.publish(
            source,
            out=target,
            progress=watch,
            mechanism=COUNTED if self.counted else KNOWN,
            outcomes={"clicks": "-5..6"},
            unit="user",
            arm="treated",
            cluster="market",
            passthrough=["age", "spend"],
            keep_order=self.keep_order,
        )
        return watch.seconds()


SIDES: Mapping[str, Side] = {
    "order kept": Side(keep_order=True, counted=False, goal=2.0, text_goal=2.5),
    "order kept, with counts": Side(keep_order=True, counted=True, goal=2.5, text_goal=2.5),
    "order of ids": Side(keep_order=False, counted=False, goal=3.5, text_goal=3.5),
    "order of ids, with counts": Side(keep_order=False, counted=True, goal=3.5, text_goal=3.5),
}


def make_table(path: Path, n_rows: int, *, text_ids: bool) -> None:
    """Ids in random order, 2 arms, 1,000 clusters, 12 outcomes and two float columns."""
    rng = np.random.default_rng(0)
    ids = pl.Series("user", rng.permutation(n_rows).astype(np.int64) * 3)
    table = pl.DataFrame(
        {
            "user": pl.select(pl.format("user-{}", ids)).to_series() if text_ids else ids,
            "treated": rng.integers(0, 2, n_rows, dtype=np.int8),
            "market": rng.integers(0, 1000, n_rows, dtype=np.int32),
            "clicks": rng.integers(-5, 7, n_rows, dtype=np.int8),
            "age": rng.normal(size=n_rows),
            "spend": rng.normal(size=n_rows),
        }
    )
    table.write_parquet(path)


def run_side(name: str, source: Path, target: Path) -> dict[str, float]:
    """One side, in this process."""
    if name != COPY:
        return SIDES[name].release(source, target)
    pl.scan_parquet(source).sink_parquet(target)
    return {}


def compare(title: str, n_rows: int, repeats: int, *, text_ids: bool) -> None:
    """Measure all sides in turn and print."""
    runs: dict[str, list[Measured]] = {name: [] for name in (COPY, *SIDES)}
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "table.parquet", Path(scratch) / "out"
        make_table(source, n_rows, text_ids=text_ids)
        for _ in range(repeats):
            for name, found in runs.items():
                found.append(measure("bench.files", "--side", name, source, target=target))
    print(f"{n_rows:,} rows, {title}")
    seconds = {name: min(run.seconds for run in found) for name, found in runs.items()}
    worked = {name: min(run.processor_seconds for run in found) for name, found in runs.items()}
    for name, found in runs.items():
        peak = max(run.peak_bytes for run in found) / 1e9
        print(
            f"  {name:28}{seconds[name]:7.1f} s{worked[name]:7.1f} processor-s   peak {peak:.2f} GB"
        )
        if name != COPY:
            goal = SIDES[name].text_goal if text_ids else SIDES[name].goal
            ratio, work = seconds[name] / seconds[COPY], worked[name] / worked[COPY]
            print(
                f"    {ratio:.2f} times the copy, {work:.2f} in processor time: the goal is at "
                f"most {goal}, and {PEAK_GOAL} GB"
            )
        fastest = min(found, key=lambda run: run.seconds)
        for stage, took in fastest.stages.items():
            print(f"      {stage:40}{took:6.1f} s")


def main() -> None:
    """Measure everything, or one side when asked to by `measure`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=[COPY, *SIDES])
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    if options.side:
        run_measured(lambda: run_side(options.side, *options.paths))
        return
    compare("integer ids", options.rows, options.repeats, text_ids=False)
    compare("string ids", options.rows // 5, options.repeats, text_ids=True)


if __name__ == "__main__":
    main()
