"""Do kept columns reveal outcomes or private clusters? Looked at while published; it only warns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.column_leak import (
    ValueCounter,
    bin_ends,
    bins_of,
    counts_reveal_outcome,
    has_order,
    label_notice,
    leak_notice,
    some_numbers,
)
from clusterdp.rows.labels import plain_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.rows.batches import EncodedRows, RowEncoder

# Of numbers, about this many rows are looked at: more than enough for bins of some rows each.
_SAMPLED_NUMBERS = 2**19
# Values and outcomes that are counted of other columns.
_MOST_COUNTED = 2**21
# Bins times outcomes that an array may have.
_MOST_COUNTS = 2**24


class _Column(Protocol):
    """How the values of a column go with outcomes."""

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:
        """Take in successive rows. Safe to call from several threads."""
        ...

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        ...


class KeptColumns:
    """Looks at the kept columns of a table, batch by batch."""

    def __init__(self, encoder: RowEncoder, schema: pl.Schema, n_rows: int) -> None:
        self._encoder = encoder
        self._blocks = [
            {
                name: _column(schema[name], n_rows, block.space.n_categories)
                for name in encoder.columns.kept
            }
            for block in encoder.blocks
        ]
        noisy, kept = encoder.cells.noisy, encoder.columns.kept
        n_labels = 0 if noisy is None else noisy.response.n_labels
        # Of private clusters; there are none where they are public.
        self._labels = {name: _column(schema[name], n_rows, n_labels) for name in kept if n_labels}

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Take in successive rows."""
        if not rows.sound:
            return
        for block, columns in zip(rows.blocks, self._blocks, strict=True):
            for name, column in columns.items():
                column.add(first_row, unnamed(batch[name]), block.categories)
        noisy, cluster = self._encoder.cells.noisy, self._encoder.columns.cluster
        if noisy is None or cluster is None:
            return
        for name, column in self._labels.items():
            column.add(first_row, unnamed(batch[name]), noisy.own(batch[cluster]).codes)

    def notices(self) -> tuple[str, ...]:
        """Warnings to the owner about columns that reveal the outcomes of a block."""
        return tuple(self._found())

    def _found(self) -> Iterator[str]:
        for block, columns in zip(self._encoder.blocks, self._blocks, strict=True):
            for name, column in columns.items():
                if column.reveals_outcome():
                    yield leak_notice(name, block.space.declared.names)
        for name, column in self._labels.items():
            if column.reveals_outcome():
                yield label_notice(name, self._encoder.columns.cluster or "")


def _column(kind: pl.DataType, n_rows: int, n_outcomes: int) -> _Column:
    if has_order(kind):
        return _Numbers(n_rows, n_outcomes)
    return _Values(n_outcomes)


class _Numbers:
    """Numbers and times of every so many rows, to be put into bins in the end."""

    def __init__(self, n_rows: int, n_outcomes: int) -> None:
        # An odd step, so that tables that alternate are not looked at on one side alone.
        self._step = 1 if n_rows < 2 * _SAMPLED_NUMBERS else (n_rows // _SAMPLED_NUMBERS) | 1
        self._n_outcomes, self._lock = n_outcomes, threading.Lock()
        self._held: list[tuple[FloatArray, CodeArray]] = []

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:
        """Take in the rows whose numbers are multiples of the step."""
        some = slice(-first_row % self._step, None, self._step)
        taken = some_numbers(values, some), codes[some].copy()
        with self._lock:
            self._held.append(taken)

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        values, codes = map(np.concatenate, zip(*self._held, strict=True))
        return counts_reveal_outcome(_count_bins(values, codes, self._n_outcomes))


def _count_bins(values: FloatArray, codes: CodeArray, n_codes: int) -> IntArray:
    """How many rows have each outcome in each bin; axes `[bin, outcome]`."""
    ends = bin_ends(values)
    many = 2 * len(ends) + 2
    # Of very many outcomes, those beyond what an array can hold count as one.
    n_codes = min(n_codes, max(1, _MOST_COUNTS // many))
    kinds = bins_of(values, ends) * n_codes + np.minimum(codes, n_codes - 1)
    return np.bincount(kinds, minlength=many * n_codes).reshape(-1, n_codes)


class _Values:
    """Counts all rows of some values of a column: of all of them, or of as many as can be held.

    Which ones follows from their hashes. Some rows of every value would not do: a value that few
    rows share would then be one that hardly any do.
    """

    def __init__(self, n_outcomes: int) -> None:
        self._counter, self._lock = ValueCounter(n_outcomes), threading.Lock()
        self._limit = 2**64 - 1

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:  # noqa: ARG002 - as numbers
        """Take in the rows of values whose hash is within the limit."""
        import polars as pl

        hashes, numbers = plain_column(values).hash(), pl.Series(codes)
        limit = self._limit
        if limit < 2**64 - 1:
            within = hashes <= limit
            hashes, numbers = hashes.filter(within), numbers.filter(within)
        self._counter.add(hashes, numbers.to_numpy())
        with self._lock:
            while self._counter.n_held > _MOST_COUNTED and self._limit:
                self._limit //= 2
                self._counter.keep_up_to(self._limit)

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        self._counter.keep_up_to(self._limit)  # what a slower thread added meanwhile
        return self._counter.reveals_outcome()
