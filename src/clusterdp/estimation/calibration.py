"""Sums over rows, calibrated by noisy sums that were published beside them.

An arm's mean is Σ s_i·ỹ_i: public weights s on debiased outcomes ỹ. Noisy sums Z = X'y + noise of
variance W are published, X public. Then

    τ̂ = s'ỹ − b'(X'ỹ − Z),   b = (X'X + W/v̄)⁻¹X's

is unbiased, since X'ỹ − Z is noise alone: b follows from public numbers, v̄ the public noise
variance of a unit among them. Its privacy variance is Σ (s − Xb)²v + b'Wb, v that of a unit's row.
Outcomes are distances from the middle of a metric's values, so that constants are not estimated.

The variance of sampling is made of squares, Σ s²(y − τ̂)², which rows tell with the noise of rows.
What calibration takes off that noise has the weights g = s² − (s − Xb)². Squares are published as
sums are, so Xc stands for g, c = (X'X + W₂/v₂)⁻¹X'g: that part is read from published squares, all
of them around the same τ̂, so that rows cancel where X spans s. For g − Xc see
`Calibration._spread`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.moments import KnownMeans
from clusterdp.estimation.profiles import times
from clusterdp.estimation.published_sums import PublishedSums, arranged, n_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scipy.sparse import csr_array

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.profiles import Profiles, ProfileSums
    from clusterdp.experiment.category_space import Ends
    from clusterdp.statistics.base import SumReading

# How much the spread of outcomes is thought to differ between units that count more and that count
# less, as a share of it: what a ratio of totals may be off by.
_UNEVEN_SPREAD = 0.5
# The least noise that a sum is taken to have, as a share of its weights: without any, exact sums
# that add up to others would be ambiguous.
_LEAST_RIDGE = 1e-10
# What is explained by slopes is taken off a variance if the variance of its error is at most so
# many squares of what is left.
_MOST_UNEXPLAINED = 0.5
# Rows with less noise than this share of that of a sum are taken to have as much.
_LEAST_NOISE = 1e-12


# Noise of a larger kurtosis is carried by few rows. That of metrics which the channel was made for
# is smaller, and so is that of shares of twelve values.
_ORDINARY_KURTOSIS = 12.0
# With a larger kurtosis per row, a mean of rows may lack the few that carry its noise: its variance
# is then not estimated, but bounded. Below it 95% intervals of means cover 94% or more.
_MOST_KURTOSIS = 0.05


class Functional(NamedTuple):
    """Weighted sums over rows: Σ s_i·ỹ_i, with public weights s. Axes `[..., functional]`.

    Attributes:
        values: Σ s·ỹ, ỹ as distances from the middle.
        weights: Σ s over the rows of each profile; axes `[..., functional, profile]`.
        sums: Σ s·ỹ, the same; axes as those of weights.
        squares: Σ s·(ỹ² − v̂), v̂ the estimated noise variance of a row; axes as those of weights.
        noise: Σ s·v̂; axes as those of weights.
        square_noise: Σ s²·v̂ over all rows.
        square_weights: Σ s² over all rows.
        places: The profiles that rows are in, which these axes are of; None for all of them.
    """

    values: FloatArray
    weights: FloatArray
    sums: FloatArray
    squares: FloatArray
    noise: FloatArray
    square_noise: FloatArray
    square_weights: FloatArray
    places: IntArray | None = None

    @classmethod
    def of_rows(
        cls, part: ProfileSums, each: FloatArray, places: IntArray | None = None
    ) -> Functional:
        """Sums over rows whose weights are the same within a profile.

        Args:
            part: The rows.
            each: s; axes `[..., functional, profile]`.
            places: The profiles that rows are in; None for all of them.
        """
        sizes, sums, squares, noise = (
            terms[..., np.newaxis, :] for terms in (part.sizes, part.sums, part.squares, part.noise)
        )
        return cls(
            values=(each * sums).sum(axis=-1),
            weights=each * sizes,
            sums=each * sums,
            squares=each * (squares - noise),
            noise=each * noise,
            square_noise=(each**2 * noise).sum(axis=-1),
            square_weights=(each**2 * sizes).sum(axis=-1),
            places=places,
        )


class Spread(NamedTuple):
    """What published squares make of an estimate of the spread of outcomes, Σ s²(y − τ̂)².

    Attributes:
        shift: What they add to an estimate that was made from rows.
        noise: The variance that noise of privacy gives to the sum; from public numbers, about.
        slope: How the spread follows the mean, where units have two values; else zero.
        most: What the spread is at most, whatever outcomes are.
        weights: Σ s².
        unit_noise: The public noise variance of a row.
        of_units: The variance of outcomes, about.
    """

    shift: FloatArray
    noise: FloatArray
    slope: FloatArray
    most: FloatArray
    weights: FloatArray
    unit_noise: float
    of_units: FloatArray

    def error(self, sampling: FloatArray, privacy: FloatArray, n_slopes: int) -> FloatArray:
        """The variance of the estimated spread beyond what numbers of units tell.

        Where units have two values, it is as uncertain as their mean: a few events decide both.
        What k slopes explain of the variance, which is taken off, is told by rows alone. A slope
        has noise of variance q = v·Σ s², in units of outcomes, so that β² has 2q² + 4β²q. That is
        too much where it exceeds half of the squared variance that is left if slopes explain half;
        the error is then infinite.

        Args:
            sampling: The variance of sampling of the mean.
            privacy: The variance of privacy of the mean.
            n_slopes: k.
        """
        of_slope = self.unit_noise * self.weights
        explained = 2 * n_slopes * of_slope**2 + 4 * min(n_slopes, 1) * of_slope * self.of_units
        explained = self.weights**2 * explained
        left = self.weights * self.of_units / 2 + privacy
        too_much = explained > _MOST_UNEXPLAINED * left**2
        few = self.slope**2 * np.maximum(sampling, 0.0)
        return np.where(too_much, np.inf, self.noise + few + explained)


class Calibrated(NamedTuple):
    """Weighted sums over rows after calibration; axes `[..., functional]` unless stated.

    Attributes:
        values: τ̂.
        privacy: Their estimated privacy variances.
        saved_share: The share of the noise of rows that calibration takes off.
        spread: What published squares make of an estimate of the spread of outcomes.
        coefficients: b; axes `[..., functional, sum]`.
        noise_sums: X's·v̂, how noise of rows goes with sums; axes as those of coefficients.
    """

    values: FloatArray
    privacy: FloatArray
    saved_share: FloatArray
    spread: Spread
    coefficients: FloatArray
    noise_sums: FloatArray


def _saved_share(saved: FloatArray, noise: FloatArray) -> FloatArray:
    return np.clip(saved / np.where(noise > 0, noise, np.inf), 0.0, 1.0)


class SumSolver:
    """Solves (X'NX + R)b = X's for many s; N the sizes of profiles, R a diagonal matrix.

    The sums of one reading have no units in common, so their block of the matrix is diagonal. That
    of the reading with most sums, which comes first, is eliminated; what is left is small.
    """

    def __init__(
        self, design: csr_array, sizes: IntArray, ridge: FloatArray, n_first: int = 0
    ) -> None:
        from scipy.linalg import cho_factor
        from scipy.sparse import diags_array

        self.design, self.transposed = design, design.T.tocsr()
        gram = (self.transposed @ diags_array(sizes.astype(np.float64)) @ design).tocsr()
        self._n_first = n_first
        # Sums that are known exactly may be sums of others: any share will do, if it is one.
        ridge = np.maximum(ridge, _LEAST_RIDGE * gram.diagonal())
        self._inverse = 1 / (gram.diagonal()[:n_first] + ridge[:n_first])
        self._coupling = gram[:n_first, n_first:].tocsr()
        scaled = diags_array(self._inverse) @ self._coupling
        rest = gram[n_first:, n_first:] - self._coupling.T @ scaled
        self._rest = cho_factor(rest.toarray() + np.diag(ridge[n_first:]))

    def solve(self, right: FloatArray) -> FloatArray:
        """b, given X's; axes `[..., sum]` of both."""
        from scipy.linalg import cho_solve

        flat = right.reshape(math.prod(right.shape[:-1]), right.shape[-1])
        first, rest = flat[:, : self._n_first], flat[:, self._n_first :]
        left = rest - (first * self._inverse) @ self._coupling
        others = cho_solve(self._rest, left.T).T if rest.size else rest
        mine = (first - others @ self._coupling.T) * self._inverse
        return np.concatenate([mine, others], axis=-1).reshape(right.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """The published sums of a metric, and how far the rows are from them.

    Attributes:
        sums: The sums; there may be none.
        solver: Finds b.
        gaps: X'ỹ − Z; axes `[..., sum]`.
        rows: Sums over all rows of each profile.
        sizes: Numbers of all rows of each profile; axes `[profile]`.
        squares: Published squares; None if none are known.
        unit_noise: What is public of the noise of a row.
        cells: Means of cells by sums of cells and rows together; None without such sums.
    """

    sums: PublishedSums
    solver: SumSolver
    gaps: FloatArray
    rows: ProfileSums
    sizes: IntArray
    squares: PublishedSquares | None
    unit_noise: UnitNoise
    cells: KnownMeans | None = None

    def apply(self, one: Functional) -> Calibrated:
        """Weighted sums over rows, calibrated, with their privacy variances."""
        design, every = self.solver.design, slice(None) if one.places is None else one.places
        within = design if one.places is None else design[one.places]
        coefficients = self.solver.solve(times(one.weights, within))
        moved = times(coefficients, self.solver.transposed)  # Xb
        noise_sums = times(one.noise, within)
        values = one.values - (coefficients * self.gaps[..., np.newaxis, :]).sum(axis=-1)
        shared = (self.rows.noise[..., np.newaxis, :] * moved**2).sum(axis=-1)
        saved = 2 * (coefficients * noise_sums).sum(axis=-1) - shared
        known = coefficients**2 @ self.sums.variances
        # What calibration saves has the weights g = 2s·Xb − (Xb)².
        saved_weights = -self.sizes * moved**2
        saved_weights[..., every] += 2 * moved[..., every] * one.weights
        least = self._least_noise(one.square_weights, saved_weights.sum(axis=-1))
        return Calibrated(
            values=values,
            privacy=np.maximum(one.square_noise - saved, least) + known,
            saved_share=_saved_share(saved, one.square_noise),
            spread=self._spread(one, values, moved, saved_weights),
            coefficients=coefficients,
            noise_sums=noise_sums,
        )

    def shifts(self) -> FloatArray:
        """−XM⁻¹(X'ỹ − Z): what units of each profile are moved by, whatever their weights."""
        return -times(self.solver.solve(self.gaps), self.solver.transposed)

    def _least_noise(self, square_weights: FloatArray, saved_weights: FloatArray) -> FloatArray:
        """What the noise of rows is taken to be at least: zero, or its bound where it is not seen.

        Σ (s − Xb)²·v with the largest v, if few rows carry most of the noise.
        """
        unseen = self.unit_noise.is_unseen(square_weights)
        left = np.maximum(square_weights - saved_weights, 0.0)
        return np.where(unseen, self.unit_noise.largest * left, 0.0)

    def covariances(
        self, *, coefficients: FloatArray, noise_sums: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Privacy covariances of sums over disjoint rows; axes `[one, other]`, diagonals unused.

        Those of all noise, and of the noise of published sums alone. Arguments as in `Calibrated`,
        with one axis of functionals.
        """
        from scipy.sparse import diags_array

        gram = self.solver.transposed @ diags_array(self.rows.noise) @ self.solver.design
        known = (coefficients * self.sums.variances) @ coefficients.T
        crossed = coefficients @ noise_sums.T
        shared = coefficients @ (gram @ coefficients.T)
        return np.asarray(shared - crossed - crossed.T + known), np.asarray(known)

    def _spread(
        self, one: Functional, values: FloatArray, moved: FloatArray, saved: FloatArray
    ) -> Spread:
        """What published squares add to Σ s²((ỹ − τ̂)² − v̂), an estimate of spread from rows.

        Xc is told by published squares instead of rows. What is left, g − Xc, is zero where units
        of a sum count alike. Rows tell its squares with noise. A ratio of totals does without rows,
        and takes the spread to be the same for all units; it is off by as much as spreads differ.
        Both are weighed by the inverse of their mean squared errors, which follow from public
        numbers but for the spread.

        Args:
            one: The functional.
            values: τ̂, its calibrated values.
            moved: Xb; axes `[..., functional, profile]`.
            saved: g, summed over the rows of each profile; axes the same.
        """
        known, unit = self.squares, self.unit_noise
        linear = 4 * values**2
        of_row = unit.square_variance + linear * unit.variance
        slope = 2 * values * one.square_weights if unit.two_values else np.zeros(values.shape)
        weights = one.square_weights
        spread = Spread(
            shift=np.zeros(values.shape),
            noise=of_row * weights**3,
            slope=slope,
            most=unit.most_spread * weights,
            weights=weights,
            unit_noise=unit.variance,
            of_units=np.full(values.shape, unit.most_spread / 8),
        )
        if known is None:
            return spread
        design, centre = known.solver.design, values[..., np.newaxis]
        by_squares = known.solver.solve(times(saved, design))  # c
        spanned = times(by_squares, known.solver.transposed)  # Xc
        whole, left = spanned @ self.sizes, saved - self.sizes * spanned

        def around(
            squares: FloatArray, sums: FloatArray, sizes: FloatArray | IntArray
        ) -> FloatArray:
            """Sums of squares around τ̂, from those around the middle."""
            return np.asarray(squares - 2 * centre * sums + centre**2 * sizes)

        every_row = self.sizes.astype(np.float64)
        rows = (self.rows.squares - self.rows.noise, self.rows.sums, every_row)
        of_rows = around(*(part[..., np.newaxis, :] for part in rows))
        every = slice(None) if one.places is None else one.places
        own = 2 * moved[..., every] * around(one.squares, one.sums, one.weights)
        by_rows = own.sum(axis=-1) - ((moved**2 + spanned) * of_rows).sum(axis=-1)  # of g − Xc
        sums = self.sums.values[..., np.newaxis, known.chosen]
        published = around(known.values[..., np.newaxis, :], sums, self.sizes @ design)
        published = (by_squares * published).sum(axis=-1)
        drawn = by_squares**2 @ known.variances
        drawn = drawn + linear * (by_squares**2 @ self.sums.variances[known.chosen])
        ratio = _ratio(left.sum(axis=-1), whole)
        # Mean squared errors: of rows, and of the ratio of totals.
        in_rows = of_row * (left**2 / np.maximum(self.sizes, 1)).sum(axis=-1)
        uneven = _UNEVEN_SPREAD * _ratio(published, whole) * np.abs(left).sum(axis=-1)
        by_ratio = _ratio(in_rows, in_rows + uneven**2 + ratio**2 * drawn)  # its share
        replaced = (spanned * of_rows).sum(axis=-1) - published
        shift = by_ratio * (ratio * np.maximum(published, 0.0) - by_rows) - replaced
        unsaved = np.maximum(one.square_weights - saved.sum(axis=-1), 0.0)
        noise = of_row * unsaved**3 + (1 - by_ratio) ** 2 * in_rows
        return spread._replace(
            shift=shift,
            noise=noise + (1 + by_ratio * ratio) ** 2 * drawn,
            of_units=np.clip(_ratio(published, whole), 0.0, unit.most_spread),
        )


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """A ratio, or zero where the denominator is."""
    return np.asarray(above / np.where(below == 0, 1.0, below))


class PublishedSquares(NamedTuple):
    """Published sums of squared distances from the middle, or what is known of them.

    Attributes:
        solver: Finds the coefficients of squares.
        values: The sums; axes `[..., sum]`.
        variances: The variances of their noise; axes `[sum]`.
        chosen: Which of all sums have squares.
    """

    solver: SumSolver
    values: FloatArray
    variances: FloatArray
    chosen: BoolArray

    @classmethod
    def of(
        cls,
        readings: Sequence[SumReading],
        profiles: Profiles,
        noise: UnitNoise,
        solver: SumSolver,
    ) -> PublishedSquares | None:
        """Those of some readings; None if none are known.

        Units with two values are as far from the middle as each other: squares are known, and c
        follows from the noise of sums.
        """
        squared = [one for one in readings if one.squares is not None]
        if readings and noise.two_values:
            sizes = profiles.sizes @ solver.design
            every = np.ones(len(sizes), dtype=np.bool_)
            square = (noise.ends.span / 2) ** 2
            return cls(solver, square * sizes, np.zeros(len(sizes)), every)
        if not squared:
            return None
        sums = PublishedSums.of_squares(squared, profiles)
        # Squares that c leaves out cost the noise of rows, or what a ratio of totals is off by.
        some = profiles.sizes.sum() / max(np.count_nonzero(profiles.sizes), 1)
        off = _UNEVEN_SPREAD**2 * (noise.ends.span / 4) ** 4 * some
        ridge = _ridge(sums, min(noise.square_variance, off))
        return cls(
            SumSolver(sums.design, profiles.sizes, ridge, *n_sums(squared)[:1]),
            sums.values,
            sums.variances,
            np.repeat([one.squares is not None for one in readings], n_sums(readings)),
        )


class UnitNoise(NamedTuple):
    """What is public of a metric's values and of the noise of a unit's row.

    Nothing noisy may go into the noise: it decides how rows are weighed against sums.

    Attributes:
        ends: The least and the largest value.
        variance: v̄, the noise variance of a row.
        square_variance: The same of (ỹ − middle)² − v̂, which estimates (y − middle)².
        largest: The largest noise variance that a category has.
        kurtosis: What noise gives to that of debiased values; see `CategoryFunction.noise_tails`.
        two_values: Whether units have no values but the two ends.
        origin: What published sums add up distances from, if the middle is subtracted from them.
    """

    ends: Ends
    variance: float
    square_variance: float
    largest: float
    kurtosis: float
    two_values: bool
    origin: float

    @property
    def most_spread(self) -> float:
        """The largest estimated variance of outcomes: (span/2)², times n/(n − 1) of two units."""
        return self.ends.span**2 / 2

    def is_unseen(self, square_weights: FloatArray) -> BoolArray:
        """Whether weighted means of rows, from Σ s², may lack the rows that carry their noise."""
        heavy = self.kurtosis > _ORDINARY_KURTOSIS
        return np.asarray(heavy & (self.kurtosis * square_weights > _MOST_KURTOSIS))


def calibrate(
    readings: Sequence[SumReading],
    profiles: Profiles,
    whole: ProfileSums,
    noise: UnitNoise,
    ridge: FloatArray | None = None,
) -> Calibration:
    """The calibration of a metric by published sums.

    Args:
        readings: The sums; none for rows alone.
        profiles: What the sums distinguish.
        whole: All rows.
        noise: What is public of the metric.
        ridge: W/v̄ of another metric, to calibrate with its coefficients; None for the metric's own.
    """
    readings = arranged(readings)
    sums = PublishedSums.of(readings, profiles, noise.origin)
    ridge = _ridge(sums, noise.variance) if ridge is None else ridge
    solver = SumSolver(sums.design, profiles.sizes, ridge, *n_sums(readings)[:1])
    gaps = times(whole.sums, sums.design) - sums.values
    return Calibration(
        sums=sums,
        solver=solver,
        gaps=gaps,
        rows=whole,
        sizes=profiles.sizes,
        squares=PublishedSquares.of(readings, profiles, noise, solver),
        unit_noise=noise,
        cells=_known_means(readings, profiles, whole, noise.origin, noise.variance),
    )


def _known_means(
    readings: Sequence[SumReading],
    profiles: Profiles,
    whole: ProfileSums,
    middle: float,
    unit_noise: float,
) -> KnownMeans | None:
    """Means of cells by their sums and rows, each weighted by the inverse of its known variance."""
    of_cells = [one for one in readings if one.by is None]
    if not of_cells:
        return None
    sizes = np.maximum(profiles.sum_cells(profiles.sizes), 1.0)
    precision = np.asarray(sizes / max(unit_noise, np.finfo(float).tiny))
    total = precision * profiles.sum_cells(whole.sums) / sizes
    for one in of_cells:
        known = sizes**2 / max(one.variance, np.finfo(float).tiny)
        precision = precision + known
        total = total + known * (one.value[..., 0, :] / sizes - middle)
    return KnownMeans(np.asarray(total / precision), 1 / precision)


def public_ridge(
    readings: Sequence[SumReading], profiles: Profiles, noise: UnitNoise
) -> FloatArray:
    """W/v̄ of a metric, by which its sums are weighed against rows; arguments as of `calibrate`."""
    return _ridge(PublishedSums.of(arranged(readings), profiles, noise.origin), noise.variance)


def _ridge(sums: PublishedSums, unit_noise: float) -> FloatArray:
    """W/v̄; rows without noise count for next to everything."""
    least = np.maximum(unit_noise, _LEAST_NOISE * sums.variances)
    return np.divide(sums.variances, least, out=np.zeros_like(least), where=least > 0)
