"""Sums over rows, calibrated by noisy sums that were published beside them.

An arm's mean is Σ s_i·ỹ_i: public weights s on debiased outcomes ỹ. Noisy sums Z = X'y + noise of
variance W are published, X public. Then

    τ̂ = s'ỹ − b'(X'ỹ − Z),   b = (X'X + W/v̄)⁻¹X's

is unbiased, since X'ỹ − Z is noise alone: b follows from public numbers, v̄ the public noise
variance of a unit among them. Its privacy variance is Σ (s − Xb)²v + b'Wb, v that of a unit's row.
Outcomes are distances from the middle of a metric's values, so that constants are not estimated.

How outcomes spread around τ̂ is calibrated likewise: see `spread`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.means.spread import PublishedSquares, Spread
from clusterdp.estimation.means.sums import (
    KnownMeans,
    PublishedSums,
    SumSolver,
    arranged,
    n_sums,
    sum_ridge,
)
from clusterdp.estimation.reading.profiles import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.means.spread import UnitNoise
    from clusterdp.estimation.reading.profiles import Profiles, ProfileSums
    from clusterdp.statistics.base import SumReading


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

    def _spread(
        self, one: Functional, values: FloatArray, moved: FloatArray, saved: FloatArray
    ) -> Spread:
        """What is known of the spread; arguments as of `PublishedSquares.improve`."""
        unit = self.unit_noise
        spread = Spread.by_rows(one, values, unit)
        if self.squares is None:
            return spread
        return self.squares.improve(
            spread,
            one,
            values,
            moved=moved,
            saved=saved,
            rows=self.rows,
            sizes=self.sizes,
            unit=unit,
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
        return np.where(unseen, self.unit_noise.most_noise * left, 0.0)

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
    ridge = sum_ridge(sums, noise.variance) if ridge is None else ridge
    solver = SumSolver(sums.design, profiles.sizes, ridge, *n_sums(readings)[:1])
    gaps = times(whole.sums, sums.design) - sums.values
    return Calibration(
        sums=sums,
        solver=solver,
        gaps=gaps,
        rows=whole,
        sizes=profiles.sizes,
        squares=PublishedSquares.of(readings, profiles, noise, sums, solver),
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
    return sum_ridge(PublishedSums.of(arranged(readings), profiles, noise.origin), noise.variance)
