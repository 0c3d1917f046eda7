"""Do kept columns give the outcome away? Counted over all rows of a local table, value by value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.rows.column_leak import ROWS_PER_VALUE, column_reveals_outcome, n_bins
from clusterdp.rows.encoding import encode_outcomes

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.rows.encoding import Columns

# How many numbers the ends of bins are chosen from.
_SAMPLED_NUMBERS = 2**18
# Names that no column of a user has.
_CODE, _VALUE, _ROWS = "__clusterdp_code", "__clusterdp_value", "__clusterdp_rows"


def revealing_columns(
    rows: pl.LazyFrame, columns: Columns, space: OutcomeSpace, *, n_rows: int, clip: bool
) -> list[str]:
    """The kept columns of a table that give its outcomes away. All rows are read."""
    import polars as pl

    if not columns.kept:
        return []
    schema, kept = rows.collect_schema(), list(columns.kept)
    rows = rows.select(*kept, columns.outcome)
    n_values = rows.select(pl.col(kept).approx_n_unique()).collect(engine="streaming").row(0)

    def encode(batch: pl.DataFrame) -> pl.DataFrame:
        codes = encode_outcomes(batch[columns.outcome], space, clip=clip).codes
        return batch.drop(columns.outcome).with_columns(pl.Series(_CODE, codes))

    coded_schema = pl.Schema({**{name: schema[name] for name in kept}, _CODE: pl.UInt16()})
    coded = rows.map_batches(encode, streamable=True, schema=coded_schema)
    found = []
    for name, n_different in zip(kept, n_values, strict=True):
        value = _counted_value(rows, name, schema[name], n_rows, n_different)
        if value is not None and _reveals(coded.group_by(value, _CODE), space.n_outcomes):
            found.append(name)
    return found


def _counted_value(
    rows: pl.LazyFrame, name: str, kind: pl.DataType, n_rows: int, n_values: int
) -> pl.Expr | None:
    """A column's values, or the bins of its numbers; None where hardly any value is shared."""
    import polars as pl

    is_number = kind.is_numeric() or kind.is_temporal()
    if not is_number or n_values <= n_bins(n_rows):
        return pl.col(name).alias(_VALUE) if n_values <= n_rows / 2 else None
    number = pl.col(name).to_physical().cast(pl.Float64)
    step = max(1, n_rows // _SAMPLED_NUMBERS)
    query = rows.select(number.alias(_VALUE)).gather_every(step)
    sample = query.collect(engine="streaming").to_series().drop_nulls().drop_nans().to_numpy()
    shares = np.arange(1, n_bins(n_rows)) / n_bins(n_rows)
    ends = np.unique(np.quantile(sample, shares, method="lower")) if len(sample) else sample
    return number.map_batches(
        lambda numbers: _bins(numbers, ends), return_dtype=pl.Int64, is_elementwise=True
    ).alias(_VALUE)


def _bins(numbers: pl.Series, ends: FloatArray) -> pl.Series:
    """The bin of each number. An end has one of its own, since many rows may share it."""
    import polars as pl

    found = numbers.to_numpy()
    places = np.searchsorted(ends, found, side="left") + np.searchsorted(ends, found, side="right")
    return pl.Series(numbers.name, places, dtype=pl.Int64)


def _reveals(by_value: pl.lazyframe.group_by.LazyGroupBy, n_outcomes: int) -> bool:
    import polars as pl

    counted = by_value.agg(pl.len().cast(pl.Int64).alias(_ROWS)).collect(engine="streaming")
    of_value = pl.col(_ROWS).sum().over(_VALUE)
    is_shared = counted.select(of_value >= ROWS_PER_VALUE).to_series()
    shared, rare = counted.filter(is_shared), counted.filter(~is_shared)
    n_right = int(shared.group_by(_VALUE).agg(pl.col(_ROWS).max())[_ROWS].sum())
    return column_reveals_outcome(
        _by_outcome(shared, n_outcomes), _by_outcome(rare, n_outcomes), n_right
    )


def _by_outcome(counted: pl.DataFrame, n_outcomes: int) -> IntArray:
    """How many rows have each outcome; axes `[outcome]`."""
    rows = np.bincount(counted[_CODE], counted[_ROWS], minlength=n_outcomes)
    return rows.astype(np.int64)
