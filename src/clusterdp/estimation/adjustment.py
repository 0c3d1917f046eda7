"""Covariate adjustment: Lin's interacted regression, within clusters.

Each arm has its own slopes, fitted to deviations from cell means, or from the arm's pooled mean in
clusters that are pooled. An arm's mean is moved to where the covariates of all arms are. With one
cluster this is Lin (2013). Slopes are linear in debiased outcomes, whose noise has mean zero. So an
adjusted mean is a weighted sum over rows like any other, with weights that follow from covariates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.calibration import Functional
from clusterdp.estimation.covariate_rows import Piece
from clusterdp.estimation.moments import CellMoments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.covariate_rows import RowsBySegment
    from clusterdp.estimation.cuts import Segment
    from clusterdp.estimation.profiles import Counted, Outputs, Profiles

# Columns of a regression that tell the same, up to this share of their variance, have one slope;
# one that is the same for all units of a cell has none.
_LEAST = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CovariateRows:
    """Rows of a segment, each by its entry; axes `[entry]`.

    Attributes:
        cells: The cell, its place in a flat `[cluster, arm]` array.
        profiles: The profile.
        outcomes: The debiased outcome, as a distance from the middle of the metric's values.
        noise: The estimated variance of its noise.
        counts: How many rows there are.
        shape: How many clusters and arms there are.
        pieces: Gives the rows of an arm with their covariates, piece by piece, each time anew.
    """

    cells: IntArray
    profiles: IntArray
    outcomes: FloatArray
    noise: FloatArray
    counts: IntArray
    shape: tuple[int, int]
    pieces: Callable[[int], Iterable[Piece]]

    @property
    def sizes(self) -> IntArray:
        """How many rows each cell has; axes `[cluster, arm]`."""
        return self.sum_cells(self.counts).astype(np.int64)

    def sum_cells(self, terms: FloatArray | IntArray) -> FloatArray:
        """Sums over the entries of cells; from `[..., entry]` to `[..., cluster, arm]`."""
        flat, n_cells = terms.reshape(-1, terms.shape[-1]), self.shape[0] * self.shape[1]
        sums = [np.bincount(self.cells, row, n_cells) for row in flat]
        return np.asarray(sums, np.float64).reshape(*terms.shape[:-1], *self.shape)

    def covariate_sums(self, n_covariates: int) -> FloatArray:
        """Sums of covariates over rows; axes `[covariate, entry]`."""
        sums = np.zeros((n_covariates, len(self.cells)))
        for arm in range(self.shape[1]):
            for piece in self.pieces(arm):
                for total, column in zip(sums, piece.covariates, strict=True):
                    np.add.at(total, piece.entries, column)
        return sums


def to_covariate_rows(
    every: RowsBySegment, segment: Segment, counted: Counted, profiles: Profiles, outputs: Outputs
) -> CovariateRows:
    """The rows of a segment with their covariates.

    Args:
        every: All rows with their covariates.
        segment: Which rows.
        counted: The rows of the segment, counted.
        profiles: What profiles are of.
        outputs: What responses tell of a metric.
    """
    cells = profiles.cells[counted.profiles]
    groups = outputs.groups.ravel()[cells]
    return CovariateRows(
        cells=cells,
        profiles=counted.profiles,
        outcomes=outputs.values[groups, counted.responses],
        noise=outputs.noise[groups, counted.responses],
        counts=counted.counts,
        shape=profiles.shape,
        pieces=every.pieces(segment, counted),
    )


def adjusted_means(
    rows: CovariateRows,
    sums: FloatArray,
    weights: CellWeights,
    arms: list[int],
    n_profiles: int,
) -> tuple[Functional, CellMoments]:
    """Adjusted means of some arms as weighted sums over rows; and moments for their variances.

    Args:
        rows: Of all arms.
        sums: Their covariates, see `CovariateRows.covariate_sums`.
        weights: Of the cells of these arms.
        arms: Which arms.
        n_profiles: How many profiles there are.
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
            ArmCells(
                outcomes=outcome_means[:, arm],
                covariates=(of_cells / sizes)[..., arm].T,
                shares=weights.shares[:, position],
                sizes=weights.sizes[:, position],
                pooled=weights.pooled[:, 0],
                compared=compared,
            ),
            target,
        )
        for position, arm in enumerate(arms)
    ]

    def by_profile(terms: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(rows.profiles, terms, n_profiles), np.float64)

    squares = rows.outcomes**2 - rows.noise
    functional = Functional(
        values=np.array([fit.weights @ rows.outcomes for fit in fits]),
        weights=np.stack([by_profile(fit.weights) for fit in fits]),
        sums=np.stack([by_profile(fit.weights * rows.outcomes) for fit in fits]),
        squares=np.stack([by_profile(fit.weights * squares) for fit in fits]),
        noise=np.stack([by_profile(fit.weights * rows.noise) for fit in fits]),
        square_noise=np.array([fit.square_weights @ rows.noise for fit in fits]),
        square_weights=np.array([fit.square_weights.sum() for fit in fits]),
    )
    return functional, CellMoments(
        sizes=weights.sizes,
        means=np.stack([fit.means for fit in fits], axis=1),
        squares=np.stack([fit.squares for fit in fits], axis=1),
        noise=np.stack([fit.noise for fit in fits], axis=1),
    )


class ArmCells(NamedTuple):
    """The cells of one arm: means, weights, sizes, and which are used; first axis `[cluster]`."""

    outcomes: FloatArray
    covariates: FloatArray
    shares: FloatArray
    sizes: IntArray
    pooled: BoolArray
    compared: BoolArray

    @property
    def pool_shares(self) -> FloatArray:
        """The share of each cell in the mean of the pool; zeros without a pool."""
        inside = np.where(self.pooled, self.shares, 0.0)
        return np.asarray(inside / (inside.sum() or 1.0))

    @property
    def of_units(self) -> FloatArray:
        """The weight of each unit."""
        return np.asarray(self.shares / np.maximum(self.sizes, 1))

    def of_influence(self, clusters: IntArray, terms: FloatArray) -> FloatArray:
        """Sums over the entries of each cluster, per squared weight of its units (robust errors).

        From `[entry]` to `[cluster]`.
        """
        sums = np.bincount(clusters, terms, len(self.sizes))
        return np.asarray(sums / np.where(sums != 0, self.of_units, 1.0) ** 2)

    def centres(self, means: FloatArray) -> FloatArray:
        """What rows are compared with: their cell's mean, or that of the pool."""
        return np.where(_like(self.pooled, means), self.pool_shares @ means, means)


class ArmFit(NamedTuple):
    """The regression of one arm.

    Attributes:
        weights: The weights of rows in the adjusted mean, summed over entries; axes `[entry]`.
        square_weights: The same of their squares.
        means: Adjusted means of cells; axes `[cluster]`.
        squares: Sums of squares for their variance; axes `[cluster]`.
        noise: What of these sums is noise of privacy; axes `[cluster]`.
    """

    weights: FloatArray
    square_weights: FloatArray
    means: FloatArray
    squares: FloatArray
    noise: FloatArray


def _fit_arm(
    rows: CovariateRows,
    sums: FloatArray,
    arm: int,
    cells: ArmCells,
    target: FloatArray,
) -> ArmFit:
    """The adjusted mean of an arm; `sums` are of covariates, see `covariate_sums`."""
    clusters, arms = np.divmod(rows.cells, rows.shape[1])
    chosen = (arms == arm) & cells.compared[clusters]
    counts = np.where(chosen, rows.counts, 0)
    centres = cells.centres(cells.covariates)[clusters]
    residuals = rows.outcomes - cells.centres(cells.outcomes)[clusters]
    deviations = np.where(chosen, sums - counts * centres.T, 0.0)  # summed over rows
    centred = CentredRows(rows, arm, chosen, centres)
    inverse = _inverse(centred.products(), counts.sum())
    slopes = inverse @ (deviations @ residuals)
    gap = cells.covariates - target
    means = cells.outcomes - gap @ slopes
    # A row moves the arm's mean by itself, and by what it does to the slopes: directly, and
    # through the mean of the pool.
    by_slopes = inverse @ (np.where(cells.sizes > 0, cells.shares, 0.0) @ gap)
    moved = by_slopes @ deviations  # the weights of rows, summed over them
    pool = moved @ cells.pooled[clusters]
    base = (cells.of_units + pool * cells.pool_shares / np.maximum(cells.sizes, 1))[clusters]
    spread = centred.spread(Line(base, by_slopes), Line(residuals, slopes))
    # As many residuals as there are slopes are spent on fitting them.
    n_centres = np.count_nonzero(~cells.pooled & (cells.sizes > 0)) + int(cells.pooled.any())
    free = counts.sum() - n_centres
    spent = free / (free - len(slopes)) if free > len(slopes) else np.nan
    # Rows of the pool were compared with its mean: what their cells' distance adds is in already.
    distance = means - cells.centres(means)
    return ArmFit(
        weights=counts * base - moved,
        square_weights=spread.squares,
        means=means,
        squares=spent * cells.of_influence(clusters, spread.products) - cells.sizes * distance**2,
        noise=cells.of_influence(clusters, spread.squares * rows.noise),
    )


class Line(NamedTuple):
    """A number for each row: that of its entry, less slopes times centred covariates.

    Attributes:
        base: Axes `[entry]`.
        slopes: Axes `[covariate]`.
    """

    base: FloatArray
    slopes: FloatArray

    def of(self, piece: Piece) -> FloatArray:
        """The numbers of rows; axes `[row]`."""
        # Rows are many and slopes few: the threads of a product would wait longer than they work.
        fitted = np.einsum("j,ji->i", self.slopes, piece.covariates)
        return np.asarray(self.base[piece.entries] - fitted)


class Spread(NamedTuple):
    """Sums over the rows of entries; axes `[entry]`.

    Attributes:
        squares: Of the squares of weights.
        products: Of the squares of weights times residuals.
    """

    squares: FloatArray
    products: FloatArray


class CentredRows(NamedTuple):
    """The rows of some entries of one arm.

    Attributes:
        rows: The rows of the segment.
        arm: The arm.
        chosen: Which entries; axes `[entry]`.
        centres: What covariates are distances from; axes `[entry, covariate]`.
    """

    rows: CovariateRows
    arm: int
    chosen: BoolArray
    centres: FloatArray

    def pieces(self) -> Iterator[Piece]:
        """The rows with centred covariates, piece by piece."""
        for entries, columns in self.rows.pieces(self.arm):
            kept = self.chosen[entries]
            if kept.all():
                yield Piece(entries, columns - self.centres[entries].T)
            else:
                yield Piece(entries[kept], columns[:, kept] - self.centres[entries[kept]].T)

    def products(self) -> FloatArray:
        """Sums of products of centred covariates; axes `[covariate, covariate]`."""
        n_covariates = self.centres.shape[1]
        found = np.zeros((n_covariates, n_covariates))
        for _, columns in self.pieces():
            found += columns @ columns.T
        return found

    def spread(self, weights: Line, residuals: Line) -> Spread:
        """How weights and residuals spread."""
        found = Spread(*np.zeros((2, len(self.chosen))))
        for piece in self.pieces():
            each = weights.of(piece)
            np.add.at(found.squares, piece.entries, each**2)
            np.add.at(found.products, piece.entries, (each * residuals.of(piece)) ** 2)
        return found


def _inverse(products: FloatArray, n_rows: int) -> FloatArray:
    """The inverse of sums of products of covariates, of as many as tell anything.

    Numbers are in standard deviations, so the normal equations lose nothing that counts, and their
    squares add up to the number of rows.
    """
    values, vectors = np.linalg.eigh(products)
    told = values > _LEAST * max(values.max(), n_rows)
    return np.asarray((vectors[:, told] / values[told]) @ vectors[:, told].T)


def _like(flags: BoolArray, values: FloatArray) -> BoolArray:
    """Flags of clusters, with as many axes as the values."""
    return flags.reshape(-1, *[1] * (values.ndim - 1))
