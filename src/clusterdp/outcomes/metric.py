"""Functions of the outcomes: an outcome, a comparison, or a product of them.

One value, `Metric`, serves for what is measured and for the conditions of constraints. Its text is
read by `outcomes/grammar.py`. The level of a missing outcome is None. A factor is 0 there, so a
product counts those alone who have all of its outcomes.
"""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._text import exact, shortest_decimal
from clusterdp.errors import ParameterError, did_you_mean
from clusterdp.outcomes.number import Number, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from clusterdp._arrays import FloatArray

    Levels = Sequence[Fraction | None]


PLAIN_NAME = r"[^\W\d][\w.]*"
SIGNS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


# Whether an outcome was observed has the name of the outcome and this.
OBSERVED = "_observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levelled(ABC):
    """A function of the level of one outcome.

    Attributes:
        outcome: The name of the outcome.
    """

    outcome: str

    def __str__(self) -> str:
        return quoted(self.outcome)

    @abstractmethod
    def exact_levels(self, levels: Levels) -> list[Fraction]:
        """Its value at each level, exactly."""

    def unit(self, of_outcome: Fraction) -> Fraction:  # noqa: ARG002 - for values
        """What its values are multiples of, given the unit of the outcome; most are 0 or 1."""
        return Fraction(1)

    def of_levels(self, levels: Levels) -> FloatArray:
        """Its value at each level; axes `[level]`."""
        return np.array([float(value) for value in self.exact_levels(levels)])


class OutcomeValue(_Levelled):
    """An outcome by itself."""

    __slots__ = ()

    def exact_levels(self, levels: Levels) -> list[Fraction]:
        """Its value at each level of the outcome."""
        return [Fraction(0) if level is None else level for level in levels]

    def unit(self, of_outcome: Fraction) -> Fraction:
        """What its values are multiples of, given the unit of the outcome."""
        return of_outcome


class CentredValue(OutcomeValue):
    """R·(y − middle): how far an outcome is from the middle of its range, and 0 if it is missing.

    It measures an outcome that may be missing. The outcomes of two people differ by the range at
    most, a missing one and another by half of it. That is why sums of R cost nothing more.
    """

    __slots__ = ()

    def exact_levels(self, levels: Levels) -> list[Fraction]:
        """Its value at each level of the outcome; both ends must be among them."""
        known = [level for level in levels if level is not None]
        middle = (min(known) + max(known)) / 2
        return [Fraction(0) if level is None else level - middle for level in levels]

    def unit(self, of_outcome: Fraction) -> Fraction:
        """What its values are multiples of: the middle may lie between two multiples."""
        return of_outcome / 2


class Observed(_Levelled):
    """R: 1 where an outcome was observed, 0 where it is missing."""

    __slots__ = ()

    def __str__(self) -> str:
        return quoted(self.outcome + OBSERVED)

    def exact_levels(self, levels: Levels) -> list[Fraction]:
        """Its value at each level of the outcome."""
        return [Fraction(level is not None) for level in levels]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold(_Levelled):
    """1 where an outcome compares with a threshold as the sign says, else 0.

    Attributes:
        sign: One of `>=`, `<=`, `==`, `!=`, `>`, `<`.
        threshold: What the outcome is compared with, read as a decimal.
    """

    sign: str
    threshold: float

    def __post_init__(self) -> None:
        if self.sign not in SIGNS:
            raise ParameterError(f"sign must be one of {' '.join(SIGNS)}, got {self.sign!r}")
        if not math.isfinite(self.threshold):
            raise ParameterError(f"threshold must be finite, got {self.threshold}")
        object.__setattr__(self, "threshold", float(self.threshold) + 0.0)  # no negative zero

    def __str__(self) -> str:
        return f"{quoted(self.outcome)}{self.sign}{shortest_decimal(self.threshold)}"

    def exact_levels(self, levels: Levels) -> list[Fraction]:
        """Its value at each level of the outcome, compared exactly."""
        holds, threshold = SIGNS[self.sign], exact(self.threshold)
        return [Fraction(level is not None and holds(level, threshold)) for level in levels]

    def cuts(self, space: Space) -> tuple[int, ...]:
        """Where it changes from one value to the next: steps of a lattice, or positions."""
        if isinstance(space, Number):
            return self._steps(space)
        held = self.exact_levels([exact(value) for value in space.values])
        return tuple(after for after in range(1, len(held)) if held[after] != held[after - 1])

    def _steps(self, number: Number) -> tuple[int, ...]:
        place = number.steps_to(self.threshold)
        if self.sign in {">=", "<"}:
            changes: tuple[int, ...] = (math.ceil(place),)
        elif self.sign in {">", "<="}:
            changes = (math.floor(place) + 1,)
        else:
            changes = (int(place), int(place) + 1) if place.denominator == 1 else ()
        return tuple(step for step in changes if 1 <= step <= number.n_steps)


Factor = OutcomeValue | Observed | Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A function of the outcomes: the product of its factors.

    As a condition it holds where it is not 0. A product of conditions is then "and".

    Attributes:
        factors: Outcomes, whether they were observed, and comparisons; at least one.
    """

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        if not self.factors:
            raise ParameterError(
                "a metric needs at least one factor, such as the name of an outcome"
            )

    @classmethod
    def mean_of(cls, outcome: str) -> Metric:
        """The outcome itself, which is measured by its mean."""
        return cls(factors=(OutcomeValue(outcome=outcome),))

    def __str__(self) -> str:
        """What `parse_metric` reads back."""
        if len(self.factors) == 1:
            return str(self.factors[0])
        return "*".join(
            f"({factor})" if isinstance(factor, Threshold) else str(factor)
            for factor in self.factors
        )

    def with_missing(self, missing: Collection[str]) -> Metric:
        """The same of outcomes some of which may be missing, by their names.

        `spend_observed` is then no outcome of its own, and `spend` alone is measured from its
        middle.
        """
        if len(self.factors) == 1 and self.factors[0] in {
            OutcomeValue(outcome=name) for name in missing
        }:
            return Metric(factors=(CentredValue(outcome=self.factors[0].outcome),))
        return self.naming_observed(missing)

    def naming_observed(self, missing: Collection[str]) -> Metric:
        """The same, where the name of an outcome and `_observed` says whether it was observed."""
        observed = {name + OBSERVED: Observed(outcome=name) for name in missing}
        return Metric(
            factors=tuple(
                observed.get(factor.outcome, factor) if isinstance(factor, OutcomeValue) else factor
                for factor in self.factors
            )
        )

    @property
    def valued(self) -> frozenset[str]:
        """The names of the outcomes whose values it uses, not only whether they were observed."""
        return frozenset(
            factor.outcome for factor in self.factors if not isinstance(factor, Observed)
        )

    @property
    def outcomes(self) -> frozenset[str]:
        """The names of the outcomes it uses."""
        return frozenset(factor.outcome for factor in self.factors)

    def cuts(self, outcome: str, number: Number) -> tuple[int, ...]:
        """Where its comparisons cut the range of a number."""
        return tuple(
            step
            for factor in self.factors
            if isinstance(factor, Threshold) and factor.outcome == outcome
            for step in factor.cuts(number)
        )

    def as_condition(self) -> Metric:
        """The same condition with comparisons alone: an outcome by itself is compared with 0."""
        return Metric(
            factors=tuple(
                Threshold(outcome=factor.outcome, sign="!=", threshold=0.0)
                if isinstance(factor, OutcomeValue)
                else factor
                for factor in self.factors
            )
        )

    def check(self, spaces: Mapping[str, Space]) -> None:
        """Raise a ParameterError unless it can be measured without bias on these outcomes."""
        self.check_factors(spaces)
        numbers = [
            factor.outcome
            for factor in self.factors
            if isinstance(factor, OutcomeValue) and isinstance(spaces[factor.outcome], Number)
        ]
        if len(set(numbers)) < len(numbers):
            # Rounding at random keeps the mean of a number, not that of its square.
            raise ParameterError(
                f"a product can use a number once, got {str(self)!r}; declare the square as an "
                "outcome of its own"
            )

    def check_factors(self, spaces: Mapping[str, Space]) -> None:
        """Raise a ParameterError if an outcome is not declared, or a comparison says nothing."""
        check_declared(f"{str(self)!r} uses", [one.outcome for one in self.factors], spaces)
        for factor in self.factors:
            space = spaces[factor.outcome]
            if isinstance(factor, Threshold) and not factor.cuts(space):
                raise ParameterError(
                    f"{str(factor)!r} is the same for every value of {factor.outcome!r} ({space}); "
                    "compare with a value inside it"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Where `condition` is not 0, `consequence` is not 0 either: `conversion -> visit`.

    Attributes:
        condition: The left side.
        consequence: The right side.
    """

    condition: Metric
    consequence: Metric

    def __str__(self) -> str:
        """What `parse_constraint` reads back."""
        return f"{self.condition} -> {self.consequence}"

    def with_missing(self, missing: Collection[str]) -> Constraint:
        """The same of outcomes some of which may be missing, by their names."""
        return Constraint(
            condition=self.condition.with_missing(missing),
            consequence=self.consequence.with_missing(missing),
        )

    @property
    def sides(self) -> tuple[Metric, Metric]:
        """Both sides, with comparisons alone."""
        return self.condition.as_condition(), self.consequence.as_condition()

    def cuts(self, outcome: str, number: Number) -> tuple[int, ...]:
        """Where it cuts the range of a number."""
        return tuple(step for side in self.sides for step in side.cuts(outcome, number))

    def check(self, spaces: Mapping[str, Space], cuts: Mapping[str, Collection[int]]) -> None:
        """Raise a ParameterError unless rows can be checked against it after any rounding.

        Args:
            spaces: The declared outcomes.
            cuts: For each number the cuts that metrics make. Next to an end there is always a cut.
        """
        for side in self.sides:
            side.check_factors(spaces)
        for name, space in spaces.items():
            if not isinstance(space, Number):
                continue
            if not {1, space.n_steps, *cuts[name]}.issuperset(self.cuts(name, space)):
                raise ParameterError(
                    f"constraint {str(self)!r} divides the range of {name!r} ({space}) where no "
                    "metric does; declare the comparison as a metric, too (metric=[...], --metric)"
                )


def check_declared(said: str, names: Iterable[str], declared: Collection[str]) -> None:
    """Raise a ParameterError if one of some names is no declared outcome; `said` is who uses it."""
    for name in names:
        if name not in declared:
            raise ParameterError(
                f"{said} {name!r}, which is not a declared outcome.{did_you_mean(name, declared)} "
                f"The outcomes are {', '.join(map(repr, declared))}."
            )


def quoted(name: str) -> str:
    """A name as expressions write it: plain, or in double quotes."""
    return name if re.fullmatch(PLAIN_NAME, name) else f'"{name}"'
