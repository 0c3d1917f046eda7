"""Pass 2 on Spark's workers: randomize a partition, put the rows of a file in order.

A task brings Arrow batches to the functions of `rows/randomizing.py`. It keeps nothing between
partitions, so one that is retried or run twice gives the same rows. Only randomized rows leave it,
in parcels for the files that they go to. Which file that is follows from a row's id, or from its
number in the table: never from how the table is split, which can follow sizes in bytes.

The order of a table is that of its files by their paths, and of the rows in each. Only Parquet
files have a row's place, however they are split among tasks. Files of a release have a fixed number
of rows in either order: sizes of input files, of their row groups and of Spark's splits can follow
from outcomes, and nothing that is published may follow from them.
"""

from __future__ import annotations

import hmac
import itertools
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from clusterdp.engines.spark._files import hadoop_path
from clusterdp.engines.spark._parcels import (
    RowPacker,
    as_polars,
    gathered,
    no_values,
    numbered_batch,
    opened,
    to_batch,
    unpacked_rows,
)
from clusterdp.errors import TableChangedError
from clusterdp.rows.ids import sorted_rows
from clusterdp.rows.keys import Fingerprint
from clusterdp.storage.folder import ROWS_PER_PART

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import polars as pl
    import pyarrow as pa
    from pyspark import Accumulator, Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from clusterdp._arrays import IntArray
    from clusterdp.engines.spark._parcels import Parcel
    from clusterdp.rows.randomizing import BatchRandomizer


_ROWS_PER_BATCH = 2**17
# A name that no column of a user has.
NUMBER = "__clusterdp_number"


# Names that no column of a user has: a file, its first row, and what shows where a row goes.
_NAME, _FIRST, _GOES = "__clusterdp_name", "__clusterdp_first", "__clusterdp_goes"
# How many files are asked at once how many rows they have.
_AT_ONCE = 16


def n_parts(n_units: int) -> int:
    """How many files the rows of so many units are in."""
    return math.ceil(n_units / ROWS_PER_PART)


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """What decides into which file a published row goes, and where it stands there.

    Rows are spread by a hash of their ids, and in the order of ids; or go by their places in a
    table of Parquet files.

    Attributes:
        n_parts: How many files there are.
        firsts: The files of the table, in the order of their paths, with the number of the first
            row of each; None for the order of ids.
        rows_per_file: How many rows each file gets, in the order of the table.
    """

    n_parts: int
    rows_per_file: int
    firsts: tuple[tuple[str, int], ...] | None

    @classmethod
    def for_units(cls, n_units: int, firsts: tuple[tuple[str, int], ...] | None) -> RowPlaces:
        """The places of so many rows."""
        return cls(n_parts(n_units), ROWS_PER_PART, firsts)

    def with_number(self, rows: DataFrame) -> DataFrame:
        """Rows with one more column, of whole numbers: what decides where a row goes.

        Args:
            rows: Ids come first. In the order of the table, the last columns are the file of a row
                and its place there, which are left out. Rows of a file that was not there before
                are, too, and so noticed.
        """
        import polars as pl
        from pyspark.sql import functions as sf

        if self.firsts is None:
            number = sf.pmod(sf.hash(rows.columns[0]), sf.lit(self.n_parts))
            return rows.withColumn(_GOES, number.cast("bigint"))
        *read, file, row = rows.columns
        if len(self.firsts) == 1:
            return rows.select(*read, sf.col(row).alias(_GOES))
        # Of files on this machine, Spark has two ways to write the name.
        spelled = [
            (name, first)
            for file, first in self.firsts
            for name in {file, file.replace("file:///", "file:/", 1)}
        ]
        firsts = pl.DataFrame(spelled, [_NAME, _FIRST], orient="row").to_arrow()
        # By numbers: to compare texts row by row takes Spark several times as long.
        by_hash = rows.sparkSession.createDataFrame(firsts).withColumn(_NAME, sf.xxhash64(_NAME))
        found = rows.join(sf.broadcast(by_hash), sf.xxhash64(file) == sf.col(_NAME))
        return found.select(*read, (sf.col(_FIRST) + sf.col(row)).alias(_GOES))

    def parts(self, numbers: IntArray) -> IntArray:
        """The file of each row, from these numbers; axes `[row]`."""
        return numbers if self.firsts is None else numbers // self.rows_per_file


def first_rows(spark: SparkSession, files: list[str]) -> tuple[tuple[str, int], ...]:
    """Parquet files in the order of their paths, with the number of the first row of each."""
    in_order = sorted(files, key=lambda file: unquote(urlsplit(file).path).split("/"))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = list(pool.map(lambda file: _n_rows(spark, file), in_order))
    return tuple(zip(in_order, itertools.accumulate(sizes, initial=0), strict=False))


def _n_rows(spark: SparkSession, file: str) -> int:
    """How many rows a Parquet file has, by its footer."""
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - Hadoop has no other door
    parquet = jvm.org.apache.parquet.hadoop
    conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
    path = hadoop_path(spark, unquote(file))[1]
    reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(path, conf))
    try:
        return int(reader.getRecordCount())
    finally:
        reader.close()


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
    """Lets rows through only if all come from one table: the one that was compared.

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
        # Of one length, for anything that was read.
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
            _, held = parcel
            if not held.startswith(self._MARK):
                yield parcel
                continue
            nonce = held[start : start + self._NONCE_BYTES]
            numbers = AESGCM(self._key).decrypt(nonce, held[start + len(nonce) :], None)
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

    randomizer: Broadcast[bytes]
    keys: Mapping[str, bytes] = field(repr=False)
    places: RowPlaces
    seen: Accumulator[dict[int, Fingerprint | None]]
    same: SameTable | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Randomize a partition."""
        import pyarrow as pa
        from pyspark import TaskContext

        randomizer: BatchRandomizer = pickle.loads(self.randomizer.value)  # noqa: S301 - the driver's
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
                if self.places.firsts is not None:
                    rows = rows.with_columns(read[NUMBER])
                    kinds = kinds.append(pa.field(NUMBER, pa.int64()))
                full = list(packer.add(rows, self.places.parts(read[NUMBER].to_numpy()), kinds))
            yield from full
        yield from packer.rest()
        if self.same is not None:
            note = self.same.note(seen)
            yield to_batch([(part, note) for part in range(self.places.n_parts)])
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - a worker has one
        self.seen.add({context.partitionId(): seen})


def order_rows(
    by: str,
    published: tuple[str, ...],
    same: SameTable | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """All rows of a file in, the same in order out.

    Args:
        by: The column that they are ordered by: ids, or the number in the table.
        published: The columns of the file.
        same: Lets rows of one table through alone; None if that is compared afterwards.
        batches: Parcels of rows.
    """
    import polars as pl

    parcels = opened(batches)
    rows = unpacked_rows(parcels if same is None else same.rows(parcels))
    if rows is None:
        return
    kinds = rows.select(published).schema
    in_order = sorted_rows(pl.DataFrame(rows), by).select(published)
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
