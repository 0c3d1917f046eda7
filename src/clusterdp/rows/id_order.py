"""Rows in the order of their ids, also of tables that do not fit into memory.

The order of a table can depend on outcomes; the order of ids cannot. Small tables are sorted in
memory. A larger one is first split into ranges of ids, in files of a private folder, and then each
range is sorted. Only randomized rows are ever stored there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.sorted_ids import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

# Rows that are sorted in memory at once.
_ROWS_IN_MEMORY = 2**21
# Ids that the ranges are chosen from, per range. Ranges only have to be of similar size: the sorted
# rows do not depend on them.
_IDS_PER_RANGE = 2**12
_FEW_ENDS = 64
# A name that no column of a user has.
_RANGE = "__clusterdp_range"


def in_order_of_ids(
    rows: pl.LazyFrame, ids: pl.LazyFrame, n_rows: int, scratch: Path
) -> Iterator[pl.DataFrame]:
    """The same rows, sorted by their first column, a part at a time.

    Args:
        rows: Randomized rows, ids first. This query is evaluated once, before anything is returned.
        ids: The same ids as a query of their own.
        n_rows: How many rows there are.
        scratch: A folder that does not exist yet, within a private one. The caller removes it.
    """
    n_ranges = -(-n_rows // _ROWS_IN_MEMORY)
    unit = rows.collect_schema().names()[0]
    if n_ranges == 1:
        return iter((sorted_rows(rows.collect(engine="streaming"), unit),))
    _split(rows, unit, _range_ends(ids, n_rows, n_ranges), scratch)
    return _sorted_ranges(scratch, unit, n_ranges)


def one_by_one(parts: Iterator[pl.DataFrame], schema: pl.Schema) -> pl.LazyFrame:
    """A query, to be evaluated once and as a whole, that takes one part of its rows at a time."""
    from polars.io.plugins import register_io_source

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        assert columns is None and predicate is None and most is None  # noqa: S101, PT018
        yield from parts

    return register_io_source(read, schema=schema)


def _range_ends(ids: pl.LazyFrame, n_rows: int, n_ranges: int) -> pl.Series:
    """Ids that cut the sorted ids into ranges of similar size."""
    step = max(1, n_rows // (n_ranges * _IDS_PER_RANGE))
    some = ids.gather_every(step).collect(engine="streaming").to_series()
    sample = unnamed(some).unique().sort()
    places = [len(sample) * number // n_ranges for number in range(1, n_ranges)]
    return sample.gather(places).unique(maintain_order=True)


def _split(rows: pl.LazyFrame, unit: str, ends: pl.Series, folder: Path) -> None:
    """Write every range of ids into files of its own."""
    import polars as pl

    def number_ranges(batch: pl.DataFrame) -> pl.DataFrame:
        numbers = _range_numbers(unnamed(batch[unit]), ends)
        return batch.with_columns(numbers.cast(pl.Int32).alias(_RANGE))

    schema = pl.Schema({**rows.collect_schema(), _RANGE: pl.Int32()})
    folder.mkdir(mode=0o700)
    rows.map_batches(number_ranges, streamable=True, schema=schema).sink_ipc(
        pl.PartitionBy(folder, key=_RANGE, include_key=False), compression="uncompressed"
    )


def _range_numbers(ids: pl.Series, ends: pl.Series) -> pl.Series:
    """How many ends lie below each id."""
    import polars as pl

    if not ids.dtype.is_integer() or len(ends) > _FEW_ENDS:
        return ends.search_sorted(ids, side="left")
    # To compare every id with every end takes less than to search for each id's place.
    numbers, below = ids.to_numpy(), np.zeros(len(ids), dtype=np.uint8)
    for end in ends.to_numpy():
        below += numbers > end
    return pl.Series(below)


def _sorted_ranges(folder: Path, unit: str, n_ranges: int) -> Iterator[pl.DataFrame]:
    """One range after another, each sorted, so that one at a time is in memory."""
    import polars as pl

    def sort(number: int) -> pl.DataFrame | None:
        files = sorted((folder / f"{_RANGE}={number}").glob("*"))
        if not files:
            return None
        return sorted_rows(pl.scan_ipc(files).collect(engine="streaming"), unit)

    # While one is written, the next is sorted.
    with ThreadPoolExecutor(1) as ahead:
        following = ahead.submit(sort, 0)
        for number in range(1, n_ranges + 1):
            current, following = following.result(), ahead.submit(sort, number)
            if current is not None:
                yield current
