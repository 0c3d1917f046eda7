from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest

from clusterdp import ParameterError
from clusterdp.outcomes.categories import Categories, CategoriesRecord, TooManyCategoriesError
from clusterdp.outcomes.declaration import DeclaredOutcomes, declare
from clusterdp.outcomes.grid import Grid, place_grid
from clusterdp.outcomes.number import Number


def with_grids(declared: DeclaredOutcomes, n_points: int = 6) -> Categories:
    return Categories(
        declared=declared,
        grids=tuple(
            place_grid(number, n_points=n_points, cuts=declared.cuts(name))
            for name, number in declared.numbers.items()
        ),
    )


def funnel() -> Categories:
    return with_grids(
        declare(
            ["visit=0,1", "conversion=0,1", "spend=number:0..500"],
            constraints=["conversion -> visit", "spend>0 -> conversion"],
            metrics=["spend>=100", "visit*spend"],
        )
    )


def test_categories_are_the_combinations_that_keep_the_constraints() -> None:
    categories = funnel()
    points = [float(value) for value in categories.grids[0].values]
    expected = [
        [visit, conversion, spend]
        for visit, conversion, spend in itertools.product([0, 1], [0, 1], points)
        if visit >= conversion and (spend == 0 or conversion == 1)
    ]
    np.testing.assert_array_equal(categories.outcome_values().T, expected)
    assert categories.n_categories == 3 + len(points) - 1
    assert categories.labels()[0] == "visit=0, conversion=0, spend=0"


def test_metrics_are_functions_of_the_category() -> None:
    categories = funnel()
    visit, conversion, spend = categories.outcome_values()
    expected = [visit, conversion, spend, spend >= 100, visit * spend]
    np.testing.assert_array_equal(categories.metric_values(), expected)


def test_positions_find_their_categories() -> None:
    categories = funnel()
    positions = np.array([one.stride for one in categories.outcomes]) @ categories.levels
    np.testing.assert_array_equal(categories.table[positions], np.arange(categories.n_categories))
    assert (categories.table >= 0).sum() == categories.n_categories


def test_products_of_conditions_mean_and() -> None:
    declared = declare(["a=0,1", "b=0,1", "c=0,1"], constraints=["a*b -> c", "(c==1)*(a==0) -> b"])
    kept = Categories(declared=declared).outcome_values().T.tolist()
    assert kept == [
        [a, b, c]
        for a, b, c in itertools.product([0, 1], repeat=3)
        if not (a and b and not c) and not (c and not a and not b)
    ]


def test_too_many_categories_are_refused_with_remedies() -> None:
    with pytest.raises(TooManyCategoriesError, match=r"100 outcome combinations.*64.*constraints"):
        Categories(declared=declare(["a=0..9", "b=0..9"]))
    with pytest.raises(TooManyCategoriesError, match="4,294,967,296"):
        Categories(declared=declare(["a=0..65535", "b=0..65535"]))
    assert Categories(declared=declare(["a=0..7", "b=0..7"])).n_categories == 64


def test_constraints_that_leave_nothing_to_measure_are_refused() -> None:
    for constraints in (
        ["a -> a==0"],
        ["a -> b", "b -> a==0"],
        ["a==0 -> b", "b -> a==0", "a -> b", "a -> b==0"],
    ):
        with pytest.raises(ParameterError, match="one allowed value"):
            Categories(declared=declare(["a=0,1", "b=0,1"], constraints=constraints))


def test_grids_must_be_those_of_the_numbers_and_hold_their_cuts() -> None:
    declared = declare({"time": Number(0, 10)}, metrics=["time>=5"])
    plain = place_grid(Number(0, 10), n_points=4)
    with pytest.raises(ParameterError, match="each side of every declared threshold"):
        Categories(declared=declared, grids=(plain,))
    for grids in ((), (plain, plain), (place_grid(Number(0, 9), n_points=4),)):
        with pytest.raises(ParameterError, match="grids must be given for 'time'"):
            Categories(declared=declared, grids=grids)


def test_categories_survive_a_manifest() -> None:
    categories = funnel()
    written = msgspec.json.encode(categories.record())
    assert msgspec.json.decode(written, type=CategoriesRecord).categories == categories


@pytest.mark.parametrize(
    "grids",
    [
        {},
        {"spend": [0, 500]},
        {"spend": [0, 0.0001, 99.9999, 100, 1 / 3, 500]},
        {"spend": [0, 0.0001, 99.9999, 100, float("nan"), 500]},
        {"spend": "all"},
        {"spend": [0, 0.0001, 99.9999, 100, 500], "visit": [0, 1]},
    ],
)
def test_damaged_grids_are_refused(grids: Any) -> None:
    written = msgspec.to_builtins(funnel().record())
    with pytest.raises((ParameterError, msgspec.ValidationError)):
        _ = msgspec.convert(written | {"grids": grids}, CategoriesRecord).categories


def test_metrics_count_alike_by_default_and_by_their_multipliers() -> None:
    declared = declare(["visit=0,1", "clicks=0..3"], weights=["clicks=2"])
    categories = Categories(declared=declared)
    np.testing.assert_allclose(categories.metric_weights(None), [1, 2 / 9])
    prior = np.array([0.4, 0.2, 0.2, 0.1, 0.1, 0, 0, 0])
    visit, clicks = categories.metric_values()
    spread = [prior @ values**2 - (prior @ values) ** 2 for values in (visit, clicks)]
    np.testing.assert_allclose(categories.metric_weights(prior), [1 / spread[0], 2 / spread[1]])
    constant = np.eye(8)[0]
    assert np.isfinite(categories.metric_weights(constant)).all()


def test_a_grid_of_the_wrong_cut_is_not_enough() -> None:
    declared = declare({"time": Number(0, 10)}, metrics=["time>5"])
    five = int(Number(0, 10).steps_to(5))
    beside = Grid(number=Number(0, 10), points=(0, five - 1, five, Number(0, 10).n_steps))
    with pytest.raises(ParameterError, match="each side of every declared threshold"):
        Categories(declared=declared, grids=(beside,))
