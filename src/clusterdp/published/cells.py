"""The published table of cells: written, and read back as what it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import FormatError
from clusterdp.rows.encoding import holds_labels
from clusterdp.statistics.columns import are_whole

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import CellRelease
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.rows.encoding import CellEncoder, Columns


def cells_table(encoder: CellEncoder, layout: Layout, about_cells: CellRelease) -> pl.DataFrame:
    """The published table of cells; lists follow the order of the outcome space."""
    import polars as pl

    statistics, channel = about_cells
    n_clusters, n_arms = layout.sizes.shape
    clusters, arms = encoder.clusters.values, encoder.arms.values
    if encoder.pooled is not None:
        clusters = pl.Series(clusters.name, layout.clusters)
    published = [
        clusters.gather(np.repeat(np.arange(n_clusters), n_arms)),
        arms.gather(np.tile(np.arange(n_arms), n_clusters)),
        pl.Series("size", layout.sizes.ravel()),
    ]
    for statistic in statistics:
        published += statistic.to_columns()
    if channel is not None:
        published += channel.cell_columns()
    return pl.DataFrame(published)


def check_cells(
    cells: pl.DataFrame, columns: Columns, mechanism: Mechanism, space: CategorySpace
) -> None:
    """Raise a FormatError unless a table has the columns of such a release, and no gaps."""
    expected = _column_types(mechanism, space)
    names = [columns.cluster, columns.arm, *expected]
    if cells.columns != names:
        raise FormatError(f"the cells do not have the columns {', '.join(names)}")
    sound = {name: cells.schema[name] == kind for name, kind in expected.items()}
    sound |= {name: holds_labels(cells.schema[name]) for name in (columns.cluster, columns.arm)}
    may_have_gaps = {name for one in mechanism.statistics for name in one.with_gaps}
    n_metrics, n_categories = space.metric_values().shape
    lengths = {"prior": (n_categories,), "decode": (n_metrics, n_categories)}
    for statistic in mechanism.statistics:
        lengths |= {name: (length,) for name, length in statistic.lengths(space).items()}
    for name, right_type in sound.items():
        gaps = name not in may_have_gaps and bool(cells[name].null_count())
        if not right_type or gaps or not are_whole(cells[name], lengths.get(name, ())):
            raise FormatError(f"column {name!r} of the cells does not hold what it should")


def _column_types(mechanism: Mechanism, space: CategorySpace) -> dict[str, pl.DataType]:
    """The columns of a table of cells after its labels."""
    import polars as pl

    types: dict[str, pl.DataType] = {"size": pl.Int64()}
    for statistic in mechanism.statistics:
        types |= statistic.column_types(space)
    if mechanism.releases_rows:
        types |= mechanism.settled_rows(space).column_types()
    return types


def read_labels(cells: pl.DataFrame, columns: Columns) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Clusters and arms of a table of cells, which has one row for each pair, in order."""
    import polars as pl

    clusters, arms = (
        cells[name].unique(maintain_order=True) for name in (columns.cluster, columns.arm)
    )
    for labels in (clusters, arms):
        if labels.dtype != pl.String and not labels.is_sorted():
            raise FormatError(f"column {labels.name!r} of the cells is not in order")
    n_clusters, n_arms = len(clusters), len(arms)
    complete = len(cells) == n_clusters * n_arms and (
        clusters.gather(np.repeat(np.arange(n_clusters), n_arms)).equals(cells[columns.cluster])
        and arms.gather(np.tile(np.arange(n_arms), n_clusters)).equals(cells[columns.arm])
    )
    if not complete:
        raise FormatError("the cells are not one for every cluster and arm, in order")
    return tuple(clusters), tuple(arms)
