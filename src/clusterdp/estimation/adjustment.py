"""Covariate adjustment: Lin's interacted regression, within clusters.

Each arm has its own slopes, fitted to deviations from cell means, or from the arm's pooled mean in
clusters that are pooled. An arm's mean is moved to where the covariates of all arms are. With one
cluster this is Lin (2013). Slopes are estimated from debiased outcomes, which does not bias them:
their noise has mean zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.moments import CellMoments
from clusterdp.published.row_counts import released_cells
from clusterdp.rows.encoding import RESPONSE

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.segments import Segment
    from clusterdp.published.release import Release


def check_covariates(schema: pl.Schema, release: Release, covariates: tuple[str, ...]) -> None:
    """Raise a ParameterError unless covariates are numeric columns of the rows."""
    import polars as pl

    if len(set(covariates)) < len(covariates):
        raise ParameterError(f"a covariate is named twice in {', '.join(covariates)}")
    columns = release.columns
    reserved = (columns.unit, columns.arm, columns.cluster, RESPONSE, *columns.debiased)
    for name in covariates:
        if name in reserved:
            raise ParameterError(f"cannot adjust for {name!r}: it is not a covariate")
        if name not in schema:
            raise ParameterError(f"cannot adjust for {name!r}: there is no such column")
        if not (schema[name].is_numeric() or schema[name] == pl.Boolean):
            raise ParameterError(f"cannot adjust for {name!r}: it holds {schema[name]}")


def with_covariates(rows: pl.LazyFrame, covariates: tuple[str, ...]) -> pl.DataFrame:
    """The rows whose covariates are all known."""
    import polars as pl

    known = pl.all_horizontal(
        pl.col(name).cast(pl.Float64).is_finite().fill_null(value=False) for name in covariates
    )
    return rows.filter(known).collect()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CovariateRows:
    """Rows of a segment whose covariates are known.

    Attributes:
        cells: The cell of each row, its place in a flat `[cluster, arm]` array.
        outcomes: Debiased outcomes.
        covariates: Axes `[row, covariate]`.
        sizes: How many rows each cell has; axes `[cluster, arm]`.
    """

    cells: IntArray
    outcomes: FloatArray
    covariates: FloatArray
    sizes: IntArray

    def cell_means(self, columns: FloatArray) -> FloatArray:
        """Means of columns by cell, zero in empty ones; axes `[cluster, arm, column]`."""
        sums = [np.bincount(self.cells, column, self.sizes.size) for column in columns.T]
        means = np.stack(sums, axis=1) / np.maximum(self.sizes.ravel(), 1)[:, np.newaxis]
        return np.asarray(means.reshape(*self.sizes.shape, -1))


def to_covariate_rows(
    rows: pl.DataFrame,
    release: Release,
    covariates: tuple[str, ...],
    segment: Segment,
    metric: int = 0,
) -> CovariateRows:
    """The rows of a segment with their covariates, as arrays.

    Raises:
        DataError: If there are none.
    """
    import polars as pl

    for name, value in segment:
        rows = rows.filter(pl.col(name) == value)
    if rows.is_empty():
        where = "a segment" if segment else "the release"
        raise DataError(
            f"{where} has no row with all of {', '.join(covariates)}; adjust for fewer columns"
        )
    assert release.channel is not None  # noqa: S101 - the caller has rows
    cells = released_cells(rows, release.columns, release.layout)
    groups = release.channel.groups.ravel()[cells]
    shape = release.layout.sizes.shape
    return CovariateRows(
        cells=cells,
        outcomes=release.channel.decode(metric)[groups, rows[RESPONSE].to_numpy()],
        covariates=rows.select(covariates).to_numpy().astype(np.float64),
        sizes=np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape),
    )


def adjusted_moments(
    rows: CovariateRows, weights: CellWeights, arms: list[int], privacy: FloatArray
) -> CellMoments:
    """Moments of outcomes after adjustment, of some arms, to be weighed like any others.

    Args:
        rows: Of all arms.
        weights: Of the cells of these arms.
        arms: Which arms.
        privacy: Estimated privacy variance of one unit; axes `[cluster, arm]`, of these arms.
    """
    outcome_means = rows.cell_means(rows.outcomes[:, np.newaxis])[:, arms]
    covariate_means = rows.cell_means(rows.covariates)[:, arms]
    target = rows.covariates.mean(axis=0)
    row_arms = rows.cells % rows.sizes.shape[1]
    fits = [
        _fit_arm(
            rows,
            np.flatnonzero(row_arms == arm),
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
    return CellMoments(
        sizes=weights.sizes,
        means=np.stack([means for means, _ in fits], axis=1),
        squares=np.stack([squares for _, squares in fits], axis=1),
        privacy=privacy,
    )


class ArmCells(NamedTuple):
    """The cells of one arm: means, weights and sizes; first axis `[cluster]`."""

    outcomes: FloatArray
    covariates: FloatArray
    shares: FloatArray
    sizes: IntArray
    pooled: BoolArray

    def centres(self, means: FloatArray) -> FloatArray:
        """What rows are compared with: their cell's mean, or that of the pool."""
        inside = np.where(self.pooled, self.shares, 0.0)
        pool_mean = inside @ means / (inside.sum() or 1.0)
        return np.where(_like(self.pooled, means), pool_mean, means)


def _fit_arm(
    rows: CovariateRows, chosen: IntArray, cells: ArmCells, target: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Adjusted means of an arm's cells, and the sums of squares for their variance."""
    clusters = rows.cells[chosen] // rows.sizes.shape[1]
    centred = rows.covariates[chosen] - cells.centres(cells.covariates)[clusters]
    residual = rows.outcomes[chosen] - cells.centres(cells.outcomes)[clusters]
    slopes, *_ = np.linalg.lstsq(centred, residual, rcond=None)
    residual = residual - centred @ slopes
    gap = cells.covariates - target
    means = cells.outcomes - gap @ slopes
    # Robust errors: a row moves the arm's mean by itself, and by what it does to the slopes.
    moved = np.where(cells.sizes > 0, cells.shares, 0.0) @ gap
    through_slopes = centred @ np.linalg.pinv(centred.T @ centred) @ moved
    influence = 1 - through_slopes * cells.sizes[clusters] / cells.shares[clusters]
    # As many residuals as there are slopes are spent on fitting them.
    n_centres = np.count_nonzero(~cells.pooled & (cells.sizes > 0)) + int(cells.pooled.any())
    free = len(chosen) - n_centres
    spent = free / (free - len(slopes)) if free > len(slopes) else np.nan
    total = np.bincount(clusters, spent * (residual * influence) ** 2, len(cells.sizes))
    # Rows of the pool were compared with its mean: what their cells' distance adds is in already.
    distance = means - cells.centres(means)
    return means, total - cells.sizes * distance**2


def _like(flags: BoolArray, values: FloatArray) -> BoolArray:
    """Flags of clusters, with as many axes as the values."""
    return flags.reshape(-1, *[1] * (values.ndim - 1))
