"""Pass 1 on Spark's workers, second half: parcels of all tasks are added up, part by part."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.engines.spark.batches import non_empty
from clusterdp.engines.spark.kept_columns import KeptSums
from clusterdp.engines.spark.parcels import opened
from clusterdp.rows.counting import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from clusterdp._arrays import IntArray, WordArray
    from clusterdp.engines.spark.kept_columns import Pair
    from clusterdp.engines.spark.parcels import Parcel
    from clusterdp.rows.counting import RowCounter

_HALF = 32
_LOW = (1 << _HALF) - 1
_ROWS_PER_BATCH = 2**16
_PLACES_PER_PART = 2**20


def counted_schema() -> StructType:
    """The columns of what a partition counted.

    Counts have places from 0, and the numbers of a tally end at −1. Sums can outgrow 64 bits:
    halves of the numbers are added up by themselves.
    """
    from pyspark.sql.types import LongType, StructType

    return StructType().add("place", LongType()).add("low", LongType()).add("high", LongType())


class Parts(NamedTuple):
    """Where parcels of pass 1 go: ids to the first parts, then counts, then kept columns.

    Attributes:
        n_of_ids: How many parts compare ids.
        n_places: How many integers are counted, without the numbers of the tally.
        kept: Kept columns and what each may reveal, each in a part.
    """

    n_of_ids: int
    n_places: int
    kept: tuple[Pair, ...] = ()

    @property
    def of_numbers(self) -> int:
        """The part that adds up the numbers of tallies: that after all counts."""
        return self.n_of_ids + math.ceil(self.n_places / _PLACES_PER_PART)

    @property
    def of_kept(self) -> int:
        """The part of the first kept column."""
        return self.of_numbers + 1

    @property
    def n_all(self) -> int:
        """How many parts there are."""
        return self.of_kept + len(self.kept)

    @property
    def repeated(self) -> int:
        """The place of how many ids repeat another."""
        return self.n_places

    @property
    def firsts_of_kept(self) -> list[int]:
        """The places of the first numbers about kept columns, and the end."""
        lengths = (pair.length for pair in self.kept)
        return list(itertools.accumulate(lengths, initial=self.repeated + 1))

    def of_places(self, places: IntArray) -> IntArray:
        """The part of each place; axes `[place]`."""
        numbers = self.n_of_ids + places // _PLACES_PER_PART
        return np.where(places < 0, self.of_numbers, numbers)


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
        """The sums of a part; axes `[column, place]`."""
        first = next(parcels, None)
        if first is None:
            return
        held = (parcel.held for parcel in itertools.chain([first], parcels))
        if first.part < self.parts.n_of_ids:
            words = [np.frombuffer(one, dtype=np.uint64) for one in held]
            yield np.array([[self.parts.repeated], [_n_repeated(words)], [0]])
        elif first.part <= self.parts.of_numbers:
            yield self._counts(first.part, held)
        else:
            yield self._kept(first.part - self.parts.of_kept, held)

    def _counts(self, part: int, parcels: Iterator[bytes]) -> IntArray:
        """What tasks counted at the places of a part."""
        # Numbers come before 0, where no tally has so many.
        is_last = part == self.parts.of_numbers
        first = -1 if is_last else part - self.parts.n_of_ids
        counts = _Counts(first * _PLACES_PER_PART)
        for held in parcels:
            counts.add(*np.frombuffer(held, dtype=np.int64).reshape(2, -1))
        return counts.rows()

    def _kept(self, place: int, parcels: Iterator[bytes]) -> IntArray:
        """What tasks counted of a kept column and the outcomes of a block."""
        sums = KeptSums(self.parts.kept[place])
        for held in parcels:
            sums.add(held)
        numbers = sums.numbers()
        places = self.parts.firsts_of_kept[place] + np.arange(len(numbers))
        return np.stack([places, numbers, np.zeros_like(numbers)])


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


class Found(NamedTuple):
    """What pass 1 found in a table.

    Attributes:
        tally: What was counted.
        n_suspects: How many ids seem to repeat another: hashes of text do.
        revealing: Kept columns that give outcomes away.
    """

    tally: Tally
    n_suspects: int
    revealing: list[Pair]


def put_together(counted: pl.DataFrame, counter: RowCounter, n_cells: int, parts: Parts) -> Found:
    """What pass 1 found.

    Args:
        counted: The rows that `AddUp` emitted.
        counter: What was counted.
        n_cells: How many cells there are.
        parts: Where parcels went.
    """
    tally = Tally.empty(counter, n_cells)
    places, low, high = (column.to_numpy() for column in counted)
    # Counts, how many ids repeat another, and the numbers about kept columns.
    flat = np.zeros(parts.firsts_of_kept[-1], dtype=np.int64)
    is_count = (places >= 0) & (places < parts.repeated)
    flat[places[is_count]] = (high[is_count] << _HALF) + low[is_count]
    is_other = places >= parts.repeated
    np.add.at(flat, places[is_other], low[is_other])
    first = 0
    for block in tally.blocks:
        for counts in (block.table, block.groups):
            counts.reshape(-1)[:] = flat[first : first + counts.size]
            first += counts.size
    # The sums of words can outgrow 64 bits.
    numbers = {
        place: (of_high << _HALF) + of_low
        for place, of_low, of_high in counted.filter(places < 0).iter_rows()
    }
    tally.numbers = tuple(numbers.get(place, 0) for place in range(-len(tally.numbers), 0))
    pairs = zip(parts.kept, itertools.pairwise(parts.firsts_of_kept), strict=True)
    revealing = [pair for pair, (start, end) in pairs if pair.reveals(flat[start:end])]
    return Found(tally, int(flat[parts.repeated]), revealing)
