"""A grid of 16 points costs hardly more than one of 64, where the reference is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

import clusterdp as cdp
from clusterdp.channels._optimal_channel import OptimalChannel, design_optimal
from clusterdp.channels.optimal import OptimalRows
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Density, place_grid

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

NUMBER = cdp.Number(0, 500)
# Where distributions have their atoms: denser where most of their mass is.
ATOMS = np.unique(np.rint(np.geomspace(1, 501, 300) * 1000 - 1000).astype(np.int64)) * 10


def lognormal() -> FloatArray:
    return np.asarray(np.diff(stats.lognorm(1, scale=12).cdf(np.append(values(), np.inf))))


def values() -> FloatArray:
    return np.asarray(ATOMS * float(NUMBER.unit))


SHAPES = {
    "lognormal": lognormal(),
    "zero-inflated": 0.3 * lognormal() + 0.7 * (ATOMS == 0),
    "counts": np.diff(stats.nbinom(1, 0.1).cdf(np.append(values(), np.inf) - 1e-9)),
}


def excess(probs: FloatArray, n_points: int, epsilon: float) -> float:
    """What rounding and the channel add to the variance, if this is how numbers are distributed."""
    density = Density(steps=ATOMS, probs=probs)
    grid = place_grid(NUMBER, n_points=n_points, cuts=(), density=density)
    space = Categories(declared=declare({"y": NUMBER}), grids=(grid,))
    points = np.array(grid.points)
    lower = np.clip(np.searchsorted(points, ATOMS, side="right") - 1, 0, len(points) - 2)
    widths = points[lower + 1] - points[lower]
    up = (ATOMS - points[lower]) / widths
    prior = np.bincount(lower, probs * (1 - up), len(points))
    prior += np.bincount(lower + 1, probs * up, len(points))
    response = OptimalRows(epsilon=epsilon).bound(space)
    priors = np.maximum(prior, 1e-9)[np.newaxis]
    tables, outputs, _ = design_optimal(priors, space.metric_values(), np.ones(1), response)
    groups = np.zeros((1, 1), dtype=np.int64)
    channel = OptimalChannel(
        tables=tables, outputs=outputs, groups=groups, values=space.metric_values()
    )
    rounding = probs @ (up * (1 - up) * (widths * float(NUMBER.unit)) ** 2)
    return float(prior @ channel.noise_variance()[0] + rounding)


@pytest.mark.parametrize("epsilon", [0.5, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_sixteen_points_are_within_three_percent_of_sixty_four(shape: str, epsilon: float) -> None:
    probs = np.maximum(SHAPES[shape], 0)
    probs = probs / probs.sum()
    few, many = (excess(probs, n_points, epsilon) for n_points in (16, 64))
    assert few <= 1.03 * many
    assert excess(probs, 4, epsilon) > few  # it matters how many there are
