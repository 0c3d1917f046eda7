"""Shares of a number beyond a value that is no cut: bounds, and intervals that hold both.

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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.composed import compared_arms, composed_effect
from clusterdp.estimation.intervals import quantile
from clusterdp.estimation.measured import CategoryFunction
from clusterdp.estimation.metric_effects import Found
from clusterdp.experiment.decimals import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.estimation.intervals import Limits
    from clusterdp.estimation.metric_effects import MetricRows
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.expressions import Comparison


class ArmBounds(NamedTuple):
    """A share of an arm that is known up to bounds.

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


class ShareBounds(NamedTuple):
    """A comparison of a number with a value that is no cut.

    Attributes:
        name: The comparison.
        functions: What bounds its share from below and from above.
        beside: The grid points beside the value.
    """

    name: str
    functions: tuple[CategoryFunction, CategoryFunction]
    beside: tuple[float, float]

    @classmethod
    def of(cls, comparison: Comparison, space: Categories) -> ShareBounds:
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
        beside = (float(grid.values[upper - 1]), float(grid.values[upper]))
        return cls(str(comparison), (functions[0], functions[1]), beside)

    def effects(self, rows: Sequence[MetricRows]) -> Found:
        """Effects on the share, overall and in every segment; `rows` are of both functions."""
        effects = [
            composed_effect(one, ArmBounds, rows[0].family)
            for one in compared_arms(rows, self.name)
        ]
        low, high = map(shown, self.beside)
        note = (
            f"{self.name}: numbers between {low} and {high} were rounded to one of them, so shares "
            "are known up to bounds; estimates are half way, and intervals hold both; the owner "
            f'could declare --metric "{self.name}"'
        )
        return Found(effects, [], [note])
