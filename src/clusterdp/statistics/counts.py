"""Noisy outcome counts: one histogram per cell, or one per arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.outcomes.space import ValueRange
from clusterdp.privacy.accounting import LossAtom, noisy_counts_loss
from clusterdp.statistics.base import (
    ClusterContrasts,
    DrawnStatistic,
    Histogram,
    NoisyStatistic,
    SumReading,
    list_column,
    lone_unit_squares,
    read_lists,
)
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import Arrays, CellTotals
    from clusterdp.statistics.noise import NoiseSource

# Below, noise is all zeros and hides nothing; above, it buries any count there is.
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-3, 1e12
_COLUMN = "noisy_counts"


class NoisyCounts(NoisyStatistic, frozen=True, kw_only=True, tag="counts"):
    """Outcome counts with discrete Laplace noise.

    Attributes:
        noise_scale: σ, the scale of the noise on every count.
        scope: "cluster" for one histogram per (cluster, arm), "population" for one per arm.
    """

    of_categories: ClassVar[bool] = True
    in_words: ClassVar[str] = "noisy counts of each outcome (`noisy_counts`)"

    noise_scale: float
    scope: Literal["cluster", "population"] = "cluster"

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "noise_scale", float(self.noise_scale))
        if not _SMALLEST_SCALE <= self.noise_scale <= _LARGEST_SCALE:
            raise ParameterError(
                f"noise_scale must lie between {_SMALLEST_SCALE:g} and {_LARGEST_SCALE:g}, "
                f"got {self.noise_scale:g}"
            )
        if self.scope not in ("cluster", "population"):
            raise ParameterError(f'scope must be "cluster" or "population", got {self.scope!r}')

    @property
    def estimates_effects(self) -> bool:
        """Counts of whole arms compare no clusters."""
        return self.scope == "cluster"

    def parameters(self) -> dict[str, float]:
        """The scale of the noise."""
        return {"noise_scale": self.noise_scale}

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss, largest first: 2/σ at most."""
        return noisy_counts_loss(self.noise_scale)

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnCounts:
        """Noisy counts from true ones."""
        counts = totals.counts
        if self.scope == "population":
            grouped = counts.sum(axis=-3)
        else:
            grouped = counts.reshape(*counts.shape[:-3], -1, counts.shape[-1])
        noisy = add_noise(grouped, self.noise_scale)
        return DrawnCounts(statistic=self, noisy_counts=noisy, layout=layout, space=space)

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnCounts:
        """Noisy counts from the array that `DrawnCounts.arrays` gave."""
        return DrawnCounts(statistic=self, noisy_counts=arrays[_COLUMN], layout=layout, space=space)

    def column_types(self, space: CategorySpace) -> dict[str, pl.DataType]:  # noqa: ARG002 - as the others
        """One column of lists, in the order of the outcome space."""
        import polars as pl

        return {_COLUMN: pl.List(pl.Int64)}

    def read(self, cells: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnCounts:
        """Noisy counts from the published table of cells."""
        groups, _ = self.groups(layout)
        noisy = read_lists(cells[_COLUMN], groups)
        return DrawnCounts(statistic=self, noisy_counts=noisy, layout=layout, space=space)

    def groups(self, layout: Layout) -> tuple[IntArray, IntArray]:
        """The group of each cell, axes `[cluster, arm]`, and the groups' sizes, axes `[group]`.

        An empty cell has counts as well, and a prior that no row is drawn with; its size is 1.
        """
        n_clusters, n_arms = layout.sizes.shape
        if self.scope == "population":
            of_arms = np.maximum(layout.sizes.sum(axis=0), 1)
            return np.tile(np.arange(n_arms), (n_clusters, 1)), of_arms
        sizes = np.maximum(layout.sizes.ravel(), 1)
        return np.arange(n_clusters * n_arms).reshape(n_clusters, n_arms), sizes

    def cell_sum_variance(self, space: CategorySpace, metric: int = 0) -> float | None:
        """The noise variance of cell sums; None for counts of whole arms."""
        if self.scope == "population":
            return None
        return self.sum_variance(space.metric_values()[metric])

    def contrast_variance(
        self, layout: Layout, space: CategorySpace, metric: int = 0
    ) -> FloatArray:
        """prop:NH with correction C3: Σy²·Var(noise)·(1/n₀² + 1/n_a²) for every cluster."""
        return layout.against_control(self.uncentred_variance(layout, space, metric))

    def uncentred_variance(
        self, layout: Layout, space: CategorySpace, metric: int = 0
    ) -> FloatArray:
        """The noise variance of Σ y·count/n, the paper's cell means: Σy²·Var(noise)/n²."""
        total = (space.metric_values()[metric] ** 2).sum() * noise_variance(self.noise_scale)
        return np.asarray(total / layout.sizes**2)

    def sum_variance(self, numbers: FloatArray) -> float:
        """The noise variance of the sum of some numbers, one per outcome, over a group."""
        spread = float(((numbers - numbers.mean()) ** 2).sum())
        return noise_variance(self.noise_scale) * spread


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnCounts(DrawnStatistic):
    """Noisy outcome counts.

    Attributes:
        statistic: How they were drawn.
        noisy_counts: Axes `[..., group, outcome]`.
        layout: Their cells.
        space: The outcomes they count.
    """

    statistic: NoisyCounts
    noisy_counts: IntArray
    layout: Layout
    space: CategorySpace

    def arrays(self) -> Arrays:
        """The noisy counts."""
        return {_COLUMN: self.noisy_counts}

    def to_columns(self) -> list[pl.Series]:
        """One column of lists; cells of a group repeat the group's counts."""
        return [list_column(_COLUMN, self.noisy_counts, self.histogram().groups)]

    def histogram(self) -> Histogram:
        """The counts, with the group of each cell."""
        groups, sizes = self.statistic.groups(self.layout)
        variance = noise_variance(self.statistic.noise_scale)
        return Histogram(self.noisy_counts, sizes, groups, variance)

    def sum_readings(self, metric: int = 0) -> tuple[SumReading, ...]:
        """Sums of a metric; see `readings_of`."""
        return self.readings_of(self.space.metric_values()[metric], None)

    def readings_of(
        self,
        values: FloatArray,
        combination: FloatArray | None,  # noqa: ARG002 - counts determine every function
    ) -> tuple[SumReading, ...]:
        """Sums of cells, or of arms, each unit with weight one.

        Sizes are public. So a constant may be subtracted from the numbers that are added up, and
        added back afterwards; the noise is least if the constant is their average.
        """
        sizes, squares = self.layout.sizes, (values - ValueRange.from_values(values).middle) ** 2
        by_cluster = self.statistic.scope == "cluster"
        noisy = self._by_cell() if by_cluster else self.noisy_counts[..., np.newaxis, :, :]
        n_units = sizes if by_cluster else sizes.sum(axis=0, keepdims=True)

        def read(numbers: FloatArray) -> FloatArray:
            average = numbers.mean()
            total = noisy @ (numbers - average) + average * n_units  # [..., group, arm]
            return np.asarray(total[..., np.newaxis, :])

        return (
            SumReading(
                by=None if by_cluster else (),
                weights=np.ones_like(sizes),
                value=read(values),
                variance=self.statistic.sum_variance(values),
                squares=read(squares),
                squares_variance=self.statistic.sum_variance(squares),
            ),
        )

    def contrasts(self, layout: Layout, metric: int = 0) -> ClusterContrasts:
        """Differences in means from counts alone (algNH).

        The noise of a cell's mean is known: Σy²·Var(noise)/n². Subtracting what noise adds to
        second moments gives the variance of outcomes.
        """
        values, sizes = self.space.metric_values()[metric], layout.sizes
        noisy = self._by_cell()
        means = noisy @ values / sizes
        arm_noise = self.statistic.uncentred_variance(layout, self.space, metric)
        spread = noisy @ values**2 / sizes - means**2 + arm_noise
        lone = lone_unit_squares(sizes, means) - arm_noise
        treated, control = list(layout.treatments), [layout.control]
        return ClusterContrasts(
            contrasts=means[..., treated] - means[..., control],
            noise=layout.against_control(arm_noise),
            arm_noise=arm_noise,
            spread=np.where(sizes > 1, spread * sizes / np.maximum(sizes - 1, 1), lone),
        )

    def _by_cell(self) -> IntArray:
        return self.noisy_counts[..., self.histogram().groups, :]
