"""Noisy totals of every arm and fold: of everyone, or of the groups of a breakdown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from clusterdp.errors import FormatError
from clusterdp.experiment.weights import LARGEST_WEIGHT, stratified_weights
from clusterdp.statistics.metric_sums import DrawnMetricSums, NoisyMetricSums
from clusterdp.statistics.sum_noise import check_fits

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.statistics.base import Arrays, CellTotals, SumReading
    from clusterdp.statistics.noise import NoiseSource


class NoisyTotals(NoisyMetricSums, frozen=True, kw_only=True, tag="totals"):
    """Weighted sums of metrics by group, fold and arm, see `NoisyMetricSums`.

    Each unit is part of one sum per metric, with the public weight of its cell, see
    `stratified_weights`.

    Attributes:
        by: The public columns that groups are of; none for everyone.
    """

    in_words: ClassVar[str] = "noisy totals of each metric"
    largest_weight: ClassVar[int] = LARGEST_WEIGHT

    by: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Totals, and what they are by."""
        return f"totals by {', '.join(self.by)}" if self.by else "totals"

    @property
    def level(self) -> tuple[str, ...]:
        """The columns that its groups are of."""
        return self.by

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
        drawn = self.with_noise(totals.groups[self.by], space, add_noise)
        return self.restore(drawn, layout, space)

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
                weights=stratified_weights(self.layout),
                sums=self.sums[..., metric],
                squares=self.squares_of(metric),
            ),
        )
