"""What Spark's workers do to a partition: count it, judge kept columns, publish it.

A task brings Arrow batches to the functions of `batches.py` and keeps nothing between partitions,
so one that is retried or run twice gives the same rows.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from clusterdp.batches import RowPublisher, Tally
from clusterdp.errors import ClusterDPError, DataError
from clusterdp.fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark import Broadcast

    from clusterdp.arrays import IntArray
    from clusterdp.batches import RowEncoder

T = TypeVar("T")

# A tally leaves its partition as rows (place, n). Counts have places from 0, other fields these.
_WITHOUT_ID, _MISSING, _OUTSIDE, _CLIPPED, _ROWS, _LOW, _HIGH = range(-7, 0)
PLACES = "place bigint, n bigint"
_ROWS_PER_BATCH = 2**16
# Null beside published rows: what a partition read, in a last row without an id.
SEEN = ("low", "high")


@dataclass(frozen=True, slots=True, eq=False)
class Shared(Generic[T]):
    """A value on every worker. It is pickled here: in an encrypting session PySpark cannot."""

    pickled: Broadcast[bytes]

    def get(self) -> T:
        """The value."""
        value: T = pickle.loads(self.pickled.value)  # noqa: S301 - the driver pickled it
        return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRows:
    """Pass 1: a partition of (unit, cluster, arm, outcome) in, its tally out.

    Attributes:
        encoder: Rows as codes.
        n_cells: How many cells there are.
    """

    encoder: Shared[RowEncoder]
    n_cells: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition. Cells that it has no rows of are left out."""
        import pyarrow as pa

        encode = self.encoder.get()
        columns = encode.columns
        names = (columns.unit, columns.cluster, columns.arm, columns.outcome)
        tally = Tally.empty(self.n_cells, encode.space.n_outcomes)
        for batch in _non_empty(batches):
            with _no_values():
                tally.add(encode(_to_polars(batch, names)))
        places, numbers = _take_apart(tally)
        for start in range(0, len(places), _ROWS_PER_BATCH):
            part = slice(start, start + _ROWS_PER_BATCH)
            arrays = [pa.array(places[part]), pa.array(numbers[part])]
            yield pa.RecordBatch.from_arrays(arrays, names=["place", "n"])


def _take_apart(tally: Tally) -> tuple[IntArray, IntArray]:
    """The places of a tally that are not zero, and what stands there."""
    filled = np.flatnonzero(tally.counts)
    others = {
        _WITHOUT_ID: tally.n_without_id,
        _MISSING: tally.n_missing,
        _OUTSIDE: tally.n_outside,
        _CLIPPED: tally.n_clipped,
        _ROWS: tally.seen.n_rows,
        _LOW: tally.seen.low,
        _HIGH: tally.seen.high,
    }
    return (
        np.concatenate([filled, np.array(list(others), dtype=np.int64)]),
        np.concatenate([tally.counts[filled], np.array(list(others.values()), dtype=np.int64)]),
    )


def put_together(places: pl.DataFrame, n_cells: int, n_outcomes: int) -> Tally:
    """The tally of a table.

    Args:
        places: The rows that `CountRows` emitted, with `n` added up by `place`.
        n_cells: How many cells there are.
        n_outcomes: K.
    """
    import polars as pl

    tally = Tally.empty(n_cells, n_outcomes)
    counts = places.filter(pl.col("place") >= 0)
    tally.counts[counts["place"].to_numpy()] = counts["n"].cast(pl.Int64).to_numpy()
    # The sums of words can outgrow 64 bits.
    others = {int(place): int(n) for place, n in places.filter(pl.col("place") < 0).iter_rows()}
    return replace(
        tally,
        n_without_id=others.get(_WITHOUT_ID, 0),
        n_missing=others.get(_MISSING, 0),
        n_outside=others.get(_OUTSIDE, 0),
        n_clipped=others.get(_CLIPPED, 0),
        seen=Fingerprint(others.get(_ROWS, 0), others.get(_LOW, 0), others.get(_HIGH, 0)),
    )


def count_repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of some ids in, their number and how many repeat the id of another out."""
    import polars as pl
    import pyarrow as pa

    ids = [_to_polars(batch, ("id",)) for batch in _non_empty(batches)]
    if ids:
        together = pl.concat(ids)["id"]
        told = [[len(together)], [len(together) - together.n_unique()]]
        yield pa.RecordBatch.from_arrays([pa.array(n) for n in told], names=["rows", "repeated"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishRows:
    """Pass 2: a partition of the table in, its published rows out, and what was read of it.

    The last row has no id: it holds the partition's fingerprint. Words of single rows never leave
    the worker: whoever knows an id could tell its outcome from its word.

    Attributes:
        publisher: What publishes a batch, without the key.
        aes_key: The key. Broadcasts are stored in files, so it travels with the task instead.
    """

    publisher: Shared[RowPublisher]
    aes_key: bytes = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish a partition."""
        import pyarrow as pa

        publisher = _with_key(self.publisher.get(), self.aes_key)
        columns = publisher.encoder.columns
        seen, schema = Fingerprint(), None
        for batch in _non_empty(batches):
            with _no_values():
                read = _to_polars(batch, (*columns.public, columns.outcome))
                published = publisher(read)
                seen += Fingerprint.of(published.words)
                schema = _arrow_types(batch, read, published.rows)
                rows = published.rows.to_arrow().cast(schema).combine_chunks()
            hidden = [pa.nulls(len(rows), pa.int64())] * len(SEEN)
            yield _batch([*(column.chunk(0) for column in rows.columns), *hidden], schema)
        if schema is not None:
            blank = [pa.nulls(1, kind) for kind in schema.types]
            told = [pa.array([n], pa.int64()) for n in (seen.low, seen.high)]
            yield _batch([*blank, *told], schema)


def without_key(publisher: RowPublisher) -> RowPublisher:
    """A publisher that can be stored."""
    return _with_key(publisher, b"")


def _with_key(publisher: RowPublisher, aes_key: bytes) -> RowPublisher:
    return replace(publisher, randomizer=replace(publisher.randomizer, aes_key=aes_key))


def _arrow_types(given: pa.RecordBatch, read: pl.DataFrame, published: pl.DataFrame) -> pa.Schema:
    """The types of published columns as Spark has them: Polars knows other kinds of text."""
    import polars as pl
    import pyarrow as pa

    theirs = dict(zip(read.columns, given.schema.types, strict=True))
    made = published.head(0).to_arrow().schema
    kinds = []
    for name, dtype in published.schema.items():
        if read.schema.get(name) == dtype:
            kinds.append((name, theirs[name]))
        else:
            kinds.append((name, pa.string() if dtype == pl.String else made.field(name).type))
    return pa.schema(kinds)


def _batch(arrays: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    # Spark takes columns by position, and their names are the user's business.
    names = [f"c{place}" for place in range(len(schema.names))]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *SEEN])


def _non_empty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


def _to_polars(batch: pa.RecordBatch, names: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    frame = pl.DataFrame(batch)
    frame.columns = list(names)
    return frame


@contextmanager
def _no_values() -> Iterator[None]:
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
