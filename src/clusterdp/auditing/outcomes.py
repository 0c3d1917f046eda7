"""Which outcome combinations a unit can have, and what each counts as, from a manifest's texts.

A combination has a level of every outcome: an allowed value, a grid point of a number, or missing.
Between two grid points a number is rounded at random, so its row is a mixture of the rows of
these two. And a sum moves most between two ends of pieces without a cut, which are grid points.
So pairs of combinations are enough for all pairs of rows.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

# The level of an outcome: a number, or None where it is missing.
Level = Fraction | None
Combination = Mapping[str, Level]
# What a combination counts as.
Measure = Callable[[Combination], Fraction]

_MOST_COMBINATIONS = 2**20
_SIGNS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_FACTOR = re.compile(
    r'\(?(?:"(?P<quoted>[^"]+)"|(?P<name>[^\W\d][\w.]*))(?:(?P<sign>[<>=!]=?)(?P<than>[^)*]+))?\)?'
)
_ARROW = re.compile(r'\s*->\s*(?=[^"]*(?:"[^"]*"[^"]*)*$)')


class Combinations:
    """The outcome combinations of one question.

    Args:
        declared: The entry `declared` of a question's `outcomes`.
        grids: The grid points of each number.

    Attributes:
        every: The combinations in the order of the published integers.
        values: What each counts as, by metric; axes `[metric][combination]`.
        is_number: For each metric whether a unit can have values between those of combinations.
    """

    def __init__(self, declared: Mapping[str, Any], grids: Mapping[str, Sequence[float]]) -> None:
        outcomes = declared["outcomes"]
        self._levels: dict[str, list[Level]] = {}
        for one in outcomes:
            name = one["name"]
            known = (
                [_exact(point) for point in grids[name]]
                if name in grids
                else _allowed(one["space"])
            )
            self._levels[name] = [*known, *([None] if one["may_be_missing"] else [])]
        self._missing = [one["name"] for one in outcomes if one["may_be_missing"]]
        constraints = [_ARROW.split(text) for text in declared["constraints"]]
        if math.prod(map(len, self._levels.values())) > _MOST_COMBINATIONS:
            raise ValueError("outcomes have too many combinations")
        products = itertools.product(*self._levels.values())
        every = (dict(zip(self._levels, levels, strict=True)) for levels in products)
        self.every = [
            one for one in every if all(self._keeps(one, *sides) for sides in constraints)
        ]
        observed = [f"{name}_observed" for name in self._missing]
        texts = [*(f'"{name}"' for name in self._levels), *(f'"{name}"' for name in observed)]
        measures = [self._measure(text) for text in (*texts, *declared["metrics"])]
        self.values = [[measure(one) for one in self.every] for measure in measures]
        self.is_number = [text.strip('"') in grids for text in (*texts, *declared["metrics"])]

    def words(self, index: int) -> str:
        """A combination as people read it."""
        return ", ".join(
            f"{name}={'missing' if level is None else f'{float(level):g}'}"
            for name, level in self.every[index].items()
        )

    def _keeps(self, one: Combination, condition: str, consequence: str) -> bool:
        """Whether a combination keeps a constraint.

        A comparison with a missing outcome fails on the left side, and holds on the right.
        """
        if not self._holds(one, condition, if_missing=False):
            return True
        return self._holds(one, consequence, if_missing=True)

    def _holds(self, one: Combination, text: str, *, if_missing: bool) -> bool:
        for name, sign, than in _factors(text):
            if name in one:
                level = one[name]
                held = if_missing if level is None else _SIGNS[sign or "!="](level, than)
            else:
                held = one[name.removesuffix("_observed")] is not None
            if not held:
                return False
        return True

    def _measure(self, text: str) -> Measure:
        """A metric: a product of outcomes, of comparisons and of who was observed."""
        factors = _factors(text)
        if len(factors) == 1 and factors[0][0] in self._missing and factors[0][1] is None:
            return self._centred(factors[0][0])
        return lambda one: _product(self._factor(one, *factor) for factor in factors)

    def _centred(self, name: str) -> Measure:
        """How far an outcome that may be missing is from the middle of its range; 0 if missing."""
        known = [level for level in self._levels[name] if level is not None]
        middle = (min(known) + max(known)) / 2

        def measure(one: Combination) -> Fraction:
            level = one[name]
            return Fraction(0) if level is None else level - middle

        return measure

    def _factor(self, one: Combination, name: str, sign: str | None, than: Fraction) -> Fraction:
        if name not in one:
            return Fraction(one[name.removesuffix("_observed")] is not None)
        level = one[name]
        if level is None:
            return Fraction(0)
        return level if sign is None else Fraction(_SIGNS[sign](level, than))


def _factors(text: str) -> list[tuple[str, str | None, Fraction]]:
    """The outcome, the sign and the threshold of each factor of a product."""
    found = []
    for part in re.split(r'\*(?=[^"]*(?:"[^"]*"[^"]*)*$)', text):
        match = _FACTOR.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"the manifest has a metric that cannot be read: {text!r}")
        name = match["quoted"] or match["name"]
        found.append((name, match["sign"], Fraction(match["than"] or 0)))
    return found


def _product(factors: Any) -> Fraction:
    total = Fraction(1)
    for factor in factors:
        total *= factor
    return total


def _allowed(space: str) -> list[Level]:
    """The allowed values of a finite outcome, from their text."""
    if space.startswith("bins:"):
        edges, _, stated = space.removeprefix("bins:").partition(" as ")
        ends = [Fraction(part) for part in edges.split(",")]
        if stated:
            return [Fraction(part) for part in stated.split(",")]
        return [(low + high) / 2 for low, high in itertools.pairwise(ends)]
    low, found, high = space.partition("..")
    if found:
        if int(high) - int(low) > _MOST_COMBINATIONS:
            raise ValueError("an outcome has too many values")
        return [Fraction(value) for value in range(int(low), int(high) + 1)]
    parts = space.split(",")
    try:
        return [Fraction(part) for part in parts]
    except ValueError:
        return [Fraction(index) for index in range(len(parts))]  # labels


def _exact(number: float) -> Fraction:
    """A float as the decimal that it is written as."""
    return Fraction(repr(number))
