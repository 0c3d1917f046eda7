"""Exact distributions of all that a release of several outcomes publishes, for two neighbours.

One unit's outcomes are replaced. Its row, the counts of its cell and the sums that it is part of
are all that this changes; the rows of other units have the same distribution given the noisy
counts. Given those, the row and the sums are independent. Outputs with one likelihood ratio are
merged, which loses nothing, so noise on sums needs no range to end in.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.statistics.base import Histogram
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.noise import noise_variance
from neighbour_tables import NeighbourTables, Row, shifts
from populations import make_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from neighbour_tables import Centre, Shift

# Between these, noise on the sum of a fine number is taken in so many questions.
_BLOCKS = 64


class Pair(NamedTuple):
    """The probability of each output under two neighbours; axes `[output]`."""

    before: FloatArray
    after: FloatArray

    def loss(self) -> float:
        """The largest log ratio; infinite if an output shows what cannot be the other."""
        possible = self.before > 0
        with np.errstate(divide="ignore"):
            ratios = np.log(self.before[possible]) - np.log(self.after[possible])
        return float(ratios.max())

    def beside(self, other: Pair) -> Pair:
        """Both, drawn independently."""
        return Pair(
            np.outer(self.before, other.before).ravel(), np.outer(self.after, other.after).ravel()
        )

    def merged(self) -> Pair:
        """The same in few outputs: those of similar ratios count as the worst one of them.

        This overstates δ and no loss, as in `moved_noise`.
        """
        ratios = np.log(self.before) - np.log(self.after)
        width = np.ptp(ratios) / _BLOCKS
        places = np.floor((ratios.max() - ratios) / width + 1e-9).astype(np.int64)
        before, worst = np.zeros(_BLOCKS + 1), np.full(_BLOCKS + 1, -np.inf)
        np.add.at(before, places, self.before)
        np.maximum.at(worst, places, ratios)
        found = before > 0
        return Pair(before[found], before[found] * np.exp(-worst[found]))

    def delta(self, epsilon: float, noise: Pair) -> float:
        """Σ max(0, P − e^ε·P′) of this and of independent noise beside it."""
        limit = np.exp(epsilon)
        return sum(
            float(np.maximum(one * self.before - limit * other * self.after, 0).sum())
            for one, other in zip(noise.before, noise.after, strict=True)
        )


NOTHING = Pair(np.ones(1), np.ones(1))


def moved_noise(shift: int, scale: float) -> Pair:
    """Discrete Laplace noise around 0 and around `shift`.

    Below both centres the ratio of the two is constant, and beyond both; these are one output each.
    Between them a question of outputs counts as its worst one, which overstates δ and no loss.
    """
    distance, decay = abs(shift), float(np.exp(-1 / scale))
    if not distance:
        return NOTHING
    far = np.exp(-distance / scale) / (1 + decay)
    near = 1 / (1 + decay)
    edges = np.unique(np.linspace(1, distance, min(distance, _BLOCKS + 1)).astype(np.int64))
    first, last = edges[:-1], edges[1:] - 1
    # P(first ≤ Z ≤ last), and the least that the neighbour's is of it.
    between = (np.exp(-first / scale) - np.exp(-(last + 1) / scale)) / (1 + decay)
    least = between * np.exp((2 * first - distance) / scale)
    return Pair(np.array([near, *between, far]), np.array([far, *least, near]))


def moved_vector(shift: Shift) -> Pair:
    """Noise on a vector around 0 and around where it is moved to.

    Of several numbers together, the largest distance is what the loss can be
    (`tests/statistics/test_box_noise.py` enumerates it). No law of this loss has a larger δ than
    randomized response, which is what is stated.
    """
    if len(shift.distances) == 1:
        return moved_noise(shift.distances[0], shift.scale)
    truthful = 1 / (1 + np.exp(-max(shift.distances) / shift.scale))
    return Pair(np.array([truthful, 1 - truthful]), np.array([1 - truthful, truthful]))


def moved_sums(one: list[Centre], other: list[Centre]) -> Pair:
    """All noisy sums and squares, where one unit's outcomes are replaced."""
    moved = NOTHING
    for shift in shifts(one, other):
        moved = moved.beside(moved_vector(shift)).merged()
    return moved


def category_chances(space: Categories, row: Row) -> FloatArray:
    """How likely each category is after rounding, from the definition; axes `[category]`.

    Between two grid points a number becomes the upper one with its share of the way to it. A
    missing outcome stays missing.
    """
    values, chances = space.outcome_values(), np.ones(space.n_categories)
    numbers = dict(zip(space.declared.numbers, space.grids, strict=True))
    for place, (name, true) in enumerate(zip(space.declared.names, row, strict=True)):
        if true is None:
            chances *= np.isnan(values[place])
            continue
        points = [float(value) for value in numbers[name].values] if name in numbers else [true]
        shares = [_share(points, index, true) for index in range(len(points))]
        by_value = dict(zip(points, shares, strict=True))
        chances *= [by_value.get(value, 0.0) for value in values[place]]
    assert abs(chances.sum() - 1) < 1e-12, "a row to enumerate must be in the space"
    return chances


def _share(points: list[float], index: int, true: float) -> float:
    """The height at `true` of the tent over a grid point."""
    return float(np.interp(true, points, np.eye(len(points))[index]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointRelease:
    """All that a cell publishes of one unit, for every unit that it may be.

    Attributes:
        rows: The outcomes that the unit may have.
        chances: How likely each row is rounded to each category; axes `[row, category]`.
        noisy: Every vector of noisy counts within reach, or one empty one; axes `[point, place]`.
        responses: P(response | row) given noisy counts; axes `[point, response, row]`.
        noise_scale: Of the counts; None if there are none.
        crowd: Other units of the cell by category, beside one more of any; axes `[category]`.
    """

    rows: tuple[Row, ...]
    chances: FloatArray
    noisy: IntArray
    responses: FloatArray
    noise_scale: float | None
    crowd: IntArray

    def counted(self, others: IntArray) -> FloatArray:
        """P(noisy counts | row), with other units in the cell; axes `[row, point]`."""
        if self.noise_scale is None:
            return np.ones((len(self.rows), 1))
        decay = np.exp(-1 / self.noise_scale)
        single = (1 - decay) / (1 + decay)
        counts = others + np.eye(len(others), dtype=np.int64)  # [category, place]
        distances = np.abs(self.noisy - counts[:, np.newaxis]).sum(axis=-1)
        probs = single ** len(others) * decay**distances  # [category, point]
        return np.asarray(self.chances @ probs)

    def pair(self, old: int, new: int, counted: FloatArray) -> Pair:
        """Noisy counts and the unit's response, for two of its rows."""
        one, other = (
            (counted[row][:, np.newaxis] * self.responses[..., row]).ravel() for row in (old, new)
        )
        return Pair(one, other)

    def tail(self) -> float:
        """The most probability that noisy counts beyond reach have, whatever the unit's row."""
        return max(float(1 - counted[old].sum()) for old, _, counted in self.neighbours())

    def neighbours(self) -> Iterator[tuple[int, int, FloatArray]]:
        """Every pair of rows, with P(noisy counts | row) for every company in the cell."""
        companies = self.crowd + np.eye(len(self.crowd), dtype=np.int64)
        for others in companies if self.noise_scale is not None else companies[:1]:
            counted = self.counted(others)
            for old, new in itertools.permutations(range(len(self.rows)), 2):
                yield old, new, counted


def joint_release(
    mechanism: Mechanism, space: Categories, rows: tuple[Row, ...], reach: int, n_crowd: int = 0
) -> JointRelease:
    """The release of a cell, its noisy counts taken up to `reach` beyond what they can be.

    The cell has the unit, one other of any category, and `n_crowd` more of the first category.
    """
    counts, size = mechanism.find(NoisyCounts), space.n_categories
    crowd = n_crowd * np.eye(size, dtype=np.int64)[0]
    histogram, noisy = None, np.zeros((1, 0), dtype=np.int64)
    if counts is not None:
        axis = np.arange(-reach, 2 + reach + 1)
        noisy = crowd + np.array(list(itertools.product(axis, repeat=size)))
        groups = np.zeros((1, 2), dtype=np.int64)
        variance = noise_variance(counts.noise_scale)
        histogram = Histogram(noisy[:, np.newaxis], np.array([n_crowd + 2]), groups, variance)
    chances = np.array([category_chances(space, row) for row in rows])
    transition = _transition(mechanism, space, histogram)
    return JointRelease(
        rows=rows,
        chances=chances,
        noisy=noisy,
        responses=transition @ chances.T,
        noise_scale=None if counts is None else counts.noise_scale,
        crowd=crowd,
    )


def _transition(mechanism: Mechanism, space: Categories, histogram: Histogram | None) -> FloatArray:
    """P(response | category) from the integers of the channels; axes `[point, response, true]`."""
    rows = mechanism.settled_rows(space)
    channel = rows.design(make_layout([[2, 2]]), space, histogram)
    transition = channel.transition()
    if isinstance(channel, OptimalChannel):
        transition = transition[channel.groups[..., 0, 0]]
    return np.asarray(transition.reshape(-1, *transition.shape[-2:]))


def worst_loss(mechanism: Mechanism, tables: NeighbourTables, release: JointRelease) -> float:
    """The largest loss of everything in a release, over all neighbours and all that comes out."""
    return max(losses_of_units(mechanism, tables, release).values())


def losses_of_units(
    mechanism: Mechanism, tables: NeighbourTables, release: JointRelease
) -> dict[int, float]:
    """As `worst_loss`, for a unit of each cell of the tables that sums are of."""
    of_rows: dict[tuple[int, int], float] = {}
    for old, new, counted in release.neighbours():
        loss = release.pair(old, new, counted).loss()
        of_rows[old, new] = max(of_rows.get((old, new), 0.0), loss)
    found = {}
    for unit in tables.units:
        centres = [tables.centres(mechanism, unit, row) for row in release.rows]
        found[unit] = max(
            of_rows[old, new] + _loss_of_sums(centres[old], centres[new]) for old, new in of_rows
        )
    return found


def _loss_of_sums(one: list[Centre], other: list[Centre]) -> float:
    return sum(moved_vector(shift).loss() for shift in shifts(one, other))


def worst_delta(
    mechanism: Mechanism, tables: NeighbourTables, release: JointRelease, epsilon: float
) -> float:
    """The largest δ at ε of everything in a release, over all neighbours of the heaviest unit."""
    heaviest = next(iter(tables.units))
    centres = [tables.centres(mechanism, heaviest, row) for row in release.rows]
    sums = {
        (old, new): moved_sums(centres[old], centres[new])
        for old, new in itertools.permutations(range(len(centres)), 2)
    }
    return max(
        release.pair(old, new, counted).delta(epsilon, sums[old, new])
        for old, new, counted in release.neighbours()
    )
