"""Covariate adjustment: Lin's interacted regression, within clusters.

Each arm has its own slopes, fitted to deviations from cell means; an arm's mean in a cluster is
moved to where the cluster's covariates are. With one cluster this is Lin (2013). Slopes are
estimated from debiased outcomes, which does not bias them: their noise has mean zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.encoding import DEBIASED, RELEASED
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimators import CellMoments
from clusterdp.released import released_cells

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.arrays import FloatArray, IntArray
    from clusterdp.pipeline import Release


def read_covariates(
    rows: pl.LazyFrame, release: Release, covariates: tuple[str, ...]
) -> pl.LazyFrame:
    """The rows whose covariates are all known, with only what the regression needs.

    Raises:
        ParameterError: If a covariate is missing or not numeric.
    """
    import polars as pl

    schema = rows.collect_schema()
    if len(set(covariates)) < len(covariates):
        raise ParameterError(f"a covariate is named twice in {', '.join(covariates)}")
    columns = release.columns
    reserved = (columns.unit, columns.arm, columns.cluster, RELEASED, DEBIASED)
    for name in covariates:
        if name in reserved:
            raise ParameterError(f"cannot adjust for {name!r}: it is not a covariate")
        if name not in schema:
            raise ParameterError(f"cannot adjust for {name!r}: there is no such column")
        if not (schema[name].is_numeric() or schema[name] == pl.Boolean):
            raise ParameterError(f"cannot adjust for {name!r}: it holds {schema[name]}")
    known = pl.all_horizontal(
        pl.col(name).cast(pl.Float64).is_finite().fill_null(value=False) for name in covariates
    )
    return rows.filter(known)


def adjusted_moments(
    rows: pl.DataFrame, release: Release, covariates: tuple[str, ...], privacy: FloatArray
) -> CellMoments:
    """Cell moments of outcomes after adjustment, to be estimated from like any others.

    Args:
        rows: Released rows with their covariates.
        release: The release they are from.
        covariates: Names of numeric columns.
        privacy: Estimated privacy variance of one unit; axes `[cluster, arm]`.
    """
    layout = release.layout
    cells = released_cells(rows, release.columns, layout)
    outcome = rows[DEBIASED].to_numpy()
    design = rows.select(covariates).to_numpy().astype(np.float64)
    n_cells, n_arms = layout.sizes.size, layout.sizes.shape[1]
    sizes = np.bincount(cells, minlength=n_cells)
    outcome_means = _group_means(outcome[:, np.newaxis], cells, sizes)[:, 0]
    cell_means = _group_means(design, cells, sizes)
    clusters = cells // n_arms
    cluster_sizes = np.bincount(clusters, minlength=n_cells // n_arms)
    cluster_means = _group_means(design, clusters, cluster_sizes)
    gap = cell_means - np.repeat(cluster_means, n_arms, axis=0)

    means, squares = outcome_means.copy(), np.zeros(n_cells)
    weights = np.repeat(cluster_sizes, n_arms) / len(rows)
    for arm in range(n_arms):
        chosen = cells % n_arms == arm
        if not chosen.any():
            continue
        inside = cells[chosen]
        centred = design[chosen] - cell_means[inside]
        residual = outcome[chosen] - outcome_means[inside]
        slopes, *_ = np.linalg.lstsq(centred, residual, rcond=None)
        residual = residual - centred @ slopes
        means[arm::n_arms] -= gap[arm::n_arms] @ slopes
        # Robust errors: a row moves the arm's mean by itself, and by what it does to the slopes.
        moved = weights[arm::n_arms] @ gap[arm::n_arms]
        through_slopes = centred @ np.linalg.pinv(centred.T @ centred) @ moved
        influence = 1 - through_slopes * sizes[inside] / weights[inside]
        # As many residuals as there are slopes are spent on fitting them.
        spent = len(inside) / max(len(inside) - len(covariates), 1)
        squares += np.bincount(inside, spent * (residual * influence) ** 2, n_cells)
    shape = layout.sizes.shape
    return CellMoments(
        sizes=sizes.reshape(shape),
        means=means.reshape(shape),
        squares=squares.reshape(shape),
        privacy=privacy,
    )


def check_enough(n_rows: int, n_all: int, covariates: tuple[str, ...]) -> None:
    """Raise a DataError when no row has all covariates."""
    if n_rows == 0:
        raise DataError(f"none of {n_all} rows has all of {', '.join(covariates)}")


def _group_means(columns: FloatArray, groups: IntArray, sizes: IntArray) -> FloatArray:
    """Means of columns by group; axes `[group, column]`."""
    sums = np.stack([np.bincount(groups, column, len(sizes)) for column in columns.T], axis=1)
    return np.asarray(sums / np.maximum(sizes, 1)[:, np.newaxis])
