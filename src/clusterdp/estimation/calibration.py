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
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.experiment.category_space import Ends
from clusterdp.statistics.base import Reading

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import Statistics
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.statistics.base import CellMeans


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellReadings:
    """What noisy sums and counts estimate for every cell.

    Attributes:
        means: Mean outcomes.
        squares: Mean squared distances of outcomes from `centre`; None if none are published.
        centre: The middle of the metric's values.
        shrinkage: κ, the share of the way that means of rows are moved towards `means`; public.
            Axes `[cluster, arm]`.
    """

    means: Reading
    squares: Reading | None
    centre: float
    shrinkage: FloatArray


def shrinkage(row_variance: FloatArray | float, summary_variance: FloatArray) -> FloatArray:
    """κ = v/(v + w): the weight of the statistics' mean, from the variances of both means."""
    return np.asarray(row_variance / (row_variance + summary_variance))


def summary_mean_variance(
    mechanism: Mechanism, layout: Layout, space: CategorySpace, metric: int = 0
) -> FloatArray | None:
    """w, the noise variance of cell means by all statistics together; axes `[cluster, arm]`.

    None if the mechanism publishes none for single cells.
    """
    variances = [one.mean_variance(layout, space, metric) for one in mechanism.statistics]
    precisions = [1 / one for one in variances if one is not None]
    return np.asarray(1 / sum(precisions)) if precisions else None


def read_cells(
    mechanism: Mechanism,
    layout: Layout,
    space: CategorySpace,
    statistics: Statistics,
    metric: int = 0,
) -> CellReadings | None:
    """Readings of every cell from its noisy statistics.

    None if there are no rows to combine with, or no statistics of single cells.
    """
    every = (one.cell_means(metric) for one in statistics)
    readings = [one for one in every if one is not None]
    if not readings or not mechanism.releases_rows:
        return None
    means = _combined([one.means for one in readings])
    row_variance = public_noise_variance(mechanism, space, metric) / layout.sizes
    return CellReadings(
        means=means,
        squares=_combined(squares) if (squares := _known_squares(readings)) else None,
        centre=Ends.of(space, metric).middle,
        shrinkage=shrinkage(row_variance, means.variance),
    )


def public_noise_variance(mechanism: Mechanism, space: CategorySpace, metric: int = 0) -> float:
    """The noise variance of a unit as far as it is public: of a channel made without statistics.

    It decides how rows are weighed against sums, so nothing noisy may go into it.
    """
    rows = mechanism.settled_rows(space)
    return float(rows.public_channel(space).noise_variance(metric)[0] @ rows.public_prior(space))


def _known_squares(readings: list[CellMeans]) -> list[Reading]:
    return [one.squares for one in readings if one.squares is not None]


def _combined(readings: list[Reading]) -> Reading:
    """Independent readings, weighted by the inverse of their known variances."""
    total = sum(1 / one.variance for one in readings)
    value = sum(one.value / one.variance for one in readings) / total
    return Reading(np.asarray(value), np.asarray(1 / total))
