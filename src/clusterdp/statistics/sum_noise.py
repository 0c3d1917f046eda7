"""How much noise sums of metrics need: the sensitivity of sums and of squares, exactly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.privacy.accounting import noise_scale_for
from clusterdp.statistics.base import LARGEST_INTEGER, SumReading
from clusterdp.statistics.box_noise import box_variances
from clusterdp.statistics.noise import ALONE

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace, MetricLattice
    from clusterdp.statistics.noise import NoiseSource


# Where sums have noise together, one part in so many of ε is for squares.
_PARTS_OF_SQUARES = 9


class NoiseBox(NamedTuple):
    """Noise that the sums of some metrics have together, see `box_noise.py`.

    Attributes:
        metrics: The places of the metrics.
        widths: How wide the noise on each is, relative to the others.
        cost: ε times the scale.
    """

    metrics: tuple[int, ...]
    widths: tuple[int, ...]
    cost: Fraction

    def scale(self, epsilon: float) -> float:
        """The scale of the noise where all sums and squares cost ε."""
        return noise_scale_for(self.cost, epsilon)


Boxes = tuple[NoiseBox, ...]


class SumNoise(NamedTuple):
    """The noise on sums of metrics and on their squares, where these are published.

    Attributes:
        epsilon: What all of it costs together.
        of_sums: Boxes that hold every metric once.
        of_squares: Boxes that hold every metric with squares once.
    """

    epsilon: float
    of_sums: Boxes
    of_squares: Boxes

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:
        """The unit of each metric's sums, and the law of their noise in it."""
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
            **self._facts("", self.of_sums, len(squares)),
            **self._facts("squares_", self.of_squares, len(squares)),
        }

    def _facts(self, prefix: str, boxes: Boxes, n_metrics: int) -> dict[str, list[float | None]]:
        """The law of the noise on each metric; None where it is in no box."""
        facts: dict[str, list[float | None]] = {
            f"{prefix}noise_{name}": [None] * n_metrics for name in ("scale", "width", "vector")
        }
        for number, box in enumerate(boxes):
            for metric, width in zip(box.metrics, box.widths, strict=True):
                facts[f"{prefix}noise_scale"][metric] = box.scale(self.epsilon)
                facts[f"{prefix}noise_width"][metric] = float(width)
                facts[f"{prefix}noise_vector"][metric] = float(number)
        return facts

    def with_sums(self, true: IntArray, add_noise: NoiseSource) -> IntArray:
        """Sums with noise; last axis `[metric]`."""
        return self._with_noise(self.of_sums, true, add_noise)

    def with_squares(self, true: IntArray, add_noise: NoiseSource) -> IntArray:
        """Squares with noise, of the metrics that have them; last axis `[metric]`."""
        return self._with_noise(self.of_squares, true, add_noise)

    def _with_noise(self, boxes: Boxes, true: IntArray, add_noise: NoiseSource) -> IntArray:
        """The metrics of boxes, in their order."""
        noisy: dict[int, IntArray] = {}
        for box in boxes:
            drawn = add_noise(true[..., list(box.metrics)], box.scale(self.epsilon), box.widths)
            noisy |= zip(box.metrics, np.moveaxis(drawn, -1, 0), strict=True)
        return np.stack([noisy[metric] for metric in sorted(noisy)], axis=-1)


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
        squares = _variances(noise.of_squares, noise.epsilon).get(metric)
        return cls(
            unit=unit,
            variance=unit**2 * float(_variances(noise.of_sums, noise.epsilon)[metric]),
            quarter=quarter,
            squares_variance=None if squares is None else quarter**2 * float(squares),
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

    Args:
        space: The categories.
        epsilon: What all sums that a unit is part of cost together.
        weight: The largest weight that a unit has in a sum.
    """
    return SumNoise(epsilon, *_boxes(space, weight))


def sum_variances(space: CategorySpace, epsilons: FloatArray, weight: int = 1) -> FloatArray:
    """The noise variance of sums in the units of metrics, by ε; axes `[..., metric]`.

    It is infinite at an ε of 0.
    """
    of_sums, _ = _boxes(space, weight)
    units = [float(unit) for unit in space.metric_lattice().units]
    found = _variances(of_sums, epsilons)
    return np.stack([unit**2 * found[metric] for metric, unit in enumerate(units)], axis=-1)


@lru_cache(maxsize=64)
def _boxes(space: CategorySpace, weight: int) -> tuple[Boxes, Boxes]:
    """Boxes of sums and of squares, of the kind of noise that adds less variance to sums.

    Variances are compared at small ε, each over the square of what its metric may be off by: its
    span times its slack. Apart, it is 2c². Together, (m + 1)(m + 2)/3 over the slack's square. So
    what is chosen follows from the space, in fractions, and is the same wherever it is computed.
    """
    lattice = space.metric_lattice()
    n_metrics, factor = len(lattice.slacks), _factor_of_sums(lattice)
    each = factor**2 * Fraction((n_metrics + 1) * (n_metrics + 2), 3)
    together = sum(each / slack**2 for slack in lattice.slacks)
    apart = 2 * _most_moves(space) ** 2 * n_metrics
    return (_together if together < apart else _apart)(space, weight)


def _apart(space: CategorySpace, weight: int) -> tuple[Boxes, Boxes]:
    """Discrete Laplace noise on each sum.

    With D_j the span of metric j and w the largest weight of a unit, its sums have noise of scale
    c·w·D_j/ε, times its slack, and its squares, in quarters, of c·w·4D_j²/ε (over 4^shift where
    distances lose bits).
    Replacing an outcome then costs at most ε if c is the largest value that the sum of `_moves`
    takes over pairs of categories.
    """
    lattice = space.metric_lattice()
    most, spans = weight * _most_moves(space), _spans(lattice)
    return tuple(
        NoiseBox((metric,), ALONE, most * span * slack)
        for metric, (span, slack) in enumerate(zip(spans, lattice.slacks, strict=True))
    ), tuple(
        NoiseBox((metric,), ALONE, most * Fraction(4 * spans[metric] ** 2, 4**shift))
        for metric, shift in enumerate(lattice.shifts)
        if lattice.squared[metric]
    )


def _together(space: CategorySpace, weight: int) -> tuple[Boxes, Boxes]:
    """Noise on the sums of all metrics together, and on all squares.

    Each metric moves by its span at most, and its squares by theirs. So a box as wide as the spans
    costs ε with all metrics, and slack would be for nothing. Squares have a part of ε of their own:
    the sums of one metric and the squares of another can both move as far as they ever do.
    """
    lattice = space.metric_lattice()
    spans = dict(enumerate(_spans(lattice)))
    squared = {
        metric: _span_of_squares(lattice, metric) for metric in spans if lattice.squared[metric]
    }
    of_sums = weight * _factor_of_sums(lattice)
    of_squares = (_box(squared, Fraction(weight * _PARTS_OF_SQUARES)),) if squared else ()
    return (_box(spans, of_sums),), of_squares


def _factor_of_sums(lattice: MetricLattice) -> Fraction:
    """How much larger the noise on sums is because a part of ε is for squares."""
    if not any(lattice.squared):
        return Fraction(1)
    return Fraction(_PARTS_OF_SQUARES, _PARTS_OF_SQUARES - 1)


def _box(spans: dict[int, int], factor: Fraction) -> NoiseBox:
    """A box as wide as the spans, by metric, whose scale is that of its finest steps."""
    step = math.gcd(*spans.values())
    return NoiseBox(tuple(spans), tuple(span // step for span in spans.values()), factor * step)


def _span_of_squares(lattice: MetricLattice, metric: int) -> int:
    """How far replacing one outcome can move the squares of a metric; a number takes its middle."""
    squares = lattice.squares()[metric]
    least = 0 if lattice.is_number[metric] else int(squares.min())
    return int(squares.max()) - least


def _variances(boxes: Boxes, epsilon: npt.ArrayLike) -> dict[int, FloatArray]:
    """The noise variance of each metric in boxes, in units of its lattice; axes as those of ε."""
    found: dict[int, FloatArray] = {}
    for box in boxes:
        with np.errstate(divide="ignore"):
            scales = float(box.cost) / np.asarray(epsilon, dtype=np.float64)
        found |= zip(
            box.metrics, np.moveaxis(box_variances(box.widths, scales), -1, 0), strict=True
        )
    return found


def check_fits(space: CategorySpace, noise: SumNoise, total_weight: int, remedy: str) -> None:
    """Raise a ParameterError if sums would not fit 64 bits.

    Args:
        space: The categories.
        noise: The noise on sums.
        total_weight: The most that the weights of units of one sum add up to.
        remedy: What to leave out.
    """
    lattice = space.metric_lattice()
    largest = lattice.squares().max(axis=1).tolist()
    sums = [max(map(abs, metric)) for metric in lattice.integers.tolist()]
    for boxes, units in ((noise.of_sums, sums), (noise.of_squares, largest)):
        for box in boxes:
            reach = 64 * box.scale(noise.epsilon)  # Python's integers do not wrap around
            for metric, width in zip(box.metrics, box.widths, strict=True):
                if total_weight * units[metric] + width * reach > LARGEST_INTEGER:
                    raise ParameterError(
                        "cells and outcome values are too large for exact 64-bit sums; declare "
                        f"outcomes in a coarser unit, or leave out {remedy}"
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
    columns = lattice.doubled().T.tolist()
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
