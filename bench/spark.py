"""A release by Spark beside plain copies of the same file by Spark, in one run.

    make bench

Every side runs in a process of its own on `local[2]`, in turn with the others: a copy, a copy
sorted by ids, the release in the order of ids, and the release in the order of the table. Prints
seconds, processor seconds of all processes of a side, the ratios beside their goals, with the start
of Spark and without it, and where the time goes; then how time and memory grow with rows and with
clusters. Processor seconds count Java's compiler and its garbage collection; they say more than
seconds where others use the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.measuring import Measured, Stopwatch, measure, run_measured
from clusterdp.engines.spark.session import started_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

MASTER = "local[2]"
N_CLUSTERS = 1000
MECHANISM = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2)
_STARTING = "starting Spark"


class Goal(NamedTuple):
    """What a release is compared with, and how many times as long it may take."""

    floor: str
    times: float


GOALS = {"release": Goal("sorted copy", 1.6), "release, order kept": Goal("copy", 2.5)}


def write_table(path: Path, n_rows: int, n_clusters: int) -> None:
    """Ids in random order, 2 arms, 12 outcomes and two columns of numbers, which are kept."""
    rng = np.random.default_rng(0)
    pl.DataFrame(
        {
            "user": rng.permutation(n_rows).astype(np.int64) * 3,
            # Every cell has rows.
            "treated": (np.arange(n_rows) % 2).astype(np.int8),
            "market": (np.arange(n_rows) // 2 % n_clusters).astype(np.int32),
            "clicks": rng.integers(-5, 7, n_rows, dtype=np.int8),
            "age": rng.normal(size=n_rows),
            "spend": rng.normal(size=n_rows),
        }
    ).write_parquet(path)


def run_copy(spark: SparkSession, source: Path, target: Path) -> dict[str, float]:
    """The plain copy."""
    start = time.perf_counter()
    spark.read.parquet(str(source)).write.parquet(str(target))
    return {"copying": time.perf_counter() - start}


def run_sorted_copy(spark: SparkSession, source: Path, target: Path) -> dict[str, float]:
    """The copy in the order of ids."""
    start = time.perf_counter()
    spark.read.parquet(str(source)).sort("user").write.parquet(str(target))
    return {"copying": time.perf_counter() - start}


def run_release(spark: SparkSession, source: Path, target: Path) -> dict[str, float]:
    """The release, with every check, its rows in the order of ids."""
    return _release(spark, source, target, keep_order=False)


def run_kept_order(spark: SparkSession, source: Path, target: Path) -> dict[str, float]:
    """The release, with every check, its rows in the order of the table."""
    return _release(spark, source, target, keep_order=True)


def _release(
    spark: SparkSession, source: Path, target: Path, *, keep_order: bool
) -> dict[str, float]:
    del spark  # the session of this process is used
    watch = Stopwatch()
    cdp.publish(
        source,
        out=target,
        progress=watch,
        mechanism=MECHANISM,
        outcomes={"clicks": "-5..6"},
        unit="user",
        arm="treated",
        cluster="market",
        passthrough=["age", "spend"],
        keep_order=keep_order,
        engine="spark",
    )
    return watch.seconds()


SIDES: dict[str, Callable[[SparkSession, Path, Path], dict[str, float]]] = {
    "copy": run_copy,
    "sorted copy": run_sorted_copy,
    "release": run_release,
    "release, order kept": run_kept_order,
}


def run_side(side: str, source: Path, target: Path) -> dict[str, float]:
    """One side, from the start of Spark to its end."""
    start = time.perf_counter()
    with started_session(MASTER) as spark:
        started = time.perf_counter() - start
        return {_STARTING: started, **SIDES[side](spark, source, target)}


def _measure(side: str, source: Path) -> Measured:
    return measure("bench.spark", "--side", side, source, target=source.with_name("out"))


def compare(n_rows: int, repeats: int) -> None:
    """Measure all sides in turn and print."""
    runs: dict[str, list[Measured]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "table.parquet"
        write_table(source, n_rows, N_CLUSTERS)
        for _ in range(repeats):
            for side, results in runs.items():
                results.append(_measure(side, source))
    print(f"{n_rows:,} rows, {N_CLUSTERS:,} clusters, Spark on {MASTER}, best of {repeats}")
    for side, found in runs.items():
        best = min(found, key=lambda run: run.seconds)
        worked = min(run.processor_seconds for run in found)
        peak = max(run.peak_bytes for run in found)
        print(
            f"  {side:24}{best.seconds:7.1f} s{worked:8.1f} processor s, peak {peak / 1e9:.2f} GB"
        )
        if side in GOALS:
            _print_ratios(found, runs[GOALS[side].floor], GOALS[side])
        _print_stages(best)


def _print_ratios(found: list[Measured], floor: list[Measured], goal: Goal) -> None:
    """The best of a side beside the best of what it is compared with."""
    kinds: dict[str, Callable[[Measured], float]] = {
        "seconds": lambda run: run.seconds,
        "processor seconds": lambda run: run.processor_seconds,
        "seconds without the start of Spark": lambda run: run.seconds - run.stages[_STARTING],
    }
    ratios = {kind: min(map(of, found)) / min(map(of, floor)) for kind, of in kinds.items()}
    verdict = "reached" if ratios["seconds"] <= goal.times else "missed"
    print(f"    times the {goal.floor}, at most {goal.times}: {verdict}")
    for kind, ratio in ratios.items():
        print(f"      {ratio:.2f} in {kind}")


def _print_stages(run: Measured) -> None:
    for stage, seconds in run.stages.items():
        print(f"    {stage:44}{seconds:6.1f} s   {seconds / run.seconds:4.0%}")


def scale(sizes: Sequence[tuple[int, int]]) -> None:
    """Releases of tables of so many rows and clusters, once each: time and memory per row."""
    print("| rows | clusters | s | processor-s | µs a row | GB | bytes a row |")
    print("|" + "---:|" * 7)
    for n_rows, n_clusters in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "table.parquet"
            write_table(source, n_rows, n_clusters)
            run = _measure("release", source)
        cells = [
            f"{n_rows:,}",
            f"{n_clusters:,}",
            f"{run.seconds:.1f}",
            f"{run.processor_seconds:.1f}",
            f"{1e6 * run.processor_seconds / n_rows:.2f}",
            f"{run.peak_bytes / 1e9:.2f}",
            f"{run.peak_bytes / n_rows:.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
        _print_stages(run)


def main() -> None:
    """Measure everything, or one side when asked to by `measure`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", choices=("ratios", "scaling"))
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    if options.side:
        run_measured(lambda: run_side(options.side, *options.paths))
        return
    if options.part != "scaling":
        compare(options.rows, options.repeats)
    if options.part != "ratios":
        rows = options.rows
        scale([(many, N_CLUSTERS) for many in (rows // 10, rows, 5 * rows)])
        scale([(rows, many) for many in (10, 100_000)])


if __name__ == "__main__":
    main()
