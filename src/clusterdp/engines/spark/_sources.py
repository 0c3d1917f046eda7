"""Where Spark's rows come from: files on any store that Hadoop can reach."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from clusterdp.engines.cells import crossed_parts
from clusterdp.engines.spark._files import hadoop_path
from clusterdp.engines.spark._jobs import running
from clusterdp.errors import DataError, ParameterError
from clusterdp.rows.column_types import (
    EDGES,
    MISSING_WORDS,
    NO_NUMBER,
    check_holds_labels,
    numbers_of,
)
from clusterdp.sources.text import TEXT, find_delimiter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from clusterdp.rows.column_types import Notation
    from clusterdp.sources.source import ColumnRequest, NamedSource


# Names that no column of a user has: the file of a row, and its place there.
FILE, ROW = "__clusterdp_file", "__clusterdp_row"
NO_ORDER_TO_KEEP = (
    "Spark keeps the row order of Parquet files only, and publishes other tables sorted by id: "
    "leave out keep_order (--keep-order), or write the table as Parquet"
)
_PARQUET = (".parquet", ".pq")
# The kind of a folder's files is decided from this many of them.
_FILES_LOOKED_AT = 1000
# Text as the local engine reads it; rows that do not fit their header are errors, not nulls.
_TEXT_OPTIONS: dict[str, str] = {
    "header": "true",
    "escape": '"',
    "mode": "FAILFAST",
    "enforceSchema": "false",
    "columnPruning": "false",
}


def open_spark_source(
    spark: SparkSession, source: NamedSource, wanted: ColumnRequest, *, in_order: bool = False
) -> DataFrame:
    """A source as a Spark table, to be read as often as needed.

    Args:
        spark: The session.
        source: A Parquet, CSV or TSV file, a folder or glob of them: a path or a URI such as
            `s3a://bucket/folder`.
        wanted: The columns that are needed. In text, outcomes are read row by row, and numbers
            keep their leading zeros, as by the local engine.
        in_order: Whether rows must know their places.

    Raises:
        ParameterError: If rows must know their places, and files are of a kind without.
        DataError: If there is no such source, or Spark cannot read it.
    """
    if source.database is not None:
        raise DataError(
            f"a {source.database} source is read by the local engine: leave out --engine spark"
        )
    with running(spark, f"opening {source}"):
        suffix = _kind(spark, source.name)
        if suffix in _PARQUET:
            rows = spark.read.parquet(source.name)
            return with_places(rows) if in_order else rows
        if in_order:
            raise ParameterError(NO_ORDER_TO_KEEP)
        return _read_text(spark, source.name, _delimiter(spark, source, suffix), wanted)


def with_places(rows: DataFrame) -> DataFrame:
    """A table of Parquet files with the file of each row and its place there, as last columns."""
    hidden: Any = rows.metadataColumn("_metadata")
    return rows.withColumns({FILE: hidden.file_path, ROW: hidden.row_index})


def cross_spark_columns(rows: DataFrame, name: str | None, secret: tuple[str, ...]) -> DataFrame:
    """Rows with a column `"a,b,c"` of these, crossed; as `engines.local.engine.cross_columns`."""
    from pyspark.sql import functions as sf

    parts = crossed_parts(rows.columns, name, secret)
    if not parts or name is None:
        return rows
    texts: list[Any] = []
    for part in parts:
        texts += [sf.lit(" | "), _column(part).cast("string")]
    return rows.withColumn(name, sf.concat(*texts[1:]))  # null if one of them is


def labels_as_numbers(rows: DataFrame, labels: Mapping[str, tuple[str, str]]) -> DataFrame:
    """Rows with numbers in place of labels; as `rows.column_types.with_numbers`."""
    from pyspark.sql import functions as sf

    from clusterdp.engines.spark._jobs import spark_to_polars

    there = [name for name in rows.columns if name in labels]
    if not there:
        return rows
    kinds = spark_to_polars(rows.select(*map(_column, there)).limit(0)).schema
    for name in there:
        check_holds_labels(name, labels[name], kinds[name])
        text = sf.lower(sf.trim(_column(name).cast("string")))
        first, second = numbers_of(labels[name])
        number = sf.when(text == first, 0.0).when(text == second, 1.0)
        number = number.when(text.isin(*MISSING_WORDS), None).otherwise(NO_NUMBER)
        rows = rows.withColumn(name, sf.when(text.isNotNull(), number))
    return rows


def spark_texts_as_numbers(
    rows: DataFrame, names: Collection[str], notation: Notation
) -> DataFrame:
    """Rows with numbers in place of text; as `rows.column_types.texts_as_numbers`."""
    for name in spark_text_columns(rows, names):
        rows = rows.withColumn(name, _number(name, notation))
    return rows


def spark_text_columns(rows: DataFrame, names: Collection[str]) -> list[str]:
    """Those of some columns that hold text."""
    from pyspark.sql.types import StringType

    texts = {field.name for field in rows.schema.fields if isinstance(field.dataType, StringType)}
    return [name for name in names if name in texts]


def _delimiter(spark: SparkSession, source: NamedSource, suffix: str) -> str:
    """What separates fields: as given, or as in the header."""
    if source.delimiter is not None or suffix == ".tsv":
        return source.delimiter or "\t"
    return find_delimiter("".join(row[0] for row in spark.read.text(source.name).head(1)))


def _read_text(
    spark: SparkSession, source: str, separator: str, wanted: ColumnRequest
) -> DataFrame:
    """Text with the types that the local engine would give it; outcomes are text."""
    reader = spark.read.options(**_TEXT_OPTIONS, sep=separator)
    found = reader.option("inferSchema", "true").csv(source).schema
    texts = _not_whole(reader.option("inferSchema", "false").csv(source), found, wanted)
    schema = _plain_types(found, {*texts, *wanted.outcomes})
    return reader.option("inferSchema", "false").schema(schema).csv(source)


def _not_whole(rows: DataFrame, found: StructType, wanted: ColumnRequest) -> set[str]:
    """Public columns that look like whole numbers, and are not all written as such: 007.

    The column of ids is among them unless each of its values is.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import IntegralType

    texts = {name for name in found.names if name == wanted.unit}
    checked = [
        field.name
        for field in found.fields
        if isinstance(field.dataType, IntegralType) and wanted.is_public(field.name)
    ]
    if not checked:
        return texts
    # By position: Spark reads more than names into names.
    whole = [
        sf.min(
            _column(name).isNull()
            | (_column(name).try_cast("bigint").cast("string") == _column(name))
        ).alias(f"c{place}")
        for place, name in enumerate(checked)
    ]
    (is_whole,) = rows.select(*whole).collect()
    texts -= set(checked)
    return texts | {name for name, each in zip(checked, is_whole, strict=True) if each is False}


def _column(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col("`" + name.replace("`", "``") + "`")


def _number(name: str, notation: Notation) -> Column:
    """Each text as a number; as `rows.column_types.text_to_number`."""
    from pyspark.sql import functions as sf

    text = _column(name)
    bare = sf.regexp_replace(text, notation.separators, "")
    read = sf.translate(bare, notation.decimal, ".").try_cast("double")
    word = sf.lower(sf.regexp_replace(text, EDGES, ""))
    truth = sf.when(word == "true", 1.0).when(word == "false", 0.0).otherwise(NO_NUMBER)
    is_number = text.rlike(notation.pattern) & (sf.abs(read) != math.inf)
    number = sf.when(is_number, read).otherwise(truth)
    return sf.when(text.isNotNull() & ~word.isin(*MISSING_WORDS), number)


def _plain_types(found: StructType, texts: set[str]) -> StructType:
    """Whole numbers of 64 bits; dates, and columns that are to be text, as text."""
    from pyspark.sql.types import (
        DateType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    def plain(kind: DataType) -> DataType:
        if isinstance(kind, IntegerType):
            return LongType()
        return (
            StringType() if isinstance(kind, (DateType, TimestampType, TimestampNTZType)) else kind
        )

    return StructType(
        [
            StructField(one.name, StringType() if one.name in texts else plain(one.dataType))
            for one in found.fields
        ]
    )


def _kind(spark: SparkSession, source: str) -> str:
    """The suffix that the files of a source share."""
    suffixes = {suffix for name in _file_names(spark, source) if (suffix := _suffix(name))}
    if not suffixes:
        raise DataError(f"{source} has no files that Spark can read")
    if len(suffixes) > 1:
        raise DataError(f"{source} mixes files of different kinds: {', '.join(sorted(suffixes))}")
    (suffix,) = suffixes
    if suffix not in _PARQUET + TEXT:
        raise DataError(f"{source}: unsupported file type for Spark; use .parquet, .csv or .tsv")
    return suffix


def _suffix(name: str) -> str:
    stem, dot, suffix = name.lower().rpartition(".")
    if suffix in {"gz", "bz2", "zst"}:  # which Spark reads through
        return _suffix(stem)
    return dot + suffix


def _file_names(spark: SparkSession, source: str) -> Iterator[str]:
    """The names of the first files of a source, without those that tools leave next to data."""
    store, path = hadoop_path(spark, source)
    found = store.globStatus(path)
    if not found:
        raise DataError(f"there is no file {source}")
    n_seen = 0
    for entry in found:
        listed = store.listFiles(entry.getPath(), True)  # noqa: FBT003 - Java has no names
        while listed.hasNext() and n_seen < _FILES_LOOKED_AT:
            name = listed.next().getPath().getName()
            if not name.startswith((".", "_")):
                n_seen += 1
                yield name
