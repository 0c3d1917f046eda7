"""Public columns as codes: their values, and the cells and groups that these name.

A private cluster is the one that a row is given, by a response that its id decides.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._named import unnamed
from clusterdp._text import NOT_PLAIN
from clusterdp.errors import TableChangedError
from clusterdp.rows.column_types import plain_type
from clusterdp.rows.keys import CLUSTERS_KEY, unit_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.rows.keys import UnitIds
    from clusterdp.spec.columns import Columns


# No label has this code.
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HashIndex:
    """A table of hashes, all different.

    The first bits of a hash name its bucket. There are more buckets than labels, so that a label is
    hardly ever more than a step from the beginning of its bucket. A value that is no label is taken
    for one with probability 2^-64 for each label.

    Attributes:
        seed: What values are hashed with.
        shift: How many bits of a hash follow those that name its bucket.
        starts: Where each bucket begins among the hashes; axes `[bucket]`.
        hashes: The hashes of labels, sorted, and one that ends them; axes `[label + 1]`.
        codes: The codes of these labels; axes `[label + 1]`.
    """

    seed: int
    shift: np.uint64
    starts: CodeArray
    hashes: WordArray
    codes: CodeArray

    @classmethod
    def from_values(cls, labels: pl.Series) -> HashIndex:
        """The index of distinct labels; a label's code is its place."""
        bits = (2 * len(labels)).bit_length()
        for seed in itertools.count():
            hashes = labels.hash(seed).to_numpy()
            order = np.argsort(hashes)
            in_order = hashes[order]
            if (in_order[1:] != in_order[:-1]).all():
                break
        shift = np.uint64(64 - bits)
        buckets = np.arange(2**bits, dtype=np.uint64) << shift
        return cls(
            seed=seed,
            shift=shift,
            starts=np.searchsorted(in_order, buckets).astype(np.int32),
            hashes=np.append(in_order, np.uint64(2**64 - 1)),
            codes=np.append(order, _NONE).astype(np.int32),
        )

    def find(self, column: pl.Series) -> CodeArray | None:
        """The code of each value; None if some value has none. Axes `[row]`."""
        if column.null_count():
            return None
        hashes = column.hash(self.seed).to_numpy()
        places = self.starts[hashes >> self.shift]
        behind = np.flatnonzero(self.hashes[places] < hashes)
        while behind.size:
            places[behind] += 1
            behind = behind[self.hashes[places[behind]] < hashes[behind]]
        codes = self.codes[places]
        is_known = (self.hashes[places] == hashes).all() and codes.min(initial=0) > _NONE
        return codes if is_known else None


ANOTHER_TABLE = (
    "the table is not the one that the release began with; it can only be finished with that one"
)
# A look-up table beats a search while it stays within a few cache-friendly megabytes.
_LARGEST_LOOKUP = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueCodes:
    """Sorted distinct values of a public column; a value's code is its position.

    Attributes:
        values: The distinct values, sorted.
        index: The codes by hashes; None for integers that are close together, and for booleans.
    """

    values: pl.Series
    index: HashIndex | None

    @classmethod
    def from_column(cls, column: pl.Series) -> ValueCodes:
        """The codes of all values of a column."""
        values = plain_column(unnamed(column)).unique().sort()
        return cls.from_values(values.alias(column.name))

    @classmethod
    def from_values(cls, values: pl.Series) -> ValueCodes:
        """The codes of distinct values in a given order; numbers must be sorted."""
        import polars as pl

        kind = values.dtype
        # Integers too far apart for a look-up table have an index, too.
        is_close = kind.is_integer() and int(values[-1]) - int(values[0]) < _LARGEST_LOOKUP
        is_looked_up = is_close or kind == pl.Boolean
        index = None if is_looked_up else HashIndex.from_values(unnamed(values))
        return cls(values=values, index=index)

    def __reduce__(self) -> tuple[Any, ...]:
        # By the values alone, which everything else follows from.
        return ValueCodes.from_values, (self.values,)

    def encode(self, column: pl.Series) -> CodeArray:
        """The code of each value.

        Raises:
            TableChangedError: If a value is not among the labels.
        """
        column = plain_column(unnamed(column))
        codes = None
        if column.dtype == self.values.dtype:
            find = partial(_find_numbers, self.values) if self.index is None else self.index.find
            codes = find(column)
        if codes is None:
            raise TableChangedError
        return codes


def _find_numbers(values: pl.Series, column: pl.Series) -> CodeArray | None:
    """The code of each value; None if some value has none. Axes `[row]`."""
    if column.null_count():
        return None
    labels, numbers = values.to_numpy(), column.to_numpy()
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
    """Categories by their text, so that a column reads the same in every encoding."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellEncoder:
    """The cell of each row: `cluster * n_arms + arm`, its index in a flat `[cluster, arm]` array.

    Attributes:
        clusters: Codes of the cluster column, of the declared labels if it is private; None if
            there is no such column.
        arms: Codes of the arm column.
        pooled: For each cluster label the cluster it counts as, axes `[label]`; None without
            pooling.
        breakdowns: Codes of every column that a breakdown is by.
        response: The response that private clusters go through; None where they are public. Its
            words have a key of their own (`CLUSTERS_KEY`), so that the cluster a row is given says
            nothing of how its outcomes are randomized.
    """

    clusters: ValueCodes | None
    arms: ValueCodes
    pooled: CodeArray | None = None
    breakdowns: Mapping[str, ValueCodes] = field(default_factory=dict)
    response: ClusterResponse | None = None

    def encode_rows(
        self, rows: pl.DataFrame, columns: Columns, units: UnitIds, keys: Mapping[str, bytes]
    ) -> tuple[IntArray, int]:
        """Cells of rows with these ids, axes `[row]`; and how many have no declared cluster.

        A private cluster is the one that its response gives the row. Where it is not declared, the
        cell is arbitrary.
        """
        if self.response is None or columns.cluster is None:
            return self.encode(rows, columns.cluster, columns.arm), 0
        codes, n_outside = self.own_clusters(rows[columns.cluster])
        if not units.ids.null_count():  # else the batch is refused
            codes = self.response.draw(unit_words(units, keys[CLUSTERS_KEY])[:, 0], codes)
        return self._cells(codes, rows[columns.arm]), n_outside

    def own_clusters(self, column: pl.Series) -> tuple[IntArray, int]:
        """Rows' own private clusters: for safety nets alone, and to be randomized.

        Args:
            column: Labels of any type; they are compared as text.

        Returns:
            Indices among declared labels, axes `[row]`, arbitrary where a row's is missing or not
            declared; and how many rows that are.
        """
        import polars as pl

        known = pl.Enum(() if self.response is None else self.response.labels)
        found = unnamed(column).cast(pl.String).cast(known, strict=False).to_physical()
        return found.fill_null(0).to_numpy().astype(np.int64), found.null_count()

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
            values = self.breakdowns[name]
            codes *= len(values.values)
            codes += values.encode(rows[name])
        return codes
