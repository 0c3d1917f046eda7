"""How much noise sums of metrics need: the sensitivity of sums and of squares, exactly."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.privacy.accounting import noise_scale_for
from clusterdp.statistics.base import LARGEST_INTEGER, SumReading
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.experiment.category_space import CategorySpace, MetricLattice


class SumNoise(NamedTuple):
    """The scales of the noise on the sums of each metric, and on its squares if published."""

    of_sums: tuple[float, ...]
    of_squares: tuple[float | None, ...]

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:
        """The unit of each metric's sums, and the scales of their noise in it."""
        lattice = space.metric_lattice()
        squares = [
            float(unit) ** 2 / 4 * 4.0**shift if squared else None
            for unit, shift, squared in zip(
                lattice.units, lattice.shifts, lattice.squared, strict=True
            )
        ]
        return {
            "unit": [float(unit) for unit in lattice.units],
            "squares_unit": squares,
            "noise_scale": list(self.of_sums),
            "squares_noise_scale": list(self.of_squares),
        }


class MetricScale(NamedTuple):
    """What integers of a metric stand for, and how noisy they are.

    Attributes:
        unit: The unit of sums.
        variance: The variance of the noise on sums, in the unit of the metric.
        quarter: The unit of squares of distances from the middle.
        squares_variance: The variance of their noise; None where none are published.
    """

    unit: float
    variance: float
    quarter: float
    squares_variance: float | None

    @classmethod
    def of(cls, space: CategorySpace, noise: SumNoise, metric: int) -> MetricScale:
        """The scale of one metric."""
        lattice = space.metric_lattice()
        unit = float(lattice.units[metric])
        quarter = unit**2 / 4 * 4.0 ** lattice.shifts[metric]
        scale = noise.of_squares[metric]
        return cls(
            unit=unit,
            variance=unit**2 * noise_variance(noise.of_sums[metric]),
            quarter=quarter,
            squares_variance=None if scale is None else quarter**2 * noise_variance(scale),
        )

    def reading(
        self,
        *,
        by: tuple[str, ...] | None,
        weights: IntArray,
        sums: IntArray,
        squares: IntArray | None,
    ) -> SumReading:
        """Noisy integers of the metric as estimators read them; arguments as in `SumReading`."""
        return SumReading(
            by=by,
            weights=weights,
            value=np.asarray(self.unit * sums, dtype=np.float64),
            variance=self.variance,
            squares=None if squares is None else np.asarray(self.quarter * squares, np.float64),
            squares_variance=self.squares_variance or 0.0,
        )


def sum_noise(space: CategorySpace, epsilon: float, weight: int = 1) -> SumNoise:
    """The noise at which all sums and squares of a level together cost ε.

    With D_j the span of metric j and w the largest weight of a unit, its sums have noise of scale
    c·w·D_j/ε, times its slack, and its squares, in quarters, of c·w·4D_j²/ε (over 4^shift where
    distances lose bits).
    Replacing an outcome then costs at most ε if c is the largest value that the sum of `_moves`
    takes over pairs of categories.

    Args:
        space: The categories.
        epsilon: What all sums that a unit is part of cost together.
        weight: The largest weight that a unit has in a sum.
    """
    lattice = space.metric_lattice()
    most, spans = weight * _most_moves(space), _spans(lattice)
    return SumNoise(
        of_sums=tuple(
            noise_scale_for(most * span * slack, epsilon)
            for span, slack in zip(spans, lattice.slacks, strict=True)
        ),
        of_squares=tuple(
            noise_scale_for(most * Fraction(4 * span**2, 4**shift), epsilon) if squared else None
            for span, squared, shift in zip(spans, lattice.squared, lattice.shifts, strict=True)
        ),
    )


def check_fits(space: CategorySpace, noise: SumNoise, total_weight: int, remedy: str) -> None:
    """Raise a ParameterError if sums would not fit 64 bits.

    Args:
        space: The categories.
        noise: The noise on sums.
        total_weight: The most that the weights of units of one sum add up to.
        remedy: What to leave out.
    """
    lattice = space.metric_lattice()
    largest = [
        total_weight * max(map(abs, metric)) + 64 * scale  # Python's integers do not wrap around
        for metric, scale in zip(lattice.integers.tolist(), noise.of_sums, strict=True)
    ]
    largest += [
        total_weight * ((span + 2**shift) ** 2 // 4**shift + 1) + 64 * scale
        for span, scale, shift in zip(
            _spans(lattice), noise.of_squares, lattice.shifts, strict=True
        )
        if scale is not None
    ]
    if max(largest) > LARGEST_INTEGER:
        raise ParameterError(
            "cells and outcome values are too large for exact 64-bit sums; declare outcomes in "
            f"a coarser unit, or leave out {remedy}"
        )


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
        return moved / lattice.slacks[metric]
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
