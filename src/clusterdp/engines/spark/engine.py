"""The engine of a Spark session: files and frames of Spark, and every store that it reaches.

Several rows of a unit become one as the local engine does it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.engines.cells import check_cell_columns, check_named, unplain
from clusterdp.engines.spark._sources import (
    NO_ORDER_TO_KEEP,
    cross_spark_columns,
    labels_as_numbers,
    open_spark_source,
    spark_texts_as_numbers,
)
from clusterdp.engines.spark.session import checked_frame, column_types
from clusterdp.engines.spark.table import SparkTable, spark_layout, unplain_columns
from clusterdp.errors import ParameterError
from clusterdp.sources.source import NamedSource
from clusterdp.spec.columns import COMMON
from clusterdp.storage.folder import LocalFolder, has_scheme

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import TableOptions
    from clusterdp.engines.cells import CellOptions
    from clusterdp.rows.value_codes import CellEncoder
    from clusterdp.sources.source import ColumnRequest
    from clusterdp.spec.columns import Aggregates
    from clusterdp.storage.folder import Destination


def one_spark_row_per_unit(
    rows: DataFrame, public: tuple[str, ...], aggregates: Aggregates
) -> DataFrame:
    """One row per combination of public columns; see the local engine's function."""
    names = [*public, *aggregates]
    places = [rows.columns.index(name) for name in names]
    # By position: Spark reads more than names into names.
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    keys = [f"c{place}" for place in places[: len(public)]]
    outcomes = [
        _one_value(name, rule, kind).alias(name)
        for name, kind, rule in zip(
            (f"c{place}" for place in places[len(public) :]),
            (rows.schema[place].dataType for place in places[len(public) :]),
            aggregates.values(),
            strict=True,
        )
    ]
    return numbered.groupBy(*keys).agg(*outcomes).toDF(*names)


def _one_value(name: str, rule: str, kind: DataType) -> Column:
    """What becomes of a unit's values."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import BooleanType, NumericType

    if rule == COMMON:
        is_there = sf.count(name) == sf.count(sf.lit(1))
        return sf.when(is_there & (sf.min(name) == sf.max(name)), sf.min(name))
    # What holds no numbers is left as it is, to be refused as in every table.
    is_number = isinstance(kind, NumericType | BooleanType)
    return _aggregated(name, rule) if is_number else sf.first(name)


def _aggregated(name: str, rule: str) -> Column:
    from pyspark.sql import functions as sf

    number = sf.col(name).cast("double")
    # Without nulls, which lists leave out; in order of size, as the local engine adds them up.
    there = sf.array_sort(sf.collect_list(sf.when(~sf.isnan(number), number)))
    total = sf.aggregate(there, sf.lit(0.0), lambda sum_, one: sum_ + one)
    made = {
        "sum": total,
        "mean": total / sf.size(there),
        "max": sf.array_max(there),
        "any": sf.when(sf.array_contains(there, sf.lit(math.inf)), math.inf).otherwise(
            sf.exists(there, lambda one: one != 0).cast("double")
        ),
    }[rule]
    return sf.when(sf.size(there) > 0, made)


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
        from clusterdp.engines.spark._files import HadoopFolder

        return HadoopFolder(self.spark, out) if has_scheme(out) else LocalFolder(Path(out))

    def table(
        self,
        source: Any,
        asked: TableOptions,
        out: str | None,  # noqa: ARG002 - it needs no scratch
    ) -> SparkTable:
        """A source as a table."""
        texts = rows = self._open(source, asked.wanted, in_order=asked.keep_order)
        rows = labels_as_numbers(rows, asked.labels)
        rows = spark_texts_as_numbers(rows, asked.numeric, asked.notation)
        asked = asked.with_parts(rows.columns)
        columns = asked.columns
        if asked.aggregates:
            check_named(rows.columns, columns.parts, columns.secret)
            public = tuple(name for name in columns.shown if name in rows.columns)
            rows = one_spark_row_per_unit(rows, public, asked.rules)
        rows = cross_spark_columns(rows, columns.cluster, columns.secret)
        unencrypted = self.allow_unencrypted
        return SparkTable(rows=rows, texts=texts, allow_unencrypted=unencrypted, **asked.by_name())

    def read_cells(self, source: Any, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of a source; other columns that are public are checked."""
        rows = self._open(source, asked.wanted)
        check_named(rows.columns, asked.needed, asked.columns.secret)
        rows = cross_spark_columns(rows, asked.cluster, asked.columns.secret)
        check_cell_columns(column_types(rows, [*asked.parts, *asked.checked]), asked)
        for name in unplain_columns(rows, asked.columns.kept if asked.size is None else ()):
            raise unplain(name, "passthrough")
        return spark_layout(rows, asked)

    def _open(self, source: Any, wanted: ColumnRequest, *, in_order: bool = False) -> DataFrame:
        if isinstance(source, NamedSource):
            return open_spark_source(self.spark, source, wanted, in_order=in_order)
        if in_order:
            raise ParameterError(NO_ORDER_TO_KEEP)
        return checked_frame(source)
