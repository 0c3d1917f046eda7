"""Pass 1 on Spark's workers: count a partition, compare ids. `adding_up.py` adds up.

One scan does it all. A task sends three kinds of parcels: what it counted, by ranges of places; its
ids as 64-bit words, by a hash of them; and what it counted of kept columns. Their shape depends on
public columns alone: Spark's event log and UI show how many rows went where.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.engines.spark.batches import Shared, as_polars, gathered, no_values, non_empty
from clusterdp.engines.spark.kept_columns import KeptCounts
from clusterdp.engines.spark.parcels import PARCEL_BYTES, Parcel, packed_numbers, to_batch
from clusterdp.rows.counting import RowCounter, Tally
from clusterdp.rows.written_numbers import N_SHAPES, Notation, count_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    import pyarrow as pa

    from clusterdp._arrays import IntArray, WordArray
    from clusterdp.engines.spark.adding_up import Parts
    from clusterdp.engines.spark.kept_columns import Pair
    from clusterdp.rows.counting import CountKeys

# A place and what stands there are words of eight bytes.
_PLACES_PER_PARCEL = PARCEL_BYTES // 16
_HALF = 32
# 2^64 over the golden ratio, odd: its products spread ids over parts.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Counting(NamedTuple):
    """What pass 1 counts.

    Attributes:
        counter: What is counted of a batch.
        kept: Kept columns, and what each may reveal.
    """

    counter: RowCounter
    kept: tuple[Pair, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        columns = self.counter.encoder.columns
        return tuple(dict.fromkeys((*columns.counted, *columns.kept)))

    def without_keys(self) -> Counting:
        """The same; it can be stored."""
        return self._replace(counter=self.counter.with_keys(self.counter.keys.without()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRows:
    """A partition of the table in, its tally and its ids out.

    Attributes:
        counting: What is counted, without keys.
        keys: The keys of the counter.
        n_cells: How many cells there are.
        parts: Where parcels go.
    """

    counting: Shared[Counting]
    keys: CountKeys = field(repr=False)
    n_cells: int
    parts: Parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition: every outcome, zeros too, of every cell that it has rows of."""
        counting = self.counting.get()
        counter, names = counting.counter.with_keys(self.keys), counting.columns
        tally = Tally.empty(counter, self.n_cells)
        kept = KeptCounts.of(counting.kept, counter.encoder)
        present = np.zeros(self.n_cells, dtype=np.bool_)
        for batch in gathered(batches):
            with no_values():
                read = as_polars(batch, names)
                rows = counter.encoder(read)
                present[rows.cells] = True
                tally.add(rows)
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
    """Places in their order, with what stands there, in parcels for each part."""
    where = parts.of_places(places)
    for part in np.unique(where):
        together = np.stack([places, numbers])[:, where == part]
        for first in range(0, together.shape[1], _PLACES_PER_PARCEL):
            held = together[:, first : first + _PLACES_PER_PARCEL].tobytes()
            yield Parcel(int(part), held)


@dataclass(frozen=True, slots=True)
class CountShapes:
    """A partition of outcomes that are text in, how many rows have each shape out.

    Attributes:
        names: The columns.
        notation: How they have numbers.
    """

    names: tuple[str, ...]
    notation: Notation

    @property
    def schema(self) -> str:
        """What it gives: a row for each shape, with the counts of every column by its place."""
        return ", ".join(
            ["shape bigint", *(f"c{place} bigint" for place in range(len(self.names)))]
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition."""
        import pyarrow as pa

        total = np.zeros((len(self.names), N_SHAPES), dtype=np.int64)
        for batch in gathered(batches):
            with no_values():
                counts = as_polars(batch, self.names).select(
                    count_shapes(self.names, self.notation)
                )
                total += np.array([one[0].to_list() for one in counts])
        columns = [np.arange(N_SHAPES), *total]
        names = ["shape", *(f"c{place}" for place in range(len(self.names)))]
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
