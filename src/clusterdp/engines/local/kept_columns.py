"""Do kept columns reveal the outcome? Counted over all rows of a local table, value by value."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clusterdp.rows.column_leak import ValueCounter, counts_reveal_outcome, n_bins

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray
    from clusterdp.rows.batches import RowEncoder

# How many numbers the ends of bins are chosen from.
_SAMPLED_NUMBERS = 2**18
# Bins times outcomes that an array may have.
_MOST_COUNTS = 2**24


class _Counter(Protocol):
    """How many rows have each value of a column, and each outcome."""

    def add(self, values: pl.Series, codes: CodeArray) -> None:
        """Take in a batch. Safe to call from several threads."""
        ...

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        ...


def revealing_columns(
    rows: pl.LazyFrame, encoder: RowEncoder, n_rows: int
) -> list[tuple[str, tuple[str, ...]]]:
    """The kept columns that give the outcomes of a block away, with these outcomes.

    All rows are read, once.
    """
    columns = encoder.columns
    if not columns.kept:
        return []
    kept = rows.select(columns.kept)
    counters = [_counters(kept, n_rows, one.space.n_categories) for one in encoder.blocks]

    def count(batch: pl.DataFrame) -> pl.DataFrame:
        for block, of_block in zip(encoder.blocks, counters, strict=True):
            codes = block(batch).categories
            for name, counter in of_block.items():
                counter.add(batch[name], codes)
        return batch.clear()

    read = rows.select(*counters[0], *columns.outcomes)
    read.map_batches(count, streamable=True).collect(engine="streaming")
    return [
        (name, block.space.declared.names)
        for block, of_block in zip(encoder.blocks, counters, strict=True)
        for name, counter in of_block.items()
        if counter.reveals_outcome()
    ]


def _counters(kept: pl.LazyFrame, n_rows: int, n_outcomes: int) -> dict[str, _Counter]:
    """What counts each column; columns that hardly ever repeat a value are left out."""
    import polars as pl

    schema = kept.collect_schema()
    n_values = (
        kept.select(pl.all().approx_n_unique()).collect(engine="streaming").row(0, named=True)
    )
    numbers = [
        name
        for name, kind in schema.items()
        if (kind.is_numeric() or kind.is_temporal()) and n_values[name] > n_bins(n_rows)
    ]
    counters: dict[str, _Counter] = {
        name: ValueCounter(n_outcomes)
        for name in schema
        if name not in numbers and n_values[name] <= n_rows / 2
    }
    step = max(1, n_rows // _SAMPLED_NUMBERS)
    query = kept.select(pl.col(numbers).to_physical().cast(pl.Float64)).gather_every(step)
    for sample in query.collect(engine="streaming") if numbers else ():
        counters[sample.name] = _BinCounter(_bin_ends(sample, n_rows), n_outcomes)
    return counters


def _bin_ends(sample: pl.Series, n_rows: int) -> FloatArray:
    numbers = sample.drop_nulls().drop_nans().to_numpy()
    shares = np.arange(1, n_bins(n_rows)) / n_bins(n_rows)
    return np.unique(np.quantile(numbers, shares, method="lower")) if len(numbers) else numbers


class _BinCounter:
    """Counts numbers by bins. An end has a bin of its own, since many rows may share it."""

    def __init__(self, ends: FloatArray, n_outcomes: int) -> None:
        # Of very many outcomes, those beyond what an array can hold count as one.
        self._n_codes = min(n_outcomes, _MOST_COUNTS // (2 * len(ends) + 1))
        self._ends, self._lock = ends, threading.Lock()
        self._counts = np.zeros((2 * len(ends) + 1) * self._n_codes, dtype=np.int64)

    def add(self, values: pl.Series, codes: CodeArray) -> None:
        """Take in a batch."""
        import polars as pl

        numbers = values.to_physical().cast(pl.Float64).fill_null(np.nan).to_numpy()
        places = np.searchsorted(self._ends, numbers)
        is_end = np.append(self._ends, np.nan)[places] == numbers
        bins = 2 * places + is_end
        kinds = bins * self._n_codes + np.minimum(codes, self._n_codes - 1)
        counted = np.bincount(kinds, minlength=len(self._counts))
        with self._lock:
            self._counts += counted

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        return counts_reveal_outcome(self._counts.reshape(-1, self._n_codes))
