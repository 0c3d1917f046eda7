"""Metrics of rows as exact integers, for sums: a metric is its unit times an integer.

Numbers enter by their lattice point, not by the grid point that they are rounded to. A metric is
linear in each number between cuts, and both ends of every piece between cuts are grid points. So
the most that the metrics of two rows can differ by is what they differ by in some two categories.
A number takes up to 24 bits, a product of two numbers 48: a sum over n rows needs log₂ n more.

How much the variance of each metric counts when a channel is designed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.outcomes.metric import CentredValue, Observed, OutcomeValue
from clusterdp.outcomes.space import LARGEST_INTEGER, doubled_distances, squares_fit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.encoding import EncodedRows
    from clusterdp.outcomes.metric import Factor, Metric
    from clusterdp.outcomes.number import Number


# Distances of so many bits are squared; sums over 2^28 rows with weights of 8 bits then fit.
_SQUARED_BITS = 13


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricIntegers:
    """One metric in units. Make it with `of`.

    Attributes:
        unit: What the integers are multiples of.
        contributions: What finite outcomes and comparisons contribute, for each combination of
            levels, and 0 for rows outside the space; axes `[position]`.
        numbers: The numbers that are factors: their places among the numbers, how many units a
            step is, and what 0 steps are.
        categories: The integer of each category; axes `[category]`.
    """

    unit: Fraction
    contributions: IntArray
    numbers: tuple[tuple[int, int, int], ...]
    categories: IntArray

    @classmethod
    def of(cls, metric: Metric, categories: Categories) -> MetricIntegers:
        """A metric of these categories.

        Raises:
            ParameterError: If its integers do not fit 64 bits.
        """
        declared = categories.declared
        units = dict(zip(declared.names, categories.units(), strict=True))
        places = list(declared.numbers)
        return cls(
            unit=_product(factor.unit(units[factor.outcome]) for factor in metric.factors),
            contributions=_contributions(metric, categories),
            numbers=tuple(
                (places.index(factor.outcome), *_line(factor, declared.numbers[factor.outcome]))
                for factor in metric.factors
                if _is_number(factor, declared)
            ),
            categories=_category_integers(metric, categories),
        )

    @property
    def has_squares(self) -> bool:
        """Whether squares of rows fit, and do not follow from sums: they do with two values."""
        has_more = len(np.unique(self.categories)) > 2
        return bool(self.numbers) or (has_more and squares_fit(self.categories))

    def is_alone(self, others: list[MetricIntegers]) -> bool:
        """Whether no other metric holds a number of this one.

        Metrics that share a number move together, and not at the ends of pieces alone: what their
        squares cost would not follow from pairs of categories.
        """
        own = {place for place, _, _ in self.numbers}
        holders = [one for one in others if own & {place for place, _, _ in one.numbers}]
        return not own or len(holders) == 1

    @property
    def square_shift(self) -> int:
        """How many bits distances lose before they are squared, so that sums of squares fit."""
        if not self.numbers:
            return 0
        span = 2 * (int(self.categories.max()) - int(self.categories.min()))
        return max(0, span.bit_length() - _SQUARED_BITS)

    def coarse_squares(self, integers: IntArray) -> IntArray:
        """Squares of twice the distance from the middle, less `square_shift` bits each."""
        ends = int(self.categories.min()), int(self.categories.max())
        return np.asarray((doubled_distances(integers, *ends) >> self.square_shift) ** 2)

    def of_rows(self, rows: EncodedRows) -> IntArray:
        """The integer of each row; axes `[row]`. Rows outside the space count as 0."""
        integers = self.contributions[rows.positions]
        for place, slope, first in self.numbers:
            integers *= slope * rows.steps[place].astype(np.int64) + first
        return integers


def _product(units: Iterable[Fraction]) -> Fraction:
    return math.prod(units, start=Fraction(1))


def _is_number(factor: Factor, declared: DeclaredOutcomes) -> bool:
    """Whether a factor moves with the steps of a number."""
    takes_values = isinstance(factor, OutcomeValue | CentredValue)
    return takes_values and factor.outcome in declared.numbers


def _line(factor: Factor, number: Number) -> tuple[int, int]:
    """A factor as a line in the steps of an observed number: how many units a step is, and 0."""
    unit = factor.unit(number.unit)
    first, _ = factor.exact_levels([number.value(0), number.value(number.n_steps)])
    return int(number.unit / unit), int(first / unit)


def _contributions(metric: Metric, categories: Categories) -> IntArray:
    """The product of all factors, numbers being 1 if observed, for each position and for none."""
    names = categories.declared.names
    product = np.ones(categories.shape, dtype=np.int64)
    for factor in metric.factors:
        place = names.index(factor.outcome)
        axes = [-1 if axis == place else 1 for axis in range(len(names))]
        is_number = _is_number(factor, categories.declared)
        held = Observed(outcome=factor.outcome) if is_number else factor
        product *= np.array(_level_integers(held, categories)).reshape(axes)
    return np.append(product.ravel(), 0)


def _category_integers(metric: Metric, categories: Categories) -> IntArray:
    names = categories.declared.names
    by_level = [
        (_level_integers(factor, categories), categories.levels[names.index(factor.outcome)])
        for factor in metric.factors
    ]
    integers = [
        math.prod(values[levels[category]] for values, levels in by_level)
        for category in range(categories.n_categories)
    ]
    if max(*map(abs, integers), max(integers) - min(integers)) > LARGEST_INTEGER:
        raise ParameterError(
            f"metric {str(metric)!r} has more digits than 64 bits hold; declare a product of fewer "
            "outcomes"
        )
    return np.array(integers)


def _level_integers(factor: Factor, categories: Categories) -> list[int]:
    """A factor at each level of its outcome, in units."""
    place = categories.declared.names.index(factor.outcome)
    unit = factor.unit(categories.units()[place])
    return [int(value / unit) for value in factor.exact_levels(categories.level_values[place])]


# A metric that hardly varies under the reference is weighed by this share of its range instead.
_LEAST_STD = 1e-3


def metric_weights(categories: Categories, prior: FloatArray | None) -> FloatArray:
    """The weight of each metric in the sum of variances; axes `[metric]`.

    By default metrics count alike relative to their own variance under the prior, or relative to
    their squared range where nothing is declared. Declared multipliers come on top.

    A mean N/D of those observed is wanted as N − θD, θ its value under the prior: what varies is
    that, and noise on D counts θ² times as much as noise on N, beside what D counts for itself.

    Args:
        categories: The categories.
        prior: The declared distribution; None where nothing is declared. Axes `[category]`.
    """
    values = categories.metric_values()
    scales = np.ptp(values, axis=1)
    ratios: dict[int, float] = {}
    if prior is not None:
        deviations = values - (values @ prior)[:, np.newaxis]
        for place, one in categories.of_observed().items():
            above, below = values[place], values[one.observed]
            ratios[place] = float(above @ prior) / max(float(below @ prior), _LEAST_STD)
            deviations[place] = above - ratios[place] * below
        scales = np.maximum(np.sqrt(deviations**2 @ prior), _LEAST_STD * scales)
    weights = np.array(categories.declared.multipliers) / scales**2
    shared = weights.copy()
    for place, ratio in ratios.items():
        shared[categories.of_observed()[place].observed] += ratio**2 * weights[place]
    return np.asarray(shared)
