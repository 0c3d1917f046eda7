"""What every noisy statistic offers, the values that it is read as, and its columns of lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from clusterdp.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace

    Arrays = Mapping[str, npt.NDArray[Any]]
    # Sums of metrics, and of their squares as in `MetricLattice.squares`; last axis `[metric]`.
    SumPair = tuple[IntArray, IntArray]


# A term that adds less than this share to a square is rounding.
_NEGLIGIBLE = 1e-9


class CellTotals(NamedTuple):
    """What statistics are drawn from: true totals of every cell, and of groups of units.

    Attributes:
        counts: Units by category; axes `[..., cluster, arm, category]`.
        sums: Sums of metrics, in units of the lattice; axes `[..., cluster, arm, metric]`.
        squares: Sums of squares of metrics, as in `MetricLattice.squares`; axes as those of sums.
        groups: Weighted sums and squares of groups, by the columns of the groups: axes
            `[..., group, fold, arm, metric]`.
        covariates: Sums of x, x², xy and y of the owner's covariates x, in steps; axes `[cluster,
            arm, covariate, 4]`. None where none were counted.
    """

    counts: IntArray
    sums: IntArray
    squares: IntArray
    groups: Mapping[tuple[str, ...], SumPair]
    covariates: IntArray | None = None

    @classmethod
    def from_counts(cls, counts: IntArray, space: CategorySpace) -> CellTotals:
        """The totals of units in known categories; expected counts need not be whole.

        Counts show neither folds nor breakdowns, so there are no totals of groups.
        """
        lattice = space.metric_lattice()
        return cls(
            counts=counts,
            sums=_whole(counts @ lattice.integers.T),
            squares=_whole(counts @ lattice.squares().T),
            groups={},
        )


def _whole(sums: IntArray) -> IntArray:
    """Sums as integers, also of the expected counts that predictions are made from."""
    if sums.dtype.kind == "i":
        return sums  # not through floats, which would round them
    return np.asarray(np.rint(sums), dtype=np.int64)


class SumReading(NamedTuple):
    """Noisy sums over groups of units, which estimates from rows are calibrated by.

    A unit of a cell is part of its group's sum with the public weight of its cell.

    Attributes:
        by: The public columns of groups, none for all units; None where groups are
            clusters.
        weights: x, the weight of a unit in each cell; axes `[cluster, arm]`.
        value: Σ x·y with noise; axes `[..., group, fold, arm]`. Of one fold where sums are not
            split by fold.
        variance: The variance of its noise, the same for all.
        squares: Σ x·((y − middle)² − c) with noise, axes as `value`; None if not published.
        squares_variance: The variance of the noise on squares.
        squares_constant: c.
        folder: The place of its folder, where several are estimated together.
    """

    by: tuple[str, ...] | None
    weights: IntArray
    value: FloatArray
    variance: float
    squares: FloatArray | None = None
    squares_variance: float = 0.0
    squares_constant: float = 0.0
    folder: int = 0


def square_terms(
    values: FloatArray, metrics: FloatArray, squared: Sequence[bool]
) -> tuple[float, FloatArray] | None:
    """The squared distance of a function from its middle, by what is published of metrics.

    It is a constant, a weighted sum of metrics and one of their squared distances. It exists for
    one metric, and for R·y − r·R with R 0 or 1, because R² is R.

    Args:
        values: The function; axes `[category]`.
        metrics: The metrics; axes `[metric, category]`.
        squared: For each metric whether its squares are published.

    Returns:
        The constant, and the weights of metrics, then of squared distances, axes `[2 * metric]`;
        None if it is no such sum.
    """
    rows = np.vstack([metrics, values])
    middles = (rows.min(axis=1, keepdims=True) + rows.max(axis=1, keepdims=True)) / 2
    distances = (rows - middles) ** 2
    terms = [np.ones(len(values)), *metrics, *distances[:-1][list(squared)]]
    scales = np.array([np.abs(one).max() or 1.0 for one in terms])
    weights, *_ = np.linalg.lstsq(np.stack(terms, axis=1) / scales, distances[-1], rcond=None)
    largest = _NEGLIGIBLE * distances[-1].max()
    weights = np.where(np.abs(weights) > largest, weights, 0.0) / scales
    if np.abs(weights @ np.stack(terms) - distances[-1]).max() > largest * len(terms):
        return None
    squares = np.zeros(len(metrics))
    squares[list(squared)] = weights[1 + len(metrics) :]
    return float(weights[0]), np.concatenate([weights[1 : 1 + len(metrics)], squares])


def combined(
    readings: Sequence[SumReading],
    coefficients: FloatArray,
    squares: tuple[float, FloatArray] | None,
) -> SumReading:
    """A weighted sum of readings of all metrics, whose noise is uncorrelated.

    Joint noise of metrics is symmetric: given the rest, both signs of each are equally likely.

    Args:
        readings: Of every metric.
        coefficients: The weights; axes `[metric]`.
        squares: How squares of the sum follow from what is published, see `square_terms`; None if
            they do not.
    """
    value, variance = _added(coefficients, [(one.value, one.variance) for one in readings])
    found = readings[0]._replace(value=value, variance=variance, squares=None)
    if squares is None:
        return found
    parts: list[tuple[FloatArray | None, float]] = [(one.value, one.variance) for one in readings]
    parts += [(one.squares, one.squares_variance) for one in readings]
    constant, weights = squares
    total, noise = _added(weights, parts)
    total = np.broadcast_to(total, value.shape)  # there may be a constant alone
    return found._replace(squares=total, squares_variance=noise, squares_constant=constant)


def _added(
    weights: FloatArray, parts: Sequence[tuple[FloatArray | None, float]]
) -> tuple[FloatArray, float]:
    """A weighted sum of independent readings, and its variance."""
    used = [(weight, *part) for weight, part in zip(weights.tolist(), parts, strict=True) if weight]
    value = sum((weight * one for weight, one, _ in used if one is not None), np.zeros(()))
    return np.asarray(value), float(sum(weight**2 * variance for weight, _, variance in used))


class ClusterContrasts(NamedTuple):
    """Differences in means against control, cluster by cluster, from a statistic alone.

    Attributes:
        contrasts: Axes `[..., cluster, treatment]`, in the order of `Layout.treatments`.
        noise: The variance of their noise; axes `[cluster, treatment]`.
        arm_noise: The variance of the noise on cell means, axes `[cluster, arm]`; None where means
            of single arms are not published.
        spread: The estimated variance of a unit's outcome, axes `[..., cluster, arm]`; None where
            the statistic does not estimate it.
    """

    contrasts: FloatArray
    noise: FloatArray
    arm_noise: FloatArray | None = None
    spread: FloatArray | None = None


class CovariateMoments(NamedTuple):
    """What is known of an owner's covariate, arm by arm; axes `[arm]`.

    Attributes:
        column: Its column.
        imbalance: How far its stratified mean is from that of all units.
        squares: Its variance within clusters.
        products: Its covariance with the outcome within clusters.
        imbalance_noise: The variance of the noise on imbalance.
        products_noise: The same on covariances.
    """

    column: str
    imbalance: FloatArray
    squares: FloatArray
    products: FloatArray
    imbalance_noise: FloatArray
    products_noise: FloatArray


class Histogram(NamedTuple):
    """Noisy outcome counts of groups of cells: what a prior can be estimated from.

    Attributes:
        noisy_counts: Counts with noise; axes `[..., group, outcome]`. They may be negative, and do
            not add up to the sizes.
        group_sizes: How many units each group has; axes `[group]`.
        groups: The group of each cell; axes `[cluster, arm]`.
        noise_variance: The variance of the noise on every count.
    """

    noisy_counts: IntArray
    group_sizes: IntArray
    groups: IntArray
    noise_variance: float


class DrawnStatistic(ABC):
    """A statistic with its noise: public from here on."""

    __slots__ = ()

    @property
    def level(self) -> tuple[str, ...] | None:
        """The columns of its groups; None if it covers cells, and is published with them."""
        return None

    @abstractmethod
    def arrays(self) -> Arrays:
        """What was drawn, by name; the statistic's `restore` takes it back."""

    @abstractmethod
    def to_columns(self) -> list[pl.Series]:
        """Its columns in the published table that it is in."""

    def histogram(self) -> Histogram | None:
        """Noisy counts that priors can be estimated from, if it has any."""
        return None

    def sum_readings(self, metric: int = 0) -> tuple[SumReading, ...]:  # noqa: ARG002 - for other kinds
        """Sums of a metric that estimates from rows can be calibrated by, if it has any."""
        return ()

    def readings_of(
        self,
        values: FloatArray,  # noqa: ARG002 - for other kinds
        combination: FloatArray | None,  # noqa: ARG002 - for other kinds
    ) -> tuple[SumReading, ...]:
        """Sums of any function of the category, if it determines them.

        Args:
            values: The function; axes `[category]`.
            combination: The same as a weighted sum of declared metrics, axes `[metric]`; None if it
                is not such a sum.
        """
        return ()

    def covariate_moments(self, metric: str) -> CovariateMoments | None:  # noqa: ARG002 - as above
        """The owner's covariate of a metric, if it has one."""
        return None

    def contrasts(self, layout: Layout, metric: int = 0) -> ClusterContrasts:
        """Differences in means of a metric against the control of `layout`, from it alone.

        Raises:
            ParameterError: If it was published against another control, or compares nothing.
        """
        raise NotImplementedError


class NoisyStatistic(msgspec.Struct, frozen=True, kw_only=True, tag_field="statistic"):
    """The parameters of a statistic, which are published as they are; and what most have in common.

    A statistic also has these methods, which all differ:

    - `loss()`: its privacy loss, largest first.
    - `draw(totals, layout, space, add_noise)`: it, from true totals.
    - `restore(arrays, layout, space)`: it, from `DrawnStatistic.arrays`.
    - `read(table, layout, space)`: it, from the published table that it is in, or a FormatError.
    - `parameters()`: its numbers, by the names that people are shown.

    Attributes:
        beside_rows: Whether it may be published next to rows.
        with_gaps: Its columns that have no value for some cells.
        in_words: What its columns hold.
        of_categories: Whether it is drawn from counts by category, not from sums.
        of_cell_sums: Whether it is drawn from sums of every cell.
        of_everyone: Whether it covers all units, and is drawn together for all questions; else it
            covers the units that are asked, where a release has rows.
    """

    beside_rows: ClassVar[bool] = True
    with_gaps: ClassVar[tuple[str, ...]] = ()
    in_words: ClassVar[str]
    of_categories: ClassVar[bool] = False
    of_cell_sums: ClassVar[bool] = False
    of_everyone: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """What it is called; no two statistics of a release are called the same."""
        return str(self.__struct_config__.tag)

    @property
    def level(self) -> tuple[str, ...] | None:
        """The columns of its groups; None if it covers cells, and is published with them."""
        return None

    @property
    def estimates_effects(self) -> bool:
        """Whether effects can be estimated from it alone."""
        return True

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if it could not be drawn exactly; after that `draw` succeeds."""

    def lengths(self, space: CategorySpace) -> dict[str, int]:
        """How many numbers the lists of each column have, where it has lists."""
        return dict.fromkeys(self.column_types(space), space.n_categories)

    def column_types(self, space: CategorySpace) -> dict[str, pl.DataType]:
        """The columns it is published in."""
        raise NotImplementedError

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:  # noqa: ARG002 - for other kinds
        """Numbers that readers of the folder need and that follow from the parameters."""
        return {}

    def contrast_variance(
        self, layout: Layout, space: CategorySpace, metric: int = 0
    ) -> FloatArray:
        """The noise variance of its contrasts, if it is published alone: `[cluster, treatment]`."""
        raise NotImplementedError

    def cell_sum_variance(
        self,
        space: CategorySpace,  # noqa: ARG002 - for other kinds
        metric: int = 0,  # noqa: ARG002 - for other kinds
    ) -> float | None:
        """The noise variance of the sum of every cell; None if it determines none."""
        return None


def lone_unit_squares(sizes: IntArray, means: FloatArray) -> FloatArray:
    """n_c/(n_c−1) times the squared distance of each cell's mean from the rest of its arm.

    For a cell of one unit its expectation is at least S²_c plus the noise of that unit: the unit is
    drawn from its cluster, whose mean squared deviation is S²_c(n_c−1)/n_c, and how clusters
    differ only adds to it. NaN where an arm has one unit in all.
    """
    arm_sizes = sizes.sum(axis=-2, keepdims=True)
    arm_sums = (sizes * means).sum(axis=-2, keepdims=True)
    rest = np.where(arm_sizes > sizes, arm_sizes - sizes, np.nan)
    others = (arm_sums - sizes * means) / rest
    cluster_sizes = sizes.sum(axis=-1, keepdims=True)
    return np.asarray((means - others) ** 2 * cluster_sizes / np.maximum(cluster_sizes - 1, 1))


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
