"""Populations with several outcomes a unit: a funnel, and two binaries with a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.outcomes.number import Number
from populations import from_units

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.studies.simulation import Population

N_CLUSTERS = 12
# Most units play a few rounds, a few play many.
ROUNDS = Number(0, 200)
ROUND_POINTS = (0, 4, 12, 30, 80, 200)


def funnel_space() -> Categories:
    """No level without a conversion, no conversion without a visit: eight categories."""
    return Categories(
        declared=declare(
            {"visit": "0,1", "conversion": "0,1", "level": "0..5"},
            constraints=("conversion -> visit", "level>0 -> conversion"),
        )
    )


def game_space() -> Categories:
    """Two binary outcomes and a number on six grid points: 24 categories."""
    steps = tuple(int(ROUNDS.steps_to(point)) for point in ROUND_POINTS)
    return Categories(
        declared=declare({"day_1": "0,1", "day_7": "0,1", "rounds": ROUNDS}),
        grids=(Grid(number=ROUNDS, points=steps),),
    )


def funnel(rng: np.random.Generator) -> Population:
    """Visits of 12 to 40%, which treatment adds to; effects differ between units."""
    clusters, chance = _units(rng)
    space = funnel_space()
    visit_word, conversion_word = rng.random((2, len(clusters)))
    level = rng.binomial(5, 0.5, len(clusters))

    def outcomes(added: float) -> IntArray:
        visit = visit_word < 0.12 + 0.28 * chance + added
        conversion = visit & (conversion_word < 0.3 + added)
        return codes(space, np.stack([visit, conversion, level * conversion]))

    return from_units(clusters, np.stack([outcomes(0), outcomes(0.08)], axis=1), space, n_arms=2)


def game(rng: np.random.Generator) -> Population:
    """Rounds on grid points, so that counts of categories hold all there is to know."""
    clusters, chance = _units(rng)
    space = game_space()
    first, second, rounds_word = rng.random((3, len(clusters)))

    def outcomes(added: float) -> IntArray:
        rounds = np.searchsorted([0.3, 0.6, 0.82, 0.95, 0.99], rounds_word + added)
        day_1 = first < 0.25 + 0.3 * chance + added
        return codes(space, np.stack([day_1, day_1 & (second < 0.5), rounds]))

    return from_units(clusters, np.stack([outcomes(0), outcomes(0.05)], axis=1), space, n_arms=2)


def codes(space: Categories, levels: IntArray) -> IntArray:
    """The category of each unit, from the levels of its outcomes; axes `[outcome, unit]` in."""
    positions = (levels * np.array([one.stride for one in space.outcomes])[:, np.newaxis]).sum(
        axis=0
    )
    found = space.table[positions].astype(np.int64)
    assert (found >= 0).all(), "a combination breaks a constraint"
    return np.asarray(found)


def _units(rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """The cluster of each unit, and how high the rates of its cluster are, from 0 to 1."""
    clusters = np.repeat(np.arange(N_CLUSTERS), rng.integers(200, 501, size=N_CLUSTERS))
    return clusters, rng.random(N_CLUSTERS)[clusters]
