"""All published sums of a metric as one sparse design: which profiles are in which sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scipy.sparse import csr_array

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.profiles import Profiles
    from clusterdp.statistics.base import SumReading


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
