"""Parcels: what workers send each other through a shuffle of Spark's, many numbers or rows as one.

Spark shuffles row by row, and spends more on a row than the workers do. A parcel is one row for
Spark: the number of the part that it goes to, and bytes. How many parcels there are, and how large
they are, follows from public columns and from how many rows a worker reads. They are small: Spark
hands over a fixed number of them at a time, and holds these in memory.

Also here: Arrow batches as workers get and give them.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ClusterDPError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from clusterdp._arrays import IntArray


_PART, _HELD = "part", "held"
# Rows that a worker gathers before it sorts them into parcels, and the largest parcel, in bytes.
_GATHERED_BYTES = 2**26
PARCEL_BYTES = 2**16


def parcel_schema() -> StructType:
    """The columns of parcels: as types, since Spark takes a moment to parse its first text."""
    from pyspark.sql.types import BinaryType, IntegerType, StructType

    return StructType().add(_PART, IntegerType()).add(_HELD, BinaryType())


# What goes to a part: the number of the part, and what it holds.
Parcel = tuple[int, bytes]


def send(parcels: DataFrame, n_parts: int) -> DataFrame:
    """Parcels in partitions, each of which has the number of its part."""
    return parcels.repartitionById(n_parts, _PART)


def to_batch(parcels: Sequence[Parcel]) -> pa.RecordBatch:
    """Some parcels as a batch for Spark."""
    import pyarrow as pa

    parts, held = zip(*parcels, strict=True) if parcels else ((), ())
    arrays = [pa.array(parts, pa.int32()), pa.array(held, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=[_PART, _HELD])


def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels of a partition."""
    for batch in batches:
        for part, held in zip(*batch.columns, strict=True):
            yield part.as_py(), held.as_py()


def packed_numbers(numbers: np.ndarray, parts: IntArray, n_parts: int) -> list[Parcel]:
    """Numbers of 64 bits in a parcel for each part that some of them go to.

    Args:
        numbers: The numbers; axes `[number]`.
        parts: Where each goes; axes `[number]`.
        n_parts: How many parts there are.
    """
    order = _by_part(parts)
    ends = np.cumsum(np.bincount(parts, minlength=n_parts))
    pieces = np.split(numbers[order], ends[:-1])
    return [(part, held.tobytes()) for part, held in enumerate(pieces) if len(held)]


def _by_part(parts: IntArray) -> IntArray:
    """The places of what goes to the first part, then of what goes to the next, and so on."""
    # NumPy counts instead of comparing where numbers are of 16 bits or less.
    small = parts.astype(np.min_scalar_type(int(parts.max(initial=0))))
    return np.argsort(small, kind="stable")


class RowPacker:
    """Gathers rows, and packs them into parcels by the part that each goes to."""

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []
        self._parts: list[IntArray] = []
        self._n_bytes = 0

    def add(
        self, rows: pl.DataFrame, parts: IntArray, kinds: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Take in rows, where each goes, and their types; the parcels that are full."""
        self._frames.append(rows)
        self._parts.append(parts)
        self._kinds = kinds
        self._n_bytes += int(rows.estimated_size())
        if self._n_bytes >= _GATHERED_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The parcels of what is left."""
        import polars as pl

        if not self._frames:
            return
        rows, parts = pl.concat(self._frames), np.concatenate(self._parts)
        n_rows = max(1, PARCEL_BYTES * len(rows) // max(1, self._n_bytes))
        self._frames, self._parts, self._n_bytes = [], [], 0
        order = _by_part(parts)
        in_order, sorted_parts = rows[order], parts[order]
        (together,) = in_order.to_arrow().cast(self._kinds).combine_chunks().to_batches()
        starts = np.flatnonzero(np.diff(sorted_parts, prepend=-1))
        for start, end in itertools.pairwise([*starts, len(rows)]):
            part = int(sorted_parts[start])
            for first in range(start, end, n_rows):
                held = _to_bytes(together.slice(first, min(n_rows, end - first)))
                yield to_batch([(part, held)])


def _to_bytes(rows: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def unpacked_rows(parcels: Iterator[Parcel]) -> pa.Table | None:
    """The rows in parcels, in any order; None without any."""
    import pyarrow as pa

    tables = [pa.ipc.open_stream(held).read_all() for _, held in parcels]
    return pa.concat_tables(tables) if tables else None


# How many rows, or parcels, Spark hands over at a time.
RECORDS_PER_BATCH = 2**11
# How many rows workers take together: a number, so that batches do not follow what rows hold.
_ROWS_AT_ONCE = 2**17


def non_empty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that have rows."""
    return (batch for batch in batches if batch.num_rows)


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches."""
    held: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in non_empty(batches):
        held.append(batch)
        n_rows += batch.num_rows
        if n_rows >= _ROWS_AT_ONCE:
            yield _together(held)
            held, n_rows = [], 0
    if held:
        yield _together(held)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def as_polars(batch: pa.RecordBatch, names: Sequence[str]) -> pl.DataFrame:
    """A batch, its columns named as they should be."""
    import polars as pl

    frame = pl.DataFrame(batch)
    frame.columns = list(names)
    return frame


def numbered_batch(arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """A batch for Spark, which takes columns by position: their names are the user's business."""
    import pyarrow as pa

    names = [f"c{place}" for place in range(len(arrays))]
    return pa.RecordBatch.from_arrays(list(arrays), names=names)


@contextmanager
def no_values() -> Iterator[None]:
    """Errors without values: Spark logs what a worker raises."""
    import polars as pl

    try:
        yield
    except ClusterDPError:
        raise
    except (pl.exceptions.PolarsError, ArithmeticError, TypeError, ValueError) as error:
        raise DataError(
            f"a batch of rows could not be used ({type(error).__name__}); do all files of the "
            "table agree on the types of its columns?"
        ) from None
