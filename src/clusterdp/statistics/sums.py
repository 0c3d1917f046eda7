"""Noisy sums of every cell, metric by metric: what estimates from rows are calibrated by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clusterdp.statistics.base import MetricSums, SumReading
from clusterdp.statistics.metric_sums import DrawnMetricSums, NoisyMetricSums
from clusterdp.statistics.sum_noise import check_fits

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.statistics.base import Arrays, CellTotals
    from clusterdp.statistics.noise import NoiseSource


class NoisySums(NoisyMetricSums, frozen=True, kw_only=True, tag="sums"):
    """Each cell's sums of metrics, see `NoisyMetricSums`; every unit counts once."""

    in_words: ClassVar[str] = "the noisy sum of each metric (`noisy_sum`)"

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {"epsilon of sums": self.epsilon}

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if sums would not fit 64 bits."""
        remedy = "sums (sums_share=0, --sums-share 0)"
        check_fits(space, self.noise(space), int(layout.sizes.max()), remedy)

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnSums:
        """Noisy sums from true ones."""
        self.check(layout, space)
        drawn = self.with_noise(MetricSums(totals.sums, totals.squares), space, add_noise)
        return self.restore(drawn, layout, space)

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnSums:
        """Noisy sums from the arrays that `DrawnSums.arrays` gave."""
        return DrawnSums(statistic=self, **DrawnSums.parts(arrays, layout, space))

    def read(self, table: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnSums:
        """Noisy sums from the published table of cells."""
        return self.restore(self.read_columns(table, space, layout.sizes.shape), layout, space)

    def cell_sum_variance(self, space: CategorySpace, metric: int = 0) -> float:
        """The noise variance of cell sums."""
        return self.scale(space, metric).variance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnSums(DrawnMetricSums):
    """Noisy sums of every cell; axes of sums `[..., cluster, arm, metric]`."""

    statistic: NoisySums

    def sum_readings(self, metric: int = 0) -> tuple[SumReading, ...]:
        """The sums of every cell, each unit with weight one."""
        squares = self.squares_of(metric)
        return (
            self.statistic.scale(self.space, metric).reading(
                by=None,
                weights=np.ones_like(self.layout.sizes),
                sums=self.sums[..., np.newaxis, :, metric],
                squares=None if squares is None else squares[..., np.newaxis, :],
            ),
        )
