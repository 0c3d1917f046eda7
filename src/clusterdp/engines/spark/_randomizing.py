"""Pass 2 on Spark's workers: randomize a partition, put the rows of a file in order.

A task brings Arrow batches to the functions of `rows/randomizing.py`. It keeps nothing between
partitions, so one that is retried or run twice gives the same rows. Only randomized rows leave it,
in parcels for the files that they go to. Which file that is follows from a row's id, or from its
number in the table: never from how the table is split, which can follow sizes in bytes.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterdp.engines.spark._parcels import (
    Parcel,
    RowPacker,
    Shared,
    as_polars,
    gathered,
    no_values,
    non_empty,
    numbered_batch,
    opened,
    to_batch,
    unpacked_rows,
)
from clusterdp.errors import TableChangedError
from clusterdp.rows.id_order import sorted_rows
from clusterdp.rows.keys import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import polars as pl
    import pyarrow as pa
    from pyspark import Accumulator

    from clusterdp.engines.spark._row_order import RowPlaces
    from clusterdp.rows.randomizing import BatchRandomizer


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


class SameTable:
    """Lets rows through only if all of them are of one table: that which was compared.

    Every partition sends what it read to every file, after the rows. So a file knows of which table
    rows are before any of them leaves Spark, also if some had to be randomized again by then. What
    was read depends on true outcomes: it is encrypted, by a key that tasks alone hold.
    """

    # Rows in parcels begin otherwise.
    _MARK = b"read"
    _NONCE_BYTES = 12

    def __init__(self, only: Fingerprint) -> None:
        self._key = os.urandom(32)
        self._expected = self._tag(only)

    def note(self, seen: Fingerprint) -> bytes:
        """What a partition read, to be sent."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(self._NONCE_BYTES)
        # Of one length, whatever was read.
        numbers = b"".join(one.to_bytes(16) for one in (seen.n_rows, seen.low, seen.high))
        return self._MARK + nonce + AESGCM(self._key).encrypt(nonce, numbers, None)

    def rows(self, parcels: Iterable[Parcel]) -> Iterator[Parcel]:
        """The parcels of a file that hold rows.

        Raises:
            TableChangedError: In the end, if what partitions read is another table.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        total, start = Fingerprint(), len(self._MARK)
        for parcel in parcels:
            if not parcel.held.startswith(self._MARK):
                yield parcel
                continue
            nonce = parcel.held[start : start + self._NONCE_BYTES]
            numbers = AESGCM(self._key).decrypt(nonce, parcel.held[start + len(nonce) :], None)
            halves = (numbers[place : place + 16] for place in range(0, len(numbers), 16))
            total += Fingerprint(*map(int.from_bytes, halves))
        if not hmac.compare_digest(self._tag(total), self._expected):
            raise TableChangedError

    def _tag(self, seen: Fingerprint) -> bytes:
        return hmac.digest(self._key, bytes(seen), "sha256")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RandomizeRows:
    """A partition of the table in, parcels of its published rows out.

    Checksum words of single rows never leave the worker: a word and the id reveal the outcome.

    Attributes:
        randomizer: What randomizes a batch.
        keys: The keys that it needs, by their names. Spark sends a task to its workers as a
            broadcast, so that it may get to their disks: `session.py` requires encryption there. In
            a broadcast of PySpark's, which `randomizer` is, it would be in a file of the driver in
            any case.
        places: Where rows go.
        seen: What each partition read.
        same: What shows which table the rows of a file are from; None if that is compared
            afterwards.
    """

    randomizer: Shared[BatchRandomizer]
    keys: Mapping[str, bytes] = field(repr=False)
    places: RowPlaces
    seen: Accumulator[dict[int, Fingerprint | None]]
    same: SameTable | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Randomize a partition."""
        import pyarrow as pa
        from pyspark import TaskContext

        randomizer = self.randomizer.get()
        columns = randomizer.encoder.columns
        names = (*columns.public, *columns.outcomes, NUMBER)
        seen, packer = Fingerprint(), RowPacker()
        for batch in gathered(batches):
            with no_values():
                read = as_polars(batch, names)
                made, words = randomizer(read, self.keys)
                seen += Fingerprint.from_words(words)
                kinds = _arrow_types(batch, read, made)
                rows = made.rename({name: f"c{place}" for place, name in enumerate(made.columns)})
                if self.places.by_number:
                    rows = rows.with_columns(read[NUMBER])
                    kinds = kinds.append(pa.field(NUMBER, pa.int64()))
                full = list(packer.add(rows, self.places.parts(read[NUMBER].to_numpy()), kinds))
            yield from full
        yield from packer.rest()
        if self.same is not None:
            note = self.same.note(seen)
            yield to_batch([Parcel(part, note) for part in range(self.places.n_parts)])
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - a worker has one
        self.seen.add({context.partitionId(): seen})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderRows:
    """All rows of a file in, the same in order out.

    Attributes:
        by: The column that they are ordered by: ids, or the number in the table.
        published: The columns of the file.
        same: Lets rows of one table through alone; None if that is compared afterwards.
    """

    by: str
    published: tuple[str, ...]
    same: SameTable | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sort a file."""
        import polars as pl

        parcels = opened(non_empty(batches))
        rows = unpacked_rows(parcels if self.same is None else self.same.rows(parcels))
        if rows is None:
            return
        kinds = rows.select(self.published).schema
        in_order = sorted_rows(pl.DataFrame(rows), self.by).select(self.published)
        del rows
        for piece in in_order.iter_slices(_ROWS_PER_BATCH):
            made = piece.to_arrow().cast(kinds).combine_chunks()
            yield numbered_batch([column.chunk(0) for column in made.columns])


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
