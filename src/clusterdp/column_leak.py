"""A safety net: a kept column is published as it is, so it must not give the outcome away.

The net looks at all rows and warns the owner. It never decides whether a release is published: that
would depend on many true outcomes at once, and so be a release of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.encoding import encode_outcomes

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.encoding import Columns
    from clusterdp.outcomes import OutcomeSpace

# A column reveals the outcome when, knowing its value, one would make less than this share of the
# wrong guesses that one makes without it.
_LEFT_TO_GUESS = 0.1
# Values that fewer rows share seem to reveal outcomes by chance.
ROWS_PER_VALUE = 20
# Numbers that too few rows share are put into bins of neighbouring numbers, of this many rows or
# more on average.
_ROWS_PER_BIN, _MOST_BINS = 32, 2**14
# How many numbers the ends of bins are chosen from.
_SAMPLED_NUMBERS = 2**18
_CODE, _VALUE, _ROWS = "__clusterdp_code", "__clusterdp_value", "__clusterdp_rows"


def reveals_outcome(*, n_rows: int, n_shared: int, n_right: int, n_right_blindly: int) -> bool:
    """Whether a column gives outcomes away almost surely.

    Args:
        n_rows: All rows.
        n_shared: Rows whose value in the column at least `ROWS_PER_VALUE` rows have.
        n_right: Of these, rows that have the most common outcome of their value.
        n_right_blindly: Rows that have the most common outcome of all.
    """
    wrong_blindly = 1 - n_right_blindly / n_rows
    if wrong_blindly == 0 or n_shared < n_rows / 2:
        return False
    return 1 - n_right / n_shared < _LEFT_TO_GUESS * wrong_blindly


def leak_notice(name: str, outcome: str) -> str:
    """What to say to the owner of a column that reveals the outcome."""
    return (
        f"column {name!r} is kept and gives {outcome!r} away almost surely: publishing it "
        "publishes the outcome. Do not share the folder"
    )


def bin_ends(n_rows: int, n_distinct: int) -> list[float] | None:
    """The quantiles at which a column of numbers is cut into bins; None if it needs no bins."""
    if n_distinct * ROWS_PER_VALUE <= n_rows:
        return None
    n_bins = min(_MOST_BINS, max(1, n_rows // _ROWS_PER_BIN))
    return [number / n_bins for number in range(1, n_bins)]


def revealing_columns(
    rows: pl.LazyFrame, columns: Columns, space: OutcomeSpace, *, n_rows: int, clip: bool
) -> list[str]:
    """The kept columns of a table that give its outcomes away. All rows are read."""
    import polars as pl

    if not columns.kept:
        return []
    kept = [
        _comparable(name, kind)
        for name, kind in rows.collect_schema().items()
        if name in columns.kept
    ]
    rows = rows.select(*kept, columns.outcome)
    schema = rows.collect_schema()
    judged = list(columns.kept)
    n_distinct = rows.select(pl.col(judged).approx_n_unique()).collect(engine="streaming").row(0)

    def encode(batch: pl.DataFrame) -> pl.DataFrame:
        codes = encode_outcomes(batch[columns.outcome], space, clip=clip).codes
        return batch.drop(columns.outcome).with_columns(pl.Series(_CODE, codes))

    coded_schema = pl.Schema({**{name: schema[name] for name in judged}, _CODE: pl.UInt16()})
    coded = rows.select(*judged, columns.outcome).map_batches(
        encode, streamable=True, schema=coded_schema
    )
    found = []
    for name, distinct in zip(judged, n_distinct, strict=True):
        value = _grouped_value(rows, name, schema[name], n_rows, distinct)
        if value is not None and _reveals(coded, value):
            found.append(name)
    return found


def _comparable(name: str, kind: pl.DataType) -> pl.Expr:
    """A column whose values can be counted; of lists and the like, their hashes."""
    import polars as pl

    return pl.col(name).hash().cast(pl.String) if kind.is_nested() else pl.col(name)


def _grouped_value(
    rows: pl.LazyFrame, name: str, kind: pl.DataType, n_rows: int, n_distinct: int
) -> pl.Expr | None:
    """A column's values, or the bins of its numbers; None where too few rows share a value."""
    import polars as pl

    quantiles = bin_ends(n_rows, n_distinct)
    if quantiles is None:
        return pl.col(name).alias(_VALUE)
    if not (kind.is_numeric() or kind.is_temporal()):
        return None
    number = pl.col(name).to_physical().cast(pl.Float64)
    step = max(1, n_rows // _SAMPLED_NUMBERS)
    query = rows.select(number.alias(_VALUE)).gather_every(step)
    sample = query.collect(engine="streaming").to_series().drop_nulls().drop_nans().to_numpy()
    if not len(sample):
        return None
    ends = np.unique(np.quantile(sample, quantiles, method="lower"))
    return number.map_batches(
        lambda numbers: _bins(numbers, ends), return_dtype=pl.Int64, is_elementwise=True
    ).alias(_VALUE)


def _bins(numbers: pl.Series, ends: Any) -> pl.Series:
    import polars as pl

    # An end has a bin of its own: many rows may share it.
    left = np.searchsorted(ends, numbers.to_numpy(), side="left")
    right = np.searchsorted(ends, numbers.to_numpy(), side="right")
    return pl.Series(numbers.name, left + right, dtype=pl.Int64)


def _reveals(coded: pl.LazyFrame, value: pl.Expr) -> bool:
    import polars as pl

    by_both = coded.group_by(value, pl.col(_CODE)).agg(pl.len().cast(pl.Int64).alias(_ROWS))
    counted = by_both.collect(engine="streaming")
    by_outcome = counted.group_by(_CODE).agg(pl.col(_ROWS).sum())[_ROWS]
    by_value = counted.group_by(_VALUE).agg(right=pl.col(_ROWS).max(), rows=pl.col(_ROWS).sum())
    shared = by_value.filter(pl.col("rows") >= ROWS_PER_VALUE)
    return reveals_outcome(
        n_rows=int(by_outcome.sum()),
        n_shared=int(shared["rows"].sum()),
        n_right=int(shared["right"].sum()),
        n_right_blindly=int(by_outcome.max()),  # type: ignore[arg-type]  # there are rows
    )
