"""A release by Spark beside plain copies of the same file by Spark, in one run.

    make bench

Every side runs in a process of its own on `local[2]`, in turn with the others: a copy, a copy
sorted by ids, the release in the order of ids, and the release in the order of the table. Prints
seconds, processor seconds of all processes of a side, the ratios beside their goals, and where the
time goes; then time and memory per row as rows and clusters grow. Processor seconds count Java's
compiler and its garbage collection; they say more than seconds where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import psutil

import clusterdp as cdp
from bench.measuring import Stopwatch
from clusterdp.engines.spark.engine import SparkEngine
from clusterdp.engines.spark.session import started_session
from clusterdp.experiment.categories import Categories
from clusterdp.experiment.declared import declare
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.to_folder import write_release
from clusterdp.rows.columns import Columns
from clusterdp.storage.folder import LocalFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

MASTER = "local[2]"
COLUMNS = Columns(
    unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("age", "spend")
)
_SAMPLE_SECONDS = 0.5
_STARTING = "starting Spark"
# What each release is compared with, and how many times as long it may take.
GOALS = {"release": ("sorted copy", 1.6), "release, order kept": ("copy", 2.5)}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one side.

    Attributes:
        seconds: From the start of Spark to its end.
        processor_seconds: Of all processes.
        peak_bytes: The most memory that they held at once; what they share counts once.
        stages: Seconds by stage.
    """

    seconds: float
    processor_seconds: float
    peak_bytes: int
    stages: dict[str, float]


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
    spark.read.parquet(str(source)).sort(COLUMNS.unit).write.parquet(str(target))
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
    watch = Stopwatch()
    space = Categories(declared=declare({"clicks": "-5..6"}))
    prepared = prepare(
        str(source),
        columns=COLUMNS,
        spaces=(space,),
        keep_order=keep_order,
        engine=SparkEngine(spark),
    )
    mechanism = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2)
    write_release(prepared, [mechanism], LocalFolder(target), watch)
    return watch.seconds()


SIDES: dict[str, Callable[[SparkSession, Path, Path], dict[str, float]]] = {
    "copy": run_copy,
    "sorted copy": run_sorted_copy,
    "release": run_release,
    "release, order kept": run_kept_order,
}


def run_side(side: str, source: Path, target: Path) -> dict[str, Any]:
    """One side, from the start of Spark to its end."""
    start = time.perf_counter()
    with started_session(MASTER) as spark:
        started = time.perf_counter() - start
        stages = SIDES[side](spark, source, target)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "stages": {_STARTING: started, **stages}}


def measure(side: str, source: Path) -> Measured:
    """Run one side in a process of its own, and look at it from outside meanwhile."""
    target = source.with_name(f"{side}-{time.monotonic_ns()}")
    command = [sys.executable, "-m", "bench.spark", "--side", side, str(source), str(target)]
    peak, spent = 0, dict[int, float]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        while child.poll() is None:
            memory, processor = _look_at(child.pid)
            peak, spent = max(peak, memory), {**spent, **processor}
            time.sleep(_SAMPLE_SECONDS)
        told, _ = child.communicate()
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, command)
    shutil.rmtree(target)
    found = json.loads(told.splitlines()[-1])
    return Measured(found["seconds"], sum(spent.values()), peak, found["stages"])


def _look_at(root: int) -> tuple[int, dict[int, float]]:
    """Bytes that a process and its children hold, and the processor seconds of each so far."""
    memory, spent = 0, {}
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                spent[one.pid] = times.user + times.system
                memory += one.memory_full_info().pss
    return memory, spent


def compare(n_rows: int, n_clusters: int, repeats: int) -> None:
    """Measure all sides in turn and print."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "table.parquet"
        write_table(source, n_rows, n_clusters)
        runs: dict[str, list[Measured]] = {side: [] for side in SIDES}
        for _ in range(repeats):
            for side, results in runs.items():
                results.append(measure(side, source))
    best = {side: min(found, key=lambda run: run.seconds) for side, found in runs.items()}
    least = {side: min(run.processor_seconds for run in found) for side, found in runs.items()}
    print(f"{n_rows:,} rows, {n_clusters:,} clusters, Spark on {MASTER}, best of {repeats}")
    for side, run in best.items():
        print(
            f"  {side:24}{run.seconds:7.1f} s{least[side]:8.1f} processor s   "
            f"peak {run.peak_bytes / 1e9:.2f} GB"
        )
        if side in GOALS:
            floor, goal = GOALS[side]
            ratio = run.seconds / best[floor].seconds
            verdict = "reached" if ratio <= goal else "missed"
            print(
                f"    {ratio:.2f} times the {floor}, {least[side] / least[floor]:.2f} in processor "
                f"seconds; goal {goal}: {verdict}"
            )
        _print_stages(run)


def _print_stages(run: Measured) -> None:
    for stage, seconds in run.stages.items():
        print(f"    {stage:44}{seconds:6.1f} s   {seconds / run.seconds:4.0%}")


def scale(rows: Sequence[int], clusters: Sequence[int]) -> None:
    """Releases of every size, once each: time and memory per row, and the share of each stage."""
    print("rows, clusters: seconds, processor µs a row, GB, bytes a row; share of each stage")
    for n_rows in rows:
        for n_clusters in clusters:
            with tempfile.TemporaryDirectory() as scratch:
                source = Path(scratch) / "table.parquet"
                write_table(source, n_rows, n_clusters)
                run = measure("release", source)
            shares = ", ".join(
                f"{stage} {seconds / run.seconds:.0%}" for stage, seconds in run.stages.items()
            )
            print(
                f"  {n_rows:,}, {n_clusters:,}: {run.seconds:.1f} s, "
                f"{1e6 * run.processor_seconds / n_rows:.2f} µs, {run.peak_bytes / 1e9:.2f} GB, "
                f"{run.peak_bytes / n_rows:.0f} bytes; {shares}"
            )


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
        print(json.dumps(run_side(options.side, *options.paths)))
        return
    if options.part != "scaling":
        compare(options.rows, 1000, options.repeats)
    if options.part != "ratios":
        scale((options.rows // 10, options.rows), (10, 1000, 100_000))


if __name__ == "__main__":
    main()
