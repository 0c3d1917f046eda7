"""Released rows as counts: all that an estimator needs to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.encoding import RELEASED
from clusterdp.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.arrays import IntArray
    from clusterdp.cells import Layout
    from clusterdp.encoding import Columns
    from clusterdp.pipeline import Release


def scan_units(release: Release) -> pl.LazyFrame:
    """The released rows as a Polars query, whatever library they came in."""
    import narwhals as nw

    query: pl.LazyFrame = nw.from_native(release.units).lazy().collect("polars").lazy().to_native()
    return query


def count_released(release: Release) -> IntArray:
    """How often each outcome was released; axes `[cluster, arm, released]`."""
    columns = release.columns
    grouped = scan_units(release).group_by(columns.cluster, columns.arm, RELEASED)
    import polars as pl

    return to_counts(
        grouped.agg(count=pl.len()).collect(engine="streaming"), columns, release.layout
    )


def to_counts(groups: pl.DataFrame, columns: Columns, layout: Layout) -> IntArray:
    """Counts of a table that holds one row per cluster, arm and released outcome.

    Args:
        groups: Columns of cluster, arm, released outcome, and `count`.
        columns: Their names.
        layout: The cells of the release.

    Raises:
        DataError: If the rows do not belong to the cells.
    """
    counts = np.zeros((*layout.sizes.shape, layout.space.n_outcomes), dtype=np.int64)
    positions = []
    for name, labels in ((columns.cluster, layout.clusters), (columns.arm, layout.arms)):
        known = {label: position for position, label in enumerate(labels)}
        found = [known.get(label, -1) for label in groups[name].to_list()]
        positions.append(np.array(found, dtype=np.int64))
    codes, outside = layout.space.encode_released(groups[RELEASED].to_numpy())
    if outside.any() or any((position < 0).any() for position in positions):
        raise DataError("the rows do not belong to the cells of the release")
    np.add.at(counts, (*positions, codes), groups["count"].to_numpy())
    return counts
