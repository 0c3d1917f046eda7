"""The boundary with data frames: any table in, codes out, and a table of the same kind back."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.cells import Layout, default_control, find_arm
from clusterdp.errors import DataError, OwnerNotice

if TYPE_CHECKING:
    import narwhals as nw
    import numpy.typing as npt
    import polars as pl

    from clusterdp.arrays import CodeArray
    from clusterdp.outcomes import OutcomeSpace

RELEASED, DEBIASED = "released_outcome", "debiased_outcome"
PUBLISHED_COLUMNS = frozenset(
    {RELEASED, DEBIASED, "size", "noisy_counts", "noisy_contrast", "prior", "decode"}
)
# A look-up table beats sorting while it stays within a few cache-friendly megabytes.
_LARGEST_LOOKUP = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the table plays which part."""

    unit: str
    arm: str
    cluster: str
    outcome: str

    def __post_init__(self) -> None:
        names = [self.unit, self.arm, self.cluster, self.outcome]
        if len(set(names)) < len(names):
            raise DataError(f"unit, arm, cluster and outcome must be four columns, got {names}")
        taken = [name for name in names[:3] if name in PUBLISHED_COLUMNS]
        if taken:
            raise DataError(f"column {taken[0]!r} has a name that the release gives; rename it")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Rows:
    """A table reduced to codes; every array has axes `[row]`. It has no repr: it holds outcomes.

    Attributes:
        public: The columns of units, arms and clusters as they are published.
        units: Ids, as randomness is keyed by them.
        clusters: Cluster codes.
        arms: Arm codes.
        outcomes: True outcome codes.
        cluster_labels: What cluster codes stand for.
        arm_labels: What arm codes stand for.
        space: What outcome codes stand for.
    """

    public: pl.DataFrame
    units: pl.Series
    clusters: CodeArray
    arms: CodeArray
    outcomes: CodeArray
    cluster_labels: tuple[Any, ...]
    arm_labels: tuple[Any, ...]
    space: OutcomeSpace

    def with_clusters(self, name: str, clusters: CodeArray, labels: tuple[Any, ...]) -> Rows:
        """The same rows in other clusters, published in the column `name`."""
        import polars as pl

        column = pl.Series(name, labels).gather(clusters)
        return replace(
            self,
            public=self.public.with_columns(column),
            clusters=clusters,
            cluster_labels=labels,
        )

    def layout(self, control: Any) -> Layout:
        """What is public of the experiment."""
        shape = (len(self.cluster_labels), len(self.arm_labels))
        flat = self.clusters.astype(np.int64) * shape[1] + self.arms
        return Layout(
            clusters=self.cluster_labels,
            arms=self.arm_labels,
            control=(
                default_control(self.arm_labels)
                if control is None
                else find_arm(self.arm_labels, control)
            ),
            sizes=np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape),
            space=self.space,
        )


def read_frame(frame: Any) -> nw.DataFrame[Any]:
    """Any frame narwhals knows, as an eager one.

    A lazy frame is evaluated here, once: evaluated again later it could give other rows, and
    noise drawn for rows must never be drawn twice.
    """
    import narwhals as nw

    try:
        table = nw.from_native(frame)
    except TypeError as error:
        raise DataError(
            f"frame must be a pandas, Polars, PyArrow or DuckDB table, got {type(frame).__name__}"
        ) from error
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def encode_rows(
    table: nw.DataFrame[Any], columns: Columns, space: OutcomeSpace, *, clip: bool
) -> Rows:
    """Check the table and reduce it to codes.

    Raises:
        DataError: If a column is missing, a value is null, a unit has more than one row, or an
            outcome lies outside the space. The message counts rows and shows no value.
    """
    import polars as pl

    if len(table) == 0:
        raise DataError("the table has no rows")
    unit_column = _column(table, columns.unit, "unit")
    arm_column = _column(table, columns.arm, "arm")
    cluster_column = _column(table, columns.cluster, "cluster")
    units = _unit_ids(unit_column)
    cluster_labels, clusters = _encode_labels(cluster_column)
    arm_labels, arms = _encode_labels(arm_column)
    outcomes = _encode_outcomes(_column(table, columns.outcome, "outcome"), space, clip=clip)
    return Rows(
        public=pl.DataFrame([unit_column, arm_column, cluster_column]),
        units=units,
        clusters=clusters,
        arms=arms,
        outcomes=outcomes,
        cluster_labels=cluster_labels,
        arm_labels=arm_labels,
        space=space,
    )


def _column(table: nw.DataFrame[Any], name: str, part: str) -> pl.Series:
    if name not in table.columns:
        raise DataError(
            f"there is no column {name!r} to use as {part}; "
            f"the table has {', '.join(map(repr, table.columns))}"
        )
    try:
        series = table.select(name).to_polars().to_series()
    except (TypeError, ValueError, OverflowError) as error:
        # The library's own message quotes the value it could not convert; it must not get out.
        kind = type(error).__name__
        message = f"column {name!r} ({part}) mixes values of different types ({kind})"
        raise DataError(message) from None
    missing = series.null_count()
    if series.dtype.is_float():
        missing += int(series.is_nan().sum())
    if missing:
        raise DataError(
            f"column {name!r} ({part}) has {missing} missing values; every unit needs one"
        )
    return series


def _unit_ids(units: pl.Series) -> pl.Series:
    """Ids in one of the two forms randomness is keyed by, each unit once."""
    import polars as pl

    if isinstance(units.dtype, pl.Categorical | pl.Enum):
        units = units.cast(pl.String)
    if not (units.dtype.is_integer() or units.dtype == pl.String):
        raise DataError(
            f"column {units.name!r} (unit) holds {units.dtype}; ids must be integers or strings"
        )
    repeated = len(units) - units.n_unique()
    if repeated:
        raise DataError(
            f"column {units.name!r} (unit) repeats an id in {repeated} rows; privacy is promised "
            "per row, so each unit must have exactly one"
        )
    return units


def _encode_labels(series: pl.Series) -> tuple[tuple[Any, ...], CodeArray]:
    """Sorted distinct labels, and the code of each row's label."""
    import polars as pl

    if isinstance(series.dtype, pl.Categorical | pl.Enum):
        series = series.cast(pl.String)
    labels = series.unique().sort()
    if series.dtype == pl.String:
        return tuple(labels), series.cast(pl.Enum(labels)).to_physical().to_numpy()
    if series.dtype.is_integer() or series.dtype == pl.Boolean:
        return tuple(labels), _integer_codes(series.to_numpy(), labels.to_numpy())
    return tuple(labels), (series.rank("dense") - 1).to_numpy()


def _integer_codes(column: npt.NDArray[Any], labels: npt.NDArray[Any]) -> CodeArray:
    low, high = int(labels[0]), int(labels[-1])
    if high - low >= _LARGEST_LOOKUP:
        return np.searchsorted(labels, column)
    lookup = np.zeros(high - low + 1, dtype=np.uint32)
    lookup[labels.astype(np.int64) - low] = np.arange(len(labels))
    return lookup[column.astype(np.int64) - low]


def _encode_outcomes(series: pl.Series, space: OutcomeSpace, *, clip: bool) -> CodeArray:
    import polars as pl

    if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
        raise DataError(f"column {series.name!r} (outcome) holds {series.dtype}, not numbers")
    observed = series.to_numpy()
    if clip:
        clipped = space.clip(observed)
        n_clipped = int((clipped != observed).sum())
        if n_clipped:
            message = f"{n_clipped} outcomes were clipped to the ends of the outcome space"
            # Past encode_rows, run_release and release: at the owner's own line.
            warnings.warn(message, OwnerNotice, stacklevel=5)
        observed = clipped
    codes, outside = space.encode(observed)
    n_outside = int(outside.sum())
    if n_outside:
        remedy = "declare a space that holds them" + ("" if clip else ", or give clip=True")
        raise DataError(
            f"column {series.name!r} (outcome) has {n_outside} rows outside the outcome space of "
            f"{space.n_outcomes} values; {remedy}"
        )
    return codes.astype(np.uint16)


def table_like(like: nw.DataFrame[Any], columns: pl.DataFrame) -> nw.DataFrame[Any]:
    """A Polars frame as a table of the same library as another."""
    import narwhals as nw

    return nw.from_arrow(columns, backend=like.implementation)


def to_native(table: nw.DataFrame[Any], given: Any) -> Any:
    """The table as a frame of the library that `given` came from.

    A DuckDB relation comes back as a relation over rows that are already computed. Other lazy
    frames come back eager, for the reason given in `read_frame`.
    """
    native = table.to_native()
    if type(given).__module__.split(".")[0] in {"duckdb", "_duckdb"}:
        import duckdb

        return duckdb.from_arrow(native)
    return native
