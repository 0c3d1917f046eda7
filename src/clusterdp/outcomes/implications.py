"""Declared impossibilities: where one condition holds, another holds too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.outcomes.grammar import parse_metric
from clusterdp.outcomes.metric import Metric
from clusterdp.outcomes.number import Number

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from fractions import Fraction

    from clusterdp.outcomes.declaration import Space


if TYPE_CHECKING:
    Levels = Sequence[Fraction | None]


_ARROW = "->"


# An even number of quotes follows an arrow that is not itself in quotes.
_BARE_ARROW = re.compile(rf'{_ARROW}(?=[^"]*(?:"[^"]*"[^"]*)*$)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Implication:
    """Where `condition` is not 0, `consequence` is not 0 either: `conversion -> visit`.

    Attributes:
        condition: The left side.
        consequence: The right side.
    """

    condition: Metric
    consequence: Metric

    @classmethod
    def parse(cls, given: Implication | str) -> Implication:
        """An implication as people write it: `conversion -> visit`, `spend>0 -> conversion`."""
        if isinstance(given, Implication):
            return given
        sides = _BARE_ARROW.split(given)
        if len(sides) != 2:
            raise ParameterError(
                f"an implication reads CONDITION -> CONDITION (spend>0 -> visit), got {given!r}"
            )
        return cls(condition=parse_metric(sides[0]), consequence=parse_metric(sides[1]))

    def __str__(self) -> str:
        """What `parse` reads back."""
        return f"{self.condition} {_ARROW} {self.consequence}"

    def with_missing(self, missing: Collection[str]) -> Implication:
        """The same of outcomes some of which may be missing, by their names."""
        return Implication(
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
        """Raise a ParameterError unless rows can be checked against it whatever is rounded.

        Args:
            spaces: The declared outcomes.
            cuts: For each number the cuts that metrics make. Beside an end a cut is always there.
        """
        for side in self.sides:
            side.check_factors(spaces)
        for name, space in spaces.items():
            if not isinstance(space, Number):
                continue
            allowed = {1, space.n_steps, *cuts[name]}
            if not allowed.issuperset(self.cuts(name, space)):
                raise ParameterError(
                    f"implication {str(self)!r} divides the range of {name!r} ({space}) where no "
                    "metric does; declare the comparison as a metric, too"
                )
