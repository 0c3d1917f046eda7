"""A safety net: a kept column is published as it is, so it must not be the outcome in disguise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.encoding import encode_outcomes, plain_column
from clusterdp.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.arrays import CodeArray
    from clusterdp.encoding import Columns
    from clusterdp.outcomes import OutcomeSpace

# How many rows are looked at.
SAMPLE_ROWS = 2**16
# A column tells the outcome when, knowing its value, one would make less than this share of the
# wrong guesses that one makes without it.
_LEFT_TO_GUESS = 0.1
# Values that few rows share tell by chance; a column of such values is judged by its order.
_ROWS_PER_VALUE = 20


def telling_columns(
    sample: pl.DataFrame, columns: Columns, space: OutcomeSpace, *, clip: bool
) -> list[str]:
    """The kept columns of a sample of rows that give its outcomes away."""
    codes = encode_outcomes(sample[columns.outcome], space, clip=clip).codes
    return [name for name in columns.kept if tells(plain_column(sample[name]), codes)]


def tells(column: pl.Series, codes: CodeArray) -> bool:
    """Whether a column gives outcomes away.

    Args:
        column: A column that is to be published.
        codes: The outcomes of the same rows, as they are counted; axes `[row]`.
    """
    import polars as pl

    wrong_blindly = 1 - np.bincount(codes).max() / len(codes)
    if wrong_blindly == 0:
        return False
    pair = pl.DataFrame({"value": column, "code": codes})
    by_both = pair.group_by("value", "code").agg(rows=pl.len())
    by_value = by_both.group_by("value").agg(right=pl.col("rows").max(), rows=pl.col("rows").sum())
    shared = by_value.filter(pl.col("rows") >= _ROWS_PER_VALUE)
    n_shared = int(shared["rows"].sum())
    if n_shared >= len(pair) / 2:
        wrong = 1 - int(shared["right"].sum()) / n_shared
    else:  # almost every row has a value of its own: sorted by it, are neighbours alike?
        in_order = pair.sort("value")["code"].to_numpy()
        wrong = float((in_order[1:] != in_order[:-1]).mean()) / 2
    return bool(wrong < _LEFT_TO_GUESS * wrong_blindly)


def refuse_telling(name: str, outcome: str) -> None:
    """Say that a kept column gives the outcome away. Only the owner sees it."""
    raise DataError(
        f"column {name!r} is to be kept, and tells {outcome!r} almost surely: "
        "publishing it would publish the outcome"
    )
