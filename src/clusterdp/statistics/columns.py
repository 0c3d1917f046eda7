"""Columns of lists in the published table of cells, where groups of cells share a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import FormatError

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import IntArray


def list_column(name: str, by_group: npt.NDArray[Any], groups: IntArray) -> pl.Series:
    """A list for every cell.

    Args:
        name: Of the column.
        by_group: Axes `[group, place]`, or more: then a list of lists.
        groups: The group of each cell; axes `[cluster, arm]`.
    """
    import polars as pl

    column = pl.Series(name, by_group[groups.ravel()])
    kind = pl.Series(by_group.ravel()[:0]).dtype
    for _ in by_group.shape[1:]:
        kind = pl.List(kind)
    return column.cast(kind)


def read_lists(column: pl.Series, groups: IntArray) -> npt.NDArray[Any]:
    """The inverse of `list_column`; axes `[group, place]`.

    Raises:
        FormatError: If cells of one group differ.
    """
    by_cell = column.list.to_array(len(column[0])).to_numpy()
    _, first, group = np.unique(groups.ravel(), return_index=True, return_inverse=True)
    if not np.array_equal(by_cell[first][group], by_cell):
        raise FormatError(f"cells that should share {column.name!r} do not")
    return np.asarray(by_cell[first])


def are_whole(column: pl.Series, lengths: tuple[int, ...]) -> bool:
    """Whether lists have so many numbers, without gaps; other columns always.

    Args:
        column: A column.
        lengths: How long its lists are, then how long the lists in them are.
    """
    import polars as pl

    if not isinstance(column.dtype, pl.List):
        return True
    for length in lengths:
        if column.null_count() or not (column.list.len() == length).all():
            return False
        column = column.explode(empty_as_null=False)
    return not column.null_count()
