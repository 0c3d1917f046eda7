"""Frames of Spark: those that can be released, their columns, and counting rows of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.engines.spark.jobs import running, to_polars
from clusterdp.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from pyspark.sql import DataFrame


def checked_frame(frame: Any) -> DataFrame:
    """A Spark frame, if it is of a kind that can be released."""
    module = type(frame).__module__
    if module.startswith("pyspark.sql.connect"):
        raise DataError(
            "a Spark Connect frame cannot be released: it has no way to share a key with "
            "workers. Use a classic session (SparkSession.builder.master(...)), or write the "
            "table and run clusterdp release --engine spark"
        )
    if not module.startswith("pyspark.sql"):
        raise DataError(f"frame must be a Spark DataFrame, got {module}; call its to_spark()")
    checked: DataFrame = frame
    return checked


def select(rows: DataFrame, *names: str) -> DataFrame:
    """Some columns, named by their position: Spark reads more than names into names."""
    positions = [rows.columns.index(name) for name in names]
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    return numbered.select(*(f"c{place}" for place in positions))


def column_types(rows: DataFrame, names: Sequence[str]) -> dict[str, pl.DataType]:
    """The types that columns have in the batches that workers get; no row is read."""
    if not names:
        return {}
    with running(rows.sparkSession, "reading the types of columns"):
        empty = to_polars(select(rows, *names).limit(0))
    return dict(zip(names, empty.dtypes, strict=True))


def count_groups(rows: DataFrame, by: list[str], count: str) -> pl.DataFrame:
    """How many rows there are of each combination of some columns: counted by Spark."""
    places = [rows.columns.index(name) for name in by]
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    with running(rows.sparkSession, "counting released outcomes"):
        groups = to_polars(numbered.groupBy(*(f"c{place}" for place in places)).count())
    groups.columns = [*by, count]
    return groups
