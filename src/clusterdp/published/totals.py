"""The published table of totals: one row for each breakdown, group, fold and arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import columns
from clusterdp.errors import FormatError
from clusterdp.rows.columns import FOLD
from clusterdp.statistics.columns import are_whole

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import Statistics
    from clusterdp.mechanisms.mechanism import Mechanism

_BY, _GROUP = "by", "group"


def totals_table(arms: pl.Series, layout: Layout, statistics: Statistics) -> pl.DataFrame | None:
    """The totals among some statistics, in one table; None if there are none.

    Args:
        arms: The labels of arms, in order, as a column.
        layout: The groups.
        statistics: What was drawn.
    """
    import polars as pl

    tables = [
        _groups(arms, layout, one.level).with_columns(one.to_columns())
        for one in statistics
        if one.level is not None
    ]
    return pl.concat(tables) if tables else None


def read_totals(
    table: pl.DataFrame, arms: pl.Series, mechanism: Mechanism, layout: Layout, space: CategorySpace
) -> dict[tuple[str, ...] | None, pl.DataFrame]:
    """The rows of each breakdown, by its columns; none for everyone.

    Args:
        table: The published table.
        arms: The labels of arms, in order, as a column of the table of cells.
        mechanism: What was published.
        layout: The groups.
        space: The categories.

    Raises:
        FormatError: If the table is not that of such a release.
    """
    import polars as pl

    totals = [one for one in mechanism.statistics if one.level is not None]
    expected = pl.concat([_groups(arms, layout, one.level or ()) for one in totals])
    kinds, lengths = totals[0].column_types(space), totals[0].lengths(space)
    if table.columns != [*expected.columns, *kinds]:
        raise FormatError("the totals do not have the columns that they should")
    if not table.select(columns(expected.columns)).equals(expected):
        raise FormatError("the totals are not one for every group, fold and arm, in order")
    for name, kind in kinds.items():
        if table.schema[name] != kind or not are_whole(table[name], (lengths[name],)):
            raise FormatError(f"column {name!r} of the totals does not hold what it should")
    found: dict[tuple[str, ...] | None, pl.DataFrame] = {}
    first = 0
    for one in totals:
        length = layout.n_groups(one.level or ()) * layout.folds * len(layout.arms)
        found[one.level or ()] = table.slice(first, length)
        first += length
    return found


def _groups(arms: pl.Series, layout: Layout, by: tuple[str, ...]) -> pl.DataFrame:
    """One row for each group, fold and arm of a breakdown, in this order."""
    import polars as pl

    shape = (layout.n_groups(by), layout.folds, len(layout.arms))
    group, fold, arm = (axis.ravel() for axis in np.indices(shape))
    labels = pl.Series(_GROUP, layout.group_names(by), dtype=pl.String)
    return pl.DataFrame(
        [
            pl.Series(_BY, [", ".join(by)] * len(group), dtype=pl.String),
            labels.gather(group),
            pl.Series(FOLD, fold, dtype=pl.Int32),
            arms[arm],
        ]
    )
