"""Noisy totals of every arm and fold: of everyone, or of the groups of a breakdown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clusterdp.errors import FormatError, ParameterError
from clusterdp.experiment.weights import LARGEST_WEIGHT, stratified_weights
from clusterdp.statistics.base import MetricSums
from clusterdp.statistics.metric_sums import DrawnMetricSums, NoisyMetricSums
from clusterdp.statistics.sum_noise import check_fits

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.statistics.base import Arrays, CellTotals, SumReading
    from clusterdp.statistics.noise import NoiseSource


_LEAST_NOISE, _MOST_NOISE = 4.0**-8, 4.0**12


def noise_in_rows(level_epsilon: FloatArray, row_epsilon: FloatArray) -> FloatArray:
    """How many rows have as much noise as a total: N = 4/ε²/v, to a power of four.

    The total is of two folds, at ε of its level; v is the noise of a row by Warner's randomized
    response at ε of the rows, e^ε/(e^ε − 1)², whatever the outcomes are.
    """
    with np.errstate(divide="ignore", over="ignore"):
        row = np.exp(-row_epsilon) / np.expm1(-row_epsilon) ** 2
        power = np.rint(np.log(4 / level_epsilon**2 / row) / np.log(4))
    return np.asarray(4.0 ** np.clip(power, -8, 12))


class NoisyTotals(NoisyMetricSums, frozen=True, kw_only=True, tag="totals"):
    """Weighted sums of metrics by group, fold and arm, see `NoisyMetricSums`.

    Each unit is part of one sum per metric, with the public weight of its cell, see
    `stratified_weights`.

    Attributes:
        by: The public columns that groups are of; none for everyone.
        noise_in_rows: How many rows have as much noise as a total of weight one, about; it decides
            how weights are capped.
    """

    in_words: ClassVar[str] = "noisy totals of each metric"
    largest_weight: ClassVar[int] = LARGEST_WEIGHT

    by: tuple[str, ...] = ()
    noise_in_rows: float = 64.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _LEAST_NOISE <= self.noise_in_rows <= _MOST_NOISE:
            raise ParameterError(
                f"noise_in_rows must lie between {_LEAST_NOISE:g} and {_MOST_NOISE:g}, got "
                f"{self.noise_in_rows}"
            )

    @property
    def label(self) -> str:
        """Totals, and what they are by."""
        return totals_label(self.by)

    @property
    def level(self) -> tuple[str, ...]:
        """The columns that its groups are of."""
        return self.by

    def weights(self, layout: Layout) -> IntArray:
        """What a unit of each cell counts; axes `[cluster, arm]`."""
        return stratified_weights(layout, self.noise_in_rows)

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {f"epsilon of {self.label}": self.epsilon}

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if there is no such breakdown, or sums would not fit 64 bits."""
        layout.n_groups(self.by)
        remedy = "totals (totals_share=0, --totals-share 0)"
        if self.by:
            remedy = f"the breakdown by {', '.join(self.by)}"
        most = LARGEST_WEIGHT * int(layout.sizes.sum(axis=0).max())
        check_fits(space, self.noise(space), most, remedy)

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnTotals:
        """Noisy totals from true ones."""
        self.check(layout, space)
        drawn = self.with_noise(self._true(totals, layout), space, add_noise)
        return self.restore(drawn, layout, space)

    def _true(self, totals: CellTotals, layout: Layout) -> MetricSums:
        """The totals as they were counted; or, where only cells were, those of everyone."""
        if self.by in totals.groups or self.by or layout.folds > 1:
            return totals.groups[self.by]
        weights = self.weights(layout)[..., np.newaxis]
        cells = (totals.sums, totals.squares)
        return MetricSums(
            *((weights * part).sum(axis=-3)[..., np.newaxis, np.newaxis, :, :] for part in cells)
        )

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnTotals:
        """Noisy totals from the arrays that `DrawnTotals.arrays` gave."""
        return DrawnTotals(statistic=self, **DrawnTotals.parts(arrays, layout, space))

    def read(self, table: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnTotals:
        """Noisy totals from their rows of the published table of groups.

        There is one row for each group, fold and arm, in this order.
        """
        shape = (layout.n_groups(self.by), layout.folds, len(layout.arms))
        if len(table) != math.prod(shape):
            raise FormatError("the totals are not one for every group, fold and arm")
        return self.restore(self.read_columns(table, space, shape), layout, space)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnTotals(DrawnMetricSums):
    """Noisy totals; axes of sums `[..., group, fold, arm, metric]`."""

    statistic: NoisyTotals

    @property
    def level(self) -> tuple[str, ...]:
        """The columns that its groups are of."""
        return self.statistic.by

    def sum_readings(self, metric: int = 0) -> tuple[SumReading, ...]:
        """The totals, with the weight that units of each cell have in them."""
        return (
            self.statistic.scale(self.space, metric).reading(
                by=self.statistic.by,
                weights=self.statistic.weights(self.layout),
                sums=self.sums[..., metric],
                squares=self.squares_of(metric),
            ),
        )


def totals_label(by: tuple[str, ...]) -> str:
    """What totals by some columns are called."""
    return f"totals by {', '.join(by)}" if by else "totals"
