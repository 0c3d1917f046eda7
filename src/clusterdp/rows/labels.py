"""Public columns as codes: labels, and the cells and groups that they name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp._words import NOT_PLAIN
from clusterdp.errors import TableChangedError
from clusterdp.rows.column_types import plain_type
from clusterdp.rows.label_index import LabelIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray
    from clusterdp.rows.columns import Columns
    from clusterdp.rows.noisy_labels import NoisyLabels
    from clusterdp.rows.unit_ids import UnitIds

ANOTHER_TABLE = (
    "the table is not the one that the release began with; it can only be finished with that one"
)
# A look-up table beats a search while it stays within a few cache-friendly megabytes.
_LARGEST_LOOKUP = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """Sorted distinct values of a public column; a value's code is its position.

    Attributes:
        values: The distinct values, sorted.
        index: The codes by hashes, for text and numbers that are far apart.
    """

    values: pl.Series
    index: LabelIndex | None

    @classmethod
    def of(cls, column: pl.Series) -> Labels:
        """The labels of a column."""
        values = plain_column(unnamed(column)).unique().sort()
        return cls.listed(values.alias(column.name))

    @classmethod
    def listed(cls, values: pl.Series) -> Labels:
        """Labels in a given order; numbers must be sorted."""
        import polars as pl

        is_indexed = values.dtype == pl.String or _is_wide(values)
        return cls(values=values, index=LabelIndex.of(unnamed(values)) if is_indexed else None)

    def __reduce__(self) -> tuple[Any, ...]:
        # By the values alone, which everything else follows from.
        return Labels.listed, (self.values,)

    def texts(self) -> tuple[str, ...]:
        """The values as text."""
        import polars as pl

        return tuple(self.values.cast(pl.String))

    def encode(self, column: pl.Series) -> CodeArray:
        """The code of each value.

        Raises:
            TableChangedError: If a value is not among the labels.
        """
        column = plain_column(unnamed(column))
        codes = self._find(column) if column.dtype == self.values.dtype else None
        if codes is None:
            raise TableChangedError
        return codes

    def _find(self, column: pl.Series) -> CodeArray | None:
        """Codes, or None if some value has none."""
        import polars as pl

        if self.index is not None:
            return self.index.find(column)
        if self.values.dtype.is_integer() or self.values.dtype == pl.Boolean:
            return _find_numbers(self.values.to_numpy(), column)
        if column.null_count():
            return None
        codes = np.minimum(self.values.search_sorted(column).to_numpy(), len(self.values) - 1)
        return codes if (self.values[codes] == column).all() else None


def _is_wide(values: pl.Series) -> bool:
    """Whether labels are integers too far apart for a look-up table."""
    return values.dtype.is_integer() and int(values[-1]) - int(values[0]) >= _LARGEST_LOOKUP


def _find_numbers(labels: npt.NDArray[Any], column: pl.Series) -> CodeArray | None:
    if column.null_count():
        return None
    numbers = column.to_numpy()
    low, high = int(labels[0]), int(labels[-1])
    if len(numbers) and (numbers.min() < low or numbers.max() > high):
        return None
    shifted = minus(numbers, low)
    if high - low == len(labels) - 1:  # no gaps: positions are differences
        return shifted
    lookup = np.full(high - low + 1, -1)
    lookup[minus(labels, low)] = np.arange(len(labels))
    codes = lookup[shifted]
    return codes if codes.min(initial=0) >= 0 else None


def minus(numbers: npt.NDArray[Any], low: int) -> IntArray:
    """Differences that fit 64 bits, also of unsigned numbers beyond them."""
    if numbers.dtype == np.uint64:
        return np.asarray((numbers - np.uint64(low)).astype(np.int64))
    return np.asarray(numbers.astype(np.int64) - low)


def plain_column(column: pl.Series) -> pl.Series:
    """Categories by their text, so that a column reads the same whatever encodes it."""
    kind = plain_type(column.dtype)
    return column if kind == column.dtype else column.cast(kind)


def n_unplain(column: pl.Series) -> int:
    """How many values of a column, if it is text, hold what cannot be shown anywhere."""
    import polars as pl

    texts = unnamed(plain_column(column))
    return int(texts.str.contains(NOT_PLAIN).sum()) if texts.dtype == pl.String else 0


def look_for_unplain(rows: pl.LazyFrame, names: Iterable[str]) -> pl.LazyFrame:
    """One row with, for each of some columns that is text, whether a value cannot be shown."""
    import polars as pl

    schema = rows.collect_schema()
    texts = [name for name in names if plain_type(schema[name]) == pl.String]
    # By their places: names of columns may read as patterns.
    places = [schema.names().index(name) for name in texts]
    held = (pl.nth(place).cast(pl.String).str.contains(NOT_PLAIN).any() for place in places)
    return rows.select(*held)


class EncodedCells(NamedTuple):
    """The cells of rows; axes `[row]`.

    Attributes:
        cells: Codes of cells.
        n_outside: Rows without a declared label, where clusters are private.
    """

    cells: IntArray
    n_outside: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellEncoder:
    """The cell of each row: `cluster * n_arms + arm`, its place in a flat `[cluster, arm]` array.

    Attributes:
        clusters: Labels of the cluster column, the declared ones if it is private; None if there is
            no such column.
        arms: Labels of the arm column.
        pooled: For each cluster label the cluster it counts as, axes `[label]`; None without
            pooling.
        breakdowns: Labels of every column that a breakdown is by.
        noisy: The response that private clusters go through; None where they are public.
    """

    clusters: Labels | None
    arms: Labels
    pooled: CodeArray | None = None
    breakdowns: Mapping[str, Labels] = field(default_factory=dict)
    noisy: NoisyLabels | None = None

    @property
    def relabels(self) -> bool:
        """Whether clusters have other labels than in the table."""
        return self.pooled is not None or self.noisy is not None

    def encode_rows(self, rows: pl.DataFrame, columns: Columns, units: UnitIds) -> EncodedCells:
        """Cells of rows with these ids: by the labels that private clusters are given."""
        if self.noisy is None or columns.cluster is None:
            return EncodedCells(self.encode(rows, columns.cluster, columns.arm))
        given = self.noisy(rows[columns.cluster], units)
        return EncodedCells(self._cells(given.codes, rows[columns.arm]), given.n_outside)

    def encode(self, rows: pl.DataFrame, cluster: str | None, arm: str) -> IntArray:
        """Cell codes of rows, from the columns of clusters and arms; axes `[row]`."""
        if self.clusters is None or cluster is None:
            return self.arms.encode(rows[arm]).astype(np.int64)
        return self._cells(self.clusters.encode(rows[cluster]), rows[arm])

    def _cells(self, clusters: CodeArray | IntArray, arms: pl.Series) -> IntArray:
        """Cell codes, from codes of cluster labels and a column of arms."""
        if self.pooled is not None:
            clusters = self.pooled[clusters]
        cells = clusters.astype(np.int64)
        cells *= len(self.arms.values)
        cells += self.arms.encode(arms)
        return cells

    def groups(self, rows: pl.DataFrame, by: tuple[str, ...]) -> IntArray:
        """The group of each row in a breakdown, in the order of `Breakdown.groups`."""
        codes = np.zeros(len(rows), dtype=np.int64)
        for name in by:
            labels = self.breakdowns[name]
            codes *= len(labels.values)
            codes += labels.encode(rows[name])
        return codes
