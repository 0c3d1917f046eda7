"""Using everything that was paid for: what a release tells of each cell beside its rows.

Noisy sums and noisy counts tell a cell's mean with an error of order 1/n, rows with one of order
1/√n. Given the noise of the summary, rows are unbiased, so their errors are uncorrelated, and a
fixed combination of the two is unbiased. Its weights are made of public numbers alone. For a
segment S of a cell the estimate is mean_S − κ(mean of all rows − mean by the summary), of variance
v/n_S − 2κv/n + κ²(v/n + w): v is the noise variance of a unit and w that of the summary's mean.
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


# The variance of what is certain, so that it can be weighed like anything else.
_CERTAIN = 1e-100


class Told(NamedTuple):
    """An unbiased reading of every cell, and the known variance of its noise."""

    value: FloatArray  # [..., cluster, arm]
    variance: FloatArray  # [cluster, arm]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellKnowledge:
    """What a release tells of cells beside its rows.

    Attributes:
        means: Mean outcomes.
        squares: Mean squared distances of outcomes from `centre`.
        centre: The middle of the outcome space.
        trust: κ, how far means by rows are moved towards `means`; public. Axes `[cluster, arm]`.
    """

    means: Told
    squares: Told
    centre: float
    trust: FloatArray


def trust(row_variance: FloatArray | float, summary_variance: FloatArray) -> FloatArray:
    """κ = v/(v + w): the weight of the summary, from the variances of both means."""
    return np.asarray(row_variance / (row_variance + summary_variance))


def summary_mean_variance(mechanism: Mechanism, layout: Layout) -> FloatArray | None:
    """w, the noise variance of cell means by the summary; axes `[cluster, arm]`. None if untold."""
    parts = []
    if mechanism.sums is not None:
        parts.append(_sum_variance(layout, mechanism.sums.epsilon))
    if _counts_tell(mechanism):
        assert isinstance(mechanism.summary, NoisyCounts)  # noqa: S101 - as `_counts_tell` says
        parts.append(_count_variance(layout, mechanism.summary.noise_scale))
    if not parts:
        return None
    return np.asarray(1 / sum(1 / part for part in parts))


def know_cells(
    mechanism: Mechanism, layout: Layout, summary: Summary | None, sums: SumSummary | None
) -> CellKnowledge | None:
    """What the summaries of a release tell of its cells; None where they tell nothing."""
    readings = []
    if sums is not None and mechanism.sums is not None:
        readings.append(_read_sums(sums, layout, mechanism.sums.epsilon))
    if isinstance(summary, CountSummary) and _counts_tell(mechanism):
        readings.append(_read_counts(summary, layout))
    if not readings or not mechanism.releases_rows:
        return None
    means = _combined([mean for mean, _ in readings])
    squares = _combined([square for _, square in readings])
    row_variance = public_noise_variance(mechanism, layout.space) / layout.sizes
    return CellKnowledge(
        means=means,
        squares=squares,
        centre=middle(layout.space),
        trust=trust(row_variance, means.variance),
    )


def middle(space: OutcomeSpace) -> float:
    """Half way between the least and the largest outcome."""
    return (space.values[0] + space.values[-1]) / 2


def _counts_tell(mechanism: Mechanism) -> bool:
    """Whether there are counts of single cells: those of whole arms tell no cell's mean."""
    return isinstance(mechanism.summary, NoisyCounts) and mechanism.summary.scope == "cluster"


def _combined(told: list[Told]) -> Told:
    """Independent readings, weighed by their known variances."""
    total = sum(1 / one.variance for one in told)
    value = sum(one.value / one.variance for one in told) / total
    return Told(np.asarray(value), np.asarray(1 / total))


def _read_sums(sums: SumSummary, layout: Layout, epsilon: float) -> tuple[Told, Told]:
    unit = float(layout.space.lattice()[0])
    sizes = layout.sizes
    means = Told(unit * sums.sums / sizes, _sum_variance(layout, epsilon))
    scale = sum_noise(layout.space, epsilon).of_squares
    if sums.squares is None or scale is None:
        # Two outcomes are equally far from the middle: the mean square is certain.
        half = np.full(sizes.shape, (layout.space.span / 2) ** 2)
        return means, Told(half, np.full(sizes.shape, _CERTAIN))
    quarter = unit**2 / 4
    squares = Told(quarter * sums.squares / sizes, quarter**2 * noise_variance(scale) / sizes**2)
    return means, squares


def _read_counts(summary: CountSummary, layout: Layout) -> tuple[Told, Told]:
    """Means and mean squares by noisy counts.

    How many units a cell has is known, so a number that is the same for all outcomes may be taken
    out of what is counted, and put back times the size: the noise is least for the average.
    """
    sizes, values = layout.sizes, layout.space.as_array()
    noisy = summary.noisy_counts[..., summary.groups, :]
    noise = noise_variance(summary.noise_scale)
    told = []
    for counted in (values, (values - middle(layout.space)) ** 2):
        average = counted.mean()
        spread = ((counted - average) ** 2).sum()
        variance = np.maximum(noise * spread / sizes**2, _CERTAIN)
        told.append(Told(noisy @ (counted - average) / sizes + average, variance))
    return told[0], told[1]


def _sum_variance(layout: Layout, epsilon: float) -> FloatArray:
    unit = float(layout.space.lattice()[0])
    scale = sum_noise(layout.space, epsilon).of_sums
    return np.asarray(unit**2 * noise_variance(scale) / layout.sizes**2)


def _count_variance(layout: Layout, noise_scale: float) -> FloatArray:
    values = layout.space.as_array()
    spread = ((values - values.mean()) ** 2).sum()
    return np.asarray(noise_variance(noise_scale) * spread / layout.sizes**2)
