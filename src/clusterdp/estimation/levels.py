"""How an outcome is distributed over its levels, in an arm: tail shares with errors.

S_k is the share of units whose released level is k or higher. For finite outcomes that is the share
of units with at least the k-th value. A number y is rounded at random to one of the grid points
beside it, R, and shares are of R:

- y ≥ g_k implies R ≥ g_k. So P(y ≥ g_k) ≤ S_k.
- R ≥ g_{k+1} implies y > g_k. So P(y > g_k) ≥ S_{k+1}.

So where g_k < v < g_{k+1}, P(y ≥ v) ≤ P(y > g_k) ≤ S_k and P(y > v) ≥ P(y ≥ g_{k+1}) ≥ S_{k+2}. At
a cut there is no lattice point between g_k and g_{k+1}, nothing is rounded from one to the other,
and P(y > g_k) = P(y ≥ g_{k+1}) = S_{k+1}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.intervals import quantile
from clusterdp.estimation.measured import CategoryFunction
from clusterdp.experiment.decimals import shown
from clusterdp.experiment.expressions import quoted
from clusterdp.experiment.number import Number

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.experiment.categories import Categories


# No share counts for this much more than another when shares are made monotone.
_LEAST_WEIGHT = 1e-9
_TINY = 1e-30


class Levels(NamedTuple):
    """The levels of an outcome, in order.

    Attributes:
        outcome: Its name.
        values: The values of levels, increasing; axes `[level]`.
        divided: Whether nothing lies between a level and the next; axes `[level − 1]`. So it is
            for finite outcomes, and for a number at cuts.
        step: The distance of two lattice points of a number; 0 for finite outcomes.
        functions: 1{level ≥ k} for each level but the first.
    """

    outcome: str
    values: FloatArray
    divided: BoolArray
    step: float
    functions: tuple[CategoryFunction, ...]

    @classmethod
    def of(cls, outcome: str, space: Categories) -> Levels:
        """The levels of an outcome of a release.

        Raises:
            ParameterError: If it may be missing.
        """
        if outcome in space.declared.missing:
            raise ParameterError(
                f"{outcome!r} may be missing, and of such outcomes means and shares of those "
                f"observed are estimated; ask for {outcome!r}"
            )
        place = space.declared.names.index(outcome)
        values = np.array([float(value or 0) for value in space.level_values[place]])
        number = space.declared.spaces[outcome]
        step, divided = 0.0, np.ones(len(values) - 1, dtype=np.bool_)
        if isinstance(number, Number):
            grid = space.grids[list(space.declared.numbers).index(outcome)]
            step, divided = float(number.unit), np.diff(grid.points) == 1
        functions = tuple(
            CategoryFunction.of(
                f"{quoted(outcome)}>={shown(values[level])}",
                (space.levels[place] >= level).astype(np.float64),
                space,
            )
            for level in range(1, len(values))
        )
        return cls(outcome, values, divided, step, functions)


class ArmLevels(NamedTuple):
    """Tail shares of an arm.

    Attributes:
        levels: The levels.
        arm: Estimates of S_k for each level but the first.
        tails: S_0 = 1, S_1, …, and 0 after the last, made monotone; axes `[level + 1]`.
    """

    levels: Levels
    arm: ArmEstimates
    tails: FloatArray

    @classmethod
    def of(cls, levels: Levels, arm: ArmEstimates) -> ArmLevels:
        """From estimates; the more exact ones are moved less to make them monotone."""
        from scipy.optimize import isotonic_regression

        variances = arm.variances
        weights = 1 / np.maximum(variances, _LEAST_WEIGHT * variances.max() + _TINY)
        shares = isotonic_regression(arm.means, weights=weights, increasing=False).x
        return cls(levels, arm, np.concatenate([[1.0], np.clip(shares, 0.0, 1.0), [0.0]]))

    def limits(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Confidence limits of each of `tails`, between 0 and 1; not monotone by themselves."""
        reach = quantile(level, self.arm.degrees) * np.sqrt(self.arm.variances)
        means = np.clip(self.arm.means, 0.0, 1.0)
        low = np.clip(self.arm.means - reach, 0.0, means)
        high = np.clip(self.arm.means + reach, means, 1.0)
        return np.concatenate([[1.0], low, [0.0]]), np.concatenate([[1.0], high, [0.0]])
