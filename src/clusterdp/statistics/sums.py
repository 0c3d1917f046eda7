"""Noisy sums of metrics: of every cell, or of every arm and fold of everyone or of a breakdown.

Estimates from rows are calibrated by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from clusterdp.cells.layout import LARGEST_WEIGHT, stratified_weights
from clusterdp.errors import FormatError, ParameterError
from clusterdp.privacy.accounting import LossAtom, any_loss, checked_epsilon
from clusterdp.statistics._sum_noise import SumNoise, check_fits, squares_unit, sum_noise
from clusterdp.statistics.base import (
    DrawnStatistic,
    NoisyStatistic,
    SumReading,
    combined,
    square_terms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import Arrays, CellTotals, SumPair
    from clusterdp.statistics.noise import NoiseSource


_SUMS, _SQUARES = "noisy_sum", "noisy_squares"
# The published integers; next to them, sums are published as numbers of the metric.
_INTEGERS = "noisy_sum_in_units"


class NoisyMetricSums(NoisyStatistic, frozen=True, kw_only=True):
    """Sums of metrics and of their squares, with noise as in `_sum_noise.py`.

    Sums are in the units of the metrics' lattice; squares are of twice the distance from the
    middle of a metric's values, in those units.

    Attributes:
        epsilon: What all of them cost together, of all questions.
        largest_weight: The most that a unit counts in a sum.
    """

    of_everyone: ClassVar[bool] = True
    largest_weight: ClassVar[int] = 1
    # They calibrate rows; nothing is estimated from them alone.
    estimates_effects: ClassVar[bool] = False

    epsilon: float

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", checked_epsilon(self.epsilon))

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss, largest first: ε at most."""
        return any_loss(self.epsilon)

    def noise(self, space: CategorySpace) -> SumNoise:
        """The noise at which all sums and squares together cost ε."""
        return sum_noise(space, self.epsilon, self.largest_weight)

    def weights(self, layout: Layout) -> IntArray:
        """What a unit of each cell counts; axes `[cluster, arm]`."""
        return np.ones_like(layout.sizes)

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """The axes of sums, but for the metric."""
        return layout.sizes.shape

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:
        """The unit of each metric's sums, and the law of their noise in it."""
        return self.noise(space).facts(space)

    def column_types(self, space: CategorySpace) -> dict[str, pl.DataType]:
        """Columns of lists by metric: sums, the same in units, and squares where there are any."""
        import polars as pl

        squares = [_SQUARES] if any(space.metric_lattice().squared) else []
        integers = dict.fromkeys([_INTEGERS, *squares], pl.List(pl.Int64))
        return {_SUMS: pl.List(pl.Float64), **integers}

    def lengths(self, space: CategorySpace) -> dict[str, int]:
        """How many numbers the lists of each column have."""
        squared = space.metric_lattice().squared
        return {_SUMS: len(squared), _INTEGERS: len(squared), _SQUARES: sum(squared)}

    def draw_together(
        self,
        totals: Sequence[CellTotals],
        layout: Layout,
        spaces: Sequence[CategorySpace],
        add_noise: NoiseSource,
    ) -> tuple[DrawnMetricSums, ...]:
        """Noisy sums of every question, from true ones; spaces must know each other."""
        if tuple(spaces[0].together) != tuple(one.together[one.place] for one in spaces):
            raise ValueError("sums are drawn for all questions of a release, in their order")
        for space in spaces:
            self.check(layout, space)
        noise = self.noise(spaces[0])
        pairs = [self.true_sums(one, layout) for one in totals]
        true, squares = (np.concatenate(parts, axis=-1) for parts in zip(*pairs, strict=True))
        squared = [one.metric_lattice().squared for one in spaces]
        ends = np.cumsum([len(one) for one in squared])[:-1]
        drawn = [
            {_SUMS: one} for one in np.split(noise.add(noise.of_sums, true, add_noise), ends, -1)
        ]
        if noise.of_squares:
            noisy = noise.add(noise.of_squares, squares, add_noise)
            parts = np.split(noisy, np.cumsum([sum(one) for one in squared])[:-1], -1)
            for arrays, one in zip(drawn, parts, strict=True):
                arrays.update({_SQUARES: one} if one.shape[-1] else {})
        return tuple(map(self.restore, drawn, [layout] * len(drawn), spaces))

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnMetricSums:
        """Noisy sums of a release of one question, from true ones."""
        return self.draw_together([totals], layout, [space], add_noise)[0]

    def true_sums(self, totals: CellTotals, layout: Layout) -> SumPair:
        """What noise is added to."""
        raise NotImplementedError

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnMetricSums:
        """Noisy sums from the arrays that `DrawnMetricSums.arrays` gave."""
        sums, squares = arrays[_SUMS], arrays.get(_SQUARES)
        return DrawnMetricSums(
            statistic=self, sums=sums, squares=squares, layout=layout, space=space
        )

    def read(self, table: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnMetricSums:
        """Noisy sums from a published table, whose rows are in the order of the axes.

        Raises:
            FormatError: If there is not one row for each, or sums are not what they are in units.
        """
        shape, lengths = self.shape(layout), self.lengths(space)
        if len(table) != math.prod(shape):
            raise FormatError("the totals are not one for every group, fold and arm")
        read = {
            name: table[name].list.to_array(lengths[name]).to_numpy().reshape(*shape, lengths[name])
            for name in self.column_types(space)
        }
        published, sums = read.pop(_SUMS), read.pop(_INTEGERS)
        if not np.array_equal(published, in_metric(sums, space)):
            raise FormatError(f"{_SUMS!r} does not match {_INTEGERS!r}")
        return self.restore({_SUMS: sums, **read}, layout, space)


def in_metric(sums: IntArray, space: CategorySpace) -> FloatArray:
    """Integers as sums of metrics; last axis `[metric]`."""
    units = np.array([float(unit) for unit in space.metric_lattice().units])
    return np.asarray(units * sums, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnMetricSums(DrawnStatistic):
    """Noisy sums of metrics.

    Attributes:
        statistic: How they were drawn.
        sums: The sums; axes `[..., cluster, arm, metric]` of cells, `[..., group, fold, arm,
            metric]` of totals.
        squares: Those of the metrics that have them, in their order; None if none has.
        layout: Their cells.
        space: The categories they add up.
    """

    statistic: NoisyMetricSums
    sums: IntArray
    squares: IntArray | None
    layout: Layout
    space: CategorySpace

    @property
    def level(self) -> tuple[str, ...] | None:
        """The columns of its groups; None if it covers cells."""
        return self.statistic.level

    def arrays(self) -> Arrays:
        """The noisy sums, and squares if there are any."""
        return {_SUMS: self.sums} | ({} if self.squares is None else {_SQUARES: self.squares})

    def to_columns(self) -> list[pl.Series]:
        """A column of lists of each, and one of sums as numbers of the metrics."""
        import polars as pl

        columns = {_SUMS: in_metric(self.sums, self.space), _INTEGERS: self.sums}
        columns |= {} if self.squares is None else {_SQUARES: self.squares}
        return [
            pl.Series(name, drawn.reshape(-1, drawn.shape[-1])).arr.to_list()
            for name, drawn in columns.items()
        ]

    def readings_of(
        self, values: FloatArray, combination: FloatArray | None
    ) -> tuple[SumReading, ...]:
        """The same weighted sum of the sums of metrics; nothing of other functions."""
        return self.combined_readings(values, combination, self.space.metric_values())

    def combined_readings(
        self, values: FloatArray, combination: FloatArray | None, metrics: FloatArray
    ) -> tuple[SumReading, ...]:
        """As `readings_of`, by the metrics as the categories of `values` have them."""
        if combination is None:
            return ()
        squares = square_terms(values, metrics, self.space.metric_lattice().squared)
        readings = [self.sum_readings(place)[0] for place in range(len(metrics))]
        return (combined(readings, combination, squares),)

    def sum_readings(self, metric: int = 0) -> tuple[SumReading, ...]:
        """The sums of a metric, with the weight that units of each cell have in them."""
        lattice, noise = self.space.metric_lattice(), self.statistic.noise(self.space)
        units = float(lattice.units[metric]), squares_unit(lattice, metric)
        # Sums of cells are not split by fold.
        axis: tuple[Any, ...] = (..., np.newaxis, slice(None)) if self.level is None else (...,)
        squares = None
        if self.squares is not None and lattice.squared[metric]:
            integers = self.squares[..., sum(lattice.squared[:metric])]
            squares = np.asarray(units[1] * integers[axis], dtype=np.float64)
        reading = SumReading(
            by=self.level,
            weights=self.statistic.weights(self.layout),
            value=np.asarray(units[0] * self.sums[..., metric][axis], dtype=np.float64),
            variance=noise.variance(self.space, metric),
            squares=squares,
            squares_variance=noise.squares_variance(self.space, metric),
        )
        return (reading,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnsweredSums(DrawnStatistic):
    """Totals of an answer, as a question of the release reads them that it is about.

    Attributes:
        sums: The totals.
        by: What their groups are called in the release.
        places: The place of each of their metrics among those of the question.
        metrics: The metrics of the question; axes `[metric, category]`.
    """

    sums: DrawnMetricSums
    by: tuple[str, ...]
    places: list[int]
    metrics: FloatArray

    @property
    def level(self) -> tuple[str, ...]:
        """What its groups are called."""
        return self.by

    def arrays(self) -> Arrays:
        """The noisy sums, and squares if there are any."""
        return self.sums.arrays()

    def to_columns(self) -> list[pl.Series]:
        """Those of the totals."""
        return self.sums.to_columns()

    def readings_of(
        self, values: FloatArray, combination: FloatArray | None
    ) -> tuple[SumReading, ...]:
        """Sums of a function of the metrics that were asked for; nothing of other functions."""
        if combination is None or np.delete(combination, self.places).any():
            return ()
        found = self.sums.combined_readings(
            values, combination[self.places], self.metrics[self.places]
        )
        return tuple(one._replace(by=self.by) for one in found)


class NoisySums(NoisyMetricSums, frozen=True, kw_only=True, tag="sums"):
    """Each cell's sums of metrics, see `NoisyMetricSums`; every unit counts once."""

    in_words: ClassVar[str] = "the noisy sum of each metric (`noisy_sum`)"
    of_cell_sums: ClassVar[bool] = True

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {"epsilon of sums": self.epsilon}

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if sums would not fit 64 bits."""
        remedy = "sums (sums_share = 0, under [expert])"
        check_fits(space, self.noise(space), int(layout.sizes.max()), remedy)

    def true_sums(self, totals: CellTotals, layout: Layout) -> SumPair:  # noqa: ARG002 - as totals
        """The sums of cells."""
        return totals.sums, totals.squares

    def cell_sum_variance(self, space: CategorySpace, metric: int = 0) -> float:
        """The noise variance of cell sums."""
        return self.noise(space).variance(space, metric)


_LEAST_NOISE, _MOST_NOISE = 4.0**-8, 4.0**12


def noise_in_rows(level_epsilon: FloatArray, row_epsilon: FloatArray) -> FloatArray:
    """How many rows have as much noise as a total: N = 4/ε²/v, to a power of four.

    The total covers two folds, at ε of its level; v is the noise of a row by Warner's randomized
    response at ε of the rows, e^ε/(e^ε − 1)², for any outcomes.
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
        by: The public columns of its groups; none for all units.
        noise_in_rows: How many rows have as much noise as a total of weight one, about; it decides
            how weights are capped.
    """

    in_words: ClassVar[str] = "noisy totals of each metric"
    largest_weight: ClassVar[int] = LARGEST_WEIGHT

    by: tuple[str, ...] = ()
    noise_in_rows: float = 64.0

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "noise_in_rows", float(self.noise_in_rows))
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
        """The columns of its groups."""
        return self.by

    def weights(self, layout: Layout) -> IntArray:
        """What a unit of each cell counts; axes `[cluster, arm]`."""
        return stratified_weights(layout, self.noise_in_rows)

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """One sum for each group, fold and arm."""
        return layout.n_groups(self.by), layout.folds, len(layout.arms)

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {f"epsilon of {self.label}": self.epsilon}

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if there is no such breakdown, or sums would not fit 64 bits."""
        layout.n_groups(self.by)
        remedy = "totals (totals_share = 0, under [expert])"
        if self.by:
            remedy = f"the breakdown by {', '.join(self.by)}"
        most = LARGEST_WEIGHT * int(layout.sizes.sum(axis=0).max())
        check_fits(space, self.noise(space), most, remedy)

    def true_sums(self, totals: CellTotals, layout: Layout) -> SumPair:
        """The totals as they were counted; or, where only cells were, those of everyone."""
        if self.by in totals.groups or self.by or layout.folds > 1:
            return totals.groups[self.by]
        weights = self.weights(layout)[..., np.newaxis]
        cells = (totals.sums, totals.squares)
        sums, squares = (
            (weights * part).sum(axis=-3)[..., np.newaxis, np.newaxis, :, :] for part in cells
        )
        return sums, squares


def totals_label(by: tuple[str, ...]) -> str:
    """What totals by some columns are called."""
    return f"totals by {', '.join(by)}" if by else "totals"
