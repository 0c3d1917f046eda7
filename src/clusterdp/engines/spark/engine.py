"""The engine of a Spark session: files and frames of Spark, and every store that it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.engines.cells import check_size_column
from clusterdp.engines.named_source import NamedSource
from clusterdp.engines.source_names import check_named
from clusterdp.engines.spark.aggregation import one_row_per_unit
from clusterdp.engines.spark.files import has_scheme
from clusterdp.engines.spark.frame import checked_frame, column_types
from clusterdp.engines.spark.sources import (
    NO_ORDER_TO_KEEP,
    cross_spark_columns,
    labels_as_numbers,
    open_in_order,
    open_spark_source,
    texts_as_numbers,
)
from clusterdp.engines.spark.table import SparkTable, read_layout
from clusterdp.errors import ParameterError
from clusterdp.storage.folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from clusterdp.engines.base import TableOptions
    from clusterdp.engines.cells import CellOptions
    from clusterdp.engines.named_source import Wanted
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.labels import CellEncoder
    from clusterdp.storage.folder import Destination


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """A Spark session, and every store that it reaches.

    Attributes:
        spark: The session.
        allow_unencrypted: Whether a cluster may store and send the key as it is.
    """

    spark: SparkSession
    allow_unencrypted: bool = False

    def place(self, out: str) -> Destination:
        """A folder to publish: a path is on this machine's disks, a URI on the store it names."""
        from clusterdp.engines.spark.store import HadoopFolder

        return HadoopFolder(self.spark, out) if has_scheme(out) else LocalFolder(Path(out))

    def table(
        self,
        source: Any,
        asked: TableOptions,
        out: str | None,  # noqa: ARG002 - it needs no scratch
    ) -> SparkTable:
        """A source as a table."""
        if asked.keep_order:
            rows = self._open_in_order(source, asked.wanted)
        else:
            rows = self._open(source, asked.wanted)
        texts = rows
        rows = labels_as_numbers(rows, asked.labels)
        rows = texts_as_numbers(rows, asked.numeric, asked.notation)
        asked = asked.with_parts(rows.columns)
        columns = asked.columns
        if asked.aggregates:
            check_named(rows.columns, columns.parts, columns.secret)
            public = tuple(name for name in columns.shown if name in rows.columns)
            rows = one_row_per_unit(rows, public, asked.rules)
        rows = cross_spark_columns(rows, columns.cluster, columns.secret)
        unencrypted = self.allow_unencrypted
        return SparkTable(rows=rows, texts=texts, allow_unencrypted=unencrypted, **asked.by_name())

    def read_cells(self, source: Any, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of a source: no other column is read."""
        rows = self._open(source, asked.wanted)
        check_named(rows.columns, asked.parts, asked.secret)
        rows = cross_spark_columns(rows, asked.cluster, asked.secret)
        check_size_column(column_types(rows, list(asked.parts)), asked)
        return read_layout(rows, asked)

    def _open_in_order(self, source: Any, wanted: Wanted) -> DataFrame:
        """A source whose rows have numbers."""
        if not isinstance(source, NamedSource):
            raise ParameterError(NO_ORDER_TO_KEEP)
        return open_in_order(self.spark, source, wanted)

    def _open(self, source: Any, wanted: Wanted) -> DataFrame:
        if isinstance(source, NamedSource):
            return open_spark_source(self.spark, source, wanted)
        return checked_frame(source)
