"""The grid of a number: the few lattice points that it is rounded to, at random.

Between two grid points l < u, a number y becomes u with probability (y − l)/(u − l) and else l,
which keeps its mean. The rounded number spreads about y with variance (y − l)(u − y). The points
of a grid are placed so that this adds the least variance.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._text import counted
from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy.typing as npt

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.outcomes.number import Number, Steps


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


# A density with more atoms is served by so many candidates for points.
_MOST_CANDIDATES = 400


def place_grid(
    number: Number, *, n_points: int, cuts: tuple[int, ...] = (), density: Density | None = None
) -> Grid:
    """The grid of at most `n_points` that adds the least variance.

    With a density, that is the least variance on average. With nothing known, it is the least
    variance in the worst case, width²/4 of the widest gap: equal spacing between cuts.

    Args:
        number: The number.
        n_points: How many points there may be.
        cuts: Steps at which the range is cut.
        density: How the number is thought to be distributed; None if nothing is known.
    """
    needed = needed_points(number, cuts)
    if n_points < len(needed):
        raise ParameterError(
            f"n_points must be at least {len(needed)} (both ends, and a point on each side of "
            f"{counted(len(cuts), 'threshold')}), got {n_points}"
        )
    if density is None:
        points = _spread_evenly(needed, n_points)
    else:
        points = _least_variance(needed, n_points, density)
    return Grid(number=number, points=points)


def _spread_evenly(needed: tuple[int, ...], n_points: int) -> tuple[int, ...]:
    """Points that leave the narrowest widest gap, between the needed ones.

    Each further point goes to where gaps are widest. No other choice can do better, since every
    piece has the fewest parts that keep its gaps below the widest one.
    """
    pieces = list(itertools.pairwise(needed))
    n_parts = [1] * len(pieces)
    for _ in range(n_points - len(needed)):
        widths = [(high - low) / n for (low, high), n in zip(pieces, n_parts, strict=True)]
        n_parts[int(np.argmax(widths))] += 1
    inner = (
        low + round((high - low) * part / n)
        for (low, high), n in zip(pieces, n_parts, strict=True)
        for part in range(1, n)
    )
    return tuple(sorted({*needed, *inner}))


def _least_variance(needed: tuple[int, ...], n_points: int, density: Density) -> tuple[int, ...]:
    """Points that add the least variance on average, found by dynamic programming.

    Between two atoms of the density, the variance is linear in the place of each point. So some
    best grid has all its points at atoms, or where they are needed, and no others are tried.
    """
    candidates = np.union1d(_candidates(density), np.array(needed))
    costs = _gap_costs(candidates, needed, density)
    best, came_from = costs[0], []
    for _ in range(min(n_points, len(candidates)) - 2):
        totals = best[:, np.newaxis] + costs
        came_from.append(totals.argmin(axis=0))
        best = totals.min(axis=0)
    chosen = [len(candidates) - 1]
    for step in reversed(came_from):
        chosen.append(int(step[chosen[-1]]))
    return tuple(sorted({0, *(int(candidates[index]) for index in chosen)}))


def _candidates(density: Density) -> IntArray:
    """Atoms that may become points: all, or some that are dense where points should be.

    A gap of width h where the density is p adds about p·h³/6, so points of the best grid are about
    as dense as p^(1/3).
    """
    steps, probs = density.steps, density.probs
    if len(steps) <= _MOST_CANDIDATES:
        return steps
    spacing = np.gradient(steps.astype(np.float64))
    wanted = np.cumsum(np.cbrt(probs / spacing) * spacing)
    ranks = np.linspace(wanted[0], wanted[-1], _MOST_CANDIDATES)
    return np.unique(steps[np.searchsorted(wanted, ranks)])


def _gap_costs(candidates: IntArray, needed: tuple[int, ...], density: Density) -> FloatArray:
    """E[(y − l)(u − y); l < y < u] for every two candidates l ≤ u; axes `[l, u]`.

    It is ∞ if u < l, or if a needed point lies between them. Steps are scaled to [0, 1].
    """
    scale = 1 / candidates[-1]
    places = candidates * scale
    atoms = density.steps * scale
    moments = [density.probs * atoms**power for power in range(3)]
    up_to = np.searchsorted(density.steps, candidates, side="right")
    mass, first, second = (
        np.subtract.outer(sums, sums).T
        for sums in (np.concatenate([[0.0], np.cumsum(moment)])[up_to] for moment in moments)
    )
    low, high = places[:, np.newaxis], places[np.newaxis, :]
    costs = (low + high) * first - second - low * high * mass
    n_needed = np.searchsorted(np.array(needed), candidates, side="left")
    n_passed = np.searchsorted(np.array(needed), candidates, side="right")
    skips = n_needed[np.newaxis, :] > n_passed[:, np.newaxis]
    backward = candidates[np.newaxis, :] < candidates[:, np.newaxis]
    return np.where(skips | backward, np.inf, np.maximum(costs, 0.0))
