"""How time and memory grow with rows and clusters, on one machine, engine by engine."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

from soak.owner import Owner, release_options, write_table
from soak.processes import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = (1_000_000, 10_000_000, 50_000_000)
CLUSTERS = (10, 1_000, 100_000)
ENGINES = {"local": (), "spark": ("--engine", "spark", "--master", "local[2]")}
_SAMPLE_SECONDS = 0.1
# Of this machine's Spark, and of clusters that are reckoned with.
_CORES, _CLUSTERS_OF = 2, (32, 128, 512)


class Measured(NamedTuple):
    """One release.

    Attributes:
        engine: "local" or "spark".
        n_rows: Rows of the table.
        n_clusters: Its clusters.
        seconds: From reading the first byte to the published folder.
        peak_bytes: The most memory that the command and its children held at once.
    """

    engine: str
    n_rows: int
    n_clusters: int
    seconds: float
    peak_bytes: int

    @property
    def row_microseconds(self) -> float:
        """Time per row."""
        return 1e6 * self.seconds / self.n_rows

    @property
    def row_bytes(self) -> float:
        """Memory per row."""
        return self.peak_bytes / self.n_rows


def run_scaling(
    folder: Path,
    rows: tuple[int, ...] = ROWS,
    clusters: tuple[int, ...] = CLUSTERS,
    report: Callable[[Measured], None] = lambda _: None,
) -> list[Measured]:
    """Release tables of every size with every engine, one after another."""
    found = []
    for n_rows in rows:
        for n_clusters in clusters:
            source = write_table(folder / "table.parquet", n_rows, n_clusters)
            for engine in ENGINES:
                found.append(measure(engine, source, n_rows, n_clusters))
                report(found[-1])
            source.unlink()
    return found


def measure(engine: str, source: Path, n_rows: int, n_clusters: int) -> Measured:
    """One release, from when everything is loaded."""
    target = source.with_name("out")
    owner = Owner(*release_options(source, target), "--epsilon", 2, *ENGINES[engine])
    begun, peak = time.perf_counter(), 0
    owner.begin()
    while owner.runs():
        peak = max(peak, memory_of(owner.pid))
        time.sleep(_SAMPLE_SECONDS)
    seconds = time.perf_counter() - begun
    code, told = owner.wait()
    if code != 0:
        raise RuntimeError(told)
    shutil.rmtree(target)
    return Measured(engine, n_rows, n_clusters, seconds, peak)


def as_table(found: list[Measured]) -> str:
    """The figures as a Markdown table, with both engines side by side."""
    lines = [
        "| rows | clusters | local | | | | Spark, `local[2]` | | | |",
        "|---:|---:|" + "---:|" * 8,
        "| | |" + " seconds | µs a row | GB | bytes a row |" * 2,
    ]
    by_size: dict[tuple[int, int], dict[str, Measured]] = {}
    for one in found:
        by_size.setdefault((one.n_rows, one.n_clusters), {})[one.engine] = one
    for (n_rows, n_clusters), engines in by_size.items():
        cells = [f"{n_rows:,}", f"{n_clusters:,}"]
        for engine in ENGINES:
            one = engines[engine]
            cells += [f"{one.seconds:.1f}", f"{one.row_microseconds:.2f}"]
            cells += [f"{one.peak_bytes / 1e9:.2f}", f"{one.row_bytes:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def as_guide(found: list[Measured]) -> str:
    """What the figures say of larger tables on a cluster: a Markdown table, with its arithmetic."""
    spark = {one.n_rows: one for one in found if one.engine == "spark" and one.n_clusters == 1000}
    small, middle, large = (spark[n_rows] for n_rows in ROWS)
    per_row = _CORES * (large.seconds - middle.seconds) / (large.n_rows - middle.n_rows)
    seconds = f"({large.seconds:.1f} - {middle.seconds:.1f}) s"
    rows = f"({large.n_rows:,} - {middle.n_rows:,})"
    lines = [
        f"core-microseconds a row: {_CORES} x {seconds} / {rows} = {1e6 * per_row:.2f}",
        f"to start: {small.seconds:.0f} s, a table of {small.n_rows:,} rows included",
        "",
        "| rows | " + " | ".join(f"{cores} cores" for cores in _CLUSTERS_OF) + " |",
        "|---:|" + "---:|" * len(_CLUSTERS_OF),
    ]
    for n_rows in (10**9, 10**10):
        times = [(small.seconds + per_row * n_rows / cores) / 60 for cores in _CLUSTERS_OF]
        lines.append(f"| {n_rows:,} | " + " | ".join(f"{one:.1f} min" for one in times) + " |")
    return "\n".join(lines)
