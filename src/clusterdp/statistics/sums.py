"""Noisy sums of every cell, metric by metric: what estimates from rows are calibrated by."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec
import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.category_space import Ends
from clusterdp.privacy.accounting import LossAtom, any_loss, checked_epsilon, noise_scale_for
from clusterdp.statistics.base import (
    LARGEST_INTEGER,
    ZERO_VARIANCE,
    CellMeans,
    ClusterContrasts,
    NoisyStatistic,
    Reading,
    against_control,
    lone_unit_squares,
)
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace, MetricLattice
    from clusterdp.experiment.layout import Layout
    from clusterdp.statistics.base import Arrays, CellTotals
    from clusterdp.statistics.noise import NoiseSource

_SUMS, _SQUARES = "noisy_sum", "noisy_squares"


class SumNoise(NamedTuple):
    """The scales of the noise on the sums of each metric, and on its squares if published."""

    of_sums: tuple[float, ...]
    of_squares: tuple[float | None, ...]


class NoisySums(NoisyStatistic, frozen=True, kw_only=True, tag="sums"):
    """Each cell's sums of metrics, and of their squares, with discrete Laplace noise.

    Sums are in the units of the metrics' lattice; squares are of twice the distance from the
    middle of a metric's values, in those units.

    Attributes:
        epsilon: What all of them cost together.
    """

    in_words: ClassVar[str] = "the noisy sum of each metric (`noisy_sum`)"

    epsilon: float

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", checked_epsilon(self.epsilon))

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {"epsilon of sums": self.epsilon}

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss, largest first: ε at most."""
        return any_loss(self.epsilon)

    def noise(self, space: CategorySpace) -> SumNoise:
        """The noise at which all sums and squares together cost ε.

        With D_j the span of metric j, its sums have noise of scale c·D_j/ε and its squares, in
        quarters, of c·4D_j²/ε (over 4^shift where distances lose bits). Replacing an outcome then
        costs at most ε if c is the largest value that the sum of `_moves` takes over pairs of
        categories.
        """
        lattice = space.metric_lattice()
        most, spans = _most_moves(space), _spans(lattice)
        return SumNoise(
            of_sums=tuple(noise_scale_for(most * span, self.epsilon) for span in spans),
            of_squares=tuple(
                noise_scale_for(most * Fraction(4 * span**2, 4**shift), self.epsilon)
                if squared
                else None
                for span, squared, shift in zip(spans, lattice.squared, lattice.shifts, strict=True)
            ),
        )

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if sums would not fit 64 bits."""
        lattice, noise = space.metric_lattice(), self.noise(space)
        size = int(layout.sizes.max())  # in Python's integers, which do not wrap around
        largest = [
            size * max(map(abs, metric)) + 64 * scale
            for metric, scale in zip(lattice.integers.tolist(), noise.of_sums, strict=True)
        ]
        largest += [
            size * ((span + 2**shift) ** 2 // 4**shift + 1) + 64 * scale
            for span, scale, shift in zip(
                _spans(lattice), noise.of_squares, lattice.shifts, strict=True
            )
            if scale is not None
        ]
        if max(largest) > LARGEST_INTEGER:
            raise ParameterError(
                "cells and outcome values are too large for exact 64-bit sums; declare outcomes in "
                "a coarser unit, or leave out sums (sums_share=0, --sums-share 0)"
            )

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnSums:
        """Noisy sums from true ones."""
        self.check(layout, space)
        noise = self.noise(space)
        squares = [
            add_noise(totals.squares[..., metric], scale)
            for metric, scale in enumerate(noise.of_squares)
            if scale is not None
        ]
        sums = [
            add_noise(totals.sums[..., metric], scale) for metric, scale in enumerate(noise.of_sums)
        ]
        drawn = {_SUMS: np.stack(sums, axis=-1)}
        if squares:
            drawn[_SQUARES] = np.stack(squares, axis=-1)
        return self.restore(drawn, layout, space)

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnSums:
        """Noisy sums from the arrays that `DrawnSums.arrays` gave."""
        return DrawnSums(
            statistic=self,
            sums=arrays[_SUMS],
            squares=arrays.get(_SQUARES),
            layout=layout,
            space=space,
        )

    def column_types(self, space: CategorySpace) -> dict[str, pl.DataType]:
        """A column of lists by metric, and one of squares where there are any."""
        import polars as pl

        names = [_SUMS, _SQUARES] if any(space.metric_lattice().squared) else [_SUMS]
        return dict.fromkeys(names, pl.List(pl.Int64))

    def lengths(self, space: CategorySpace) -> dict[str, int]:
        """How many numbers the lists of each column have."""
        squared = space.metric_lattice().squared
        return {_SUMS: len(squared), _SQUARES: sum(squared)}

    def read(self, cells: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnSums:
        """Noisy sums from the published table of cells."""
        lengths = self.lengths(space)
        arrays = {
            name: cells[name]
            .list.to_array(lengths[name])
            .to_numpy()
            .reshape(*layout.sizes.shape, lengths[name])
            for name in self.column_types(space)
        }
        return self.restore(arrays, layout, space)

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:
        """The unit of each metric's sums, and the scales of their noise in it."""
        noise, units = self.noise(space), space.metric_lattice().units
        return {
            "unit": [float(unit) for unit in units],
            "noise_scale": list(noise.of_sums),
            "squares_noise_scale": list(noise.of_squares),
        }

    def mean_variance(self, layout: Layout, space: CategorySpace, metric: int = 0) -> FloatArray:
        """The noise variance of cell means."""
        unit = float(space.metric_lattice().units[metric])
        scale = self.noise(space).of_sums[metric]
        return np.asarray(unit**2 * noise_variance(scale) / layout.sizes**2)

    def contrast_variance(
        self, layout: Layout, space: CategorySpace, metric: int = 0
    ) -> FloatArray:
        """The noise variance of differences in cell means."""
        return against_control(self.mean_variance(layout, space, metric), layout)


def _spans(lattice: MetricLattice) -> list[int]:
    """How far replacing one outcome can move the sum of each metric."""
    return [max(metric) - min(metric) for metric in lattice.integers.tolist()]


@lru_cache(maxsize=64)
def _most_moves(space: CategorySpace) -> Fraction:
    """The most that replacing one category by another can move all sums together.

    Metric j moves by u = |a − b|/D, a and b the distances of two values from the middle and D the
    span; with squares by u(1 + |a + b|/D), which is at most 1 as well: squares are free. Between
    cuts a number moves a metric linearly, so pairs of categories bound pairs of rows. Squares of a
    number are bounded by u(2 − u), which rises in u, so that both ends of pieces decide again; and
    as distances lose bits, by a little more.
    """
    lattice = space.metric_lattice()
    ends = lattice.integers.min(axis=1) + lattice.integers.max(axis=1)
    columns = (2 * lattice.integers - ends[:, np.newaxis]).T.tolist()
    moves = (
        sum(
            (
                _moves(lattice, metric, one, other)
                for metric, (one, other) in enumerate(zip(first, second, strict=True))
            ),
            Fraction(0),
        )
        for first, second in itertools.combinations(columns, 2)
    )
    return max(moves)


def _moves(lattice: MetricLattice, metric: int, one: int, other: int) -> Fraction:
    """How far a metric moves, given twice the distances of two values from its middle."""
    span = _spans(lattice)[metric]
    moved = Fraction(abs(one - other), 2 * span)
    if not lattice.squared[metric]:
        return moved
    if lattice.is_number[metric]:
        return moved * (2 - moved) + _lost_bits(span, lattice.shifts[metric])
    return moved * (1 + Fraction(abs(one + other), 2 * span))


def _lost_bits(span: int, shift: int) -> Fraction:
    """The most that dropping bits adds to the move of squares, over 4D²/4^shift.

    A distance of |x| ≤ D/2^shift becomes x − f with 0 ≤ f < 1, which moves its square by at most
    2D/2^shift + 1, for each of two values.
    """
    if shift == 0:
        return Fraction(0)
    return 2 * (Fraction(2 * span, 2**shift) + 1) * Fraction(4**shift, 4 * span**2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnSums:
    """Noisy sums of every cell.

    Attributes:
        statistic: How they were drawn.
        sums: Sums of metrics; axes `[..., cluster, arm, metric]`.
        squares: Sums of squares of the metrics that have them, in their order; None if none has.
        layout: The cells they are of.
        space: The categories they add up.
    """

    statistic: NoisySums
    sums: IntArray
    squares: IntArray | None
    layout: Layout
    space: CategorySpace

    def arrays(self) -> Arrays:
        """The noisy sums, and squares if there are any."""
        return {_SUMS: self.sums} | ({} if self.squares is None else {_SQUARES: self.squares})

    def to_columns(self) -> list[pl.Series]:
        """A column of lists of each."""
        import polars as pl

        return [
            pl.Series(name, drawn.reshape(-1, drawn.shape[-1])).arr.to_list()
            for name, drawn in self.arrays().items()
        ]

    def histogram(self) -> None:
        """There are no counts."""

    def cell_means(self, metric: int = 0) -> CellMeans:
        """Means of a metric in every cell, and mean squares where they are published."""
        lattice, sizes = self.space.metric_lattice(), self.layout.sizes
        unit = float(lattice.units[metric])
        variance = self.statistic.mean_variance(self.layout, self.space, metric)
        means = Reading(unit * self.sums[..., metric] / sizes, variance)
        return CellMeans(means, self._squares(metric, lattice, unit))

    def _squares(self, metric: int, lattice: MetricLattice, unit: float) -> Reading | None:
        sizes = self.layout.sizes
        scale = self.statistic.noise(self.space).of_squares[metric]
        if scale is not None and self.squares is not None:
            place = sum(lattice.squared[:metric])
            quarter = unit**2 / 4 * 4.0 ** lattice.shifts[metric]
            variance = quarter**2 * noise_variance(scale) / sizes**2
            return Reading(quarter * self.squares[..., place] / sizes, variance)
        if lattice.is_number[metric] or len(np.unique(lattice.integers[metric])) > 2:
            return None
        # Two values are equally far from their middle, so the mean square has no noise.
        half = np.full(sizes.shape, (Ends.of(self.space, metric).span / 2) ** 2)
        return Reading(half, np.full(sizes.shape, ZERO_VARIANCE))

    def contrasts(self, layout: Layout, metric: int = 0) -> ClusterContrasts:
        """Differences in means from sums alone."""
        (means, noise), squares = self.cell_means(metric)
        sizes, treated, control = layout.sizes, list(layout.treatments), [layout.control]
        contrasts = means[..., treated] - means[..., control]
        if squares is None:
            return ClusterContrasts(contrasts=contrasts, noise=against_control(noise, layout))
        middle = Ends.of(self.space, metric).middle
        spread = squares.value - (means - middle) ** 2 + noise
        lone = lone_unit_squares(sizes, means) - noise
        return ClusterContrasts(
            contrasts=contrasts,
            noise=against_control(noise, layout),
            arm_noise=noise,
            spread=np.where(sizes > 1, spread * sizes / np.maximum(sizes - 1, 1), lone),
        )
