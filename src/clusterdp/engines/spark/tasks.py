"""What Spark's workers do to a partition: count it, randomize it.

A task brings Arrow batches to the functions of `rows/batches.py`. It keeps nothing between
partitions, so one that is retried or run twice gives the same rows. The shape of what it emits
depends on public columns alone: Spark's event log and UI show how many rows went where.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from clusterdp.errors import ClusterDPError, DataError
from clusterdp.rows.counting import Tally
from clusterdp.rows.fingerprint import Fingerprint
from clusterdp.rows.labels import TABLE_CHANGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark import Accumulator, Broadcast

    from clusterdp._arrays import IntArray
    from clusterdp.rows.batches import BatchRandomizer, BlockRandomizer
    from clusterdp.rows.counting import CountKeys, RowCounter

T = TypeVar("T")

# A tally leaves its partition as rows (place, n). Counts have places from 0, its numbers end at −1.
PLACES = "place bigint, n bigint"
_ROWS_PER_BATCH = 2**16


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
    """Pass 1: a partition of (unit, cluster, arm, outcomes) in, its tally out.

    Attributes:
        counter: What is counted of a batch, without keys.
        keys: The keys of the counter.
        n_cells: How many cells there are.
    """

    counter: Shared[RowCounter]
    keys: CountKeys = field(repr=False)
    n_cells: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition: every outcome, zeros too, of every cell that it has rows of."""
        import pyarrow as pa

        counter = self.counter.get().with_keys(self.keys)
        names = counter.encoder.columns.counted
        tally = Tally.empty(counter, self.n_cells)
        present = np.zeros(self.n_cells, dtype=np.bool_)
        for batch in non_empty(batches):
            with no_values():
                rows = counter.encoder(as_polars(batch, names))
                present[rows.cells] = True
                tally.add(rows)
        places, numbers = _take_apart(tally, np.flatnonzero(present))
        for start in range(0, len(places), _ROWS_PER_BATCH):
            part = slice(start, start + _ROWS_PER_BATCH)
            arrays = [pa.array(places[part]), pa.array(numbers[part])]
            yield pa.RecordBatch.from_arrays(arrays, names=["place", "n"])


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


def put_together(places: pl.DataFrame, counter: RowCounter, n_cells: int) -> Tally:
    """The tally of a table.

    Args:
        places: The rows that `CountRows` emitted, with `n` added up by `place`.
        counter: What was counted.
        n_cells: How many cells there are.
    """
    import polars as pl

    tally = Tally.empty(counter, n_cells)
    filled = places.filter(pl.col("place") >= 0)
    flat = np.zeros(counter.n_places(n_cells), dtype=np.int64)
    flat[filled["place"].to_numpy()] = filled["n"].cast(pl.Int64).to_numpy()
    first = 0
    for block in tally.blocks:
        for counts in (block.table, block.groups):
            counts.reshape(-1)[:] = flat[first : first + counts.size]
            first += counts.size
    # The sums of words can outgrow 64 bits.
    numbers = dict(places.filter(pl.col("place") < 0).iter_rows())
    tally.numbers = tuple(int(numbers.get(place, 0)) for place in range(-len(tally.numbers), 0))
    return tally


def count_repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of some ids in, their number and how many repeat the id of another out."""
    import polars as pl
    import pyarrow as pa

    ids = [as_polars(batch, ("id",)) for batch in non_empty(batches)]
    if ids:
        together = pl.concat(ids)["id"]
        numbers = [[len(together)], [len(together) - together.n_unique()]]
        yield pa.RecordBatch.from_arrays(list(map(pa.array, numbers)), names=["rows", "repeated"])


class SeenParts:
    """Adds up, on the driver, what each partition read: an accumulator's rule, by partition.

    A fingerprint depends on true outcomes, so it is not sent through the shuffle with randomized
    rows. An accumulator of Python has no name: it is in no log of Spark's, nor in its UI. A
    partition that was run again must have read the same rows, and counts once.
    """

    def zero(self, value: dict[int, Fingerprint | None]) -> dict[int, Fingerprint | None]:  # noqa: ARG002 - PySpark's protocol
        """Nothing was read."""
        return {}

    def addInPlace(  # noqa: N802 - PySpark's protocol
        self, value1: dict[int, Fingerprint | None], value2: dict[int, Fingerprint | None]
    ) -> dict[int, Fingerprint | None]:
        """Take in more partitions; None where one read different rows when it was run again."""
        for part, seen in value2.items():
            value1[part] = seen if value1.get(part, seen) == seen else None
        return value1


def total_seen(parts: dict[int, Fingerprint | None]) -> Fingerprint:
    """What all partitions read.

    Raises:
        DataError: If one of them read different rows when it was run again.
    """
    total = Fingerprint()
    for seen in parts.values():
        if seen is None:
            raise DataError(TABLE_CHANGED)
        total += seen
    return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RandomizeRows:
    """Pass 2: a partition of the table in, its published rows out.

    Checksum words of single rows never leave the worker: a word and the id reveal the outcome.

    Attributes:
        randomizer: What randomizes a batch, without the key.
        keys: The keys. Spark sends a task to its workers as a broadcast, so that it may get to
            their disks: `security.py` requires encryption there. In a broadcast of PySpark's, which
            `randomizer` is, it would be in a file of the driver in any case.
        seen: What each partition read.
    """

    randomizer: Shared[BatchRandomizer]
    keys: RowKeys = field(repr=False)
    seen: Accumulator[dict[int, Fingerprint | None]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Randomize a partition."""
        from pyspark import TaskContext

        randomizer = _with_keys(self.randomizer.get(), self.keys)
        columns = randomizer.encoder.columns
        seen = Fingerprint()
        for batch in non_empty(batches):
            with no_values():
                read = as_polars(batch, (*columns.public, *columns.outcomes))
                randomized = randomizer(read)
                seen += Fingerprint.of(randomized.words)
                schema = _arrow_types(batch, read, randomized.rows)
                rows = randomized.rows.to_arrow().cast(schema).combine_chunks()
            yield _batch([column.chunk(0) for column in rows.columns])
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - a worker has one
        self.seen.add({context.partitionId(): seen})


class BlockKeys(NamedTuple):
    """The keys of a block's randomizer: of the channel's draw, and of each number's rounding."""

    response: bytes
    rounding: tuple[bytes, ...]


class RowKeys(NamedTuple):
    """The keys of a randomizer: block by block, and of private clusters."""

    blocks: tuple[BlockKeys, ...]
    labels: bytes = b""


def keys_of(randomizer: BatchRandomizer) -> RowKeys:
    """The keys of a randomizer."""
    blocks = tuple(
        BlockKeys(block.row_randomizer.aes_key, block.rounding_keys) for block in randomizer.blocks
    )
    return RowKeys(blocks, randomizer.encoder.label_key)


def without_keys(randomizer: BatchRandomizer) -> BatchRandomizer:
    """A randomizer that can be stored."""
    return _with_keys(randomizer, RowKeys((BlockKeys(b"", ()),) * len(randomizer.blocks)))


def _with_keys(randomizer: BatchRandomizer, keys: RowKeys) -> BatchRandomizer:
    pairs = zip(randomizer.blocks, keys.blocks, strict=True)
    return replace(
        randomizer,
        encoder=randomizer.encoder.with_label_key(keys.labels),
        blocks=tuple(_keyed(block, own) for block, own in pairs),
    )


def _keyed(block: BlockRandomizer, keys: BlockKeys) -> BlockRandomizer:
    made = replace(block.row_randomizer, aes_key=keys.response)
    return replace(block, row_randomizer=made, rounding_keys=keys.rounding)


def _arrow_types(given: pa.RecordBatch, read: pl.DataFrame, published: pl.DataFrame) -> pa.Schema:
    """The types of published columns as Spark has them: Polars has other kinds of text."""
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


def _batch(arrays: list[pa.Array]) -> pa.RecordBatch:
    import pyarrow as pa

    # Spark takes columns by position, and their names are the user's business.
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{place}" for place in range(len(arrays))])


def non_empty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that have rows."""
    return (batch for batch in batches if batch.num_rows)


def as_polars(batch: pa.RecordBatch, names: Sequence[str]) -> pl.DataFrame:
    """A batch, its columns named as they should be."""
    import polars as pl

    frame = pl.DataFrame(batch)
    frame.columns = list(names)
    return frame


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
