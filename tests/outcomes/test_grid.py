from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp import ParameterError
from clusterdp.outcomes.grid import Density, Grid, needed_points, place_grid
from clusterdp.outcomes.number import Number
from rounding_probs import rounding_variance, rounding_variance_at

FAR = 2_000_000_000


def small(n_steps: int) -> Number:
    """A number with so many lattice steps: far from 0, the unit is 1."""
    return Number(FAR, FAR + n_steps)


@st.composite
def densities(draw: st.DrawFn, n_steps: int) -> Density:
    masses = draw(st.lists(st.integers(0, 9), min_size=n_steps + 1, max_size=n_steps + 1))
    probs = (np.array(masses) + 1e-3) / (sum(masses) + 1e-3 * len(masses))
    return Density(steps=np.arange(n_steps + 1), probs=probs)


def every_grid(number: Number, n_points: int, cuts: tuple[int, ...]) -> list[Grid]:
    needed = needed_points(number, cuts)
    free = [step for step in range(number.n_steps + 1) if step not in needed]
    return [
        Grid(number=number, points=tuple(sorted({*needed, *more})))
        for more in itertools.combinations(free, n_points - len(needed))
    ]


@given(densities(11), st.integers(2, 6))
def test_a_density_places_points_where_least_variance_is_added(
    density: Density, n_points: int
) -> None:
    number = small(11)
    placed = place_grid(number, n_points=n_points, density=density)
    best = min(rounding_variance(grid, density) for grid in every_grid(number, n_points, ()))
    assert len(placed.points) <= n_points
    assert rounding_variance(placed, density) == pytest.approx(best, abs=1e-9)


@given(densities(11), st.integers(1, 11), st.integers(0, 2))
def test_a_density_respects_cuts(density: Density, cut: int, n_more: int) -> None:
    number = small(11)
    n_points = len(needed_points(number, (cut,))) + n_more
    placed = place_grid(number, n_points=n_points, cuts=(cut,), density=density)
    best = min(rounding_variance(grid, density) for grid in every_grid(number, n_points, (cut,)))
    assert placed.holds_cuts((cut,))
    assert rounding_variance(placed, density) == pytest.approx(best, abs=1e-9)


def widest_gap(grid: Grid) -> int:
    return int(np.diff(grid.points).max())


@given(st.integers(3, 12), st.integers(0, 4), st.sets(st.integers(1, 12), max_size=2))
def test_with_nothing_known_the_widest_gap_is_least(
    n_steps: int, n_more: int, wanted_cuts: set[int]
) -> None:
    number = small(n_steps)
    cuts = tuple(sorted(cut for cut in wanted_cuts if cut <= n_steps))
    n_points = min(len(needed_points(number, cuts)) + n_more, n_steps + 1)
    placed = place_grid(number, n_points=n_points, cuts=cuts)
    assert placed.holds_cuts(cuts)
    best = min(widest_gap(grid) for grid in every_grid(number, n_points, cuts))
    assert widest_gap(placed) == best


def test_fewer_points_than_cuts_need_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"at least 4 .* 1 threshold.*, got 3"):
        place_grid(Number(0, 493), n_points=3, cuts=(100_000,))


@pytest.mark.parametrize("points", [(), (0,), (0, 5), (1, 11), (0, 5, 5, 11), (0, 7, 5, 11)])
def test_a_grid_increases_from_end_to_end(points: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="must increase from 0 to 11"):
        Grid(number=small(11), points=points)


def test_the_variance_that_rounding_adds_is_that_of_two_points() -> None:
    grid = Grid(number=small(10), points=(0, 4, 10))
    for step in range(11):
        low = max(point for point in grid.points if point <= step)
        high = min((point for point in grid.points if point > step), default=low + 1)
        up = Fraction(step - low, high - low)
        variance = (1 - up) * (low - step) ** 2 + up * (high - step) ** 2
        assert rounding_variance_at(grid, step) == variance
    density = Density(steps=np.arange(11), probs=np.full(11, 1 / 11))
    average = sum(rounding_variance_at(grid, step) for step in range(11)) / 11
    assert rounding_variance(grid, density) == pytest.approx(float(average))


@given(densities(11), st.sets(st.integers(1, 10), max_size=4))
def test_rounding_a_density_keeps_its_mean(density: Density, inner: set[int]) -> None:
    grid = Grid(number=small(11), points=(0, *sorted(inner), 11))
    rounded = grid.rounded(density)
    assert rounded.sum() == pytest.approx(1)
    assert rounded @ np.array(grid.points) == pytest.approx(density.probs @ density.steps)
    added = rounded @ np.array(grid.points) ** 2 - density.probs @ density.steps**2
    assert added == pytest.approx(rounding_variance(grid, density), abs=1e-9)


def test_large_densities_are_placed_as_well_as_small_ones() -> None:
    """Of 5,000 atoms some are candidates; the loss is below 1% of the variance added."""
    number = Number(0, 493)
    steps = np.unique(np.linspace(0, number.n_steps, 5000).astype(np.int64))
    probs = np.exp(-steps / 500_000)
    density = Density(steps=steps, probs=probs / probs.sum())
    coarse = Density(steps=steps[::15], probs=probs[::15] / probs[::15].sum())
    placed, rival = (
        rounding_variance(place_grid(number, n_points=8, density=known), density)
        for known in (density, coarse)
    )
    assert placed <= 1.01 * rival
