"""How outcomes spread around a mean, from published squares and rows.

The variance of sampling is made of squares, Σ s²(y − τ̂)², which are known from rows, with their
noise. What calibration takes off that noise has the weights g = s² − (s − Xb)². Squares are
published as sums are, so Xc stands for g, c = (X'X + W₂/v₂)⁻¹X'g: that part is read from published
squares, all of them around the same τ̂, so that rows cancel where X spans s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clusterdp._arrays import BoolArray, FloatArray, IntArray
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.means.sums import (
    PublishedSums,
    SumSolver,
    WeightedSums,
    n_sums,
    sum_ridge,
)
from clusterdp.estimation.reading.profiles import Profiles, times
from clusterdp.outcomes.space import ValueRange
from clusterdp.statistics.base import SumReading

# How much the spread of outcomes is thought to differ between units that count more and that count
# less, as a share of it: what a ratio of totals may be off by.
_UNEVEN_SPREAD = 0.5
# Noise of a larger kurtosis is carried by few rows. That of metrics which the channel was made for
# is smaller, and so is that of shares of twelve values.
_ORDINARY_KURTOSIS = 12.0
# With a larger kurtosis per row, a mean of rows may lack the few that carry its noise: its variance
# is then not estimated, but bounded. Below it 95% intervals of means cover 94% or more.
_MOST_KURTOSIS = 0.05


class RowNoiseBound(NamedTuple):
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
        share: The share of units that are asked. The first two variances are for all units, the
            others of units that are asked.
    """

    ends: ValueRange
    variance: float
    square_variance: float
    largest: float
    kurtosis: float
    two_values: bool
    origin: float
    share: float = 1.0

    @property
    def most_spread(self) -> float:
        """The largest estimated variance of outcomes: (span/2)², times n/(n − 1) of two units."""
        return self.ends.span**2 / 2

    def of_square(self, values: FloatArray) -> FloatArray:
        """The noise variance of the square of a row around some values."""
        return np.asarray(self.square_variance + 4 * values**2 * self.variance)

    @property
    def most_noise(self) -> float:
        """The largest noise variance of a row; units that are not asked add to it."""
        return self.largest / self.share + (1 / self.share - 1) * self.ends.span**2 / 4

    def is_unseen(self, square_weights: FloatArray) -> BoolArray:
        """Whether weighted means of rows, from Σ s², may lack the rows that carry their noise."""
        heavy = self.kurtosis > _ORDINARY_KURTOSIS
        each = self.kurtosis * square_weights / self.share
        return np.asarray(heavy & (each > _MOST_KURTOSIS))


class SpreadEstimate(NamedTuple):
    """What published squares make of an estimate of the spread of outcomes, Σ s²(y − τ̂)².

    Attributes:
        shift: What they add to an estimate that was made from rows.
        noise: The variance that noise of privacy gives to the sum; from public numbers, about.
        slope: How the spread follows the mean, where units have two values; else zero.
        most: The largest possible spread.
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

    @classmethod
    def from_rows(
        cls, one: WeightedSums, values: FloatArray, unit: RowNoiseBound
    ) -> SpreadEstimate:
        """What rows alone show about a functional with these values."""
        weights = one.square_weights
        return cls(
            shift=np.zeros(values.shape),
            noise=unit.of_square(values) * weights**3,
            slope=2 * values * weights if unit.two_values else np.zeros(values.shape),
            most=unit.most_spread * weights,
            weights=weights,
            unit_noise=unit.variance,
            of_units=np.full(values.shape, unit.most_spread / 8),
        )

    def error(
        self, sampling: FloatArray, n_slopes: int = 0, explained: FloatArray | float = 0.0
    ) -> FloatArray:
        """The variance of the estimated spread beyond what numbers of units show.

        Where units have two values, it is as uncertain as their mean: a few events decide both.

        Args:
            sampling: The variance of sampling of the mean.
            n_slopes: How many slopes were fitted.
            explained: The share of what they explain that is taken off.
        """
        few = self.slope**2 * np.maximum(sampling, 0.0)
        return np.asarray(self.noise + few + explained**2 * self.slope_error(n_slopes))

    def slope_error(self, n_slopes: int, share: float = 1.0) -> FloatArray:
        """The variance of what k slopes explain of the spread, which only rows show.

        A slope has noise of variance q = v·Σ s², in units of outcomes, so that β² has 2q² + 4β²q.

        Args:
            n_slopes: k.
            share: What they are taken to explain of the variance of outcomes.
        """
        of_slope = self.unit_noise * self.weights
        linear = 4 * share * min(n_slopes, 1) * of_slope * self.of_units
        return np.asarray(self.weights**2 * (2 * n_slopes * of_slope**2 + linear))


class PublishedSquares:
    """Published sums of squared distances from the middle, or what is known of them.

    Units with two values are as far from the middle as each other: squares are known, and c follows
    from the noise of sums.

    Args:
        readings: Published sums, of which some have squares if units have other values.
        profiles: What they distinguish.
        rows: All rows.
        noise: What is public of the metric.
        sums: The sums of distances.
        solver: Finds b.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - sums, rows, and what is public of both
        self,
        readings: Sequence[SumReading],
        profiles: Profiles,
        rows: ProfileSums,
        noise: RowNoiseBound,
        sums: PublishedSums,
        solver: SumSolver,
    ) -> None:
        self._rows, self._sizes, self._unit = rows, profiles.sizes, noise
        self._solver, chosen = solver, np.ones(len(sums.variances), np.bool_)
        if noise.two_values:
            self._values = (noise.ends.span / 2) ** 2 * (profiles.sizes @ solver.design)
            self._variances = np.zeros(len(chosen))
        else:
            squared = [
                one._replace(value=one.squares, variance=one.squares_variance)
                for one in readings
                if one.squares is not None
            ]
            added = [one.squares_constant for one in squared]
            found = PublishedSums(squared, profiles, added)
            # Squares that c leaves out cost the noise of rows, or what a ratio of totals is off by.
            some = profiles.sizes.sum() / max(np.count_nonzero(profiles.sizes), 1)
            off = _UNEVEN_SPREAD**2 * (noise.ends.span / 4) ** 4 * some
            ridge = sum_ridge(found.variances, min(noise.square_variance, off))
            self._solver = SumSolver(found.design, profiles.sizes, ridge)
            self._values, self._variances = found.values, found.variances
            chosen = np.repeat([one.squares is not None for one in readings], n_sums(readings))
        # The sums of distances that go with squares.
        self._sums, self._sum_variances = sums.values[..., chosen], sums.variances[chosen]
        n_units = float((profiles.sizes @ self._solver.design).sum())
        mean, square = self._sums.sum(axis=-1) / n_units, self._values.sum(axis=-1) / n_units
        self._spread = np.clip(square - mean**2, 0.0, noise.most_spread)

    def improve(
        self,
        spread: SpreadEstimate,
        one: WeightedSums,
        values: FloatArray,
        *,
        moved: FloatArray,
        saved: FloatArray,
    ) -> SpreadEstimate:
        """What published squares add to Σ s²((ỹ − τ̂)² − v̂), an estimate of spread from rows.

        Xc comes from published squares instead of rows. What is left, g − Xc, is zero where units
        of a sum count equally. Rows show its squares with noise. A ratio of totals does without
        rows, and takes the spread to be the same for all units; it is off by as much as spreads
        differ. Both are weighed by the inverse of their mean squared errors, which follow from
        public numbers but for the spread. These cover all published sums: weights by a functional's
        own would prefer the smaller of its squares.

        Args:
            spread: What rows alone show.
            one: The functional.
            values: τ̂, its calibrated values.
            moved: Xb; axes `[..., functional, profile]`.
            saved: g, summed over the rows of each profile; axes the same.
        """
        rows, sizes, unit = self._rows, self._sizes, self._unit
        design, centre = self._solver.design, values[..., np.newaxis]
        by_squares = self._solver.solve(times(saved, design))  # c
        spanned = times(by_squares, self._solver.transposed)  # Xc
        whole, left = spanned @ sizes, saved - sizes * spanned

        def around(
            squares: FloatArray, sums: FloatArray, n_units: FloatArray | IntArray
        ) -> FloatArray:
            """Sums of squares around τ̂, from those around the middle."""
            return np.asarray(squares - 2 * centre * sums + centre**2 * n_units)

        every_row = sizes.astype(np.float64)
        known = (rows.squares - rows.noise, rows.sums, every_row)
        of_rows = around(*(part[..., np.newaxis, :] for part in known))
        every = slice(None) if one.places is None else one.places
        own = 2 * moved[..., every] * around(one.squares, one.sums, one.weights)
        by_rows = own.sum(axis=-1) - ((moved**2 + spanned) * of_rows).sum(axis=-1)  # of g − Xc
        sums = self._sums[..., np.newaxis, :]
        published = around(self._values[..., np.newaxis, :], sums, sizes @ design)
        published = (by_squares * published).sum(axis=-1)
        drawn = by_squares**2 @ self._variances
        drawn = drawn + 4 * values**2 * (by_squares**2 @ self._sum_variances)
        share, of_row = ratio(left.sum(axis=-1), whole), unit.of_square(values)
        # Mean squared errors: of rows, and of the ratio of totals.
        in_rows = of_row * (left**2 / np.maximum(sizes, 1)).sum(axis=-1)
        uneven = _UNEVEN_SPREAD * self._spread[..., np.newaxis] * np.abs(left).sum(axis=-1)
        by_ratio = ratio(in_rows, in_rows + uneven**2 + share**2 * drawn)  # its share
        replaced = (spanned * of_rows).sum(axis=-1) - published
        unsaved = np.maximum(one.square_weights - saved.sum(axis=-1), 0.0)
        noise = of_row * unsaved**3 + (1 - by_ratio) ** 2 * in_rows
        return spread._replace(
            shift=by_ratio * (share * np.maximum(published, 0.0) - by_rows) - replaced,
            noise=noise + (1 + by_ratio * share) ** 2 * drawn,
            of_units=np.clip(ratio(published, whole), 0.0, unit.most_spread),
        )


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """A ratio, or zero where the denominator is."""
    return np.asarray(above / np.where(below == 0, 1.0, below))
