"""Columns of a table as codes: which column plays which part, and what its values stand for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import DataError
from clusterdp.experiment.missing import missing_column
from clusterdp.experiment.published_names import BLOCK, block_suffixes, debiased_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray

# The number of a row's output in its channel.
RESPONSE = "response"
# The public fold that a unit is in.
FOLD = "fold"
# Each fold has noise of its own on its totals.
MOST_FOLDS = 10
# The columns of published tables beside clusters and arms.
PUBLISHED_COLUMNS = frozenset(
    {
        RESPONSE,
        FOLD,
        BLOCK,
        "size",
        "weight",
        "by",
        "group",
        "noisy_counts",
        "noisy_contrast",
        "noisy_sum",
        "noisy_sum_in_units",
        "noisy_squares",
        "prior",
        "decode",
        "channel",
        "weights",
    }
)
TABLE_CHANGED = "the table changed while it was being read; nothing was published"
ANOTHER_TABLE = (
    "the table is not the one that the release began with; it can only be finished with that one"
)
# A look-up table beats a search while it stays within a few cache-friendly megabytes.
_LARGEST_LOOKUP = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the table plays which part.

    Attributes:
        unit: Ids.
        arm: Treatment arms.
        cluster: Clusters; None if there are none.
        outcomes: The sensitive outcomes.
        missing: Those that may be missing.
        kept: Public columns that are published as they are.
        breakdowns: Columns that effects are going to be cut by; several in one entry are crossed.
            They are published like kept ones.
        assigned_by: The column of groups that arms were assigned to as a whole; None if arms were
            assigned to units.
        folds: How many public folds units are put in.
        n_blocks: How many blocks outcomes are released in; each has a channel of its own.
    """

    unit: str
    arm: str
    cluster: str | None
    outcomes: tuple[str, ...]
    kept: tuple[str, ...] = ()
    breakdowns: tuple[tuple[str, ...], ...] = ()
    assigned_by: str | None = None
    folds: int = 1
    missing: tuple[str, ...] = ()
    n_blocks: int = 1

    def __post_init__(self) -> None:
        cut_by = dict.fromkeys(name for names in self.breakdowns for name in names)
        if set(cut_by) & {self.unit, self.arm, *self.outcomes}:
            raise DataError("a breakdown is by public columns, not by ids, arms or outcomes")
        if (
            len(set(map(frozenset, self.breakdowns))) < len(self.breakdowns)
            or () in self.breakdowns
        ):
            raise DataError("every breakdown must be by other columns than the others")
        if any(len(set(names)) < len(names) for names in self.breakdowns):
            raise DataError("a breakdown names a column twice; name it once")
        if not 1 <= self.folds <= MOST_FOLDS:
            raise DataError(f"folds must be 1 to {MOST_FOLDS}, got {self.folds}")
        named = {self.cluster, self.assigned_by}
        kept = dict.fromkeys((*self.kept, *cut_by))
        object.__setattr__(self, "kept", tuple(name for name in kept if name not in named))
        names = [*self.public, *self.outcomes]
        if len(set(names)) < len(names):
            raise DataError(
                "unit, arm, cluster, outcomes and kept columns must all differ, got "
                + ", ".join(map(repr, names))
            )
        given = {*self.responses, FOLD, *self.debiased}
        taken = [name for name in self.public if name in given]
        endings = block_suffixes(self.n_blocks)
        of_cells = {name + ending for name in PUBLISHED_COLUMNS for ending in ("", *endings)}
        taken += [name for name in self.cell if name in of_cells]
        if taken:
            raise DataError(f"column {taken[0]!r} has a name that the release gives; rename it")

    def keeping(self, names: Iterable[str]) -> Columns:
        """The same, with more columns kept."""
        more = tuple(name for name in names if name not in self.public)
        return replace(self, kept=(*self.kept, *more))

    @property
    def public(self) -> tuple[str, ...]:
        """The columns that are published as they are, in their order."""
        named = (self.cluster, self.assigned_by)
        return (self.unit, self.arm, *(name for name in named if name is not None), *self.kept)

    @property
    def cell(self) -> tuple[str, ...]:
        """The columns that the cell of a unit follows from."""
        return (self.arm,) if self.cluster is None else (self.cluster, self.arm)

    @property
    def secret(self) -> tuple[str, ...]:
        """Columns that nothing public may be made of: ids and outcomes."""
        return (self.unit, *self.outcomes)

    @property
    def counted(self) -> tuple[str, ...]:
        """The columns that outcomes are counted by: ids, cells, breakdowns; and the outcomes."""
        cut_by = (name for names in self.breakdowns for name in names)
        return tuple(dict.fromkeys((self.unit, *self.cell, *cut_by, *self.outcomes)))

    @property
    def responses(self) -> tuple[str, ...]:
        """The published column of responses of each block."""
        return tuple(RESPONSE + ending for ending in block_suffixes(self.n_blocks))

    @property
    def debiased(self) -> tuple[str, ...]:
        """The published columns of debiased outcomes.

        An outcome that may be missing has two: the outcome times whether it was observed, which is
        0 where it is missing; and whether it was observed, after all outcomes.
        """
        return debiased_names(self.outcomes, self.missing)

    @property
    def published(self) -> tuple[str, ...]:
        """All columns of published rows, in their order."""
        fold = (FOLD,) if self.folds > 1 else ()
        return (*self.public, *fold, *self.responses, *self.debiased)

    @property
    def parts(self) -> dict[str, str]:
        """Every column that is read, with the part it plays."""
        named = {self.cluster: "cluster", self.assigned_by: "assigned by"}
        return {
            self.unit: "unit",
            self.arm: "arm",
            **{name: part for name, part in named.items() if name is not None},
            **dict.fromkeys(self.outcomes, "outcome"),
            **dict.fromkeys(self.kept, "kept"),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """Sorted distinct values of a public column; a value's code is its position.

    Attributes:
        values: The distinct values, sorted.
        categories: For text, the same as a Polars type, which encodes fastest.
    """

    values: pl.Series
    categories: pl.Enum | None

    @classmethod
    def of(cls, column: pl.Series) -> Labels:
        """The labels of a column."""
        return cls.listed(plain_column(column).unique().sort())

    @classmethod
    def listed(cls, values: pl.Series) -> Labels:
        """Labels in a given order; numbers must be sorted."""
        import polars as pl

        return cls(values=values, categories=pl.Enum(values) if values.dtype == pl.String else None)

    def __reduce__(self) -> tuple[Any, ...]:
        # By the values alone: of a million categories, Polars loses some when it is pickled.
        return Labels.listed, (self.values,)

    def texts(self) -> tuple[str, ...]:
        """The values as text."""
        import polars as pl

        return tuple(self.values.cast(pl.String))

    def encode(self, column: pl.Series) -> CodeArray:
        """The code of each value.

        Raises:
            DataError: If a value is not among the labels.
        """
        column = plain_column(column)
        codes = self._find(column) if column.dtype == self.values.dtype else None
        if codes is None:
            raise DataError(TABLE_CHANGED)
        return codes

    def _find(self, column: pl.Series) -> CodeArray | None:
        """Codes, or None if some value has none."""
        import polars as pl

        if self.categories is not None:
            found = column.cast(self.categories, strict=False).to_physical()
            return None if found.null_count() else found.to_numpy()
        if self.values.dtype.is_integer() or self.values.dtype == pl.Boolean:
            return _find_numbers(self.values.to_numpy(), column)
        if column.null_count():
            return None
        codes = np.minimum(self.values.search_sorted(column).to_numpy(), len(self.values) - 1)
        return codes if (self.values.gather(codes) == column).all() else None


def _find_numbers(labels: npt.NDArray[Any], column: pl.Series) -> CodeArray | None:
    if column.null_count():
        return None
    numbers = column.to_numpy()
    low, high = int(labels[0]), int(labels[-1])
    if high - low >= _LARGEST_LOOKUP:
        codes = np.minimum(np.searchsorted(labels, numbers), len(labels) - 1)
        return codes if np.array_equal(labels[codes], numbers) else None
    if len(numbers) and (numbers.min() < low or numbers.max() > high):
        return None
    shifted = _minus(numbers, low)
    if high - low == len(labels) - 1:  # no gaps: positions are differences
        return shifted
    lookup = np.full(high - low + 1, -1)
    lookup[_minus(labels, low)] = np.arange(len(labels))
    codes = lookup[shifted]
    return codes if codes.min(initial=0) >= 0 else None


def _minus(numbers: npt.NDArray[Any], low: int) -> IntArray:
    """Differences that fit 64 bits, also of unsigned numbers beyond them."""
    if numbers.dtype == np.uint64:
        return np.asarray((numbers - np.uint64(low)).astype(np.int64))
    return np.asarray(numbers.astype(np.int64) - low)


def plain_column(column: pl.Series) -> pl.Series:
    """Categories by their text, so that a column reads the same whatever encodes it."""
    kind = plain_type(column.dtype)
    return column if kind == column.dtype else column.cast(kind)


def plain_type(kind: pl.DataType) -> pl.DataType:
    """The type that a column is published with."""
    import polars as pl

    return pl.String() if isinstance(kind, pl.Categorical | pl.Enum) else kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellEncoder:
    """The cell of each row: `cluster * n_arms + arm`, its place in a flat `[cluster, arm]` array.

    Attributes:
        clusters: Labels of the cluster column; None if there is none.
        arms: Labels of the arm column.
        pooled: For each cluster label the cluster it counts as, axes `[label]`; None without
            pooling.
        breakdowns: Labels of every column that a breakdown is by.
    """

    clusters: Labels | None
    arms: Labels
    pooled: CodeArray | None = None
    breakdowns: Mapping[str, Labels] = field(default_factory=dict)

    def encode(self, rows: pl.DataFrame, cluster: str | None, arm: str) -> IntArray:
        """Cell codes of rows, from the columns of clusters and arms; axes `[row]`."""
        if self.clusters is None or cluster is None:
            return self.arms.encode(rows[arm]).astype(np.int64)
        codes = self.clusters.encode(rows[cluster])
        if self.pooled is not None:
            codes = self.pooled[codes]
        cells = codes.astype(np.int64)
        cells *= len(self.arms.values)
        cells += self.arms.encode(rows[arm])
        return cells

    def groups(self, rows: pl.DataFrame, by: tuple[str, ...]) -> IntArray:
        """The group of each row in a breakdown, in the order of `Breakdown.groups`."""
        codes = np.zeros(len(rows), dtype=np.int64)
        for name in by:
            labels = self.breakdowns[name]
            codes *= len(labels.values)
            codes += labels.encode(rows[name])
        return codes


def outcome_array(column: pl.Series) -> npt.NDArray[Any]:
    """A column of outcomes as an array, NaN where one is missing.

    Floats keep their precision, since 0.1 is then what 0.1 is written as.
    """
    import polars as pl

    has_nan = column.dtype.is_float() or not column.null_count()
    return (column if has_nan else column.cast(pl.Float64)).to_numpy()


def check_types(schema: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError unless every column is there and of a usable type."""
    for name, part in columns.parts.items():
        if name not in schema:
            raise missing_column(name, part, schema)
    ids = schema[columns.unit]
    if not holds_ids(ids):
        raise DataError(
            f"column {columns.unit!r} (unit) holds {_named(ids)}; ids must be integers or strings"
        )
    for name in columns.outcomes:
        kind = schema[name]
        if not holds_outcomes(kind):
            raise DataError(
                f"column {name!r} (outcome) holds {_named(kind)}, not numbers; convert it to a "
                "number per unit, such as 0 and 1"
            )
    _check_labels(schema, columns)
    for name in columns.kept:
        if not _is_publishable(schema[name]):
            raise DataError(
                f"column {name!r} (kept) holds {_named(schema[name])}; only numbers of up to 64 "
                "bits, text, booleans, dates and times can be kept: convert it"
            )


def _check_labels(schema: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError unless columns that name cells and groups hold labels."""
    groups = () if columns.assigned_by is None else (columns.assigned_by,)
    for name in (*columns.cell, *groups):
        if not holds_labels(schema[name]):
            raise DataError(
                f"column {name!r} holds {_named(schema[name])}; "
                "labels must be text, integers, dates or booleans"
            )
    for name in (name for names in columns.breakdowns for name in names):
        if not holds_groups(schema[name]):
            raise DataError(
                f"column {name!r} (breakdown) holds {_named(schema[name])}; groups must be text, "
                "integers, dates or booleans"
            )


def _is_publishable(kind: pl.DataType) -> bool:
    """Whether a column of a type can be published as it is.

    How lists and structs are stored in a file depends on how the table was cut into batches, and
    that can depend on outcomes.
    """
    import polars as pl

    plain = (pl.Float32, pl.Float64, pl.Boolean, pl.String, pl.Categorical, pl.Enum, pl.Decimal)
    return _is_integer(kind) or kind.is_temporal() or isinstance(kind, plain)


def _named(kind: pl.DataType) -> str:
    """A type by its name alone: its parameters can depend on the values in a column."""
    return str(kind.base_type())


def holds_ids(kind: pl.DataType) -> bool:
    """Whether a column of a type can identify units."""
    import polars as pl

    return _is_integer(kind) or isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def holds_outcomes(kind: pl.DataType) -> bool:
    """Whether a column of a type can hold outcomes."""
    import polars as pl

    return kind.is_float() or _is_integer(kind) or kind == pl.Boolean


def holds_labels(kind: pl.DataType) -> bool:
    """Whether a column of a type can name arms or clusters."""
    import polars as pl

    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Float32, pl.Float64)
    return _is_integer(kind) or isinstance(kind, plain)


def holds_groups(kind: pl.DataType) -> bool:
    """Whether a column of a type can name the groups of a breakdown."""
    return holds_labels(kind) and not kind.is_float()


def _is_integer(dtype: pl.DataType) -> bool:
    """Whether a column holds integers of at most 64 bits."""
    import polars as pl

    return dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)
