"""Covariate adjustment: Lin's interacted regression, within clusters.

Each arm has its own slopes, fitted to deviations from cell means, or from the arm's pooled mean in
clusters that are pooled. An arm's mean is moved to where the covariates of all arms are. With one
cluster this is Lin (2013). Slopes are linear in debiased outcomes, whose noise has mean zero. So an
adjusted mean is a weighted sum over rows like any other, with weights that follow from covariates.

Slopes add noise of privacy, and how much they explain is known as badly as they are. So they count
by a share λ of what was fitted, between the plain mean (0) and Lin's (1): the one that makes
intervals shortest if covariates explain half of the variance, with a standard error that can be
read. It follows from numbers of units, from known noise and from how much outcomes vary, never
from what covariates seem to explain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.means.calibration import CalibratedSums
from clusterdp.estimation.means.responses import CellMoments, ResponseValues, read_answers
from clusterdp.estimation.means.sums import WeightedSums
from clusterdp.estimation.means.weights import CellWeights
from clusterdp.estimation.reading.covariates import Piece
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts, sums_by

# What covariates are thought to explain of the variance of outcomes.
_EXPLAINED = 0.5
# Shares of slopes to choose from, degrees of freedom that are distinguished, and the probability
# that intervals reach up to.
_SHARES, _DEGREES, _REACH = np.linspace(0.0, 1.0, 41), (0.5, 1e6), 0.975
# Standard errors with fewer degrees of freedom would vary too much to be read.
_LEAST_DEGREES = 60.0
# Columns of a regression with the same information, up to this share of their variance, have one
# slope; one that is the same for all units of a cell has none.
_LEAST = 1e-10


class CovariateRows:
    """Rows of a segment, each by its entry; axes `[entry]`.

    Attributes:
        cells: The cell, its place in a flat `[cluster, arm]` array.
        profiles: The profile.
        counts: How many rows there are.
        outcomes: The debiased outcome, as a distance from the middle of the metric's values.
        noise: The estimated variance of its noise.
        missed: What its squares lack; see `read_answers`.
        stands_for: For how many units a row stands; see `read_answers`.
        shape: How many clusters and arms there are.
        sizes: How many rows each cell has; axes `[cluster, arm]`.
        pieces: Gives the rows of an arm with their covariates, piece by piece, once more at each
        call.

    Args:
        counted: The rows, counted.
        profiles: How profiles are made.
        outputs: What responses count as in a metric.
        pieces: As above.
    """

    def __init__(
        self,
        counted: ResponseCounts,
        profiles: Profiles,
        outputs: ResponseValues,
        pieces: Callable[[int], Iterable[Piece]],
    ) -> None:
        answers = read_answers(counted, profiles, outputs)
        self.outcomes, self.noise, self.missed, self.stands_for = answers
        self.profiles, self.counts, self.pieces = counted.profiles, counted.counts, pieces
        self.cells, self.shape = profiles.cells[counted.profiles], profiles.shape
        self.sizes = self.sum_cells(self.counts).astype(np.int64)

    def sum_cells(self, terms: FloatArray | IntArray) -> FloatArray:
        """Sums over the entries of cells; from `[..., entry]` to `[..., cluster, arm]`."""
        sums = sums_by(self.cells, terms, self.shape[0] * self.shape[1])
        return sums.reshape(*terms.shape[:-1], *self.shape)

    def covariate_sums(self, n_covariates: int) -> FloatArray:
        """Sums of covariates over rows; axes `[covariate, entry]`."""
        sums = np.zeros((n_covariates, len(self.cells)))
        for arm in range(self.shape[1]):
            for entries, columns in self.pieces(arm):
                for total, column in zip(sums, columns, strict=True):
                    np.add.at(total, entries, column)
        return sums


def adjusted_means(  # noqa: PLR0913, PLR0917 - rows, weights, and the means without slopes
    rows: CovariateRows,
    sums: FloatArray,
    weights: CellWeights,
    arms: list[int],
    n_profiles: int,
    plain: CalibratedSums,
) -> tuple[WeightedSums, CellMoments, FloatArray]:
    """Adjusted means of some arms, as weighted sums over rows.

    Args:
        rows: Of all arms.
        sums: Their covariates, see `CovariateRows.covariate_sums`.
        weights: Of the cells of these arms.
        arms: Which arms.
        n_profiles: How many profiles there are.
        plain: The means of these arms without slopes.

    Returns:
        The sums; moments of cells; and the share of what slopes explain of the variance that is
        taken off, λ(2 − λ), axes `[arm]`.
    """
    sizes = np.maximum(rows.sizes, 1)
    outcome_means = rows.sum_cells(rows.counts * rows.outcomes) / sizes
    of_cells = rows.sum_cells(sums)  # [covariate, cluster, arm]
    compared = weights.compared
    target = of_cells[:, compared].sum(axis=(1, 2)) / max(rows.sizes[compared].sum(), 1)
    fits = [
        _fit_arm(
            rows,
            sums,
            arm,
            RegressionCells(
                outcome_means[:, arm], (of_cells / sizes)[..., arm].T, weights, position
            ),
            target,
            partial(_best_share, plain, position),
        )
        for position, arm in enumerate(arms)
    ]
    by_profile = partial(sums_by, rows.profiles, n_groups=n_profiles)

    asked, stands_for = (
        rows.sum_cells(rows.counts * terms)[:, arms]
        for terms in (np.sign(rows.stands_for), rows.stands_for)
    )
    squares = rows.outcomes**2 + rows.missed - rows.noise
    weighed, square_weights, means, spreads, noise, explained = (
        np.stack(parts) for parts in zip(*fits, strict=True)
    )
    functional = WeightedSums(
        values=weighed @ rows.outcomes,
        weights=by_profile(weighed),
        sums=by_profile(weighed * rows.outcomes),
        squares=by_profile(weighed * squares),
        noise=by_profile(weighed * rows.noise),
        square_noise=square_weights @ rows.noise,
        square_weights=square_weights.sum(axis=-1),
    )
    moments = CellMoments(
        sizes=weights.sizes,
        means=means.T,
        squares=spreads.T,
        noise=noise.T,
        asked=None if (rows.stands_for == 1).all() else asked.astype(np.int64),
        stands_for=stands_for,
    )
    return functional, moments, explained


def _best_share(plain: CalibratedSums, position: int, added: float, n_slopes: int) -> float:
    """λ, the share of slopes that makes an interval shortest if they explain half.

    With V(λ) = σ²Σs²(1 − λ(2 − λ)/2) + privacy + λ²·v̄·Σd², an interval is about t(ν)·√V long, ν the
    degrees of freedom that the error of what slopes explain leaves.

    Args:
        plain: The means of arms without slopes.
        position: Which of them.
        added: Σ d², d what slopes add to the weights of rows.
        n_slopes: How many slopes there are.
    """
    from scipy.special import stdtrit

    spread, explained = plain.spread, _SHARES * (2 - _SHARES)
    sampling = spread.weights[position] * spread.of_units[position]
    variances = sampling * (1 - _EXPLAINED * explained) + plain.privacy[position]
    variances = variances + _SHARES**2 * spread.unit_noise * added
    of_slopes = spread.slope_error(n_slopes, _EXPLAINED)[position]
    errors = np.maximum(spread.noise[position] + explained**2 * of_slopes, np.finfo(float).tiny)
    degrees = np.clip(2 * variances**2 / errors, *_DEGREES)
    lengths = variances * stdtrit(degrees, _REACH) ** 2
    known = (degrees >= _LEAST_DEGREES) | (degrees >= degrees[0])
    return float(_SHARES[int(np.argmin(np.where(known, lengths, np.inf)))])


class RegressionCells:
    """The cells of one arm; first axis `[cluster]`.

    Attributes:
        outcomes: Their mean outcomes.
        covariates: Their mean covariates.
        shares: Their weights in the mean of the arm.
        sizes: Their units.
        compared: Which clusters effects are compared in.
        pooled: Which clusters are pooled.
        pool_shares: The share of each cell in the mean of the pool; zeros without a pool.
        of_units: The weight of each unit.

    Args:
        outcomes: Mean outcomes.
        covariates: Mean covariates.
        weights: Of the cells of some arms.
        position: Which of them.
    """

    def __init__(
        self, outcomes: FloatArray, covariates: FloatArray, weights: CellWeights, position: int
    ) -> None:
        self.outcomes, self.covariates, self.compared = outcomes, covariates, weights.compared
        self.shares, self.sizes = weights.shares[:, position], weights.sizes[:, position]
        self.pooled = weights.pooled[:, 0]
        inside = np.where(self.pooled, self.shares, 0.0)
        self.pool_shares = np.asarray(inside / (inside.sum() or 1.0))
        self.of_units = np.asarray(self.shares / np.maximum(self.sizes, 1))

    def of_influence(self, clusters: IntArray, terms: FloatArray) -> FloatArray:
        """Sums over the entries of each cluster, per squared weight of its units (robust errors).

        From `[entry]` to `[cluster]`.
        """
        sums = sums_by(clusters, terms, len(self.sizes))
        return np.asarray(sums / np.where(sums != 0, self.of_units, 1.0) ** 2)

    def centres(self, means: FloatArray) -> FloatArray:
        """What rows are compared with: their cell's mean, or that of the pool."""
        pooled = self.pooled.reshape(-1, *[1] * (means.ndim - 1))
        return np.where(pooled, self.pool_shares @ means, means)


def _fit_arm(  # noqa: PLR0913, PLR0917 - rows, an arm of them, and what is known of its mean
    rows: CovariateRows,
    sums: FloatArray,
    arm: int,
    cells: RegressionCells,
    target: FloatArray,
    best_share: Callable[[float, int], float],
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """The regression of an arm.

    Args:
        rows: Of all arms.
        sums: Their covariates, see `CovariateRows.covariate_sums`.
        arm: Which arm.
        cells: Its cells.
        target: Where the covariates of all arms are.
        best_share: λ, from what slopes add to the squared weights of rows, and how many there are.

    Returns:
        The weights of rows in the adjusted mean, summed over entries, and their squares likewise;
        axes `[entry]`. Of cells: adjusted means, sums of squares for their variance, and what of
        these is noise of privacy; axes `[cluster]`. And λ(2 − λ).
    """
    clusters, arms = np.divmod(rows.cells, rows.shape[1])
    chosen = (arms == arm) & cells.compared[clusters]
    counts = np.where(chosen, rows.counts, 0)
    centres = cells.centres(cells.covariates)[clusters]
    residuals = rows.outcomes - cells.centres(cells.outcomes)[clusters]
    deviations = np.where(chosen, sums - counts * centres.T, 0.0)  # summed over rows

    def centred() -> Iterator[Piece]:
        """The chosen rows with centred covariates, piece by piece."""
        for entries, columns in rows.pieces(arm):
            kept = chosen[entries]
            if kept.all():
                yield entries, columns - centres[entries].T
            else:
                yield entries[kept], columns[:, kept] - centres[entries[kept]].T

    products = np.zeros((len(sums), len(sums)))
    for _, columns in centred():
        products += columns @ columns.T
    inverse = _inverse(products, counts.sum())
    gap = cells.covariates - target
    moved_by = np.where(cells.sizes > 0, cells.shares, 0.0) @ gap
    n_slopes = len(inverse)
    share = best_share(float(moved_by @ inverse @ moved_by), n_slopes)
    inverse = share * inverse
    slopes = inverse @ (deviations @ residuals)
    means = cells.outcomes - gap @ slopes
    # A row moves the arm's mean by itself, and by what it does to the slopes: directly, and
    # through the mean of the pool.
    by_slopes = inverse @ moved_by
    moved = by_slopes @ deviations  # the weights of rows, summed over them
    pool = moved @ cells.pooled[clusters]
    base = (cells.of_units + pool * cells.pool_shares / np.maximum(cells.sizes, 1))[clusters]
    squares, influence = np.zeros((2, len(chosen)))
    for entries, columns in centred():
        # Rows are many and slopes few: the threads of a product would wait longer than they work.
        each = base[entries] - np.einsum("j,ji->i", by_slopes, columns)
        left = residuals[entries] - np.einsum("j,ji->i", slopes, columns)
        np.add.at(squares, entries, each**2)
        np.add.at(influence, entries, (each * left) ** 2)
    # As many residuals as there are slopes are spent on fitting them.
    n_centres = np.count_nonzero(~cells.pooled & (cells.sizes > 0)) + int(cells.pooled.any())
    free = counts.sum() - n_centres
    explained = share * (2 - share)
    spent = free / (free - explained * n_slopes) if free > n_slopes else np.nan
    # Rows of the pool were compared with its mean: what their cells' distance adds is in already.
    distance = means - cells.centres(means)
    of_cells = cells.of_influence(clusters, influence + squares * rows.missed)
    return (
        counts * base - moved,
        squares,
        means,
        spent * of_cells - cells.sizes * distance**2,
        cells.of_influence(clusters, squares * rows.noise),
        explained,
    )


def _inverse(products: FloatArray, n_rows: int) -> FloatArray:
    """The inverse of sums of products of covariates, of as many as are not redundant.

    Numbers are in standard deviations, so the normal equations lose nothing that counts, and their
    squares add up to the number of rows.
    """
    values, vectors = np.linalg.eigh(products)
    told = values > _LEAST * max(values.max(), n_rows)
    return np.asarray((vectors[:, told] / values[told]) @ vectors[:, told].T)
