"""Do kept columns reveal the outcome? Counted by Spark over all rows, value by value.

Values are public; what is emitted of each are the counts of all outcomes, zeros too, so that how
much is emitted depends on public columns alone. Values never come to the driver: it gets, for each
column, how many rows of each outcome have shared values and rare ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.engines.spark.batches import as_polars, no_values, non_empty
from clusterdp.engines.spark.jobs import shared, to_polars
from clusterdp.errors import DataError
from clusterdp.rows.column_leak import (
    ROWS_PER_VALUE,
    ValueCounter,
    column_reveals_outcome,
    n_bins,
)
from clusterdp.rows.labels import TABLE_CHANGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.engines.spark.batches import Shared
    from clusterdp.rows.batches import RowEncoder
    from clusterdp.rows.counting import RowCounter

# Bins follow from so many values, more or less.
_SAMPLE_ROWS = 2**18
# A worker adds up about so many counts, and sends so many in a batch.
_COUNTS_PER_PART, _COUNTS_PER_BATCH = 2**23, 2**20
# Of many outcomes, the most common ones count by themselves, and all others as one.
_MOST_CLASSES = 64


class _Judged(NamedTuple):
    """A kept column that can be judged.

    Attributes:
        place: Which of the kept columns it is.
        key: What distinguishes its values.
        edges: The bins of numbers; None where every value counts by itself.
        n_values: About how many values or bins there are.
    """

    place: int
    key: Column
    edges: FloatArray | None
    n_values: int


def revealing_columns(
    rows: DataFrame, counter: Shared[RowCounter], outcomes: Sequence[IntArray], n_kept: int
) -> list[list[int]]:
    """Block by block, the positions of kept columns that give its outcomes away.

    Args:
        rows: The kept columns, then `Columns.secrets`.
        counter: How outcomes are encoded.
        outcomes: For each block, how many rows have each category of it; axes `[category]`. Of
            private clusters, which may come last, any numbers that add up to all rows.
        n_kept: How many columns are kept.
    """
    judged = _judged_columns(rows, int(outcomes[0].sum()), n_kept)
    if not judged:
        return [[] for _ in outcomes]
    keys = [column.key.alias(f"k{place}") for place, column in enumerate(judged)]
    keyed = rows.select(*keys, *rows.columns[n_kept:])
    return [
        _revealing(keyed, counter, block, of_block, judged)
        for block, of_block in enumerate(outcomes)
    ]


def _revealing(
    keyed: DataFrame,
    counter: Shared[RowCounter],
    block: int,
    outcomes: IntArray,
    judged: list[_Judged],
) -> list[int]:
    """The positions of kept columns that give the outcomes of a block away."""
    edges, classes = [column.edges for column in judged], outcome_classes(outcomes)
    n_classes = min(len(outcomes), _MOST_CLASSES)
    n_parts = math.ceil(sum(column.n_values for column in judged) * n_classes / _COUNTS_PER_PART)
    names = [f"n{each}" for each in range(n_classes)]
    schema = "place int, value bigint, " + ", ".join(f"{name} bigint" for name in names)
    with shared(keyed.sparkSession.sparkContext, (edges, classes)) as codes:
        count = CountValues(counter=counter, block=block, codes=codes)
        counted = keyed.mapInArrow(count, schema)
        sums = to_polars(_sum_values(counted.repartition(n_parts, "place", "value"), names))
    found = []
    for place, n_right, *numbers in sums.sort("place").iter_rows():
        shared_rows, rare_rows = np.array(numbers).reshape(2, n_classes)
        if column_reveals_outcome(shared_rows, rare_rows, n_right):
            found.append(judged[place].place)
    return found


def _sum_values(counted: DataFrame, names: list[str]) -> DataFrame:
    """Per column: right guesses, and rows of each class with shared values, then with rare ones.

    Args:
        counted: Counts of values by `place`, `value` and class.
        names: The columns of the classes.
    """
    from pyspark.sql import functions as sf

    values = counted.groupBy("place", "value").agg(*(sf.sum(name).alias(name) for name in names))
    n_rows = sum((sf.col(name) for name in names), sf.lit(0))
    is_shared = n_rows >= ROWS_PER_VALUE
    chosen = [(is_shared, sf.greatest(*names)), *((is_shared, sf.col(name)) for name in names)]
    chosen += [(~is_shared, sf.col(name)) for name in names]
    return values.groupBy("place").agg(
        *(sf.sum(sf.when(where, number).otherwise(0)) for where, number in chosen)
    )


def outcome_classes(outcomes: IntArray) -> IntArray:
    """The class of each outcome. Of many, the most common have their own, and the rest the last.

    Args:
        outcomes: How many rows have each outcome; axes `[outcome]`.
    """
    if len(outcomes) <= _MOST_CLASSES:
        return np.arange(len(outcomes))
    ranks = np.empty(len(outcomes), dtype=np.int64)
    ranks[np.argsort(-outcomes, kind="stable")] = np.arange(len(outcomes))
    return np.minimum(ranks, _MOST_CLASSES - 1)


def _judged_columns(rows: DataFrame, n_rows: int, n_kept: int) -> list[_Judged]:
    """Which columns are judged, and how: from public columns alone.

    A column of numbers is put into bins if it has more values than there would be bins. Others are
    not judged if they have more values than half the rows: almost every row has one of its own.
    """
    from pyspark.sql import functions as sf

    fields = [one for one in rows.schema.fields[:n_kept] if _has_keys(one.dataType)]
    if not fields:
        return []
    keys = [sf.xxhash64(one.name) for one in fields]
    distinct = rows.select(*(sf.approx_count_distinct(key) for key in keys))
    found = to_polars(distinct).row(0)
    numbers = [_as_number(one) for one in fields]
    many = n_bins(n_rows)
    binned = [n > many and number is not None for n, number in zip(found, numbers, strict=True)]
    edges = iter(_bin_edges(rows, [n for n, b in zip(numbers, binned, strict=True) if b], n_rows))
    judged = []
    for field_, key, number, n_values, in_bins in zip(
        fields, keys, numbers, found, binned, strict=True
    ):
        place = rows.columns.index(field_.name)
        if in_bins and number is not None:
            judged.append(_Judged(place, number, next(edges), many))
        elif n_values <= n_rows / 2:
            judged.append(_Judged(place, key, None, n_values))
    return judged


def _has_keys(kind: Any) -> bool:
    """Whether a hash can distinguish values of a type."""
    text = kind.simpleString()
    return "map<" not in text and "variant" not in text


def _as_number(one: Any) -> Column | None:
    """A column as a number that is larger where its value is; None if it has no such order."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

    column = sf.col(one.name)
    if isinstance(one.dataType, DateType):
        return sf.unix_date(column).cast("double")
    if isinstance(one.dataType, (TimestampType, TimestampNTZType)):
        return column.cast("timestamp").cast("double")
    return column.cast("double") if isinstance(one.dataType, NumericType) else None


def _bin_edges(rows: DataFrame, numbers: list[Column | None], n_rows: int) -> list[FloatArray]:
    """The upper ends of bins, from quantiles of the columns."""
    if not numbers:
        return []
    names = [f"n{place}" for place in range(len(numbers))]
    read = rows.select(
        *(one.alias(name) for one, name in zip(numbers, names, strict=True) if one is not None)
    )
    if n_rows > _SAMPLE_ROWS:
        read = read.sample(_SAMPLE_ROWS / n_rows)
    many = n_bins(n_rows)
    shares = [place / many for place in range(1, many)]
    found = read.approxQuantile(names, shares, 1 / (4 * many))
    return [np.unique(np.asarray(quantiles, dtype=np.float64)) for quantiles in found]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountValues:
    """A partition of (keys of kept columns, outcomes) in, the counts of each value out.

    Attributes:
        counter: How outcomes are encoded.
        block: Which block they are of; one more is private clusters.
        codes: The bins of each column, None where the key is the value's own; and the class of
            each outcome.
    """

    counter: Shared[RowCounter]
    block: int
    codes: Shared[tuple[list[FloatArray | None], IntArray]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a partition."""
        encoder, (edges, classes) = self.counter.get().encoder, self.codes.get()
        n_classes = min(len(classes), _MOST_CLASSES)
        found = [
            ValueCounter(n_classes) if ends is None else _BinCounter(ends, n_classes)
            for ends in edges
        ]
        keys = [f"k{place}" for place in range(len(edges))]
        names = [*keys, *encoder.columns.secrets]
        for batch in non_empty(batches):
            with no_values():
                rows = as_polars(batch, names)
                codes = classes[self._codes(encoder, rows)]
                for counter, name in zip(found, keys, strict=True):
                    counter.add(rows[name], codes)
        for place, counter in enumerate(found):
            yield from _value_batches(place, counter)

    def _codes(self, encoder: RowEncoder, rows: pl.DataFrame) -> CodeArray | IntArray:
        """The categories of a block, or the private clusters, which come after all blocks."""
        noisy, cluster = encoder.cells.noisy, encoder.columns.cluster
        if self.block == len(encoder.blocks) and noisy is not None and cluster is not None:
            return noisy.own(rows[cluster]).codes
        outcomes, categories = encoder.blocks[self.block](rows)
        if outcomes.n_missing or (categories < 0).any():
            raise DataError(TABLE_CHANGED)
        return categories


class _BinCounter:
    """How many rows have each outcome in each bin of numbers; missing ones have their own."""

    def __init__(self, edges: FloatArray, n_outcomes: int) -> None:
        self._edges = edges
        self._counts = np.zeros((len(edges) + 2, n_outcomes), dtype=np.int64)

    def add(self, values: pl.Series, codes: CodeArray) -> None:
        """Take in a batch."""
        bins = np.searchsorted(self._edges, values.fill_null(np.nan).to_numpy()) + 1
        bins[values.is_null().to_numpy()] = 0
        kinds = bins * self._counts.shape[1] + codes
        self._counts += np.bincount(kinds, minlength=self._counts.size).reshape(self._counts.shape)

    def by_value(self) -> tuple[IntArray, IntArray]:
        """The bins with rows, and their counts; axes `[bin]` and `[bin, outcome]`."""
        bins = np.flatnonzero(self._counts.sum(axis=1))
        return bins, self._counts[bins]


def _value_batches(place: int, counter: ValueCounter | _BinCounter) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    values, counts = counter.by_value()
    step = max(1, _COUNTS_PER_BATCH // counts.shape[1])
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        places = np.full(len(values[part]), place, dtype=np.int32)
        columns = {"place": places, "value": values[part]}
        columns |= {f"n{each}": rows for each, rows in enumerate(counts[part].T)}
        yield pa.RecordBatch.from_pydict({name: pa.array(held) for name, held in columns.items()})
