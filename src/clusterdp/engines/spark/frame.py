"""Frames of Spark: those that can be released, and counting the rows of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.engines.spark.jobs import running, to_polars
from clusterdp.errors import DataError

if TYPE_CHECKING:
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


def count_groups(rows: DataFrame, by: list[str], count: str) -> pl.DataFrame:
    """How many rows there are of each combination of some columns: counted by Spark."""
    places = [rows.columns.index(name) for name in by]
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    with running(rows.sparkSession, "counting released outcomes"):
        groups = to_polars(numbered.groupBy(*(f"c{place}" for place in places)).count())
    groups.columns = [*by, count]
    return groups
