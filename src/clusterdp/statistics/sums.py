"""Noisy sums of every cell: what estimates from rows are calibrated by."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec
import numpy as np

from clusterdp.errors import ParameterError
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
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.statistics.base import Arrays
    from clusterdp.statistics.noise import NoiseSource

_SUMS, _SQUARES = "noisy_sum", "noisy_squares"


class SumNoise(NamedTuple):
    """The scales of the noise on a cell's sum, and on its sum of squares if that is published."""

    of_sums: float
    of_squares: float | None


class NoisySums(NoisyStatistic, frozen=True, kw_only=True, tag="sums"):
    """Each cell's sum of outcomes, and of their squares, with discrete Laplace noise.

    Sums are in the unit of `OutcomeSpace.lattice`; squares are of distances from the middle of the
    space, in a quarter of that unit squared. With two outcomes squares follow from sums, and are
    not published.

    Attributes:
        epsilon: What both cost together.
    """

    in_words: ClassVar[str] = "the noisy sum of its outcomes (`noisy_sum`)"

    epsilon: float

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", checked_epsilon(self.epsilon))

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {"epsilon of sums": self.epsilon}

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss, largest first: ε at most."""
        return any_loss(self.epsilon)

    def noise(self, space: OutcomeSpace) -> SumNoise:
        """The noise at which sums and squares together cost ε.

        With D the span and a, b ∈ [−D/2, D/2] the distances of two outcomes from the middle,
        replacing one by the other moves the sum by |a − b| and the squares by |a² − b²|. At scales
        D/ε and D²/ε that costs ε·|a−b|/D·(1 + |a+b|/D), which is at most ε: squares come at no
        further cost.
        """
        _, multiples = space.lattice()
        span = multiples[-1] - multiples[0]
        of_sums = noise_scale_for(Fraction(span), self.epsilon)
        if space.n_outcomes == 2:
            return SumNoise(of_sums, None)
        # In quarters, since the middle of two integers may be half way between.
        return SumNoise(of_sums, noise_scale_for(Fraction(4 * span**2), self.epsilon))

    def check(self, layout: Layout, space: OutcomeSpace) -> None:
        """Raise a ParameterError if sums would not fit 64 bits."""
        _, multiples = space.lattice()
        noise = self.noise(space)
        # In Python's integers, which do not wrap around.
        size, scale = int(layout.sizes.max()), noise.of_squares or 0.0
        span = multiples[-1] - multiples[0]  # twice the largest distance from the middle
        largest_square = size * span**2 if scale else 0
        largest_sum = size * max(map(abs, multiples))
        if max(largest_sum + 64 * noise.of_sums, largest_square + 64 * scale) > LARGEST_INTEGER:
            raise ParameterError(
                "cells and outcome values are too large for exact 64-bit sums; declare outcomes in "
                "a coarser unit, or do not calibrate"
            )

    def draw(
        self, counts: IntArray, layout: Layout, space: OutcomeSpace, add_noise: NoiseSource
    ) -> DrawnSums:
        """Noisy sums from true counts; axes `[..., cluster, arm, outcome]`."""
        self.check(layout, space)
        _, multiples = space.lattice()
        noise, values = self.noise(space), np.array(multiples)
        doubled = 2 * values - (values[0] + values[-1])  # twice the distance from the middle
        drawn = {}
        if noise.of_squares is not None:
            drawn[_SQUARES] = add_noise(_whole(counts @ doubled**2), noise.of_squares)
        drawn[_SUMS] = add_noise(_whole(counts @ values), noise.of_sums)
        return self.restore(drawn, layout, space)

    def restore(self, arrays: Arrays, layout: Layout, space: OutcomeSpace) -> DrawnSums:
        """Noisy sums from the arrays that `DrawnSums.arrays` gave."""
        return DrawnSums(
            statistic=self,
            sums=arrays[_SUMS],
            squares=arrays.get(_SQUARES),
            layout=layout,
            space=space,
        )

    def column_types(self, space: OutcomeSpace) -> dict[str, pl.DataType]:
        """A column of sums, and one of squares where there are any."""
        import polars as pl

        names = [_SUMS] if self.noise(space).of_squares is None else [_SUMS, _SQUARES]
        return dict.fromkeys(names, pl.Int64())

    def read(self, cells: pl.DataFrame, layout: Layout, space: OutcomeSpace) -> DrawnSums:
        """Noisy sums from the published table of cells."""
        names = self.column_types(space)
        arrays = {name: cells[name].to_numpy().reshape(layout.sizes.shape) for name in names}
        return self.restore(arrays, layout, space)

    def facts(self, space: OutcomeSpace) -> dict[str, float]:
        """The unit of sums, and the scales of their noise in it."""
        noise = self.noise(space)
        facts = {"unit": float(space.lattice()[0]), "noise_scale": noise.of_sums}
        if noise.of_squares is not None:
            facts["squares_noise_scale"] = noise.of_squares
        return facts

    def mean_variance(self, layout: Layout, space: OutcomeSpace) -> FloatArray:
        """The noise variance of cell means."""
        unit = float(space.lattice()[0])
        return np.asarray(unit**2 * noise_variance(self.noise(space).of_sums) / layout.sizes**2)

    def contrast_variance(self, layout: Layout, space: OutcomeSpace) -> FloatArray:
        """The noise variance of differences in cell means."""
        return against_control(self.mean_variance(layout, space), layout)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnSums:
    """Noisy sums of every cell; axes `[..., cluster, arm]`.

    Attributes:
        statistic: How they were drawn.
        sums: Sums of outcomes.
        squares: Sums of squared distances from the middle; None for two outcomes.
        layout: The cells they are of.
        space: The outcomes they add up.
    """

    statistic: NoisySums
    sums: IntArray
    squares: IntArray | None
    layout: Layout
    space: OutcomeSpace

    def arrays(self) -> Arrays:
        """The noisy sums, and squares if there are any."""
        return {_SUMS: self.sums} | ({} if self.squares is None else {_SQUARES: self.squares})

    def to_columns(self) -> list[pl.Series]:
        """A column of each."""
        import polars as pl

        return [pl.Series(name, drawn.ravel()) for name, drawn in self.arrays().items()]

    def histogram(self) -> None:
        """There are no counts."""

    def cell_means(self) -> CellMeans:
        """Means and mean squares of every cell."""
        sizes, unit = self.layout.sizes, float(self.space.lattice()[0])
        means = Reading(
            unit * self.sums / sizes, self.statistic.mean_variance(self.layout, self.space)
        )
        scale = self.statistic.noise(self.space).of_squares
        if self.squares is None or scale is None:
            # Two outcomes are equally far from the middle, so the mean square has no noise.
            half = np.full(sizes.shape, (self.space.span / 2) ** 2)
            return CellMeans(means, Reading(half, np.full(sizes.shape, ZERO_VARIANCE)))
        quarter = unit**2 / 4
        variance = quarter**2 * noise_variance(scale) / sizes**2
        return CellMeans(means, Reading(quarter * self.squares / sizes, variance))

    def contrasts(self, layout: Layout) -> ClusterContrasts:
        """Differences in means from sums alone."""
        (means, noise), (squares, _) = self.cell_means()
        sizes, treated, control = layout.sizes, list(layout.treatments), [layout.control]
        spread = squares - (means - self.space.middle) ** 2 + noise
        lone = lone_unit_squares(sizes, means) - noise
        return ClusterContrasts(
            contrasts=means[..., treated] - means[..., control],
            noise=against_control(noise, layout),
            arm_noise=noise,
            spread=np.where(sizes > 1, spread * sizes / np.maximum(sizes - 1, 1), lone),
        )


def _whole(sums: IntArray) -> IntArray:
    """Sums as integers, also of the expected counts that predictions are made from."""
    if sums.dtype.kind == "i":
        return sums  # not through floats, which would round them
    return np.asarray(np.rint(sums), dtype=np.int64)
