"""A Spark DataFrame as input of a release in memory: what is published stays in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp.engines.spark.jobs import running, shared, to_polars
from clusterdp.engines.spark.table import SparkTable
from clusterdp.engines.spark.tasks import without_key
from clusterdp.errors import DataError

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame

    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.rows.batches import RowPublisher
    from clusterdp.rows.encoding import Columns
    from clusterdp.rows.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparkFrame:
    """A frame of a Spark session.

    Attributes:
        table: Its rows.
    """

    table: SparkTable

    @classmethod
    def of(  # noqa: PLR0913 - the parts of a table
        cls,
        frame: Any,
        columns: Columns,
        space: OutcomeSpace,
        *,
        clip: bool,
        verbose: bool,
        allow_unencrypted: bool,
    ) -> SparkFrame:
        """Take a frame, if it is of a kind that can be released."""
        module = type(frame).__module__
        if module.startswith("pyspark.sql.connect"):
            raise DataError(
                "a Spark Connect frame cannot be released: it has no way to share a key with "
                "workers. Use a classic session (SparkSession.builder.master(...)), or write the "
                "table and run clusterdp release --engine spark"
            )
        if not module.startswith("pyspark.sql"):
            raise DataError(f"frame must be a Spark DataFrame, got {module}; call its to_spark()")
        table = SparkTable(
            rows=frame,
            columns=columns,
            space=space,
            clip=clip,
            verbose=verbose,
            allow_unencrypted=allow_unencrypted,
        )
        return cls(table=table)

    def randomized(self, publisher: RowPublisher) -> tuple[DataFrame, Fingerprint]:
        """Pass 2: the published rows, in the order of ids, stored by Spark.

        They are evaluated once and cut off from the table: evaluated again, after it changed, they
        would randomize other rows with the same key. Rows lost with their machine are an error.
        """
        spark = self.table.spark
        with (
            shared(spark.sparkContext, without_key(publisher)) as stored,
            running(spark, "randomizing rows"),
        ):
            rows, fingerprint = self.table.randomize(publisher, stored)
            return rows.localCheckpoint(eager=True), fingerprint()

    def like(self, published: pl.DataFrame) -> DataFrame:
        """A table as a Spark DataFrame."""
        with running(self.table.spark, "taking in cells"):
            return self.table.spark.createDataFrame(published.to_arrow())


def count_groups(rows: DataFrame, by: list[str], count: str) -> pl.DataFrame:
    """How many rows there are of each combination of some columns: counted by Spark."""
    places = [rows.columns.index(name) for name in by]
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    with running(rows.sparkSession, "counting released outcomes"):
        groups = to_polars(numbered.groupBy(*(f"c{place}" for place in places)).count())
    groups.columns = [*by, count]
    return groups
