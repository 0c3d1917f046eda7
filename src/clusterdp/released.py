"""Released rows as counts: all that an estimator needs to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.encoding import RELEASED, CellEncoder, Labels
from clusterdp.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.arrays import IntArray
    from clusterdp.cells import Layout
    from clusterdp.encoding import Columns
    from clusterdp.pipeline import Release


# A name that no column of a user has.
COUNT = "__clusterdp_count"


def scan_units(release: Release) -> pl.LazyFrame:
    """The released rows as a Polars query, whatever library they came in."""
    import narwhals as nw
    import polars as pl

    if isinstance(release.units, pl.LazyFrame):
        return release.units
    units = nw.from_native(release.units).lazy().collect("polars")
    native: pl.DataFrame = units.to_native()
    return native.lazy()


def count_released(release: Release) -> IntArray:
    """How often each outcome was released; axes `[cluster, arm, released]`."""
    groups = group_released(scan_units(release), release.columns, ())
    return to_counts(groups, release.columns, release.layout)


def group_released(
    units: pl.LazyFrame, columns: Columns, dimensions: tuple[str, ...]
) -> pl.DataFrame:
    """Rows counted by some dimensions, cell and released outcome, in a column `COUNT`."""
    import polars as pl

    by = dict.fromkeys((*dimensions, columns.cluster, columns.arm, RELEASED))
    return units.group_by(*by).agg(pl.len().alias(COUNT)).collect(engine="streaming")


def to_counts(groups: pl.DataFrame, columns: Columns, layout: Layout) -> IntArray:
    """Counts of a table that holds one row per cluster, arm and released outcome.

    Args:
        groups: Columns of cluster, arm, released outcome, and `COUNT`.
        columns: Their names.
        layout: The cells of the release.

    Raises:
        DataError: If the rows do not belong to the cells.
    """
    counts = np.zeros((*layout.sizes.shape, layout.space.n_outcomes), dtype=np.int64)
    cells = released_cells(groups, columns, layout)
    codes, outside = layout.space.encode_released(groups[RELEASED].to_numpy())
    if outside.any():
        raise DataError("the rows hold outcomes that the release does not")
    flat = counts.reshape(-1)
    np.add.at(flat, cells * layout.space.n_outcomes + codes, groups[COUNT].to_numpy())
    return counts


def released_cells(rows: pl.DataFrame, columns: Columns, layout: Layout) -> IntArray:
    """The cell of each row, its place in a flat `[cluster, arm]` array."""
    import polars as pl

    encoder = CellEncoder(
        clusters=Labels.listed(pl.Series(layout.clusters, dtype=rows[columns.cluster].dtype)),
        arms=Labels.listed(pl.Series(layout.arms, dtype=rows[columns.arm].dtype)),
    )
    return encoder.encode(rows[columns.cluster], rows[columns.arm])
