"""Covariate adjustment: Lin's interacted regression, within clusters.

Each arm has its own slopes, fitted to deviations from cell means, or from the arm's pooled mean in
clusters that are pooled. An arm's mean is moved to where the covariates of all arms are. With one
cluster this is Lin (2013). Slopes are linear in debiased outcomes, whose noise has mean zero. So an
adjusted mean is a weighted sum over rows like any other, with weights that follow from covariates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.estimation.calibration import Functional
from clusterdp.estimation.moments import CellMoments
from clusterdp.estimation.profiling import PROFILE
from clusterdp.rows.columns import RESPONSE

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.covariates import Covariates
    from clusterdp.estimation.profiles import Outputs, Profiles
    from clusterdp.estimation.segments import Segment

# Columns of a regression that tell the same, up to this share of their variance, have one slope.
_LEAST = 1e-10


class RowsBySegment:
    """Rows with the columns of a regression, cut by one dimension at a time.

    Segments of a dimension are asked for one after another, so its cut is kept until the next.
    """

    def __init__(self, given: Covariates) -> None:
        self._rows = given.rows.rechunk()
        self._needed = (PROFILE, RESPONSE, *given.regressors)
        self._dimension: tuple[str, ...] = ()
        self._parts: dict[tuple[Any, ...], pl.DataFrame] = {}

    def of(self, segment: Segment) -> pl.DataFrame:
        """The rows of a segment, or all of them."""
        dimension = tuple(name for name, _ in segment)
        if not dimension:
            return self._rows.select(self._needed)
        if dimension != self._dimension:
            columns = dict.fromkeys((*dimension, *self._needed)).keys()
            self._parts = self._rows.select(columns).partition_by(dimension, as_dict=True)
            self._dimension = dimension
        values = tuple(value for _, value in segment)
        return self._parts[values] if values in self._parts else self._rows.clear()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CovariateRows:
    """Rows of a segment; axes `[row]`.

    Attributes:
        cells: The cell of each row, its place in a flat `[cluster, arm]` array.
        profiles: The profile of each row.
        outcomes: Debiased outcomes, as distances from the middle of the metric's values.
        noise: Estimated variances of their noise.
        covariates: The columns of the regression; axes `[row, covariate]`.
        sizes: How many rows each cell has; axes `[cluster, arm]`.
    """

    cells: IntArray
    profiles: IntArray
    outcomes: FloatArray
    noise: FloatArray
    covariates: FloatArray
    sizes: IntArray

    def cell_means(self, columns: FloatArray) -> FloatArray:
        """Means of columns by cell, zero in empty ones; axes `[cluster, arm, column]`."""
        sums = [np.bincount(self.cells, column, self.sizes.size) for column in columns.T]
        means = np.stack(sums, axis=1) / np.maximum(self.sizes.ravel(), 1)[:, np.newaxis]
        return np.asarray(means.reshape(*self.sizes.shape, -1))


def to_covariate_rows(
    every: RowsBySegment,
    regressors: tuple[str, ...],
    segment: Segment,
    profiles: Profiles,
    outputs: Outputs,
) -> CovariateRows:
    """The rows of a segment with their covariates, as arrays.

    Args:
        every: Rows with a column of profiles.
        regressors: The columns of the regression.
        segment: Which rows.
        profiles: What profiles are of.
        outputs: What responses tell of a metric.
    """
    rows = every.of(segment)
    places, responses = rows[PROFILE].to_numpy(), rows[RESPONSE].to_numpy()
    cells = profiles.cells[places]
    groups = outputs.groups.ravel()[cells]
    entries = groups * outputs.values.shape[-1] + responses
    n_clusters, n_arms = profiles.shape
    return CovariateRows(
        cells=cells,
        profiles=places,
        outcomes=outputs.values.ravel()[entries],
        noise=outputs.noise.ravel()[entries],
        covariates=rows.select(regressors).to_numpy(),
        sizes=np.bincount(cells, minlength=n_clusters * n_arms).reshape(n_clusters, n_arms),
    )


def adjusted_means(
    rows: CovariateRows, weights: CellWeights, arms: list[int], n_profiles: int
) -> tuple[Functional, CellMoments]:
    """Adjusted means of some arms as weighted sums over rows; and moments for their variances.

    Args:
        rows: Of all arms.
        weights: Of the cells of these arms.
        arms: Which arms.
        n_profiles: How many profiles there are.
    """
    outcome_means = rows.cell_means(rows.outcomes[:, np.newaxis])[:, arms]
    covariate_means = rows.cell_means(rows.covariates)[:, arms]
    row_clusters, row_arms = np.divmod(rows.cells, rows.sizes.shape[1])
    compared = weights.compared[row_clusters]
    target = rows.covariates[compared].mean(axis=0)
    fits = [
        _fit_arm(
            rows,
            row_clusters,
            np.flatnonzero((row_arms == arm) & compared),
            ArmCells(
                outcomes=outcome_means[:, position, 0],
                covariates=covariate_means[:, position],
                shares=weights.shares[:, position],
                sizes=weights.sizes[:, position],
                pooled=weights.pooled[:, 0],
            ),
            target,
        )
        for position, arm in enumerate(arms)
    ]

    def by_profile(fit: ArmFit, terms: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(rows.profiles[fit.rows], terms, n_profiles), np.float64)

    functional = Functional(
        values=np.array([_product(fit.weights, rows.outcomes[fit.rows]) for fit in fits]),
        weights=np.stack([by_profile(fit, fit.weights) for fit in fits]),
        noise=np.stack([by_profile(fit, fit.weights * rows.noise[fit.rows]) for fit in fits]),
        square_noise=np.array([_product(fit.weights**2, rows.noise[fit.rows]) for fit in fits]),
        square_weights=np.array([_product(fit.weights, fit.weights) for fit in fits]),
    )
    return functional, CellMoments(
        sizes=weights.sizes,
        means=np.stack([fit.means for fit in fits], axis=1),
        squares=np.stack([fit.squares for fit in fits], axis=1),
        noise=np.stack([fit.noise for fit in fits], axis=1),
    )


class ArmCells(NamedTuple):
    """The cells of one arm: means, weights and sizes; first axis `[cluster]`."""

    outcomes: FloatArray
    covariates: FloatArray
    shares: FloatArray
    sizes: IntArray
    pooled: BoolArray

    @property
    def pool_shares(self) -> FloatArray:
        """The share of each cell in the mean of the pool; zeros without a pool."""
        inside = np.where(self.pooled, self.shares, 0.0)
        return np.asarray(inside / (inside.sum() or 1.0))

    @property
    def of_units(self) -> FloatArray:
        """The weight of each unit."""
        return np.asarray(self.shares / np.maximum(self.sizes, 1))

    def centres(self, means: FloatArray) -> FloatArray:
        """What rows are compared with: their cell's mean, or that of the pool."""
        return np.where(_like(self.pooled, means), self.pool_shares @ means, means)


class ArmFit(NamedTuple):
    """The regression of one arm.

    Attributes:
        rows: The places of its rows.
        weights: The weight of each of them in the adjusted mean.
        means: Adjusted means of cells; axes `[cluster]`.
        squares: Sums of squares for their variance; axes `[cluster]`.
        noise: What of these sums is noise of privacy; axes `[cluster]`.
    """

    rows: IntArray
    weights: FloatArray
    means: FloatArray
    squares: FloatArray
    noise: FloatArray


def _fit_arm(
    rows: CovariateRows,
    row_clusters: IntArray,
    chosen: IntArray,
    cells: ArmCells,
    target: FloatArray,
) -> ArmFit:
    """The adjusted mean of an arm, whose rows are the chosen ones."""
    clusters = row_clusters[chosen]
    centred = rows.covariates[chosen] - cells.centres(cells.covariates)[clusters]
    residual = rows.outcomes[chosen] - cells.centres(cells.outcomes)[clusters]
    # Numbers are in standard deviations, so the normal equations lose nothing that counts.
    inverse = np.linalg.pinv(centred.T @ centred, rcond=_LEAST, hermitian=True)
    slopes = inverse @ (centred.T @ residual)
    residual = residual - _fitted(centred, slopes)
    gap = cells.covariates - target
    means = cells.outcomes - gap @ slopes
    # A row moves the arm's mean by itself, and by what it does to the slopes: directly, and
    # through the mean of the pool.
    moved = np.where(cells.sizes > 0, cells.shares, 0.0) @ gap
    by_slopes = inverse @ moved
    pool = centred[cells.pooled[clusters]].sum(axis=0) @ by_slopes
    of_pool = (cells.pool_shares / np.maximum(cells.sizes, 1))[clusters]
    weights = cells.of_units[clusters] - _fitted(centred, by_slopes) + pool * of_pool
    influence = weights / cells.of_units[clusters]  # robust errors
    # As many residuals as there are slopes are spent on fitting them.
    n_centres = np.count_nonzero(~cells.pooled & (cells.sizes > 0)) + int(cells.pooled.any())
    free = len(chosen) - n_centres
    spent = free / (free - len(slopes)) if free > len(slopes) else np.nan
    total = np.bincount(clusters, spent * (residual * influence) ** 2, len(cells.sizes))
    noise = np.bincount(clusters, rows.noise[chosen] * influence**2, len(cells.sizes))
    # Rows of the pool were compared with its mean: what their cells' distance adds is in already.
    distance = means - cells.centres(means)
    squares = total - cells.sizes * distance**2
    return ArmFit(chosen, weights, means, squares, np.asarray(noise, np.float64))


# Rows are many and slopes few: the threads of a matrix product would wait longer than they work.
def _fitted(centred: FloatArray, slopes: FloatArray) -> FloatArray:
    """What slopes make of rows; axes `[row]`."""
    return np.asarray(np.einsum("ij,j->i", centred, slopes))


def _product(some: FloatArray, others: FloatArray) -> float:
    """The scalar product of two columns."""
    return float(np.einsum("i,i->", some, others))


def _like(flags: BoolArray, values: FloatArray) -> BoolArray:
    """Flags of clusters, with as many axes as the values."""
    return flags.reshape(-1, *[1] * (values.ndim - 1))
