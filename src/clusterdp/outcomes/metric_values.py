"""Metrics of rows as exact integers, for sums; and what the variance of each metric counts for.

A metric is its unit times an integer. Numbers enter by their lattice point, not by the grid point
that they are rounded to. A metric is linear in each number between cuts, and both ends of every
piece between cuts are grid points. So the most that the metrics of two rows can differ by is what
they differ by in some two categories. A number takes up to 24 bits, a product of two numbers 48: a
sum over n rows needs log₂ n more.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.outcomes.metric import Observed, OutcomeValue
from clusterdp.outcomes.space import LARGEST_INTEGER, doubled_distances, squares_fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.outcomes.encoding import OutcomeCodes, OutcomeLevels
    from clusterdp.outcomes.metric import Factor, Metric
    from clusterdp.outcomes.number import Number
    from clusterdp.outcomes.space import ObservedRatio


# Distances of so many bits are squared; sums over 2^28 rows with weights of 8 bits then fit.
_SQUARED_BITS = 13


class MetricIntegers:
    """One metric in units. Make it with `Categories.integers_of`.

    Args:
        metric: The metric.
        outcomes: The outcomes with their levels.
        levels: The level of each outcome in each category; axes `[outcome, category]`.

    Attributes:
        unit: What the integers are multiples of.
        contributions: What finite outcomes and comparisons contribute, for each combination of
            levels, and 0 for rows outside the space; axes `[position]`.
        numbers: The numbers that are factors: their indexes among the numbers, how many units a
            step is, and what 0 steps are.
        categories: The integer of each category; axes `[category]`.

    Raises:
        ParameterError: If its integers do not fit 64 bits.
    """

    def __init__(self, metric: Metric, outcomes: Sequence[OutcomeLevels], levels: IntArray) -> None:
        by_name = {one.name: one for one in outcomes}
        used = [(factor, by_name[factor.outcome]) for factor in metric.factors]
        names = [one.name for one in outcomes if one.grid is not None]
        units = (factor.unit(one.space.unit) for factor, one in used)
        self.unit = math.prod(units, start=Fraction(1))
        self.numbers = tuple(
            (names.index(one.name), *_line(factor, one.grid.number))
            for factor, one in used
            if one.grid is not None and isinstance(factor, OutcomeValue)
        )
        self.categories = _category_integers(metric, used, levels)
        product = np.ones([len(one.values) for one in outcomes], dtype=np.int64)
        for factor, one in used:
            # Numbers are 1 if observed: rows have them by their steps.
            is_number = one.grid is not None and isinstance(factor, OutcomeValue)
            held = Observed(outcome=one.name) if is_number else factor
            axes = [-1 if axis == one.axis else 1 for axis in range(len(outcomes))]
            product *= np.array(_level_integers(held, one)).reshape(axes)
        self.contributions = np.append(product.ravel(), 0)

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

    def of_rows(self, rows: OutcomeCodes) -> IntArray:
        """The integer of each row; axes `[row]`. Rows outside the space count as 0."""
        integers = self.contributions[rows.positions]
        for place, slope, first in self.numbers:
            integers *= slope * rows.steps[place].astype(np.int64) + first
        return integers


def _line(factor: Factor, number: Number) -> tuple[int, int]:
    """A factor as a line in the steps of an observed number: how many units a step is, and 0."""
    unit = factor.unit(number.unit)
    first, _ = factor.exact_levels([number.value(0), number.value(number.n_steps)])
    return int(number.unit / unit), int(first / unit)


def _category_integers(
    metric: Metric, used: list[tuple[Factor, OutcomeLevels]], levels: IntArray
) -> IntArray:
    """The integer of each category, from the factors with their outcomes."""
    by_level = [(_level_integers(factor, one), levels[one.axis].tolist()) for factor, one in used]
    integers = [
        math.prod(values[of_outcome[category]] for values, of_outcome in by_level)
        for category in range(levels.shape[1])
    ]
    if max(*map(abs, integers), max(integers) - min(integers)) > LARGEST_INTEGER:
        raise ParameterError(
            f"metric {str(metric)!r} has more digits than 64 bits hold; declare a product of fewer "
            "outcomes"
        )
    return np.array(integers)


def _level_integers(factor: Factor, outcome: OutcomeLevels) -> list[int]:
    """A factor at each level of its outcome, in units."""
    unit = factor.unit(outcome.space.unit)
    return [int(value / unit) for value in factor.exact_levels(outcome.values)]


# A metric that hardly varies under the baseline is weighed by this share of its range instead.
_LEAST_STD = 1e-3


def metric_weights(
    values: FloatArray,
    multipliers: Sequence[float],
    ratios: Mapping[int, ObservedRatio],
    prior: FloatArray | None,
) -> FloatArray:
    """The weight of each metric in the sum of variances; axes `[metric]`.

    By default metrics count equally, relative to their own variance under the prior, or relative to
    their squared range where nothing is declared. Declared multipliers come on top.

    A mean N/D of units with an observed outcome is wanted as N − θD, θ its value under the prior:
    what varies is that, and noise on D counts θ² times as much as noise on N, on top of what D
    counts for itself.

    Args:
        values: Of the metrics; axes `[metric, category]`.
        multipliers: How much more each metric counts than by default.
        ratios: The metrics of units with an observed outcome, by their indexes.
        prior: The declared distribution; None where nothing is declared. Axes `[category]`.
    """
    scales = np.ptp(values, axis=1)
    if prior is None:
        return np.asarray(np.array(multipliers) / scales**2)
    deviations, thetas = values - (values @ prior)[:, np.newaxis], {}
    for index, ratio in ratios.items():
        above, below = values[index], values[ratio.observed]
        thetas[index] = float(above @ prior) / max(float(below @ prior), _LEAST_STD)
        deviations[index] = above - thetas[index] * below
    scales = np.maximum(np.sqrt(deviations**2 @ prior), _LEAST_STD * scales)
    weights = np.array(multipliers) / scales**2
    shared = weights.copy()
    for index, theta in thetas.items():
        shared[ratios[index].observed] += theta**2 * weights[index]
    return np.asarray(shared)
