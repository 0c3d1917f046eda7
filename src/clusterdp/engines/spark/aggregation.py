"""Several rows of a unit as one, by Spark; as the local engine does it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.experiment.aggregates import COMMON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from clusterdp.experiment.aggregates import Aggregates


def one_row_per_unit(rows: DataFrame, public: tuple[str, ...], aggregates: Aggregates) -> DataFrame:
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

    if rule == COMMON:
        is_there = sf.count(name) == sf.count(sf.lit(1))
        return sf.when(is_there & (sf.min(name) == sf.max(name)), sf.min(name))
    # What holds no numbers is left as it is, to be refused as in every table.
    return _aggregated(name, rule) if _holds_numbers(kind) else sf.first(name)


def _holds_numbers(kind: DataType) -> bool:
    from pyspark.sql.types import BooleanType, NumericType

    return isinstance(kind, NumericType | BooleanType)


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
