"""A safety net: a kept column is published as it is, so it must not be the outcome in disguise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.encoding import Columns

# How many rows are looked at.
SAMPLE_ROWS = 2**16
# A column tells the outcome when, knowing its value, one would guess this share of outcomes right,
# and without it far fewer. Values that few rows share are left out: they tell by chance.
_TELLS, _GUESSABLE, _ROWS_PER_VALUE = 0.995, 0.95, 20


def check_kept(sample: pl.DataFrame, columns: Columns) -> None:
    """Refuse kept columns that give the outcome away.

    Args:
        sample: Some rows with the outcome and the kept columns.
        columns: Which column plays which part.

    Raises:
        DataError: If a kept column determines the outcome. Only the owner sees it.
    """
    for name in columns.kept:
        if _tells(sample.select(name, columns.outcome)):
            raise DataError(
                f"column {name!r} is to be kept, and tells {columns.outcome!r} almost surely: "
                "publishing it would publish the outcome"
            )


def _tells(pair: pl.DataFrame) -> bool:
    import polars as pl

    known, outcome = pair.columns
    by_both = pair.group_by(known, outcome).len()
    by_value = by_both.group_by(known).agg(right=pl.col("len").max(), rows=pl.col("len").sum())
    shared = by_value.filter(pl.col("rows") >= _ROWS_PER_VALUE)
    if shared["rows"].sum() < len(pair) / 2:  # almost every row has a value of its own
        return _is_linear(pair)
    blindly = pair[outcome].value_counts()["count"].to_numpy().max() / len(pair)
    guessed = shared["right"].to_numpy().sum() / shared["rows"].to_numpy().sum()
    return bool(blindly < _GUESSABLE and guessed > _TELLS)


def _is_linear(pair: pl.DataFrame) -> bool:
    """Whether a numeric column is the outcome in another unit, up to rounding."""
    import polars as pl

    known, outcome = pair.columns
    if not pair.schema[known].is_numeric():
        return False
    correlation = pair.select(
        pl.corr(pl.col(known).cast(pl.Float64), pl.col(outcome).cast(pl.Float64))
    ).item()
    return correlation is not None and abs(correlation) > _TELLS
