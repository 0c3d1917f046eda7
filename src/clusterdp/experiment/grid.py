"""The grid of a number: the few lattice points that it is rounded to, at random.

Between two grid points l < u, a number y becomes u with probability (y − l)/(u − l) and else l,
which keeps its mean. The rounded number spreads about y with variance (y − l)(u − y).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy.typing as npt

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.number import Number, Steps

# Positions on a grid are 8 bits wide.
MOST_POINTS = 255


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Density:
    """How a number is thought to be distributed over its lattice.

    Attributes:
        steps: Lattice points with mass, as steps above the lower end, increasing; axes `[atom]`.
        probs: Their probabilities, which sum to 1; axes `[atom]`.
    """

    steps: IntArray
    probs: FloatArray

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.probs) or (np.diff(self.steps) <= 0).any():
            raise ParameterError("a density needs one probability for each of increasing steps")
        if (self.probs < 0).any() or abs(self.probs.sum() - 1) > 1e-9:
            raise ParameterError("the probabilities of a density must be at least 0 and sum to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Lattice points of a number, both ends among them.

    A cut at step t needs no rule of its own: the grid holds t − 1 and t, there is no lattice point
    between them, and so nothing is rounded from one side to the other.

    Attributes:
        number: The number.
        points: The grid as steps above the lower end, increasing.
    """

    number: Number
    points: tuple[int, ...]

    def __post_init__(self) -> None:
        ends_held = len(self.points) >= 2 and (self.points[0], self.points[-1]) == (
            0,
            self.number.n_steps,
        )
        if not ends_held or any(low >= high for low, high in itertools.pairwise(self.points)):
            raise ParameterError(
                f"the points of a grid must increase from 0 to {self.number.n_steps} steps"
            )
        if len(self.points) > MOST_POINTS:
            raise ParameterError(
                f"a grid has at most {MOST_POINTS} points, got {len(self.points)}; use fewer"
            )

    @property
    def values(self) -> tuple[Fraction, ...]:
        """The grid points as numbers, exactly."""
        return tuple(self.number.value(point) for point in self.points)

    @property
    def widths(self) -> IntArray:
        """The gap above each point, in steps; 1 above the last, where nothing is rounded."""
        return np.array([*np.diff(self.points), 1])

    def lower(self, steps: Steps | IntArray) -> npt.NDArray[np.uint8]:
        """The position of the highest grid point at or below each step; axes `[row]`."""
        positions = np.zeros(len(steps), dtype=np.uint8)
        for point in self.points[1:]:
            # For few points this is many times faster than a binary search.
            positions += steps >= point
        return positions

    def holds_cuts(self, cuts: tuple[int, ...]) -> bool:
        """Whether there is a point on each side of every cut."""
        return set(self.points).issuperset(needed_points(self.number, cuts))

    def rounded(self, density: Density) -> FloatArray:
        """The probability of each grid point after rounding; axes `[point]`."""
        lower = self.lower(density.steps)
        up = (density.steps - np.array(self.points)[lower]) / self.widths[lower]
        probs = np.bincount(lower, density.probs * (1 - up), minlength=len(self.points) + 1)
        probs += np.bincount(lower + 1, density.probs * up, minlength=len(self.points) + 1)
        return np.asarray(probs[:-1])


def needed_points(number: Number, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """The points that every grid holds: both ends, and one on each side of every cut."""
    return tuple(sorted({0, number.n_steps, *cuts, *(cut - 1 for cut in cuts)}))


def rounding_variance_at(grid: Grid, step: int) -> Fraction:
    """(y − l)(u − y): the variance that rounding adds to one lattice point, exactly."""
    lower = int(grid.lower(np.array([step]))[0])
    above = step - grid.points[lower]
    return above * (int(grid.widths[lower]) - above) * grid.number.unit**2


def rounding_variance(grid: Grid, density: Density) -> float:
    """E[(y − l)(u − y)]: the variance that rounding adds, on average over a density."""
    lower = grid.lower(density.steps)
    above = density.steps - np.array(grid.points)[lower]
    return float(density.probs @ (above * (grid.widths[lower] - above))) * float(
        grid.number.unit**2
    )
