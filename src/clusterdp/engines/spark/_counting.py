"""Pass 1 on Spark's workers: count a partition, compare ids; then add up, part by part.

One scan does it all. A task sends three kinds of parcels: what it counted, by ranges of places; its
ids as 64-bit words, by a hash of them; and what it counted of passthrough columns. Their shape
depends on public columns only: Spark's event log and UI show how many rows went where.

Of passthrough columns, values are public. What is sent of each are the counts of all outcomes,
zeros too, so that how much is sent depends on public columns alone. Of numbers and times, every so
many rows are counted, to be put into bins; of other columns all rows of some values, which follow
from their hashes. The driver gets, for each column, how many rows of each outcome have shared
values and rare ones.
"""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.engines.spark._parcels import (
    PARCEL_BYTES,
    Parcel,
    as_polars,
    gathered,
    no_values,
    non_empty,
    opened,
    packed_numbers,
    to_batch,
)
from clusterdp.rows.column_types import TEXT_KINDS, Notation, count_text_kinds
from clusterdp.rows.leaks import KeptColumns, Pair, pairs_of, sampling_step
from clusterdp.rows.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql.types import StructType

    from clusterdp._arrays import IntArray, WordArray
    from clusterdp.rows.encoding import RowEncoder


# A place and what stands there are words of eight bytes.
_PLACES_PER_PARCEL = PARCEL_BYTES // 16
_HALF = 32
# 2^64 over the golden ratio, odd: its products spread ids over parts.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
# Of numbers in passthrough columns, so many rows are looked at, and so many counts are sent by all
# workers together.
_MOST_NUMBERS, _MOST_COUNTS = 2**17, 2**22
# Of other values, a worker sends so many counts at most, and adds up so many of what others sent.
_MOST_SENT, _MOST_ADDED = 2**18, 2**22
# Of many outcomes, several count as one.
_MOST_CLASSES = 64
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRows:
    """A partition of the table in, its tally and its ids out.

    Attributes:
        plan: What is counted: the arguments of a `Tally`.
        keys: The keys that it needs, by their names.
        parts: Where parcels go.
    """

    plan: Broadcast[bytes]
    keys: Mapping[str, bytes] = field(repr=False)
    parts: Parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition: every outcome, zeros too, of every cell that it has rows of."""
        tally = Tally(*pickle.loads(self.plan.value))  # noqa: S301 - the driver pickled it
        encoder, names = tally.encoder, counted_columns(tally.encoder)
        kept, n_rows = KeptColumns(self.parts.kept, encoder, _MOST_SENT), 0
        present = np.zeros(len(tally.questions[0].table), dtype=np.bool_)
        for batch in gathered(batches):
            with no_values():
                read = as_polars(batch, names)
                rows = encoder(read, self.keys)
                present[rows.cells] = True
                tally.add(rows, self.keys)
                kept.add(n_rows, read, rows)
                n_rows += len(read)
                ids = self._packed_ids(_id_words(rows.units))
            yield to_batch(ids)
        places, numbers = _take_apart(tally, np.flatnonzero(present))
        for parcel in _packed_counts(places, numbers, self.parts):
            yield to_batch([parcel])
        for place, counter in enumerate(kept.counters.values()):
            for held in packed_values(*counter.counted()):
                yield to_batch([(self.parts.of_kept + place, held)])

    def _packed_ids(self, words: WordArray) -> list[Parcel]:
        """Ids in parcels, by a hash of them."""
        n_parts = self.parts.n_of_ids
        parts = ((words * _SPREAD) >> np.uint64(_HALF)).astype(np.int64) % n_parts
        return packed_numbers(words, parts, n_parts)


def counted_columns(encoder: RowEncoder) -> tuple[str, ...]:
    """The columns that pass 1 reads."""
    return tuple(dict.fromkeys((*encoder.columns.counted, *encoder.columns.kept)))


def all_pairs(
    kinds: Mapping[str, pl.DataType], encoder: RowEncoder, n_rows: int
) -> tuple[Pair, ...]:
    """What is counted of passthrough columns of these types, from what is public of a table."""

    def step(n_classes: int) -> int:
        return sampling_step(n_rows, min(_MOST_NUMBERS, _MOST_COUNTS // n_classes))

    return tuple(pairs_of(encoder, kinds, _MOST_CLASSES, step))


def packed_values(limit: int, values: WordArray, counts: IntArray) -> Iterator[bytes]:
    """What was counted of a passthrough column in a partition, as bytes.

    Args:
        limit: Only values up to it were counted, and those in all rows.
        values: Hashes, or the bits of numbers; axes `[value]`.
        counts: Axes `[value, class]`.
    """
    step = max(1, PARCEL_BYTES // (_WORD_BYTES * (1 + counts.shape[1])))
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        words = counts[part].astype(np.uint64).ravel()
        yield np.concatenate([np.array([limit], np.uint64), values[part], words]).tobytes()


def unpacked_values(held: bytes, n_classes: int) -> tuple[int, WordArray, IntArray]:
    """What `packed_values` was given, but for what is in other parcels."""
    words = np.frombuffer(held, dtype=np.uint64)
    end = 1 + (len(words) - 1) // (1 + n_classes)
    return int(words[0]), words[1:end], words[end:].astype(np.int64).reshape(-1, n_classes)


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
    counted = parts.n_of_ids + places // _PLACES_PER_PART
    where = np.where(places < 0, parts.of_numbers, counted)
    for part in np.unique(where):
        together = np.stack([places, numbers])[:, where == part]
        for first in range(0, together.shape[1], _PLACES_PER_PARCEL):
            held = together[:, first : first + _PLACES_PER_PARCEL].tobytes()
            yield int(part), held


def text_kinds_schema(n_columns: int) -> str:
    """What `count_kinds` gives: a row for each kind, with the counts of every column by place."""
    return ", ".join(["kind bigint", *(f"c{place} bigint" for place in range(n_columns))])


def count_kinds(
    names: Sequence[str], notation: Notation, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A partition of outcomes that are text in, how many rows have each kind of text out."""
    import pyarrow as pa

    total = np.zeros((len(names), len(TEXT_KINDS)), dtype=np.int64)
    for batch in gathered(batches):
        with no_values():
            counts = as_polars(batch, names).select(count_text_kinds(names, notation))
            total += np.array([one[0].to_list() for one in counts])
    columns = [pa.array(one) for one in (np.arange(len(TEXT_KINDS)), *total)]
    yield pa.RecordBatch.from_arrays(
        columns, ["kind", *(f"c{place}" for place in range(len(names)))]
    )


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
        n_places: How many integers are counted, without the numbers of the tally; after these
            stands how many ids repeat another.
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
    def firsts_of_kept(self) -> list[int]:
        """The places of the first numbers about passthrough columns, and the end."""
        lengths = (1 + len(pair.alone) for pair in self.kept)
        return list(itertools.accumulate(lengths, initial=self.n_places + 1))

    def add_up(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All parcels of a part in; out come its places with their sums, or how many ids repeat."""
        import pyarrow as pa

        for rows in self._sums(opened(batches)):
            for start in range(0, rows.shape[1], _ROWS_PER_BATCH):
                arrays = [pa.array(row[start : start + _ROWS_PER_BATCH]) for row in rows]
                yield pa.RecordBatch.from_arrays(arrays, names=["place", "low", "high"])

    def _sums(self, parcels: Iterator[Parcel]) -> Iterator[IntArray]:
        """The sums of a part; axes `[column, place]`."""
        first = next(parcels, None)
        if first is None:
            return
        part, held = first[0], (held for _, held in itertools.chain([first], parcels))
        if part < self.n_of_ids:
            words = [np.frombuffer(one, dtype=np.uint64) for one in held]
            yield np.array([[self.n_places], [_n_repeated(words)], [0]])
        elif part <= self.of_numbers:
            yield self._counts(part, held)
        else:
            yield self._kept_sums(part - self.of_kept, held)

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
        """Whether a passthrough column reveals outcomes: all together, and each of several."""
        pair = self.kept[place]
        counter = pair.counter(_MOST_ADDED)
        for held in parcels:
            counter.take(*unpacked_values(held, pair.n_classes))
        numbers = np.array(pair.reveals(counter.groups()), dtype=np.int64)
        places = self.firsts_of_kept[place] + np.arange(len(numbers))
        return np.stack([places, numbers, np.zeros_like(numbers)])


def _n_repeated(words: list[WordArray]) -> int:
    together = np.concatenate(words)
    together.sort()
    return int((together[1:] == together[:-1]).sum())


def put_together(
    counted: pl.DataFrame, tally: Tally, parts: Parts
) -> tuple[int, dict[Pair, list[bool]]]:
    """Put what pass 1 found into a tally.

    Args:
        counted: The rows that `Parts.add_up` emitted.
        tally: Of what was counted, still empty.
        parts: Where parcels went.

    Returns:
        How many ids seem to repeat another, as hashes of text do; and whether passthrough columns
        reveal outcomes.
    """
    places, low, high = (column.to_numpy() for column in counted)
    # Counts, how many ids repeat another, and the numbers about passthrough columns.
    flat = np.zeros(parts.firsts_of_kept[-1], dtype=np.int64)
    is_count = (places >= 0) & (places < parts.n_places)
    flat[places[is_count]] = (high[is_count] << _HALF) + low[is_count]
    is_other = places >= parts.n_places
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
    reveals = {pair: flat[start:end].astype(np.bool_).tolist() for pair, (start, end) in pairs}
    return int(flat[parts.n_places]), reveals
