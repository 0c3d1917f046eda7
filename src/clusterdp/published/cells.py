"""The published table of cells: written, and read back as what it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._named import column, unnamed
from clusterdp.errors import FormatError
from clusterdp.experiment.layout import EVERYONE
from clusterdp.experiment.published_names import block_suffixes
from clusterdp.rows.column_types import holds_labels
from clusterdp.rows.labels import n_unplain
from clusterdp.statistics.columns import are_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import CellRelease
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.rows.columns import Columns
    from clusterdp.rows.labels import CellEncoder


# How many units a cell has, and what one of them counts in totals.
SIZE, WEIGHT = "size", "weight"


def cells_table(
    encoder: CellEncoder, layout: Layout, blocks: Sequence[CellRelease]
) -> pl.DataFrame:
    """The published table of cells; lists follow the order of the outcome space.

    Args:
        encoder: The labels of cells.
        layout: The cells.
        blocks: What is published of each block; the columns of several end with their number.
    """
    import polars as pl

    n_clusters, n_arms = layout.sizes.shape
    published: list[pl.Series] = [
        encoder.arms.values[np.tile(np.arange(n_arms), n_clusters)],
        pl.Series(SIZE, layout.sizes.ravel()),
    ]
    if encoder.clusters is not None:
        clusters = encoder.clusters.values
        if encoder.pooled is not None:
            clusters = pl.Series(clusters.name, layout.clusters)
        published.insert(0, clusters[np.repeat(np.arange(n_clusters), n_arms)])
    for about_cells, ending in zip(blocks, block_suffixes(len(blocks)), strict=True):
        published += [one.alias(one.name + ending) for one in _block_columns(about_cells)]
    return pl.DataFrame(published)


def _block_columns(about_cells: CellRelease) -> list[pl.Series]:
    """What is published about the cells of a block."""
    import polars as pl

    statistics, channel = about_cells
    published: list[pl.Series] = []
    totals = [statistic for statistic in statistics if statistic.level is not None]
    if totals:
        published.append(pl.Series(WEIGHT, totals[0].sum_readings()[0].weights.ravel()))
    for statistic in statistics:
        if statistic.level is None:
            published += statistic.to_columns()
    if channel is not None:
        published += channel.cell_columns()
    return published


def has_totals(mechanism: Mechanism) -> bool:
    """Whether a release has totals of groups, in a table of their own."""
    return any(one.level is not None for one in mechanism.statistics)


def cells_of_blocks(
    cells: pl.DataFrame, columns: Columns, blocks: Sequence[tuple[Mechanism, CategorySpace]]
) -> list[pl.DataFrame]:
    """The table of cells as each block alone would have it.

    Args:
        cells: The published table.
        columns: The names of its labels.
        blocks: What was published of each block, and its categories.

    Raises:
        FormatError: If it does not have the columns of such a release, or gaps in them.
    """
    import polars as pl

    labels = [*columns.cell, SIZE]
    own = [list(_column_types(*block)) for block in blocks]
    endings = block_suffixes(len(blocks))
    every = [name + end for names, end in zip(own, endings, strict=True) for name in names]
    names = [*labels, *every]
    if cells.columns != names:
        raise FormatError(f"the cells do not have the columns {', '.join(names)}")
    found = []
    for block, of_block, ending in zip(blocks, own, endings, strict=True):
        renamed = [pl.col(name + ending).alias(name) for name in of_block]
        found.append(cells.select(*map(column, labels), *renamed))
        _check_block(found[-1], columns, *block)
    return found


def _check_block(
    cells: pl.DataFrame, columns: Columns, mechanism: Mechanism, space: CategorySpace
) -> None:
    """Raise a FormatError unless the columns of a block hold what they should."""
    import polars as pl

    expected: dict[str, pl.DataType] = {SIZE: pl.Int64(), **_column_types(mechanism, space)}
    sound = {name: cells.schema[name] == kind for name, kind in expected.items()}
    sound |= {name: holds_labels(cells.schema[name]) for name in columns.cell}
    of_cells = [one for one in mechanism.statistics if one.level is None]
    may_have_gaps = {name for one in of_cells for name in one.with_gaps}
    n_metrics, n_categories = space.metric_values().shape
    lengths = {"prior": (n_categories,), "decode": (n_metrics, n_categories)}
    for statistic in of_cells:
        lengths |= {name: (length,) for name, length in statistic.lengths(space).items()}
    for name, right_type in sound.items():
        gaps = name not in may_have_gaps and bool(cells[name].null_count())
        if not right_type or gaps or not are_whole(cells[name], lengths.get(name, ())):
            raise FormatError(f"column {name!r} of the cells does not hold what it should")


def _column_types(mechanism: Mechanism, space: CategorySpace) -> dict[str, pl.DataType]:
    """The columns of a block in a table of cells."""
    import polars as pl

    types: dict[str, pl.DataType] = {}
    if has_totals(mechanism):
        types[WEIGHT] = pl.Int64()
    for statistic in mechanism.statistics:
        if statistic.level is None:
            types |= statistic.column_types(space)
    if mechanism.releases_rows:
        types |= mechanism.settled_rows(space).column_types()
    return types


def read_labels(cells: pl.DataFrame, columns: Columns) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Clusters and arms of a table of cells, which has one row for each pair, in order."""
    import polars as pl

    *several, arms = (
        unnamed(cells[name]).unique(maintain_order=True).alias(name) for name in columns.cell
    )
    clusters = several[0] if several else pl.Series([EVERYONE])
    for labels in (clusters, arms):
        if n_unplain(labels):
            raise FormatError(f"column {labels.name!r} of the cells has control characters")
        if labels.dtype != pl.String and not labels.is_sorted():
            raise FormatError(f"column {labels.name!r} of the cells is not in order")
    n_clusters, n_arms = len(clusters), len(arms)
    complete = len(cells) == n_clusters * n_arms and (
        arms[np.tile(np.arange(n_arms), n_clusters)].equals(cells[columns.arm])
    )
    if columns.cluster is not None and complete:
        repeated = clusters[np.repeat(np.arange(n_clusters), n_arms)]
        complete = repeated.equals(cells[columns.cluster])
    if not complete:
        raise FormatError("the cells are not one for every cluster and arm, in order")
    return tuple(clusters), tuple(arms)
