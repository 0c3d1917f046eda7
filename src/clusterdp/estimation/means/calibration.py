"""Sums over rows, calibrated by noisy sums that were published next to them.

An arm's mean is Σ s_i·ỹ_i: public weights s on debiased outcomes ỹ. Noisy sums Z = X'y + noise of
variance W are published, X public. Then

    τ̂ = s'ỹ − b'(X'ỹ − Z),   b = (X'X + W/v̄)⁻¹X's

is unbiased, since X'ỹ − Z is noise alone: b follows from public numbers, v̄ the public noise
variance of a unit among them. Its privacy variance is Σ (s − Xb)²v + b'Wb, v that of a unit's row.
Outcomes are distances from the middle of a metric's values, so that constants are not estimated.

How outcomes spread around τ̂ is calibrated likewise: see `spread`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.means.spread import (
    PublishedSquares,
    RowNoiseBound,
    SpreadEstimate,
)
from clusterdp.estimation.means.sums import (
    PublishedSums,
    SumSolver,
    WeightedSums,
    sum_ridge,
)
from clusterdp.estimation.reading.profiles import Profiles, sums_by, times
from clusterdp.statistics.base import SumReading


class CalibratedSums(NamedTuple):
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
    spread: SpreadEstimate
    coefficients: FloatArray
    noise_sums: FloatArray


class Calibration:
    """The calibration of a metric by published sums: these, and how far the rows are from them.

    Attributes:
        sums: The sums; there may be none.
        solver: Finds b.
        gaps: X'ỹ − Z; axes `[..., sum]`.
        rows: Sums over all rows of each profile.
        sizes: Numbers of all rows of each profile; axes `[profile]`.
        unit_noise: What is public of the noise of a row.

    Args:
        readings: The sums; none for rows alone.
        profiles: What the sums distinguish.
        rows: All rows.
        noise: What is public of the metric.
        ridge: W/v̄ of another metric, to calibrate with its coefficients; None for the metric's own.
    """

    def __init__(
        self,
        readings: Sequence[SumReading],
        profiles: Profiles,
        rows: ProfileSums,
        noise: RowNoiseBound,
        ridge: FloatArray | None = None,
    ) -> None:
        self.rows, self.sizes, self.unit_noise = rows, profiles.sizes, noise
        self.sums = sums = PublishedSums(readings, profiles, -noise.origin)
        ridge = sum_ridge(sums.variances, noise.variance) if ridge is None else ridge
        self.solver = SumSolver(sums.design, profiles.sizes, ridge)
        self.gaps = times(rows.sums, sums.design) - sums.values
        self._squares = None
        if readings and (noise.two_values or any(one.squares is not None for one in readings)):
            self._squares = PublishedSquares(readings, profiles, rows, noise, sums, self.solver)
        self._cells = _known_means(readings, profiles, rows, noise)

    def apply(self, one: WeightedSums) -> CalibratedSums:
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
        spread = SpreadEstimate.from_rows(one, values, self.unit_noise)
        if self._squares is not None:
            spread = self._squares.improve(spread, one, values, moved=moved, saved=saved_weights)
        return CalibratedSums(
            values=values,
            privacy=np.maximum(one.square_noise - saved, least) + known,
            saved_share=np.clip(
                saved / np.where(one.square_noise > 0, one.square_noise, np.inf), 0, 1
            ),
            spread=spread,
            coefficients=coefficients,
            noise_sums=noise_sums,
        )

    def known_cells(self, arms: list[int]) -> tuple[FloatArray, ...] | None:
        """Means of the cells of some arms, and their noise; None if they are from rows only."""
        return None if self._cells is None else tuple(part[..., arms] for part in self._cells)

    def shifts(self) -> FloatArray:
        """−XM⁻¹(X'ỹ − Z): what units of each profile are moved by, for any weights."""
        return -times(self.solver.solve(self.gaps), self.solver.transposed)

    def _least_noise(self, square_weights: FloatArray, saved_weights: FloatArray) -> FloatArray:
        """What the noise of rows is taken to be at least: zero, or a bound where it is not seen.

        Σ (s − Xb)²·v, if few rows carry most of the noise. All rows of the release show v, the mean
        noise of a row, if they are enough; else it is the largest. Units with more noise than
        others have more rows that carry it, so that their own rows show it.
        """
        unseen = self.unit_noise.is_unseen(square_weights)
        left = np.maximum(square_weights - saved_weights, 0.0)
        n_units = max(self.sizes.sum(), 1)
        each = self.rows.noise.sum(axis=-1, keepdims=True) / n_units
        if self.unit_noise.is_unseen(np.array(1 / n_units)):
            each = np.asarray(self.unit_noise.most_noise)
        return np.where(unseen, each * left, 0.0)

    def covariances(
        self, *, coefficients: FloatArray, noise_sums: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Privacy covariances of sums over disjoint rows; axes `[one, other]`, diagonals unused.

        Those of all noise, and of the noise of published sums alone. Arguments as in
        `CalibratedSums`, with one axis of functionals.
        """
        from scipy.sparse import diags_array

        gram = self.solver.transposed @ diags_array(self.rows.noise) @ self.solver.design
        known = (coefficients * self.sums.variances) @ coefficients.T
        crossed = coefficients @ noise_sums.T
        shared = coefficients @ (gram @ coefficients.T)
        return np.asarray(shared - crossed - crossed.T + known), np.asarray(known)


def _known_means(
    readings: Sequence[SumReading],
    profiles: Profiles,
    whole: ProfileSums,
    noise: RowNoiseBound,
) -> tuple[FloatArray, FloatArray] | None:
    """Means of cells by their sums and rows, each weighted by the inverse of its known variance.

    They are distances from the middle. Also the variances of their noise; None without such sums.
    """
    of_cells = [one for one in readings if one.by is None]
    if not of_cells:
        return None
    n_arms, tiny = of_cells[0].value.shape[-1], np.finfo(float).tiny
    shape, cells = (profiles.shape[0], n_arms), profiles.released_cells(n_arms)

    def by_cell(terms: FloatArray | IntArray) -> FloatArray:
        sums = sums_by(cells, terms, shape[0] * n_arms)
        return sums.reshape(*terms.shape[:-1], *shape)

    sizes = np.maximum(by_cell(profiles.sizes), 1.0)
    precision = np.asarray(sizes / max(noise.variance, tiny))
    each = precision * by_cell(whole.sums) / sizes
    drawn = np.broadcast_shapes(each.shape[:-2], *(one.value.shape[:-3] for one in of_cells))
    total = np.broadcast_to(each, (*drawn, *each.shape[-2:])).copy()
    for one in of_cells:
        first = profiles.starts[one.folder]
        own = slice(first, first + one.value.shape[-3])  # the clusters of its folder
        known = sizes[..., own, :] ** 2 / max(one.variance, tiny)
        precision[..., own, :] += known
        means = one.value[..., 0, :] / sizes[..., own, :] - noise.origin
        total[..., own, :] += known * means
    if profiles.released is None:
        return np.asarray(total / precision), 1 / precision
    # Merged arms: means of the units of all of them.
    into = np.zeros((n_arms, profiles.shape[1]))
    into[profiles.released, profiles.arms] = 1.0
    units = np.where(by_cell(profiles.sizes) > 0, sizes, 0.0)
    whole_sizes = np.maximum(units @ into, 1.0)
    merged = (units * total / precision) @ into / whole_sizes
    return np.asarray(merged), np.asarray((units**2 / precision) @ into / whole_sizes**2)
