"""Estimates with segments beside a DuckDB query of the same tables, with grouping sets, in one run.

    make bench

Each side runs in a process of its own, alternating, after the others; the best of some runs counts.
The analyst's table is in memory, and libraries are loaded, before the clock starts; a large one
stays on disk, and is read by both sides. Prints seconds, seconds of processor time, ratios of both,
and peak memory. On a busy machine, go by processor time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import clusterdp as cdp

DIMENSIONS = ("tier", "region", "device")
_LABELS = {
    "tier": ["basic", "gold", "new", "silver"],
    "region": [f"region {place}" for place in range(12)],
    "device": ["android", "ios", "web"],
}
_QUERY = """
select arm, market, tier, region, device,
       count(*), avg(clicks_debiased), var_samp(clicks_debiased)
from '{units}' left join {segments} using (user)
group by grouping sets
    ((arm, market), (arm, market, tier), (arm, market, region), (arm, market, device))
"""
# What estimates load when they are first made.
_LIBRARIES = (
    "clarabel",
    "clusterdp.estimation.estimate",
    "scipy.linalg",
    "scipy.sparse",
    "scipy.special",
)
_KEPT = _QUERY.replace(" left join {segments} using (user)", "")


def make(folder: Path, n_rows: int, *, kept: bool) -> None:
    """A release of two arms in 200 clusters, and an analyst's table in another order.

    Args:
        folder: Where to write them.
        n_rows: How many units there are.
        kept: Whether the release itself has the columns of segments; then there is no other table.
    """
    rng = np.random.default_rng(0)
    ids = rng.permutation(n_rows).astype(np.int64) * 3
    arms = pl.Series(["control", "mail"], dtype=pl.Enum(["control", "mail"]))
    units = {
        "user": pl.Series(ids),
        "arm": arms.gather(rng.integers(0, 2, n_rows)),
        "market": pl.Series(rng.integers(0, 200, n_rows, dtype=np.int32)),
        "clicks": pl.Series(rng.integers(0, 6, n_rows, dtype=np.int8)),
    }
    texts = {
        name: pl.Series(labels, dtype=pl.Enum(labels)).gather(rng.integers(0, len(labels), n_rows))
        for name, labels in _LABELS.items()
    }
    table = pl.DataFrame({**units, **texts} if kept else units)
    cdp.publish(
        table,
        out=folder / "published",
        unit="user",
        arm="arm",
        control="control",
        cluster="market",
        outcomes={"clicks": "0..5"},
        epsilon=2,
        passthrough=DIMENSIONS if kept else (),
    )
    if not kept:
        before = rng.normal(size=n_rows)
        mine = pl.DataFrame({"user": ids, **texts, "before": before})
        mine.with_columns(pl.col(DIMENSIONS).cast(pl.String)).write_parquet(folder / "mine.parquet")


def run(side: str, folder: Path, *, stored: bool) -> dict[str, float]:
    """One side: how long it took, and how much memory the process needed.

    Args:
        side: `duckdb`, `estimate` or `adjusted`.
        folder: Where `make` wrote.
        stored: Whether the analyst's table stays on disk.
    """
    import duckdb

    for name in _LIBRARIES:
        import_module(name)
    mine = folder / "mine.parquet"
    segments: pl.DataFrame | pl.LazyFrame | None = None
    if mine.exists():
        segments = pl.scan_parquet(mine) if stored else pl.read_parquet(mine)
    start, used = time.perf_counter(), time.process_time()
    if side == "duckdb":
        query = _KEPT if segments is None else _QUERY
        names = {"segments": f"'{mine}'" if stored else "segments"}
        units = folder / "published" / "units.parquet"
        duckdb.execute(query.format(units=units, **names)).fetchall()
    else:
        adjust = ("before",) if side == "adjusted" else ()
        cdp.estimate(folder / "published", segments=segments, by=DIMENSIONS, adjust=adjust)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {"seconds": seconds, "processor": processor, "peak_gb": peak}


def compare(name: str, sides: tuple[str, ...], n_rows: int, repeats: int, *flags: str) -> None:
    """Make a release, and time all sides alternating; flags as of the command line."""
    with tempfile.TemporaryDirectory() as place:
        _child("--make", place, "--rows", str(n_rows), *flags)
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(repeats):
            for side in sides:
                runs[side].append(json.loads(_child("--side", side, place, *flags)))
    best = {
        side: [min(one[what] for one in found) for what in ("seconds", "processor")]
        for side, found in runs.items()
    }
    print(f"{name}: {n_rows:,} rows, segments by {', '.join(DIMENSIONS)}")
    for side, found in runs.items():
        peak = max(one["peak_gb"] for one in found)
        of_duckdb = [own / other for own, other in zip(best[side], best["duckdb"], strict=True)]
        print(
            f"  {side:9s} {best[side][0]:6.2f} s, {best[side][1]:6.2f} s of processors;  "
            f"{of_duckdb[0]:.2f} and {of_duckdb[1]:.2f} times DuckDB;  peak {peak:.2f} GB"
        )


def _child(*arguments: str) -> str:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - this file, by this Python
    return done.stdout


def main() -> None:
    """All comparisons; or, in a process of its own, one side of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--side")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--large-rows", type=int, default=50_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.make is not None:
        make(given.make, given.rows, kept=given.kept)
    elif given.side is not None:
        print(json.dumps(run(given.side, given.folder, stored=given.stored)))
    else:
        sides = ("duckdb", "estimate", "adjusted")
        compare("joined", sides, given.rows, given.repeats)
        if given.large_rows:
            compare("joined from disk", sides, given.large_rows, 1, "--stored")
            compare("kept", sides[:2], given.large_rows, 1, "--kept")


if __name__ == "__main__":
    main()
