"""Pass 1 on Spark's workers: count a partition, add up what partitions counted, compare ids.

One scan does it all. A task sends two kinds of parcels: what it counted, by ranges of places, and
its ids as 64-bit words, by a hash of them. Its shape depends on public columns alone: Spark's event
log and UI show how many rows went where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.engines.spark.batches import Shared, as_polars, no_values, non_empty
from clusterdp.engines.spark.parcels import Parcel, opened, packed_numbers, to_batch
from clusterdp.rows.counting import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    import pyarrow as pa

    from clusterdp._arrays import IntArray, WordArray
    from clusterdp.rows.counting import CountKeys, RowCounter

# What a partition counted leaves it as rows. Counts have places from 0, and the numbers of a tally
# end at −1. Sums can outgrow 64 bits: halves of the numbers are added up by themselves.
COUNTED = "place bigint, low bigint, high bigint"
_HALF = 32
_LOW = (1 << _HALF) - 1
_ROWS_PER_BATCH = 2**16
_PLACES_PER_PART = 2**20
# 2^64 over the golden ratio, odd: its products spread ids over parts.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Parts(NamedTuple):
    """Where parcels of pass 1 go: ids to the first parts, counts to those after them.

    Attributes:
        n_of_ids: How many parts compare ids.
        n_places: How many integers are counted, without the numbers of the tally.
    """

    n_of_ids: int
    n_places: int

    @property
    def n_all(self) -> int:
        """How many parts there are; the last adds up the numbers of tallies."""
        return self.n_of_ids + math.ceil(self.n_places / _PLACES_PER_PART) + 1

    @property
    def repeated(self) -> int:
        """The place of how many ids repeat another."""
        return self.n_places

    def of_places(self, places: IntArray) -> IntArray:
        """The part of each place; axes `[place]`."""
        numbers = self.n_of_ids + places // _PLACES_PER_PART
        return np.where(places < 0, self.n_all - 1, numbers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRows:
    """A partition of (unit, cluster, arm, outcomes) in, its tally and its ids out.

    Attributes:
        counter: What is counted of a batch, without keys.
        keys: The keys of the counter.
        n_cells: How many cells there are.
        parts: Where parcels go.
    """

    counter: Shared[RowCounter]
    keys: CountKeys = field(repr=False)
    n_cells: int
    parts: Parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition: every outcome, zeros too, of every cell that it has rows of."""
        counter = self.counter.get().with_keys(self.keys)
        names = counter.encoder.columns.counted
        tally = Tally.empty(counter, self.n_cells)
        present = np.zeros(self.n_cells, dtype=np.bool_)
        for batch in non_empty(batches):
            with no_values():
                rows = counter.encoder(as_polars(batch, names))
                present[rows.cells] = True
                tally.add(rows)
                words = _id_words(rows.units)
            n_parts = self.parts.n_of_ids
            parts = ((words * _SPREAD) >> np.uint64(_HALF)).astype(np.int64) % n_parts
            yield to_batch(packed_numbers(words, parts, n_parts))
        places, numbers = _take_apart(tally, np.flatnonzero(present))
        for parcel in _packed_counts(places, numbers, self.parts):
            yield to_batch([parcel])


def _id_words(ids: pl.Series) -> WordArray:
    """A word for each id: a number itself, the hash of a text; a table without some is refused."""
    import polars as pl

    known = ids.drop_nulls()
    words = known.hash() if known.dtype == pl.String else known.cast(pl.Int64, wrap_numerical=True)
    return words.to_numpy().view(np.uint64)


def _take_apart(tally: Tally, cells: IntArray) -> tuple[IntArray, IntArray]:
    """The places of some cells in a tally, of groups and of its numbers, and what stands there."""
    places, integers, first = [], [], 0
    for block in tally.blocks:
        width = block.table.shape[1]
        filled = (cells[:, None] * width + np.arange(width)).ravel()
        groups = block.table.size + np.arange(block.groups.size)
        places += [first + filled, first + groups]
        integers += [block.table[cells].ravel(), block.groups.ravel()]
        first += block.table.size + block.groups.size
    numbers = np.array(tally.numbers)
    return (
        np.concatenate([*places, np.arange(-len(numbers), 0)]),
        np.concatenate([*integers, numbers]),
    )


def _packed_counts(places: IntArray, numbers: IntArray, parts: Parts) -> Iterator[Parcel]:
    """Places in their order, with what stands there, a parcel for each part."""
    where = parts.of_places(places)
    for part in np.unique(where):
        chosen = where == part
        yield Parcel(int(part), np.stack([places[chosen], numbers[chosen]]).tobytes())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddUp:
    """All parcels of a part in; out come its places with their sums, or how many ids repeat.

    Attributes:
        parts: Where parcels go.
    """

    parts: Parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add up a part."""
        import pyarrow as pa

        for rows in self._sums(opened(non_empty(batches))):
            for start in range(0, rows.shape[1], _ROWS_PER_BATCH):
                arrays = [pa.array(row[start : start + _ROWS_PER_BATCH]) for row in rows]
                yield pa.RecordBatch.from_arrays(arrays, names=["place", "low", "high"])

    def _sums(self, parcels: Iterator[Parcel]) -> Iterator[IntArray]:
        words: list[WordArray] = []
        counts: _Counts | None = None
        for part, held in parcels:
            if part < self.parts.n_of_ids:
                words.append(np.frombuffer(held, dtype=np.uint64))
            else:
                places, numbers = np.frombuffer(held, dtype=np.int64).reshape(2, -1)
                counts = counts or _Counts(self._first(part))
                counts.add(places, numbers)
        if words:
            yield np.array([[self.parts.repeated], [_n_repeated(words)], [0]])
        if counts is not None:
            yield counts.rows()

    def _first(self, part: int) -> int:
        """The first place of a part: of the last, so many before 0 as no tally has numbers."""
        if part == self.parts.n_all - 1:
            return -_PLACES_PER_PART
        return (part - self.parts.n_of_ids) * _PLACES_PER_PART


class _Counts:
    """Adds up numbers by place, from a first one on."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._sums = np.zeros((2, _PLACES_PER_PART), dtype=np.int64)
        self._present = np.zeros(_PLACES_PER_PART, dtype=np.bool_)

    def add(self, places: IntArray, numbers: IntArray) -> None:
        """Take in numbers, at most one for each place."""
        where = places - self._first
        self._present[where] = True
        self._sums[0, where] += numbers & _LOW
        self._sums[1, where] += numbers >> _HALF

    def rows(self) -> IntArray:
        """Places, and the sums of both halves of what stood there; axes `[column, place]`."""
        where = np.flatnonzero(self._present)
        return np.vstack([where + self._first, self._sums[:, where]])


def _n_repeated(words: list[WordArray]) -> int:
    together = np.concatenate(words)
    together.sort()
    return int((together[1:] == together[:-1]).sum())


def put_together(
    counted: pl.DataFrame, counter: RowCounter, n_cells: int, parts: Parts
) -> tuple[Tally, int]:
    """The tally of a table, and how many of its ids seem to repeat another.

    Args:
        counted: The rows that `AddUp` emitted.
        counter: What was counted.
        n_cells: How many cells there are.
        parts: Where parcels went.
    """
    tally = Tally.empty(counter, n_cells)
    places, low, high = (column.to_numpy() for column in counted)
    is_count = (places >= 0) & (places < parts.n_places)
    flat = np.zeros(parts.n_places, dtype=np.int64)
    flat[places[is_count]] = (high[is_count] << _HALF) + low[is_count]
    first = 0
    for block in tally.blocks:
        for counts in (block.table, block.groups):
            counts.reshape(-1)[:] = flat[first : first + counts.size]
            first += counts.size
    # The sums of words can outgrow 64 bits.
    numbers = {
        place: (of_high << _HALF) + of_low
        for place, of_low, of_high in counted.iter_rows()
        if place < 0
    }
    tally.numbers = tuple(numbers.get(place, 0) for place in range(-len(tally.numbers), 0))
    return tally, int(low[places == parts.repeated].sum())


def count_repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of some ids in, their number and how many repeat the id of another out."""
    import polars as pl
    import pyarrow as pa

    ids = [as_polars(batch, ("id",)) for batch in non_empty(batches)]
    if ids:
        together = pl.concat(ids)["id"]
        numbers = [[len(together)], [len(together) - together.n_unique()]]
        yield pa.RecordBatch.from_arrays(list(map(pa.array, numbers)), names=["rows", "repeated"])
