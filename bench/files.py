"""A release of a large file beside a plain Polars copy of the same columns, in one run.

    make bench

Each side runs in a process of its own, alternating, after the other; the best of some runs counts.
Prints seconds, the ratio, peak memory, and where the time goes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import psutil

import clusterdp as cdp
from clusterdp.engines.base import no_progress
from clusterdp.experiment.categories import Categories
from clusterdp.experiment.declared import declare
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.to_folder import write_release
from clusterdp.rows.columns import Columns
from clusterdp.storage.folder import LocalFolder

if TYPE_CHECKING:
    from collections.abc import Callable

_SAMPLE_SECONDS = 0.02
COLUMNS = Columns(
    unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("age", "spend")
)


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


class Stopwatch:
    """Notes when each stage of a release starts."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, float]] = [("reading public columns", time.perf_counter())]

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:  # noqa: ARG002 - a protocol
        """Start a stage."""
        self.starts.append((name, time.perf_counter()))
        return no_progress

    def seconds(self) -> dict[str, float]:
        """How long each stage took."""
        ends = [start for _, start in self.starts[1:]] + [time.perf_counter()]
        return {name: end - start for (name, start), end in zip(self.starts, ends, strict=True)}


def run_copy(source: Path, target: Path) -> dict[str, float]:
    """The plain copy."""
    pl.scan_parquet(source).sink_parquet(target)
    return {}


def run_release(source: Path, target: Path) -> dict[str, float]:
    """The release, with every check, its rows in the order of ids."""
    return _run_release(source, target, keep_order=False)


def run_kept_order(source: Path, target: Path) -> dict[str, float]:
    """The release, with every check, its rows in the order of the table."""
    return _run_release(source, target, keep_order=True)


def _run_release(source: Path, target: Path, *, keep_order: bool) -> dict[str, float]:
    watch = Stopwatch()
    space = Categories(declared=declare({"clicks": "-5..6"}))
    prepared = prepare(source, columns=COLUMNS, spaces=(space,), keep_order=keep_order)
    mechanism = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2)
    write_release(prepared, [mechanism], LocalFolder(target), watch)
    return watch.seconds()


def measure(side: str, source: Path, folder: Path) -> dict[str, Any]:
    """Run one side in a process of its own, and look at its memory from outside meanwhile."""
    target = folder / f"{side}-{time.monotonic_ns()}"
    command = [sys.executable, __file__, "--side", side, str(source), str(target)]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        seen = psutil.Process(child.pid)
        while child.poll() is None:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                peak = max(peak, seen.memory_info().rss)
            time.sleep(_SAMPLE_SECONDS)
        told, _ = child.communicate()
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, command)
    subprocess.run(["rm", "-rf", str(target)], check=True)  # noqa: S603, S607
    return {**json.loads(told), "peak_gb": peak / 1e9}


def compare(name: str, n_rows: int, repeats: int, *, text_ids: bool) -> None:
    """Measure both sides in turn and print."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = folder / "table.parquet"
        make_table(source, n_rows, text_ids=text_ids)
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for _ in range(repeats):
            for side, results in runs.items():
                results.append(measure(side, source, folder))
    best = {side: min(results, key=lambda run: run["seconds"]) for side, results in runs.items()}
    print(f"{n_rows:,} rows, {name}")
    for side, run in best.items():
        ratio = run["seconds"] / best["copy"]["seconds"]
        print(
            f"  {side:24}{run['seconds']:7.1f} s   peak {run['peak_gb']:.2f} GB   "
            f"{ratio:.2f} times the copy"
        )
        for stage, seconds in run["stages"].items():
            print(f"    {stage:28}{seconds:6.1f} s")


SIDES: dict[str, Callable[[Path, Path], dict[str, float]]] = {
    "copy": run_copy,
    "release": run_release,
    "release, order kept": run_kept_order,
}


def main() -> None:
    """Measure everything, or one side when asked to by `measure`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    if options.side:
        start = time.perf_counter()
        stages = SIDES[options.side](*options.paths)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "stages": stages}))
        return
    compare("integer ids", options.rows, options.repeats, text_ids=False)
    compare("string ids", options.rows // 5, options.repeats, text_ids=True)


if __name__ == "__main__":
    main()
