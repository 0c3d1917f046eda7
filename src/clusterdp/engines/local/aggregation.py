"""Several rows of a unit as one, by Polars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp._named import column, columns
from clusterdp.experiment.aggregates import COMMON
from clusterdp.rows.column_types import holds_outcomes

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.experiment.aggregates import Aggregates


def one_row_per_unit(
    rows: pl.LazyFrame, public: tuple[str, ...], aggregates: Aggregates
) -> pl.LazyFrame:
    """One row per combination of public columns, ids among them.

    A unit whose public columns differ from row to row has several, and is refused as a repeated id.

    Args:
        rows: The table.
        public: Ids and all other public columns that are read.
        aggregates: The rule of each outcome, and of a private cluster.
    """
    kinds = rows.collect_schema()
    made = [_one_value(column(name), rule, kinds[name]) for name, rule in aggregates.items()]
    return rows.group_by(columns(public)).agg(made)


def _one_value(values: pl.Expr, rule: str, kind: pl.DataType) -> pl.Expr:
    """What becomes of a unit's values."""
    import polars as pl

    if rule == COMMON:
        return pl.when(values.n_unique() == 1).then(values.first()).name.keep()
    # What holds no numbers is left as it is, to be refused as in every table.
    return _aggregated(values, rule) if holds_outcomes(kind) else values.first()


def _aggregated(values: pl.Expr, rule: str) -> pl.Expr:
    """A unit's outcome: missing if all its values are.

    Numbers are added in order of size, one after the other: a run that is resumed, and another
    engine, add up to the same bits.
    """
    import polars as pl

    there = values.cast(pl.Float64).fill_nan(None).drop_nulls()
    total = there.sort().cum_sum().last()
    made = {
        "sum": total,
        "mean": total / there.len(),
        "max": there.max(),
        # What is in no space stays so: a label that is neither of the two, say.
        "any": pl.when((there == math.inf).any())
        .then(math.inf)
        .otherwise((there != 0).any().cast(pl.Float64)),
    }[rule]
    return pl.when(there.len() > 0).then(made).name.keep()
