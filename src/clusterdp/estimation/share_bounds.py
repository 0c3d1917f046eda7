"""Shares of a number beyond a value that is no cut, and means of functions of a number: bounds.

Intervals hold both bounds.

With grid points l < c ≤ u beside the value c, d the lattice point before c, and R the number after
rounding to the grid, four means of R bound the share of units with y ≥ c:

    P(R > u) ≤ P(y ≥ c) ≤ P(R ≥ l),
    P(R ≥ u) − w·P(R = l) ≤ P(y ≥ c) ≤ P(R ≥ u) + x·P(R = u),

with w = (d − l)/(u − d) and x = (u − c)/(c − l). The first line: R > u only if y > u, and y ≥ c
only if R ≥ l. The second: given y between l and u, R is u with probability t = (y − l)/(u − l).
So the mean of the lower bound is t − w(1 − t), which increases in y, is zero at d and one at u;
below l it is at most zero, from u on it is one. That of the upper bound is t(1 + x), which is one
at c; it is never below zero, and from u on it is at least one. At a cut d = l and c = u: both
bounds of the second line are P(R ≥ u). Which bound is used follows from the grid alone: that of
the second line if its factor is at most one. (P(R ≥ u) by itself is no bound: part of the units
between l and c are rounded up.)

A function f of y is not that of R, either: f(R) has the mean of what is linear between grid points
and equal to f at them. Let e be how far f is above that at most, between two grid points. With e_g
the larger one of both sides of g, f(R) + e_R has a mean of at least f(y), and likewise from below.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.composed import compared_arms, composed_effect
from clusterdp.estimation.intervals import quantile
from clusterdp.estimation.measured import CategoryFunction
from clusterdp.estimation.metric_effects import Found
from clusterdp.estimation.notes import Note
from clusterdp.estimation.possible import MetricRange
from clusterdp.experiment.decimals import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.estimation.intervals import Limits
    from clusterdp.estimation.metric_effects import MetricRows
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.expressions import Comparison


# Bounds that differ by less than this share of what they span are the same.
_SAME = 1e-9


class ArmBounds(NamedTuple):
    """A mean of an arm that is known up to bounds.

    Attributes:
        arm: Estimates of both bounds, the lower one first.
    """

    arm: ArmEstimates

    @property
    def value(self) -> float:
        """Half way between the bounds."""
        return float(self.arm.means.mean())

    @property
    def bounds(self) -> Limits:
        """The estimated bounds; half way between both where noise has them in the wrong order."""
        low, high = map(float, self.arm.means)
        return min(low, self.value), max(high, self.value)

    @property
    def sampling_variance(self) -> float:
        """What sampling adds to the variance of the bound that is known less well."""
        return max(float(self.arm.sampling[self._worst]), 0.0)

    @property
    def privacy_variance(self) -> float:
        """What privacy adds to the variance of the bound that is known less well."""
        return float(self.arm.privacy[self._worst])

    def limits(self, level: float) -> Limits:
        """From the lower limit of the lower bound to the upper limit of the upper one."""
        reach = quantile(level, self.arm.degrees) * np.sqrt(self.arm.variances)
        low, high = self.bounds
        return low - float(reach[0]), high + float(reach[1])

    @property
    def _worst(self) -> int:
        return int(self.arm.variances.argmax())


class MeanBounds(NamedTuple):
    """A mean that is known up to bounds.

    Attributes:
        name: The metric.
        functions: What bounds its mean from below and from above.
        why: Why it is not known.
        possible: What the metric can be.
    """

    name: str
    functions: tuple[CategoryFunction, CategoryFunction]
    why: str
    possible: MetricRange

    @classmethod
    def of_share(cls, comparison: Comparison, space: Categories) -> MeanBounds:
        """The bounds of a comparison by `>=`, `>`, `<=` or `<`."""
        names = space.declared.names
        number = space.declared.numbers[comparison.outcome]
        grid = space.grids[list(space.declared.numbers).index(comparison.outcome)]
        levels = space.levels[names.index(comparison.outcome)]
        (first,) = comparison.cuts(number)  # the first step beyond the value
        upper = int(np.searchsorted(grid.points, first))  # the place of u; that of l is before it
        low, high = (grid.points[place] for place in (upper - 1, upper))
        lost, gained = (first - 1 - low) / (high - first + 1), (high - first) / (first - low)
        above, at_low, at_high = levels >= upper, levels == upper - 1, levels == upper
        shares = [
            above - lost * at_low if lost <= 1 else above - 1.0 * at_high,
            above + gained * at_high if gained <= 1 else above + 1.0 * at_low,
        ]
        if comparison.sign in {"<", "<="}:
            shares = [1 - shares[1], 1 - shares[0]]
        functions = [CategoryFunction.of(str(comparison), one, space) for one in shares]
        before, beyond = (shown(float(grid.values[place])) for place in (upper - 1, upper))
        name = str(comparison)
        why = (
            f"numbers between {before} and {beyond} were rounded to one of them, so shares are "
            "known up to bounds; estimates are half way, and intervals hold both; the owner could "
            f'declare --metric "{name}"'
        )
        return cls(name, (functions[0], functions[1]), why, MetricRange(name, 0.0, 1.0))

    @classmethod
    def of_function(
        cls,
        name: str,
        outcome: str,
        function: Callable[[FloatArray], FloatArray],
        space: Categories,
    ) -> MeanBounds:
        """The bounds of the mean of a function of a number, which takes and gives arrays."""
        place = list(space.declared.numbers).index(outcome)
        grid, number = space.grids[place], space.declared.numbers[outcome]
        above, below = np.zeros((2, len(grid.points)))
        every = np.asarray(function(np.array([float(one) for one in grid.values])), np.float64)
        least, most = every.min(), every.max()
        for low, (first, last) in enumerate(pairwise(grid.points)):
            inside = np.arange(first, last + 1)
            steps = np.asarray(number.first_multiple + inside, np.float64)
            values = function(steps * float(number.unit))
            line = every[low] + (inside - first) / (last - first) * (every[low + 1] - every[low])
            off, ends = values - line, slice(low, low + 2)
            above[ends] = np.maximum(above[ends], off.max())
            below[ends] = np.maximum(below[ends], -off.min())
            least, most = min(least, values.min()), max(most, values.max())
        levels = space.levels[space.declared.names.index(outcome)]
        bounds = [
            CategoryFunction.of(name, one[levels], space) for one in (every - below, every + above)
        ]
        why = (
            f"numbers were rounded to {len(grid.points)} grid points, and the mean of a function "
            "of them is known up to bounds; estimates are half way, and intervals hold both"
        )
        return cls(name, (bounds[0], bounds[1]), why, MetricRange(name, float(least), float(most)))

    @property
    def is_exact(self) -> bool:
        """Whether both bounds are the same but for rounding errors."""
        low, high = (one.values for one in self.functions)
        return bool(np.abs(high - low).max() <= _SAME * max(np.ptp(low), np.ptp(high)))

    def effects(self, rows: Sequence[MetricRows]) -> Found:
        """Effects on the mean, overall and in every segment; `rows` are of both functions."""
        effects = [composed_effect(one, ArmBounds) for one in compared_arms(rows, self.name)]
        return Found(
            effects=effects, notes=[Note(f"{self.name}: {self.why}")], ranges=[self.possible]
        )
