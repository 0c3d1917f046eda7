from __future__ import annotations

import itertools

import numpy as np
import pytest

from clusterdp import OutcomeSpace, ParameterError
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.outcomes.number import Number

STEPS = 6
FAR = 2_000_000_000


def shop() -> Categories:
    """A number with a cut, another one, and a finite outcome."""
    x, y = Number(-3, STEPS - 3), Number(0, STEPS)
    declared = declare(
        {"x": x, "halves": "-0.5,0,1.5", "y": y},
        metrics=["y>=4", "halves*y", "x*y*(y>=4)", "halves*halves"],
        constraints=["y>=4 -> halves"],
    )
    unit = int(1 / x.unit)
    return Categories(
        declared=declared,
        grids=(
            Grid(number=x, points=(0, 6 * unit)),
            Grid(number=y, points=(0, 4 * unit - 1, 4 * unit, 6 * unit)),
        ),
    )


def every_row() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    rows = [
        (x - 3, halves, y)
        for x, halves, y in itertools.product(range(7), [-0.5, 0, 1.5], range(7))
        if y < 4 or halves != 0
    ]
    columns = np.array(rows, dtype=np.float64).T
    return dict(zip(("x", "halves", "y"), columns, strict=True))


def test_integers_of_rows_are_their_metrics_in_units() -> None:
    categories, table = shop(), every_row()
    x, halves, y = table.values()
    many = (y >= 4).astype(np.float64)
    expected = [x, halves, y, many, halves * y, x * y * many, halves**2]
    rows = categories.encoder().encode(table)
    assert rows.n_broken == rows.n_outside == 0
    for metric, values in zip(categories.declared.metrics, expected, strict=True):
        integers = categories.integers_of(metric)
        assert integers.of_rows(rows).dtype == np.int64
        found = [float(int(each) * integers.unit) for each in integers.of_rows(rows)]
        assert found == values.tolist()


def test_integers_of_categories_are_their_values_in_units() -> None:
    categories = shop()
    for metric, values in zip(categories.declared.metrics, categories.metric_values(), strict=True):
        integers = categories.integers_of(metric)
        np.testing.assert_allclose(integers.categories * float(integers.unit), values, rtol=1e-12)


def test_no_two_rows_differ_more_than_two_categories() -> None:
    """What noisy sums cost: the largest Σ_j |ΔY_j| / s_j over rows is that over categories."""
    categories = shop()
    rows = categories.encoder().encode(every_row())
    metrics = [categories.integers_of(metric) for metric in categories.declared.metrics]
    spans = np.array([[np.ptp(each.categories)] for each in metrics])
    of_rows = np.array([each.of_rows(rows) for each in metrics]) / spans
    of_categories = np.array([each.categories for each in metrics]) / spans

    def largest(points: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float(np.abs(points[:, :, np.newaxis] - points[:, np.newaxis]).sum(axis=0).max())

    assert largest(of_rows) <= largest(of_categories) + 1e-12


def test_rows_outside_count_as_zero() -> None:
    categories = shop()
    rows = categories.encoder().encode(
        {"x": np.array([2.0]), "halves": np.array([9.0]), "y": np.array([6.0])}
    )
    metric = categories.integers_of(categories.declared.metrics[5])
    assert metric.of_rows(rows).tolist() == [0]


def test_metrics_too_large_for_exact_integers_are_refused() -> None:
    far = Number(FAR, FAR + STEPS)
    grid = Grid(number=far, points=(0, STEPS))
    declared = declare({"x": far, "y": far, "z": far}, metrics=["x*y", "x*y*z"])
    categories = Categories(declared=declared, grids=(grid, grid, grid))
    largest = categories.integers_of(declared.metrics[3]).categories.max()
    assert int(largest) == (FAR + STEPS) ** 2
    with pytest.raises(ParameterError, match=r"'x\*y\*z' has more digits"):
        categories.integers_of(declared.metrics[4])


@pytest.mark.parametrize("far", [2**29, 2**30, 3 * 2**29, 2**31 - 1])
def test_squares_that_do_not_fit_are_not_published(far: int) -> None:
    """They would wrap around, and the sign of a sum of them would tell an outcome."""
    values = (-far, far - 1, far)
    for space in (
        Categories(declared=declare({"click": "0,1", "spend": list(map(float, values))})),
        OutcomeSpace(values=tuple(map(float, values))),
    ):
        lattice = space.metric_lattice()
        (is_squared,), squares = lattice.squared[-1:], lattice.squares()[-1]
        assert is_squared == (far <= 2**30)
        exact = {(2 * value) ** 2 for value in values}
        assert not is_squared or set(squares.tolist()) == exact
        distances = [2 * int(one) for one in lattice.integers[-1]]
        assert lattice.doubled()[-1].tolist() == distances
