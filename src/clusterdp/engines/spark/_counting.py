"""Pass 1 on Spark's workers: count a partition, compare ids; then add up, part by part.

One scan does it all. A task sends three kinds of parcels: what it counted, by ranges of places; its
ids as 64-bit words, by a hash of them; and what it counted of passthrough columns. Their shape
depends on public columns only: Spark's event log and UI show how many rows went where.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.engines.spark._kept_columns import KeptCounts, KeptSums
from clusterdp.engines.spark._parcels import (
    PARCEL_BYTES,
    Parcel,
    Shared,
    as_polars,
    gathered,
    no_values,
    non_empty,
    opened,
    packed_numbers,
    to_batch,
)
from clusterdp.rows.column_types import TEXT_KINDS, Notation, count_text_kinds
from clusterdp.rows.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from clusterdp._arrays import IntArray, WordArray
    from clusterdp.engines.spark._kept_columns import Pair
    from clusterdp.rows.tally import CountPlan


# A place and what stands there are words of eight bytes.
_PLACES_PER_PARCEL = PARCEL_BYTES // 16
_HALF = 32
# 2^64 over the golden ratio, odd: its products spread ids over parts.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRows:
    """A partition of the table in, its tally and its ids out.

    Attributes:
        plan: What is counted.
        keys: The keys that it needs, by their names.
        parts: Where parcels go.
    """

    plan: Shared[CountPlan]
    keys: Mapping[str, bytes] = field(repr=False)
    parts: Parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition: every outcome, zeros too, of every cell that it has rows of."""
        plan = self.plan.get()
        tally, names = Tally(plan), counted_columns(plan)
        kept = KeptCounts(self.parts.kept, plan.encoder)
        present = np.zeros(len(tally.questions[0].table), dtype=np.bool_)
        for batch in gathered(batches):
            with no_values():
                read = as_polars(batch, names)
                rows = plan.encoder(read, self.keys)
                present[rows.cells] = True
                tally.add(rows, self.keys)
                kept.add(read, rows)
                ids = self._packed_ids(_id_words(rows.units))
            yield to_batch(ids)
        places, numbers = _take_apart(tally, np.flatnonzero(present))
        for parcel in _packed_counts(places, numbers, self.parts):
            yield to_batch([parcel])
        for place, held in kept.parcels():
            yield to_batch([Parcel(self.parts.of_kept + place, held)])

    def _packed_ids(self, words: WordArray) -> list[Parcel]:
        """Ids in parcels, by a hash of them."""
        n_parts = self.parts.n_of_ids
        parts = ((words * _SPREAD) >> np.uint64(_HALF)).astype(np.int64) % n_parts
        return packed_numbers(words, parts, n_parts)


def counted_columns(plan: CountPlan) -> tuple[str, ...]:
    """The columns that pass 1 reads."""
    columns = plan.encoder.columns
    return tuple(dict.fromkeys((*columns.counted, *columns.kept)))


def _id_words(ids: pl.Series) -> WordArray:
    """A word for each id: a number itself, the hash of a text; a table without some is refused."""
    import polars as pl

    known = ids.drop_nulls()
    words = known.hash() if known.dtype == pl.String else known.cast(pl.Int64, wrap_numerical=True)
    return words.to_numpy().view(np.uint64)


def _take_apart(tally: Tally, cells: IntArray) -> tuple[IntArray, IntArray]:
    """The places of some cells in a tally, of groups and of its numbers, and what stands there."""
    places, integers, first = [], [], 0
    for question in tally.questions:
        width = question.table.shape[1]
        filled = (cells[:, None] * width + np.arange(width)).ravel()
        groups = question.table.size + np.arange(question.groups.size)
        places += [first + filled, first + groups]
        integers += [question.table[cells].ravel(), question.groups.ravel()]
        first += question.table.size + question.groups.size
    numbers = np.array(tally.numbers)
    return (
        np.concatenate([*places, np.arange(-len(numbers), 0)]),
        np.concatenate([*integers, numbers]),
    )


def _packed_counts(places: IntArray, numbers: IntArray, parts: Parts) -> Iterator[Parcel]:
    """Places in their order, with what stands there, in parcels for each part."""
    where = parts.of_places(places)
    for part in np.unique(where):
        together = np.stack([places, numbers])[:, where == part]
        for first in range(0, together.shape[1], _PLACES_PER_PARCEL):
            held = together[:, first : first + _PLACES_PER_PARCEL].tobytes()
            yield Parcel(int(part), held)


@dataclass(frozen=True, slots=True)
class CountTextKinds:
    """A partition of outcomes that are text in, how many rows have each kind of text out.

    Attributes:
        names: The columns.
        notation: How they have numbers.
    """

    names: tuple[str, ...]
    notation: Notation

    @property
    def schema(self) -> str:
        """What it gives: a row for each kind, with the counts of every column by its place."""
        return ", ".join(["kind bigint", *(f"c{place} bigint" for place in range(len(self.names)))])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition."""
        import pyarrow as pa

        total = np.zeros((len(self.names), len(TEXT_KINDS)), dtype=np.int64)
        for batch in gathered(batches):
            with no_values():
                counts = as_polars(batch, self.names).select(
                    count_text_kinds(self.names, self.notation)
                )
                total += np.array([one[0].to_list() for one in counts])
        columns = [np.arange(len(TEXT_KINDS)), *total]
        names = ["kind", *(f"c{place}" for place in range(len(self.names)))]
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=names)


def count_repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of some ids in, their number and how many repeat the id of another out."""
    import polars as pl
    import pyarrow as pa

    ids = [as_polars(batch, ("id",)) for batch in non_empty(batches)]
    if ids:
        together = pl.concat(ids)["id"]
        numbers = [[len(together)], [len(together) - together.n_unique()]]
        yield pa.RecordBatch.from_arrays(list(map(pa.array, numbers)), names=["rows", "repeated"])


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
    """Where parcels of pass 1 go: ids to the first parts, then counts, then passthrough columns.

    Attributes:
        n_of_ids: How many parts compare ids.
        n_places: How many integers are counted, without the numbers of the tally.
        kept: Passthrough columns and what each may reveal, each in a part.
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
        """The part of the first passthrough column."""
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
        """The places of the first numbers about passthrough columns, and the end."""
        lengths = (pair.length for pair in self.kept)
        return list(itertools.accumulate(lengths, initial=self.repeated + 1))

    def of_places(self, places: IntArray) -> IntArray:
        """The part of each place; axes `[place]`."""
        numbers = self.n_of_ids + places // _PLACES_PER_PART
        return np.where(places < 0, self.of_numbers, numbers)

    def add_up(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All parcels of a part in; out come its places with their sums, or how many ids repeat."""
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
        if first.part < self.n_of_ids:
            words = [np.frombuffer(one, dtype=np.uint64) for one in held]
            yield np.array([[self.repeated], [_n_repeated(words)], [0]])
        elif first.part <= self.of_numbers:
            yield self._counts(first.part, held)
        else:
            yield self._kept_sums(first.part - self.of_kept, held)

    def _counts(self, part: int, parcels: Iterator[bytes]) -> IntArray:
        """What tasks counted at the places of a part: the sums of both halves of their numbers."""
        # Numbers come before 0, where no tally has so many.
        number = -1 if part == self.of_numbers else part - self.n_of_ids
        first = number * _PLACES_PER_PART
        sums = np.zeros((2, _PLACES_PER_PART), dtype=np.int64)
        present = np.zeros(_PLACES_PER_PART, dtype=np.bool_)
        for held in parcels:
            # At most one number for each place.
            places, numbers = np.frombuffer(held, dtype=np.int64).reshape(2, -1)
            where = places - first
            present[where] = True
            sums[0, where] += numbers & _LOW
            sums[1, where] += numbers >> _HALF
        where = np.flatnonzero(present)
        return np.vstack([where + first, sums[:, where]])

    def _kept_sums(self, place: int, parcels: Iterator[bytes]) -> IntArray:
        """What tasks counted of a passthrough column and the outcomes of a question."""
        sums = KeptSums(self.kept[place])
        for held in parcels:
            sums.add(held)
        numbers = sums.numbers()
        places = self.firsts_of_kept[place] + np.arange(len(numbers))
        return np.stack([places, numbers, np.zeros_like(numbers)])


def _n_repeated(words: list[WordArray]) -> int:
    together = np.concatenate(words)
    together.sort()
    return int((together[1:] == together[:-1]).sum())


def put_together(
    counted: pl.DataFrame, plan: CountPlan, parts: Parts
) -> tuple[Tally, int, list[Pair]]:
    """What pass 1 found.

    Args:
        counted: The rows that `Parts.add_up` emitted.
        plan: What was counted.
        parts: Where parcels went.

    Returns:
        What was counted; how many ids seem to repeat another, as hashes of text do; and the
        passthrough columns that reveal outcomes.
    """
    tally = Tally(plan)
    places, low, high = (column.to_numpy() for column in counted)
    # Counts, how many ids repeat another, and the numbers about passthrough columns.
    flat = np.zeros(parts.firsts_of_kept[-1], dtype=np.int64)
    is_count = (places >= 0) & (places < parts.repeated)
    flat[places[is_count]] = (high[is_count] << _HALF) + low[is_count]
    is_other = places >= parts.repeated
    np.add.at(flat, places[is_other], low[is_other])
    first = 0
    for question in tally.questions:
        for counts in (question.table, question.groups):
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
    return tally, int(flat[parts.repeated]), revealing
