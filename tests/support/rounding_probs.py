"""How numbers are rounded at random, by the definition: what the machine is compared with."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.encoding import OutcomeLevels
    from clusterdp.outcomes.grid import Density, Grid


def up_prob(numerator: int, width: int) -> Fraction:
    """The probability with which `rounds_up` rounds up: ⌈numerator·2^64 / width⌉ / 2^64.

    For an integer m, ⌊word·width / 2^64⌋ < m holds exactly when word < m·2^64 / width, which is so
    for ⌈m·2^64 / width⌉ words. That exceeds m/width by less than 2^-64, so the mean of the rounded
    number exceeds the number by less than width·2^-64 ≤ 2^-40 steps. It is exact where the width
    is a power of two, and at grid points.
    """
    return Fraction(-(-numerator * 2**64 // width), 2**64)


def category_probs(categories: Categories, row: Mapping[str, float]) -> dict[int, Fraction]:
    """The exact distribution of one row's category, with the probabilities of the machine.

    A row outside the space, or one that breaks a constraint, is in category −1.
    """
    encoder = categories.encoder()
    encoded = encoder.encode({name: np.array([value]) for name, value in row.items()})
    choices = [
        _choices(column, int(encoded.steps[place, 0]), int(encoded.lower[place, 0]))
        for place, column in enumerate(encoder.numbers)
    ]
    probs: dict[int, Fraction] = {}
    for chosen in itertools.product(*choices):
        position = int(encoded.positions[0]) + sum(move for move, _ in chosen)
        category = int(encoder.table[position])
        prob = math.prod((prob for _, prob in chosen), start=Fraction(1))
        probs[category] = probs.get(category, Fraction(0)) + prob
    return probs


def _choices(column: OutcomeLevels, step: int, lower: int) -> list[tuple[int, Fraction]]:
    """How far rounding moves the position, with the probability of each."""
    assert column.grid is not None
    above = step - column.grid.points[lower]
    if above == 0:
        return [(0, Fraction(1))]
    up = up_prob(above, int(column.grid.widths[lower]))
    return [(0, 1 - up), (column.stride, up)]


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
