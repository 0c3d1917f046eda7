"""Calibration: cell means from noisy sums and counts, to combine with the means of rows.

Noisy sums and counts estimate a cell's mean with an error of order 1/n; rows do so with an error of
order 1/√n. Given the noise of the summary, rows are unbiased. So the two errors are
uncorrelated, and a fixed combination of the two means is unbiased. Its weights are computed from
public numbers alone. For a segment S of a cell the estimate is
mean_S − κ(mean of all rows − mean by the summary), of variance v/n_S − 2κv/n + κ²(v/n + w): v is
the noise variance of a unit and w the noise variance of the summary's mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.design import public_noise_variance
from clusterdp.channels.noise import noise_variance
from clusterdp.channels.statistics import CountSummary, SumSummary, sum_noise
from clusterdp.mechanisms.parts import NoisyCounts

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.channels.statistics import Summary
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism

# Stands for a variance of zero, so that 1/variance exists.
_ZERO_VARIANCE = 1e-100


class Reading(NamedTuple):
    """An unbiased estimate for every cell, and the known variance of its noise."""

    value: FloatArray  # [..., cluster, arm]
    variance: FloatArray  # [cluster, arm]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellReadings:
    """What noisy sums and counts estimate for every cell.

    Attributes:
        means: Mean outcomes.
        squares: Mean squared distances of outcomes from `centre`.
        centre: The middle of the outcome space.
        shrinkage: κ, the share of the way that means of rows are moved towards `means`; public.
            Axes `[cluster, arm]`.
    """

    means: Reading
    squares: Reading
    centre: float
    shrinkage: FloatArray


def shrinkage(row_variance: FloatArray | float, summary_variance: FloatArray) -> FloatArray:
    """κ = v/(v + w): the weight of the summary's mean, from the variances of both means."""
    return np.asarray(row_variance / (row_variance + summary_variance))


def summary_mean_variance(mechanism: Mechanism, layout: Layout) -> FloatArray | None:
    """w, the noise variance of cell means by sums and counts; axes `[cluster, arm]`.

    None if the mechanism publishes neither for single cells.
    """
    variances = []
    if mechanism.sums is not None:
        variances.append(_sum_variance(layout, mechanism.sums.epsilon))
    counts = _cell_counts(mechanism)
    if counts is not None:
        variances.append(_count_variance(layout, layout.space.as_array(), counts.noise_scale))
    return np.asarray(1 / sum(1 / one for one in variances)) if variances else None


def read_cells(
    mechanism: Mechanism, layout: Layout, summary: Summary | None, sums: SumSummary | None
) -> CellReadings | None:
    """Readings of every cell from its noisy sums and counts.

    None if there are no rows to combine with, or neither sums nor counts of single cells.
    """
    readings = []
    if sums is not None and mechanism.sums is not None:
        readings.append(_read_sums(sums, layout, mechanism.sums.epsilon))
    if isinstance(summary, CountSummary) and _cell_counts(mechanism) is not None:
        readings.append(_read_counts(summary, layout))
    if not readings or not mechanism.releases_rows:
        return None
    means, squares = (_combined(list(each)) for each in zip(*readings, strict=True))
    row_variance = public_noise_variance(mechanism, layout.space) / layout.sizes
    return CellReadings(
        means=means,
        squares=squares,
        centre=_middle(layout.space),
        shrinkage=shrinkage(row_variance, means.variance),
    )


def _middle(space: OutcomeSpace) -> float:
    """Half way between the smallest and the largest outcome."""
    return (space.values[0] + space.values[-1]) / 2


def _cell_counts(mechanism: Mechanism) -> NoisyCounts | None:
    """The noisy counts of single cells, if any; counts of whole arms estimate no cell's mean."""
    counts = mechanism.summary
    return counts if isinstance(counts, NoisyCounts) and counts.scope == "cluster" else None


def _combined(readings: list[Reading]) -> Reading:
    """Independent readings, weighted by the inverse of their known variances."""
    total = sum(1 / one.variance for one in readings)
    value = sum(one.value / one.variance for one in readings) / total
    return Reading(np.asarray(value), np.asarray(1 / total))


def _read_sums(sums: SumSummary, layout: Layout, epsilon: float) -> tuple[Reading, Reading]:
    """Means and mean squares by noisy sums."""
    unit = float(layout.space.lattice()[0])
    sizes = layout.sizes
    means = Reading(unit * sums.sums / sizes, _sum_variance(layout, epsilon))
    scale = sum_noise(layout.space, epsilon).of_squares
    if sums.squares is None or scale is None:
        # Two outcomes are equally far from the middle, so the mean square has no noise.
        half = np.full(sizes.shape, (layout.space.span / 2) ** 2)
        return means, Reading(half, np.full(sizes.shape, _ZERO_VARIANCE))
    quarter = unit**2 / 4
    variance = quarter**2 * noise_variance(scale) / sizes**2
    return means, Reading(quarter * sums.squares / sizes, variance)


def _read_counts(summary: CountSummary, layout: Layout) -> tuple[Reading, Reading]:
    """Means and mean squares by noisy counts.

    The size of a cell is public. So a constant may be subtracted from the numbers that are averaged
    and added back afterwards; the noise is least if the constant is their average.
    """
    values = layout.space.as_array()
    noisy = summary.noisy_counts[..., summary.groups, :]

    def read(numbers: FloatArray) -> Reading:
        average = numbers.mean()
        value = noisy @ (numbers - average) / layout.sizes + average
        return Reading(value, _count_variance(layout, numbers, summary.noise_scale))

    return read(values), read((values - _middle(layout.space)) ** 2)


def _sum_variance(layout: Layout, epsilon: float) -> FloatArray:
    unit = float(layout.space.lattice()[0])
    scale = sum_noise(layout.space, epsilon).of_sums
    return np.asarray(unit**2 * noise_variance(scale) / layout.sizes**2)


def _count_variance(layout: Layout, numbers: FloatArray, noise_scale: float) -> FloatArray:
    spread = ((numbers - numbers.mean()) ** 2).sum()
    variance = noise_variance(noise_scale) * spread / layout.sizes**2
    return np.asarray(np.maximum(variance, _ZERO_VARIANCE))
