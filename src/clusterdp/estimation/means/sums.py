"""All published sums of a metric as one sparse design: which profiles are in which sum.

Effects and their variances, as pure functions of cell statistics.

Every function takes arrays with leading `...` axes for replicates, so that one release and
thousands of simulated ones are estimated by the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp.outcomes.space import Ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scipy.sparse import csr_array

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.reading.profiles import Profiles
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import CellTotals, ClusterContrasts, SumReading


# The least noise that a sum is taken to have, as a share of its weights: without any, exact sums
# that add up to others would be ambiguous.
_LEAST_RIDGE = 1e-10
# Rows with less noise than this share of that of a sum are taken to have as much.
_LEAST_NOISE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedSums:
    """Noisy sums Z = X'y + noise of variance W.

    Attributes:
        design: X, the weight of a unit of a profile in each sum; axes `[profile, sum]`.
        values: Z; axes `[..., sum]`.
        variances: W; axes `[sum]`.
    """

    design: csr_array
    values: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, readings: Sequence[SumReading], profiles: Profiles, middle: float) -> PublishedSums:
        """Sums of distances of outcomes from the middle of their values.

        The sizes of profiles are public, so sums of distances follow from sums.
        """
        design = sum_design(readings, profiles)
        constants = middle * (profiles.sizes @ design)
        parts = [one.value.reshape(*one.value.shape[:-3], -1) for one in readings]
        return cls(
            design=design,
            values=_joined(parts) - constants,
            variances=_repeated(readings, [one.variance for one in readings]),
        )

    @classmethod
    def of_squares(cls, readings: Sequence[SumReading], profiles: Profiles) -> PublishedSums:
        """Sums of squared distances of outcomes from the middle, all of them published."""
        squares = [one.squares for one in readings if one.squares is not None]
        design = sum_design(readings, profiles)
        constants = _repeated(readings, [one.squares_constant for one in readings])
        parts = [one.reshape(*one.shape[:-3], -1) for one in squares]
        return cls(
            design=design,
            values=_joined(parts) + constants * (profiles.sizes @ design),
            variances=_repeated(readings, [one.squares_variance for one in readings]),
        )


def sum_design(readings: Sequence[SumReading], profiles: Profiles) -> csr_array:
    """X: the weight of each profile's cell in the sum that the profile is part of, or zero.

    Each reading has at most one sum that a profile is part of.
    """
    from scipy.sparse import csr_array

    columns = [_places(one, profiles) for one in readings]
    weights = [one.weights.ravel()[profiles.cells] for one in readings]
    offsets = np.cumsum([0, *n_sums(readings)])
    n_profiles = len(profiles.cells)
    if not readings:
        return csr_array((n_profiles, 0))
    entries = np.concatenate(weights).astype(np.float64)
    rows = np.tile(np.arange(n_profiles), len(readings))
    placed = np.concatenate(
        [offset + column for offset, column in zip(offsets, columns, strict=False)]
    )
    return csr_array((entries, (rows, placed)), shape=(n_profiles, offsets[-1]))


def arranged(readings: Sequence[SumReading]) -> list[SumReading]:
    """The same sums, those of cells read once, and the reading with most sums first."""
    cells = [one for one in readings if one.by is None]
    others = [one for one in readings if one.by is not None]
    merged = [_merged(cells)] if cells else []
    return sorted([*merged, *others], key=lambda one: -one.value.size)


def _merged(readings: list[SumReading]) -> SumReading:
    """Independent readings of the same sums, weighted by the inverse of their variances."""
    value, variance = _weighted([(one.value, one.variance) for one in readings])
    squared = [(one.squares, one.squares_variance) for one in readings if one.squares is not None]
    if not squared:
        return readings[0]._replace(value=value, variance=variance)
    squares, squares_variance = _weighted(squared)
    constants = [
        (np.asarray(one.squares_constant), one.squares_variance)
        for one in readings
        if one.squares is not None
    ]
    return readings[0]._replace(
        value=value,
        variance=variance,
        squares=squares,
        squares_variance=squares_variance,
        squares_constant=float(_weighted(constants)[0]),
    )


def _weighted(readings: list[tuple[FloatArray, float]]) -> tuple[FloatArray, float]:
    exact = [one for one in readings if one[1] == 0.0]
    if exact or len(readings) == 1:
        return (exact or readings)[0]
    total = sum(1 / variance for _, variance in readings)
    value = sum(value / variance for value, variance in readings) / total
    return np.asarray(value), 1 / total


def of_fold(readings: Sequence[SumReading], fold: int) -> tuple[SumReading, ...]:
    """The sums of one fold alone; those that are not split by fold are left out."""
    chosen = slice(fold, fold + 1)
    return tuple(
        one._replace(
            value=one.value[..., chosen, :],
            squares=None if one.squares is None else one.squares[..., chosen, :],
        )
        for one in readings
        if one.value.shape[-2] > 1
    )


def _places(reading: SumReading, profiles: Profiles) -> IntArray:
    """The sum of a reading that each profile is part of; sums go by group, fold and arm."""
    n_folds, n_arms = reading.value.shape[-2:]
    groups: IntArray | int = 0
    if reading.by is None:
        groups = profiles.clusters
    elif reading.by:
        groups = profiles.groups[reading.by]
    folds = profiles.folds if n_folds > 1 and profiles.folds is not None else 0
    return np.asarray((groups * n_folds + folds) * n_arms + profiles.arms)


def n_sums(readings: Sequence[SumReading]) -> list[int]:
    """How many sums each reading has."""
    return [math.prod(one.value.shape[-3:]) for one in readings]


def _joined(parts: list[FloatArray]) -> FloatArray:
    return np.concatenate(parts, axis=-1) if parts else np.zeros(0)


def _repeated(readings: Sequence[SumReading], numbers: list[float]) -> FloatArray:
    return np.repeat(numbers, n_sums(readings))


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


def sum_ridge(sums: PublishedSums, unit_noise: float) -> FloatArray:
    """W/v̄; rows without noise count for next to everything."""
    least = np.maximum(unit_noise, _LEAST_NOISE * sums.variances)
    return np.divide(sums.variances, least, out=np.zeros_like(least), where=least > 0)


Estimator = Literal["stratified", "unstratified"]
# What an estimate uses: rows combined with noisy sums and counts, or rows alone.
Use = Literal["everything", "rows"]


class KnownMeans(NamedTuple):
    """Means of cells that are better than those of rows.

    Attributes:
        means: As distances from the same number; axes `[..., cluster, arm]`.
        noise: The variance of the noise in them; axes `[cluster, arm]`.
    """

    means: FloatArray
    noise: FloatArray

    def of_arms(self, arms: list[int]) -> KnownMeans:
        """Those of some arms."""
        return KnownMeans(self.means[..., arms], self.noise[..., arms])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellMoments:
    """Sizes, means and spreads of each cell; axes `[..., cluster, arm]`.

    Attributes:
        sizes: Numbers of units.
        means: Mean (debiased) outcomes, as distances from any one number.
        squares: Sums of squared deviations from those means.
        noise: Sums of the estimated noise variances of units.
        asked: Numbers of units that were asked; None if all were.
        stands_for: Numbers of units that these stand for; None if all were asked.
    """

    sizes: IntArray
    means: FloatArray
    squares: FloatArray
    noise: FloatArray
    asked: IntArray | None = None
    stands_for: FloatArray | None = None

    def of_arms(self, arms: list[int]) -> CellMoments:
        """Some of the arms."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: terms[..., arms] for name, terms in every.items() if terms is not None}
        return CellMoments(**known)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EffectArrays:
    """Effects against control; axes `[..., treatment]`, in the order of `Layout.treatments`.

    Attributes:
        effects: Estimated average effects.
        variances: Estimated variances, of assignment and privacy together.
        privacy_variances: The part of them that privacy cost.
        control_means: The mean outcome of control, axes `[...]`; None if it is not estimated.
        control_variances: Its estimated variance.
        treated_means: The mean outcome of each treatment; None if they are not estimated.
        treated_variances: Their estimated variances.
        degrees: Degrees of freedom of the variances; None where these are known, not estimated.
    """

    effects: FloatArray
    variances: FloatArray
    privacy_variances: FloatArray
    control_means: FloatArray | None = None
    control_variances: FloatArray | None = None
    treated_means: FloatArray | None = None
    treated_variances: FloatArray | None = None
    degrees: FloatArray | None = None


# Of an arm that has no units.
NO_EFFECT = EffectArrays(
    effects=np.full(1, np.nan), variances=np.full(1, np.nan), privacy_variances=np.full(1, np.nan)
)


def total_moments(
    totals: CellTotals, layout: Layout, space: CategorySpace, metric: int
) -> CellMoments:
    """Moments of true outcomes, for the owner, from totals of cells.

    Args:
        totals: Sums of the metrics of every cell, and of their squares.
        layout: The cells.
        space: The categories.
        metric: Which metric.
    """
    lattice, middle = space.metric_lattice(), Ends.of(space, metric).middle
    unit, quarter = float(lattice.units[metric]), 4.0 ** lattice.shifts[metric] / 4
    sizes, sums = layout.sizes, totals.sums[..., metric]
    means = unit * sums / np.maximum(sizes, 1)
    spread = totals.squares[..., metric] * unit**2 * quarter - sizes * (means - middle) ** 2
    return CellMoments(
        sizes=sizes,
        means=means,
        squares=np.maximum(spread, 0.0),
        noise=np.zeros_like(means),
    )


def contrast_effects(read: ClusterContrasts, layout: Layout, ends: Ends) -> EffectArrays:
    """Stratified effects from a statistic alone (algNH, algNHT).

    Where the statistic estimates how outcomes spread, and little is left of that after noise, the
    sampling variance is taken as zero. Where it does not, it is the largest possible: a variable on
    an interval has variance at most (y_max − y_min)²/4 (Popoviciu).
    """
    sizes, weights = layout.sizes, _cluster_weights(layout.sizes)
    effects = (weights * read.contrasts).sum(axis=-2)
    privacy = np.broadcast_to((weights**2 * read.noise).sum(axis=-2), effects.shape)
    if read.spread is None or read.arm_noise is None:
        n_units = sizes.sum(axis=-1, keepdims=True)
        largest = ends.span**2 / 4 * n_units / np.maximum(n_units - 1, 1)
        sampling = _against_control(weights**2 * largest / sizes, layout, sign=1)
        return EffectArrays(
            effects=effects, variances=privacy + sampling, privacy_variances=privacy
        )
    sampling = _against_control(weights**2 * read.spread / sizes, layout, sign=1)
    of_means = read.arm_noise + np.maximum(read.spread, 0.0) / sizes
    arm_variances = (weights**2 * of_means).sum(axis=-2)
    return EffectArrays(
        effects=effects,
        variances=privacy + np.maximum(sampling, 0.0),
        privacy_variances=privacy,
        degrees=welch_degrees(arm_variances, _stratum_degrees(sizes), layout),
    )


def welch_degrees(arm_variances: FloatArray, arm_degrees: FloatArray, layout: Layout) -> FloatArray:
    """Degrees of freedom of the variance of a difference (Welch); axes `[..., treatment]`.

    (V₁ + V₀)²/(V₁²/ν₁ + V₀²/ν₀), never less than one; the smaller ν where both variances are zero.
    """
    variances = np.nan_to_num(arm_variances)
    uncertainty = variances**2 / arm_degrees
    treated, control = list(layout.treatments), [layout.control]
    above = (variances[..., treated] + variances[..., control]) ** 2
    below = uncertainty[..., treated] + uncertainty[..., control]
    least = np.minimum(arm_degrees[..., treated], arm_degrees[..., control])
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), least)


def _stratum_degrees(sizes: IntArray) -> FloatArray:
    """Degrees of freedom of the variance of each arm's stratified mean, if all units vary alike.

    Satterthwaite's, from sizes alone: (Σ v_c)²/Σ(v_c²/(n_ac − 1)), v_c = (n_c/n)²/n_ac.
    """
    parts = _cluster_weights(sizes) ** 2 / np.maximum(sizes, 1)
    uncertainty = (parts**2 / np.maximum(sizes - 1, 1)).sum(axis=-2)
    return np.asarray(parts.sum(axis=-2) ** 2 / uncertainty)


def _cluster_weights(sizes: IntArray) -> FloatArray:
    """n_c/n; axes `[..., cluster, 1]`."""
    cluster_sizes = sizes.sum(axis=-1, keepdims=True)
    return np.asarray(cluster_sizes / cluster_sizes.sum(axis=-2, keepdims=True))


def _against_control(terms: FloatArray, layout: Layout, *, sign: int) -> FloatArray:
    """Σ over clusters of treatment plus `sign` times control; axes `[..., treatment]`."""
    totals = terms.sum(axis=-2)
    treated = totals[..., list(layout.treatments)]
    return np.asarray(treated + sign * totals[..., [layout.control]])
