"""Categories: the combinations of outcomes that exist, with the grids of numbers fixed.

A unit's outcomes are one category. One channel for the category releases every metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.category_space import MetricLattice
from clusterdp.experiment.decimals import exact, shown
from clusterdp.experiment.declared import (  # noqa: TC001 - msgspec resolves hints
    DeclaredOutcomes,
    DeclaredRecord,
)
from clusterdp.experiment.grid import Grid
from clusterdp.experiment.number import Number

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.experiment.expressions import Metric

# One channel serves so many categories.
MOST_CATEGORIES = 64
# Where no channel is made, as for a reference; category codes are 16 bits wide.
MOST_FINE_CATEGORIES = 2**15 - 1
_MOST_COMBINATIONS = 2**20
# What follows from categories alone is computed once for so many of them.
_REMEMBERED = 16


class TooManyCategoriesError(ParameterError):
    """The declared outcomes have more combinations than one channel serves."""

    def __init__(self, n_categories: int, most: int) -> None:
        super().__init__(
            f"the outcomes make {n_categories:,} categories, and at most {most:,} can share a "
            "channel; declare fewer levels or more implications, or put them into smaller blocks "
            "(block=..., --block) as far as no implication or metric links them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Every combination of levels that breaks no implication, in the order of the outcomes' levels.

    A level is a value of a finite outcome or a grid point of a number. The levels of a combination
    make its *position* in mixed radix, the last outcome changing fastest.

    Attributes:
        declared: The declared outcomes.
        grids: The grid of each number, in the order of the outcomes.
        most: How many categories there may be.
        levels: The level of each outcome in each category; axes `[outcome, category]`.
        table: The category at each position, −1 where an implication is broken; axes `[position]`.
    """

    declared: DeclaredOutcomes
    grids: tuple[Grid, ...] = ()
    most: int = field(default=MOST_CATEGORIES, compare=False, repr=False)
    levels: IntArray = field(init=False, compare=False, repr=False)
    table: npt.NDArray[np.int16] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_grids(self.declared, self.grids)
        if math.prod(self.shape) > _MOST_COMBINATIONS:
            raise TooManyCategoriesError(math.prod(self.shape), self.most)
        exists = _existing(self.declared, self.level_values)
        positions = np.flatnonzero(exists)
        if len(positions) > self.most:
            raise TooManyCategoriesError(len(positions), self.most)
        table = np.full(exists.size, -1, dtype=np.int16)
        table[positions] = np.arange(len(positions))
        object.__setattr__(self, "table", table)
        levels = np.stack(np.unravel_index(positions, self.shape))
        object.__setattr__(self, "levels", levels)
        _check_measurable(self)

    @property
    def n_categories(self) -> int:
        """K, the number of categories."""
        return int(self.levels.shape[1])

    @property
    def level_values(self) -> tuple[tuple[Fraction, ...], ...]:
        """The values of each outcome's levels, exactly."""
        grids = iter(self.grids)
        return tuple(
            next(grids).values
            if isinstance(outcome.space, Number)
            else tuple(map(exact, outcome.space.values))
            for outcome in self.declared.outcomes
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of levels of each outcome."""
        grids = iter(self.grids)
        return tuple(
            len(next(grids).points)
            if isinstance(outcome.space, Number)
            else outcome.space.n_categories
            for outcome in self.declared.outcomes
        )

    @property
    def strides(self) -> tuple[int, ...]:
        """How far one level of each outcome moves the position of a combination."""
        return tuple(math.prod(self.shape[place + 1 :]) for place in range(len(self.shape)))

    def outcome_values(self) -> FloatArray:
        """The value of each outcome in each category; axes `[outcome, category]`."""
        return np.stack(
            [
                np.array([float(value) for value in values])[levels]
                for values, levels in zip(self.level_values, self.levels, strict=True)
            ]
        )

    def metric_values(self) -> FloatArray:
        """The value of each metric in each category; axes `[metric, category]`."""
        return _metric_values(self)

    def metric_lattice(self) -> MetricLattice:
        """The metrics of categories as integers times a unit."""
        return _metric_lattice(self)

    def metric_weights(self, prior: FloatArray | None) -> FloatArray:
        """How much the variance of each metric counts; see `metric_weights`."""
        from clusterdp.experiment.metric_weights import metric_weights

        return metric_weights(self, prior)

    def units(self) -> tuple[Fraction, ...]:
        """The unit of each outcome's lattice; its values are multiples of it."""
        return tuple(
            outcome.space.unit if isinstance(outcome.space, Number) else outcome.space.lattice()[0]
            for outcome in self.declared.outcomes
        )

    def lattice_integers(self) -> IntArray:
        """The value of each outcome in each category, in its unit; axes `[outcome, category]`."""
        return np.stack(
            [
                np.array([int(value / unit) for value in values])[levels]
                for values, unit, levels in zip(
                    self.level_values, self.units(), self.levels, strict=True
                )
            ]
        )

    def label(self, category: int) -> str:
        """A category in words: `visit=1, rounds=12.5`."""
        return ", ".join(
            f"{name}={shown(float(values[level]))}"
            for name, values, level in zip(
                self.declared.names, self.level_values, self.levels[:, category], strict=True
            )
        )

    def record(self) -> CategoriesRecord:
        """The categories as a manifest holds them; its `categories` reads them back."""
        return CategoriesRecord(
            declared=self.declared.record(),
            grids={
                name: [float(value) for value in grid.values]
                for name, grid in zip(self.declared.numbers, self.grids, strict=True)
            },
        )


class CategoriesRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Categories as a manifest writes them."""

    declared: DeclaredRecord
    grids: dict[str, list[float]] = {}

    def categories(self) -> Categories:
        """The categories that are written here."""
        declared = self.declared.declared()
        if set(self.grids) != set(declared.numbers):
            raise ParameterError("grids must be given for every number, and for nothing else")
        return Categories(
            declared=declared,
            grids=tuple(
                Grid(number=number, points=_points(number, self.grids[name]))
                for name, number in declared.numbers.items()
            ),
        )


def _points(number: Number, values: list[float]) -> tuple[int, ...]:
    if not all(math.isfinite(value) for value in values):
        raise ParameterError("the points of a grid must be finite")
    steps = [number.steps_to(value) for value in values]
    if any(step.denominator > 1 for step in steps):
        raise ParameterError(f"the points of a grid must be multiples of {number.unit}")
    return tuple(map(int, steps))


def _existing(
    declared: DeclaredOutcomes, level_values: tuple[tuple[Fraction, ...], ...]
) -> BoolArray:
    """Whether each combination keeps every implication; axes `[position]`."""

    def holds(condition: Metric) -> BoolArray:
        factors = (
            _along(
                factor.of_levels(level_values[declared.names.index(factor.outcome)]) != 0,
                declared.names.index(factor.outcome),
                len(level_values),
            )
            for factor in condition.factors
        )
        return reduce(np.logical_and, factors)

    exists = np.ones(tuple(map(len, level_values)), dtype=np.bool_)
    for implication in declared.implications:
        condition, consequence = implication.sides
        exists &= ~holds(condition) | holds(consequence)
    return exists.ravel()


def _along(values: BoolArray, axis: int, n_axes: int) -> BoolArray:
    """A vector as an array of many axes, of length 1 in all but one."""
    return values.reshape([-1 if place == axis else 1 for place in range(n_axes)])


def _check_grids(declared: DeclaredOutcomes, grids: tuple[Grid, ...]) -> None:
    numbers = declared.numbers
    if tuple(numbers.values()) != tuple(grid.number for grid in grids):
        raise ParameterError(
            f"grids must be given for {', '.join(map(repr, numbers)) or 'no outcome'}, in this "
            f"order, got {len(grids)}"
        )
    for name, grid in zip(numbers, grids, strict=True):
        if not grid.holds_cuts(declared.cuts(name)):
            raise ParameterError(
                f"the grid of {name!r} must hold a point on each side of every cut; "
                "place it with these cuts"
            )


@lru_cache(maxsize=_REMEMBERED)
def _metric_values(categories: Categories) -> FloatArray:
    """As `Categories.metric_values`; plans ask for it thousands of times."""
    by_name = dict(
        zip(
            categories.declared.names,
            zip(categories.level_values, categories.levels, strict=True),
            strict=True,
        )
    )

    def values(metric: Metric) -> FloatArray:
        factors = ((factor, *by_name[factor.outcome]) for factor in metric.factors)
        taken = [each.of_levels(of)[levels] for each, of, levels in factors]
        return np.asarray(np.prod(taken, axis=0))

    made = np.stack([values(metric) for metric in categories.declared.metrics])
    made.setflags(write=False)
    return made


@lru_cache(maxsize=_REMEMBERED)
def _metric_lattice(categories: Categories) -> MetricLattice:
    """As `Categories.metric_lattice`."""
    from clusterdp.experiment.metric_integers import MetricIntegers

    made = [MetricIntegers.of(metric, categories) for metric in categories.declared.metrics]
    integers = np.stack([one.categories for one in made])
    integers.setflags(write=False)
    return MetricLattice(
        units=tuple(one.unit for one in made),
        integers=integers,
        squared=tuple(one.has_squares and one.is_alone(made) for one in made),
        is_number=tuple(bool(one.numbers) for one in made),
        shifts=tuple(one.square_shift for one in made),
    )


def _check_measurable(categories: Categories) -> None:
    """Raise a ParameterError if implications leave a metric one value only."""
    spans = np.ptp(categories.metric_values(), axis=1) if categories.n_categories else [0.0]
    for metric, span in zip(categories.declared.metrics, spans, strict=False):
        if span == 0:
            raise ParameterError(
                f"the implications leave {str(metric)!r} one value only, so there is nothing to "
                "measure; declare fewer implications"
            )
