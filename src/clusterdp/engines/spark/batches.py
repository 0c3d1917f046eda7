"""Arrow batches as Spark's workers get and give them, and values that every worker has."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from clusterdp.errors import ClusterDPError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark import Broadcast

T = TypeVar("T")

# How many rows, or parcels, Spark hands over at a time.
RECORDS_PER_BATCH = 2**11
# How many rows workers take together: a number, so that batches do not follow what rows hold.
_ROWS_AT_ONCE = 2**17


@dataclass(frozen=True, slots=True, eq=False)
class Shared(Generic[T]):
    """A value on every worker. It is pickled here: in an encrypting session PySpark cannot."""

    pickled: Broadcast[bytes]

    def get(self) -> T:
        """The value."""
        value: T = pickle.loads(self.pickled.value)  # noqa: S301 - the driver pickled it
        return value


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
