"""Categories: the combinations of outcomes that exist, with the grids of numbers fixed.

A unit's outcomes are one category. One channel for the category releases every metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clusterdp._text import exact, shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.outcomes.declaration import DeclaredOutcomes, DeclaredRecord
from clusterdp.outcomes.encoding import OutcomeEncoder, OutcomeLevels
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.outcomes.grid import Grid
from clusterdp.outcomes.metric import Observed, Threshold
from clusterdp.outcomes.metric_values import MetricIntegers, metric_weights
from clusterdp.outcomes.space import MetricLattice, ObservedRatio

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.outcomes.metric import Metric
    from clusterdp.outcomes.number import Number


# One channel serves so many categories.
MOST_CATEGORIES = 64
# Where no channel is made, as for a baseline; category codes are 16 bits wide.
MOST_FINE_CATEGORIES = 2**15 - 1
_MOST_COMBINATIONS = 2**20
# What follows from categories alone is computed once for so many of them.
_REMEMBERED = 16


class TooManyCategoriesError(ParameterError):
    """The declared outcomes have more combinations than one channel serves."""

    def __init__(self, n_categories: int, most: int, declared: DeclaredOutcomes) -> None:
        levels = {
            one.name: one.space.values
            for one in declared.outcomes
            if isinstance(one.space, OutcomeSpace)
        }
        # The one with most of them can be a number, whose levels are a grid.
        widest = max(levels, key=lambda name: len(levels[name]), default=declared.names[0])
        fewer = "declare fewer levels"
        if len(values := levels.get(widest, ())) > 2:
            ends = f"{shortest_decimal(values[0])}..{shortest_decimal(values[-1])}"
            which = f", which has {len(values):,}," if len(declared.names) > 1 else ""
            fewer = f"declare {widest!r}{which} as number:{ends}"
        links = (
            ", or more constraints, or ask outcomes in separate questions (question=..., "
            "--question) where no constraint or metric links them"
        )
        several = len(declared.names) > 1
        named = f"outcome{'s' if several else ''} {', '.join(map(repr, declared.names))}"
        missing = " (one of them: missing)" * bool(declared.missing)
        has = f"{n_categories:,} allowed values{missing}, and an outcome"
        if several:
            has = f"{n_categories:,} outcome combinations, and one question"
        super().__init__(
            f"{named} {'have' if several else 'has'} {has} has at most {most:,}. Fix: "
            f"{fewer}{links if several else ''}."
        )
        self.about = (widest,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Every combination of levels that breaks no constraint, in the order of the outcomes' levels.

    A level is a value of a finite outcome or a grid point of a number; an outcome that may be
    missing has a last level for that. The levels of a combination make its *position* in mixed
    radix, the last outcome changing fastest.

    Attributes:
        declared: The declared outcomes.
        grids: The grid of each number, in the order of the outcomes.
        most: How many categories there may be.
        outcomes: The outcomes with their grids, in the order in which they are declared.
        questions: The categories of all questions of a release in their order, these among them;
            none where there are no others. See `together`.
        place: The place of these among them.
        levels: The level of each outcome in each category; axes `[outcome, category]`.
        table: The category at each position, −1 where a constraint is broken; axes `[position]`.
    """

    declared: DeclaredOutcomes
    grids: tuple[Grid, ...] = ()
    most: int = field(default=MOST_CATEGORIES, compare=False, repr=False)
    questions: tuple[Categories, ...] = field(default=(), repr=False)
    place: int = 0
    outcomes: tuple[OutcomeLevels, ...] = field(init=False, compare=False, repr=False)
    levels: IntArray = field(init=False, compare=False, repr=False)
    table: npt.NDArray[np.int16] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_grids(self.declared, self.grids)
        object.__setattr__(self, "outcomes", _with_levels(self.declared, self.grids))
        if math.prod(self.shape) > _MOST_COMBINATIONS:
            raise TooManyCategoriesError(math.prod(self.shape), self.most, self.declared)
        exists = self._existing()
        positions = np.flatnonzero(exists)
        if len(positions) > self.most:
            raise TooManyCategoriesError(len(positions), self.most, self.declared)
        table = np.full(exists.size, -1, dtype=np.int16)
        table[positions] = np.arange(len(positions))
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "levels", np.stack(np.unravel_index(positions, self.shape)))
        _check_measurable(self)

    @property
    def n_categories(self) -> int:
        """K, the number of categories."""
        return int(self.levels.shape[1])

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The outcomes, whose means are the first metrics."""
        return self.declared.names

    @property
    def together(self) -> tuple[Categories, ...]:
        """The categories of all questions of a release in their order, these among them."""
        return self.questions or (self,)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of levels of each outcome."""
        return tuple(len(one.values) for one in self.outcomes)

    def outcome(self, name: str) -> OutcomeLevels:
        """An outcome with its levels, by its name."""
        return self.outcomes[self.declared.names.index(name)]

    def grid(self, name: str) -> Grid:
        """The grid of a number, by its name."""
        return dict(zip(self.declared.numbers, self.grids, strict=True))[name]

    def encoder(self, clip: Collection[str] = ()) -> OutcomeEncoder:
        """What encodes rows; `clip` names finite outcomes that are clipped, too."""
        return OutcomeEncoder(self.outcomes, self.table, clip)

    def outcome_values(self) -> FloatArray:
        """The value of each outcome in each category, or NaN; axes `[outcome, category]`."""
        every = zip(self.outcomes, self.levels, strict=True)
        return np.stack([one.numbers()[levels] for one, levels in every])

    def _existing(self) -> BoolArray:
        """Whether each combination can keep every constraint; axes `[position]`.

        A constraint is about observed values. It is broken where it would be for all values of the
        missing ones: a comparison with a missing outcome fails on the left side and holds on
        the right.
        """

        def holds(condition: Metric, *, if_missing: bool) -> BoolArray:
            found = []
            for factor in condition.factors:
                one = self.outcome(factor.outcome)
                values = factor.of_levels(one.values) != 0
                if isinstance(factor, Threshold):
                    unknown = np.array([level is None for level in one.values])
                    values = np.where(unknown, if_missing, values)
                axes = [-1 if axis == one.axis else 1 for axis in range(len(self.outcomes))]
                found.append(values.reshape(axes))
            return reduce(np.logical_and, found)

        exists = np.ones(self.shape, dtype=np.bool_)
        for constraint in self.declared.constraints:
            condition, consequence = constraint.sides
            exists &= ~holds(condition, if_missing=False) | holds(consequence, if_missing=True)
        return exists.ravel()

    def metric_values(self) -> FloatArray:
        """The value of each metric in each category; axes `[metric, category]`."""
        return _metric_values(self)

    def values_of(self, metric: Metric) -> FloatArray:
        """The value of any metric in each category; axes `[category]`."""
        pairs = [(factor, self.outcome(factor.outcome)) for factor in metric.factors]
        taken = [factor.of_levels(one.values)[self.levels[one.axis]] for factor, one in pairs]
        return np.asarray(np.prod(taken, axis=0))

    def integers_of(self, metric: Metric) -> MetricIntegers:
        """Any metric of rows in exact integers."""
        return MetricIntegers(metric, self.outcomes, self.levels)

    def metric_lattice(self) -> MetricLattice:
        """The metrics of categories as integers times a unit."""
        return _metric_lattice(self)

    def metric_weights(self, prior: FloatArray | None) -> FloatArray:
        """How much the variance of each metric counts; see `metric_weights`."""
        multipliers = self.declared.multipliers
        return metric_weights(self.metric_values(), multipliers, self.of_observed(), prior)

    def of_observed(self) -> dict[int, ObservedRatio]:
        """The metrics that cover units with an observed outcome, by their places."""
        declared, found = self.declared, {}
        for place in range(len(declared.metrics)):
            observed = declared.observed_place(place)
            if observed is not None:
                is_outcome = place < len(declared.outcomes)
                origin = declared.outcomes[place].middle if is_outcome else 0.0
                found[place] = ObservedRatio(observed, origin)
        return found

    def labels(self) -> list[str]:
        """Every category in words: `visit=1, rounds=12.5`."""
        parts = [
            [
                f"{one.name}={'missing' if value is None else shortest_decimal(float(value))}"
                for value in one.values
            ]
            for one in self.outcomes
        ]
        return [
            ", ".join(part[level] for part, level in zip(parts, levels, strict=True))
            for levels in self.levels.T.tolist()
        ]

    def record(self) -> CategoriesRecord:
        """The categories as a manifest holds them; its `categories` reads them back."""
        return CategoriesRecord(
            declared=self.declared.record(),
            grids={
                name: [float(value) for value in grid.values]
                for name, grid in zip(self.declared.numbers, self.grids, strict=True)
            },
        )


def together(spaces: Sequence[Categories]) -> tuple[Categories, ...]:
    """The categories of the questions of one release, each knowing the others.

    Sums of all metrics have their noise together, so that it follows from all questions.
    """
    alone = tuple(replace(one, questions=(), place=0) for one in spaces)
    if len(alone) == 1:
        return alone
    return tuple(replace(one, questions=alone, place=place) for place, one in enumerate(alone))


class CategoriesRecord(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """Categories as a manifest writes them."""

    declared: DeclaredRecord
    grids: dict[str, list[float]] = {}

    @cached_property
    def categories(self) -> Categories:
        """The categories that are written here."""
        return categories_on(self.declared.declared(), self.grids)


def categories_on(declared: DeclaredOutcomes, grids: Mapping[str, Sequence[float]]) -> Categories:
    """The categories of declared outcomes whose numbers have these points, by name."""
    if set(grids) != set(declared.numbers):
        raise ParameterError("grids must be given for every number, and only for numbers")
    return Categories(
        declared=declared,
        grids=tuple(
            Grid(number=number, points=_points(number, grids[name]))
            for name, number in declared.numbers.items()
        ),
    )


def _points(number: Number, values: Sequence[float]) -> tuple[int, ...]:
    if not all(math.isfinite(value) for value in values):
        raise ParameterError("the points of a grid must be finite")
    steps = [number.steps_to(value) for value in values]
    if any(step.denominator > 1 for step in steps):
        raise ParameterError(f"the points of a grid must be multiples of {number.unit}")
    return tuple(map(int, steps))


def _with_levels(declared: DeclaredOutcomes, grids: tuple[Grid, ...]) -> tuple[OutcomeLevels, ...]:
    """The outcomes with their grids and levels."""
    by_name, stride, found = dict(zip(declared.numbers, grids, strict=True)), 1, []
    for axis, outcome in reversed(list(enumerate(declared.outcomes))):
        grid, space = by_name.get(outcome.name), outcome.space
        finite = space.values if isinstance(space, OutcomeSpace) else ()
        known = tuple(map(exact, finite)) if grid is None else grid.values
        values = (*known, *((None,) if outcome.may_be_missing else ()))
        found.append(
            OutcomeLevels(
                name=outcome.name,
                space=space,
                may_be_missing=outcome.may_be_missing,
                grid=grid,
                axis=axis,
                stride=stride,
                values=values,
            )
        )
        stride *= len(values)
    return tuple(reversed(found))


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
                f"the grid of {name!r} must have a point on each side of every declared "
                "threshold; place it with these thresholds"
            )


@lru_cache(maxsize=_REMEMBERED)
def _metric_values(categories: Categories) -> FloatArray:
    """As `Categories.metric_values`; plans ask for it thousands of times."""
    made = np.stack([categories.values_of(metric) for metric in categories.declared.metrics])
    made.setflags(write=False)
    return made


@lru_cache(maxsize=_REMEMBERED)
def _metric_lattice(categories: Categories) -> MetricLattice:
    """As `Categories.metric_lattice`."""
    made = [categories.integers_of(metric) for metric in categories.declared.metrics]
    integers = np.stack([one.categories for one in made])
    integers.setflags(write=False)
    is_squared = [one.has_squares and one.is_alone(made) for one in made]
    squared = frozenset(
        name
        for metric, published in zip(categories.declared.metrics, is_squared, strict=True)
        for name in metric.outcomes
        if published and len(metric.factors) == 1
    )
    return MetricLattice(
        units=tuple(one.unit for one in made),
        integers=integers,
        squared=tuple(is_squared),
        is_number=tuple(bool(one.numbers) for one in made),
        shifts=tuple(one.square_shift for one in made),
        slacks=tuple(_slack(metric, squared) for metric in categories.declared.metrics),
    )


def _slack(metric: Metric, squared: frozenset[str]) -> int:
    """How much noisier sums of a metric are than by its span: so that they cost nothing.

    Next to sums of R·(y − middle) with noise of scale D/ε, where a missing outcome and an end are
    D/2 apart, sums of R with noise of scale 2/ε are free: 1/2 + 1/2 = 1. With squares, which move
    by a quarter then, it takes a scale of 4/ε.
    """
    if len(metric.factors) > 1 or not isinstance(metric.factors[0], Observed):
        return 1
    return 4 if metric.factors[0].outcome in squared else 2


def _check_measurable(categories: Categories) -> None:
    """Raise a ParameterError if constraints leave a metric one value only."""
    spans = np.ptp(categories.metric_values(), axis=1) if categories.n_categories else [0.0]
    for metric, span in zip(categories.declared.metrics, spans, strict=False):
        if span == 0:
            raise ParameterError(
                f"the constraints leave {str(metric)!r} one allowed value, and a metric needs 2; "
                "declare fewer constraints"
            )
