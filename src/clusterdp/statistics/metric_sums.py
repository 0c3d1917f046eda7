"""What noisy sums of cells and noisy totals of groups have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from clusterdp.errors import FormatError
from clusterdp.privacy.accounting import LossAtom, any_loss, checked_epsilon
from clusterdp.statistics.base import DrawnStatistic, NoisyStatistic, SquareTerms, combined
from clusterdp.statistics.sum_noise import MetricScale, SumNoise, sum_noise

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.statistics.base import Arrays, MetricSums, SumReading
    from clusterdp.statistics.noise import NoiseSource

_SUMS, _SQUARES = "noisy_sum", "noisy_squares"
# The published integers; beside them, sums are published as numbers of the metric.
_INTEGERS = "noisy_sum_in_units"


class NoisyMetricSums(NoisyStatistic, frozen=True, kw_only=True):
    """Sums of metrics and of their squares, with noise as in `sum_noise.py`.

    Sums are in the units of the metrics' lattice; squares are of twice the distance from the
    middle of a metric's values, in those units.

    Attributes:
        epsilon: What all of them cost together.
        largest_weight: The most that a unit counts in a sum.
    """

    largest_weight: ClassVar[int] = 1

    epsilon: float

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", checked_epsilon(self.epsilon))

    @property
    def estimates_effects(self) -> bool:
        """They calibrate rows; nothing is estimated from them alone."""
        return False

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss, largest first: ε at most."""
        return any_loss(self.epsilon)

    def noise(self, space: CategorySpace) -> SumNoise:
        """The noise at which all sums and squares together cost ε."""
        return sum_noise(space, self.epsilon, self.largest_weight)

    def scale(self, space: CategorySpace, metric: int) -> MetricScale:
        """What integers of a metric stand for, and how noisy they are."""
        return MetricScale.of(space, self.noise(space), metric)

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

    def with_noise(
        self, true: MetricSums, space: CategorySpace, add_noise: NoiseSource
    ) -> dict[str, IntArray]:
        """Noisy sums, and squares of the metrics that have them, from true ones."""
        noise = self.noise(space)
        drawn = {_SUMS: noise.with_sums(true.sums, add_noise)}
        if noise.of_squares:
            drawn[_SQUARES] = noise.with_squares(true.squares, add_noise)
        return drawn

    def read_columns(
        self, table: pl.DataFrame, space: CategorySpace, shape: tuple[int, ...]
    ) -> dict[str, IntArray]:
        """Noisy sums from the columns of a published table; axes `[*shape, metric]`.

        Raises:
            FormatError: If sums are not what they are in units.
        """
        lengths = self.lengths(space)
        read = {
            name: table[name].list.to_array(lengths[name]).to_numpy().reshape(*shape, lengths[name])
            for name in self.column_types(space)
        }
        published, sums = read.pop(_SUMS), read.pop(_INTEGERS)
        if not np.array_equal(published, in_metric(sums, space)):
            raise FormatError(f"{_SUMS!r} does not follow from {_INTEGERS!r}")
        return {_SUMS: sums, **read}


def in_metric(sums: IntArray, space: CategorySpace) -> FloatArray:
    """Integers as sums of metrics; last axis `[metric]`."""
    units = np.array([float(unit) for unit in space.metric_lattice().units])
    return np.asarray(units * sums, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnMetricSums(DrawnStatistic):
    """Noisy sums of metrics.

    Attributes:
        sums: The sums; last axis `[metric]`.
        squares: Those of the metrics that have them, in their order; None if none has.
        layout: The cells they are of.
        space: The categories they add up.
    """

    sums: IntArray
    squares: IntArray | None
    layout: Layout
    space: CategorySpace

    @staticmethod
    def parts(arrays: Arrays, layout: Layout, space: CategorySpace) -> dict[str, Any]:
        """The attributes, from the arrays that `arrays` gave."""
        squares = arrays.get(_SQUARES)
        return {"sums": arrays[_SUMS], "squares": squares, "layout": layout, "space": space}

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
        if combination is None:
            return ()
        metrics, squared = self.space.metric_values(), self.space.metric_lattice().squared
        squares = SquareTerms.of(values, metrics, squared)
        readings = [self.sum_readings(place)[0] for place in range(len(metrics))]
        return (combined(readings, combination, squares),)

    def squares_of(self, metric: int) -> IntArray | None:
        """The squares of one metric; None if they are not published."""
        squared = self.space.metric_lattice().squared
        if self.squares is None or not squared[metric]:
            return None
        return np.asarray(self.squares[..., sum(squared[:metric])])
