"""How the time and memory of a local release grow with rows, clusters and outcomes.

    make bench-scaling

Each release runs in a process of its own. It is the whole of `clusterdp release` at ε = 2: public
columns, plan, passes, noise, files. One size changes at a time, the others stay. Prints time and
memory per row, the share of each stage, and what a row more costs:
`docs/studies/scale.md`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

import clusterdp as cdp
from bench.measuring import Measured, Stopwatch, measure, run_measured

_STAGES = {
    "public columns, plan": ("reading public columns and planning",),
    "passes": (
        "counting cells",
        "randomizing rows",
        "counting cells and randomizing rows",
        "taking a pilot",
    ),
    "noise": ("drawing noise and designing the channel",),
    "files": ("sealing the folder",),
}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a table.

    Attributes:
        rows: How many units.
        clusters: How many clusters.
        outcomes: How many outcomes, of four values each; each has a channel of its own.
        text_labels: Whether clusters are named by text.
    """

    rows: int
    clusters: int = 1000
    outcomes: int = 1
    text_labels: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the outcomes."""
        return [f"y{place}" for place in range(self.outcomes)]

    def write(self, path: Path) -> None:
        """Such a table, its ids in the order of rows."""
        row = pl.int_range(self.rows, eager=True)
        mixed = row.hash()  # whatever pilots random will do, and needs no seed
        market = row // 2 % self.clusters
        labels = pl.select(pl.format("market {}", market)).to_series()
        table = {"user": row, "treated": (row % 2).cast(pl.Int8)}
        table["market"] = labels if self.text_labels else market.cast(pl.Int32)
        table |= {
            name: (mixed // 4**place % 4).cast(pl.Int8) for place, name in enumerate(self.names)
        }
        pl.DataFrame(table | {"age": (mixed // 10007 % 80).cast(pl.Float64)}).write_parquet(path)

    def release(self, source: Path, target: Path) -> dict[str, float]:
        """Release it."""
        watch = Stopwatch()
        cdp.publish(
            source,
            out=target,
            progress=watch,
            epsilon=2,
            unit="user",
            arm="treated",
            cluster="market",
            outcomes=dict.fromkeys(self.names, "0..3"),
            question=self.names,
            passthrough=["age"],
        )
        return watch.seconds()


def sizes(unit: int) -> dict[str, list[Size]]:
    """What is measured; tables have 1, 10 and 50 units of rows."""
    middle = Size(10 * unit)
    clusters = [10, 1000, 100_000, 1_000_000]
    return {
        "rows": [replace(middle, rows=many * unit) for many in (1, 10, 50)],
        "clusters": [replace(middle, clusters=many) for many in clusters],
        "clusters, named by text": [
            replace(middle, clusters=many, text_labels=True) for many in clusters[2:]
        ],
        "outcomes": [replace(middle, outcomes=many) for many in range(1, 6)],
    }


def as_line(size: Size, run: Measured) -> str:
    """A row of the table."""
    shares = [
        sum(run.stages.get(name, 0.0) for name in names) / run.seconds for names in _STAGES.values()
    ]
    cells = [
        f"{size.rows:,}",
        f"{size.clusters:,}" + (" (text)" if size.text_labels else ""),
        f"{size.outcomes}",
        f"{run.seconds:.1f}",
        f"{run.processor_seconds:.1f}",
        f"{1e6 * run.processor_seconds / size.rows:.2f}",
        f"{run.peak_bytes / 1e9:.2f}",
        f"{run.peak_bytes / size.rows:.0f}",
        *(f"{share:.0%}" for share in shares),
    ]
    return "| " + " | ".join(cells) + " |"


def print_tables(found: dict[str, dict[Size, Measured]]) -> None:
    """The figures in Markdown, and what a row more costs."""
    columns = ["rows", "clusters", "outcomes", "s", "processor-s", "µs a row", "GB", "bytes a row"]
    for title, runs in found.items():
        print(f"\nBy {title}:\n\n| " + " | ".join([*columns, *_STAGES]) + " |")
        print("|" + "---:|" * (len(columns) + len(_STAGES)))
        for size, run in runs.items():
            print(as_line(size, run))
    (small, first), *_, (large, last) = found["rows"].items()
    more = large.rows - small.rows
    row_work = (last.processor_seconds - first.processor_seconds) / more
    row_bytes = (last.peak_bytes - first.peak_bytes) / more
    print(
        f"\na row more, from {small.rows:,} to {large.rows:,}: {1e6 * row_work:.3f} processor-µs "
        f"and {row_bytes:.1f} bytes"
    )


def main() -> None:
    """Measure everything, or one size when asked to by `measure`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--unit", type=int, default=1_000_000)
    parser.add_argument("--size", nargs=4, type=int, help="rows clusters outcomes text")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    if options.size:
        rows, clusters, outcomes, text = options.size
        run_measured(lambda: Size(rows, clusters, outcomes, bool(text)).release(*options.paths))
        return
    done: dict[Size, Measured] = {}
    wanted = sizes(options.unit)
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "table.parquet", Path(scratch) / "out"
        for size in dict.fromkeys(size for of_title in wanted.values() for size in of_title):
            size.write(source)
            numbers = (int(number) for number in asdict(size).values())
            done[size] = measure("bench.scaling", "--size", *numbers, "--", source, target=target)
            print(as_line(size, done[size]), flush=True)
    print_tables({title: {size: done[size] for size in listed} for title, listed in wanted.items()})


if __name__ == "__main__":
    main()
