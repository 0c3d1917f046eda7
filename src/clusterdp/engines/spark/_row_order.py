"""Where published rows go: to the files of a release by their ids, or by their places in the table.

The order of a table is that of its files by their paths, and of the rows in each. Only Parquet
files have a row's place, however they are split among tasks. Files of a release have a fixed number
of rows in either order: sizes of input files, of their row groups and of Spark's splits can follow
from outcomes, and nothing that is published may follow from them.
"""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from clusterdp.engines.spark._files import hadoop_path
from clusterdp.storage.folder import ROWS_PER_PART

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from clusterdp._arrays import IntArray


# Names that no column of a user has: the file of a row, its place there, and what tells where it
# goes.
FILE, ROW = "__clusterdp_file", "__clusterdp_row"
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

    @property
    def by_number(self) -> bool:
        """Whether its number says where a row stands; else its id does."""
        return self.firsts is not None

    def with_number(self, rows: DataFrame) -> DataFrame:
        """Rows with one more column, of whole numbers: what decides where a row goes.

        Args:
            rows: Ids come first. In the order of the table, the last columns are `FILE` and `ROW`,
                which are left out. Rows of a file that was not there before are, too, and so
                noticed.
        """
        import polars as pl
        from pyspark.sql import functions as sf

        if self.firsts is None:
            number = sf.pmod(sf.hash(rows.columns[0]), sf.lit(self.n_parts))
            return rows.withColumn(_GOES, number.cast("bigint"))
        *read, file, row = rows.columns
        if len(self.firsts) == 1:
            return rows.select(*read, sf.col(row).alias(_GOES))
        spelled = [(name, first) for file, first in self.firsts for name in _spellings(file)]
        firsts = pl.DataFrame(spelled, [_NAME, _FIRST], orient="row").to_arrow()
        # By numbers: to compare texts row by row takes Spark several times as long.
        by_hash = rows.sparkSession.createDataFrame(firsts).withColumn(_NAME, sf.xxhash64(_NAME))
        found = rows.join(sf.broadcast(by_hash), sf.xxhash64(file) == sf.col(_NAME))
        return found.select(*read, (sf.col(_FIRST) + sf.col(row)).alias(_GOES))

    def parts(self, numbers: IntArray) -> IntArray:
        """The file of each row, from these numbers; axes `[row]`."""
        return numbers if self.firsts is None else numbers // self.rows_per_file


def with_places(rows: DataFrame) -> DataFrame:
    """A table of Parquet files with the file of each row and its place there, as last columns."""
    hidden: Any = rows.metadataColumn("_metadata")
    return rows.withColumns({FILE: hidden.file_path, ROW: hidden.row_index})


def first_rows(spark: SparkSession, files: list[str]) -> tuple[tuple[str, int], ...]:
    """Parquet files in the order of their paths, with the number of the first row of each."""
    in_order = sorted(files, key=lambda file: unquote(urlsplit(file).path).split("/"))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = list(pool.map(lambda file: _n_rows(spark, file), in_order))
    return tuple(zip(in_order, itertools.accumulate(sizes, initial=0), strict=False))


def _spellings(file: str) -> set[str]:
    """How Spark may write the name of a file: of those on this machine it has two ways."""
    return {file, file.replace("file:///", "file:/", 1)}


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
