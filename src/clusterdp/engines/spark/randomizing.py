"""Pass 2 on Spark's workers: randomize a partition, put the rows of a file in order.

A task brings Arrow batches to the functions of `rows/publishing.py`. It keeps nothing between
partitions, so one that is retried or run twice gives the same rows. Only randomized rows leave it,
in parcels for the files that they go to. Which file that is follows from a row's id, or from its
number in the table: never from how the table is split, which can follow sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.engines.spark.batches import (
    Shared,
    as_polars,
    gathered,
    no_values,
    non_empty,
    numbered_batch,
)
from clusterdp.engines.spark.parcels import RowPacker, unpacked_rows
from clusterdp.errors import TableChangedError
from clusterdp.rows.fingerprint import Fingerprint
from clusterdp.rows.sorted_ids import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    import pyarrow as pa
    from pyspark import Accumulator

    from clusterdp.engines.spark.row_order import RowPlaces
    from clusterdp.rows.publishing import BatchRandomizer, BlockRandomizer

_ROWS_PER_BATCH = 2**17
# A name that no column of a user has.
NUMBER = "__clusterdp_number"


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
        TableChangedError: If one of them read different rows when it was run again.
    """
    total = Fingerprint()
    for seen in parts.values():
        if seen is None:
            raise TableChangedError
        total += seen
    return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RandomizeRows:
    """A partition of the table in, parcels of its published rows out.

    Checksum words of single rows never leave the worker: a word and the id reveal the outcome.

    Attributes:
        randomizer: What randomizes a batch, without the key.
        keys: The keys. Spark sends a task to its workers as a broadcast, so that it may get to
            their disks: `security.py` requires encryption there. In a broadcast of PySpark's, which
            `randomizer` is, it would be in a file of the driver in any case.
        places: Where rows go.
        seen: What each partition read.
    """

    randomizer: Shared[BatchRandomizer]
    keys: RowKeys = field(repr=False)
    places: RowPlaces
    seen: Accumulator[dict[int, Fingerprint | None]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Randomize a partition."""
        import pyarrow as pa
        from pyspark import TaskContext

        randomizer = _with_keys(self.randomizer.get(), self.keys)
        columns = randomizer.encoder.columns
        names = (*columns.public, *columns.outcomes, NUMBER)
        seen, packer = Fingerprint(), RowPacker()
        for batch in gathered(batches):
            with no_values():
                read = as_polars(batch, names)
                randomized = randomizer(read)
                seen += Fingerprint.of(randomized.words)
                kinds = _arrow_types(batch, read, randomized.rows)
                rows = _numbered(randomized.rows)
                if self.places.by_number:
                    rows = rows.with_columns(read[NUMBER])
                    kinds = kinds.append(pa.field(NUMBER, pa.int64()))
                full = list(packer.add(rows, self.places.parts(read[NUMBER].to_numpy()), kinds))
            yield from full
        yield from packer.rest()
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - a worker has one
        self.seen.add({context.partitionId(): seen})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderRows:
    """All rows of a file in, the same in order out.

    Attributes:
        by: The column that they are ordered by: ids, or the number in the table.
        published: The columns of the file.
    """

    by: str
    published: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sort a file."""
        import polars as pl

        rows = unpacked_rows(non_empty(batches))
        if rows is None:
            return
        kinds = rows.select(self.published).schema
        in_order = sorted_rows(pl.DataFrame(rows), self.by).select(self.published)
        del rows
        for piece in in_order.iter_slices(_ROWS_PER_BATCH):
            made = piece.to_arrow().cast(kinds).combine_chunks()
            yield numbered_batch([column.chunk(0) for column in made.columns])


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


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows, their columns named by their positions."""
    return rows.rename({name: f"c{place}" for place, name in enumerate(rows.columns)})


def _arrow_types(given: pa.RecordBatch, read: pl.DataFrame, published: pl.DataFrame) -> pa.Schema:
    """The types of published columns as Spark has them: Polars has other kinds of text."""
    import polars as pl
    import pyarrow as pa

    theirs = dict(zip(read.columns, given.schema.types, strict=True))
    made = published.head(0).to_arrow().schema
    kinds = []
    for name, dtype in published.schema.items():
        if read.schema.get(name) == dtype:
            kinds.append(theirs[name])
        else:
            kinds.append(pa.string() if dtype == pl.String else made.field(name).type)
    return pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])
