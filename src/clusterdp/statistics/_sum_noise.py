"""How much noise sums of metrics need: the sensitivity of sums and of squares, exactly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.outcomes.space import LARGEST_INTEGER
from clusterdp.privacy.accounting import noise_scale_for
from clusterdp.statistics.noise import ALONE, box_variances

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.outcomes.space import CategorySpace, MetricLattice
    from clusterdp.statistics.noise import NoiseSource


# Where sums have noise together, one part in so many of ε is for squares.
_PARTS_OF_SQUARES = 9


class NoiseBox(NamedTuple):
    """Noise that the sums of some metrics have together, see `noise.py`.

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
        of_sums: Boxes that hold every metric once, of all questions of a release.
        of_squares: Boxes that hold every metric with squares once.
    """

    epsilon: float
    of_sums: Boxes
    of_squares: Boxes

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:
        """The unit of each metric's sums, and the law of their noise in it; of one question."""
        lattice, own = space.metric_lattice(), places_of(space)
        squares = [
            squares_unit(lattice, metric) if squared else None
            for metric, squared in enumerate(lattice.squared)
        ]
        return {
            "unit": [float(unit) for unit in lattice.units],
            "squares_unit": squares,
            **self._facts("", self.of_sums, own),
            **self._facts("squares_", self.of_squares, own),
        }

    def _facts(self, prefix: str, boxes: Boxes, own: range) -> dict[str, list[float | None]]:
        """The law of the noise on each metric; None where it is in no box."""
        facts: dict[str, list[float | None]] = {
            f"{prefix}noise_{name}": [None] * len(own) for name in ("scale", "width", "vector")
        }
        for number, box in enumerate(boxes):
            for metric, width in zip(box.metrics, box.widths, strict=True):
                if metric in own:
                    place = metric - own.start
                    facts[f"{prefix}noise_scale"][place] = box.scale(self.epsilon)
                    facts[f"{prefix}noise_width"][place] = float(width)
                    facts[f"{prefix}noise_vector"][place] = float(number)
        return facts

    def add(self, boxes: Boxes, true: IntArray, add_noise: NoiseSource) -> IntArray:
        """Sums or squares with noise, from those of all questions; last axis `[metric]`.

        Args:
            boxes: `of_sums` or `of_squares`; the result has their metrics, in order.
            true: Of every metric, without noise.
            add_noise: Where noise comes from.
        """
        noisy: dict[int, IntArray] = {}
        for box in boxes:
            drawn = add_noise(true[..., list(box.metrics)], box.scale(self.epsilon), box.widths)
            noisy |= zip(box.metrics, np.moveaxis(drawn, -1, 0), strict=True)
        return np.stack([noisy[metric] for metric in sorted(noisy)], axis=-1)

    def variance(self, space: CategorySpace, metric: int) -> float:
        """The variance of the noise on sums, in the unit of the metric."""
        unit, place = float(space.metric_lattice().units[metric]), places_of(space)[metric]
        return unit**2 * float(_known_variances(self.of_sums, self.epsilon)[place])

    def squares_variance(self, space: CategorySpace, metric: int) -> float:
        """The variance of the noise on squares of distances from the middle; 0 without squares."""
        found = _known_variances(self.of_squares, self.epsilon).get(places_of(space)[metric])
        quarter = squares_unit(space.metric_lattice(), metric)
        return 0.0 if found is None else quarter**2 * float(found)


def squares_unit(lattice: MetricLattice, metric: int) -> float:
    """What integers of squares of distances from the middle are multiples of."""
    return float(lattice.units[metric]) ** 2 / 4 * 4.0 ** lattice.shifts[metric]


def places_of(space: CategorySpace) -> range:
    """The places of a question's metrics among those of all questions of its release."""
    n_metrics = [len(one.metric_lattice().units) for one in space.together]
    first = sum(n_metrics[: space.place])
    return range(first, first + n_metrics[space.place])


def sum_noise(space: CategorySpace, epsilon: float, weight: int = 1) -> SumNoise:
    """The noise at which all sums and squares of a level together cost ε, of all questions.

    Args:
        space: The categories of one of the questions.
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
    pairs = zip(places_of(space), units, strict=True)
    return np.stack([unit**2 * found[place] for place, unit in pairs], axis=-1)


class _Moves(NamedTuple):
    """How far replacing one unit's outcomes can move the sums of a metric.

    Attributes:
        span: Its sum.
        slack: How much noisier its sums are, relative to the span.
        squares: Its squares, at half the range from the middle; None if none are published.
        most_squares: Its squares as they are added up.
    """

    span: int
    slack: int
    squares: Fraction | None
    most_squares: int


@lru_cache(maxsize=64)
def _boxes(space: CategorySpace, weight: int) -> tuple[Boxes, Boxes]:
    """Boxes of sums and of squares, of the kind of noise that adds less variance to sums.

    Variances are compared at small ε, each over the square of what its metric may be off by: its
    span times its slack. Apart, it is 2c². Together, (m + 1)(m + 2)/3 over the slack's square. So
    what is chosen follows from the spaces, in fractions, and is the same wherever it is computed.
    """
    every = _every_move(space)
    n_metrics, factor = len(every), _factor_of_sums(every)
    each = factor**2 * Fraction((n_metrics + 1) * (n_metrics + 2), 3)
    together = sum(each / one.slack**2 for one in every)
    apart = 2 * _most_moves_together(space) ** 2 * n_metrics
    return (_together if together < apart else _apart)(space, weight)


def _every_move(space: CategorySpace) -> list[_Moves]:
    """Of the metrics of all questions."""
    return [
        _Moves(
            span,
            lattice.slacks[metric],
            Fraction(4 * span**2, 4 ** lattice.shifts[metric]) if lattice.squared[metric] else None,
            _span_of_squares(lattice, metric),
        )
        for lattice in (one.metric_lattice() for one in space.together)
        for metric, span in enumerate(_spans(lattice))
    ]


def _most_moves_together(space: CategorySpace) -> Fraction:
    """The same as `_most_moves` over all questions.

    A unit's outcomes are a product of those of questions, so that all can move as far as they do.
    """
    return sum((_most_moves(one) for one in space.together), Fraction(0))


def _apart(space: CategorySpace, weight: int) -> tuple[Boxes, Boxes]:
    """Discrete Laplace noise on each sum.

    With D_j the span of metric j and w the largest weight of a unit, its sums have noise of scale
    c·w·D_j/ε, times its slack, and its squares, in quarters, of c·w·4D_j²/ε (over 4^shift where
    distances lose bits). Replacing a unit's outcomes then costs at most ε if c is the largest value
    that the sum of `_moves` takes over pairs of categories, added up over questions.
    """
    every, most = _every_move(space), weight * _most_moves_together(space)
    return tuple(
        NoiseBox((metric,), ALONE, most * one.span * one.slack) for metric, one in enumerate(every)
    ), tuple(
        NoiseBox((metric,), ALONE, most * one.squares)
        for metric, one in enumerate(every)
        if one.squares is not None
    )


def _together(space: CategorySpace, weight: int) -> tuple[Boxes, Boxes]:
    """Noise on the sums of all metrics together, and on all squares.

    Each metric moves by its span at most, and its squares by theirs. So a box as wide as the spans
    costs ε with all metrics, and slack would be for nothing. Squares have a part of ε of their own:
    the sums of one metric and the squares of another can both move as far as they ever do.
    """
    every = _every_move(space)
    spans = {metric: one.span for metric, one in enumerate(every)}
    squared = {
        metric: one.most_squares for metric, one in enumerate(every) if one.squares is not None
    }
    of_squares = (_box(squared, Fraction(weight * _PARTS_OF_SQUARES)),) if squared else ()
    return (_box(spans, weight * _factor_of_sums(every)),), of_squares


def _factor_of_sums(every: list[_Moves]) -> Fraction:
    """How much larger the noise on sums is because a part of ε is for squares."""
    if all(one.squares is None for one in every):
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


@lru_cache(maxsize=64)
def _known_variances(boxes: Boxes, epsilon: float) -> dict[int, FloatArray]:
    """The same at one ε. Weekly folders ask for them at the same one."""
    return _variances(boxes, epsilon)


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
    lattice, own = space.metric_lattice(), places_of(space)
    largest = lattice.squares().max(axis=1).tolist()
    sums = [max(map(abs, metric)) for metric in lattice.integers.tolist()]
    for boxes, units in ((noise.of_sums, sums), (noise.of_squares, largest)):
        for box in boxes:
            reach = 64 * box.scale(noise.epsilon)  # Python's integers do not wrap around
            for metric, width in zip(box.metrics, box.widths, strict=True):
                if metric not in own:
                    continue
                if total_weight * units[metric - own.start] + width * reach > LARGEST_INTEGER:
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
