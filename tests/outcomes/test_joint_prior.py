from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp import OutcomeSpace, ParameterError
from clusterdp.outcomes.baseline import (
    Margin,
    Moments,
    ValueShares,
    base_measure,
    choose_categories,
    fit_prior,
    parse_margin,
    parse_margins,
    rounded_prior,
)
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import DeclaredOutcomes, declare
from clusterdp.outcomes.grid import Grid
from clusterdp.outcomes.number import Number
from rounding_probs import category_probs

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

FAR = 2_000_000_000


def margins(declared: DeclaredOutcomes, **given_margins: Any) -> dict[str, Margin]:
    return parse_margins(given_margins, declared.spaces)


def proportional_fitting(
    categories: Categories, shares: dict[str, tuple[float, ...]]
) -> FloatArray:
    """The oracle: scale one margin after the other until nothing changes."""
    probs = np.full(categories.n_categories, 1 / categories.n_categories)
    for _ in range(20_000):
        before = probs
        for name, wanted in shares.items():
            levels = categories.levels[categories.declared.names.index(name)]
            probs = probs * (np.array(wanted) / np.bincount(levels, probs))[levels]
        if np.abs(probs - before).max() < 1e-14:
            break
    return probs


RATES = st.floats(0.05, 0.95)


@given(RATES, RATES, RATES)
def test_shares_are_fitted_as_proportional_fitting_does(
    visit: float, share_of_visits: float, share_of_many: float
) -> None:
    conversion = visit * share_of_visits
    many = conversion * share_of_many
    declared = declare(
        ["visit=0,1", "conversion=0,1", "items=0..2"],
        constraints=["conversion -> visit", "items -> conversion"],
    )
    categories = Categories(declared=declared)
    items = (1 - many, many * 0.7, many * 0.3)
    prior = fit_prior(
        categories, margins(declared, visit=visit, conversion=conversion, items=list(items))
    )
    oracle = proportional_fitting(
        categories,
        {
            "visit": (1 - visit, visit),
            "conversion": (1 - conversion, conversion),
            "items": items,
        },
    )
    np.testing.assert_allclose(prior.probs, oracle, atol=1e-6)
    assert max(prior.misses.values()) < 1e-6


@given(RATES, RATES)
def test_without_constraints_outcomes_are_independent(one: float, other: float) -> None:
    declared = declare(["a=0,1", "b=0,1"])
    prior = fit_prior(Categories(declared=declared), margins(declared, a=one, b=other))
    independent = np.outer([1 - one, one], [1 - other, other]).ravel()
    np.testing.assert_allclose(prior.probs, independent, atol=1e-7)


def test_moments_are_met() -> None:
    declared = declare({"clicks": "0..20"})
    categories = Categories(declared=declared)
    prior = fit_prior(categories, margins(declared, clicks="mean:3,std:2.5"))
    values = categories.outcome_values()[0]
    mean = prior.probs @ values
    assert mean == pytest.approx(3, abs=1e-6)
    assert prior.probs @ (values - mean) ** 2 == pytest.approx(2.5**2, abs=1e-5)


def test_contradictions_are_reported_and_shared() -> None:
    declared = declare(["visit=0,1", "conversion=0,1"], constraints=["conversion -> visit"])
    prior = fit_prior(Categories(declared=declared), margins(declared, visit=0.1, conversion=0.3))
    assert min(prior.misses.values()) > 0.05
    assert np.isfinite(prior.probs).all()
    assert prior.probs.sum() == pytest.approx(1)


@pytest.mark.parametrize("rate", [0, 1])
def test_certain_outcomes_are_fitted(rate: int) -> None:
    declared = declare(["visit=0,1"])
    prior = fit_prior(Categories(declared=declared), margins(declared, visit=rate))
    np.testing.assert_allclose(prior.probs, [1 - rate, rate], atol=1e-6)


def test_with_nothing_declared_pieces_between_cuts_count_alike() -> None:
    number = Number(FAR, FAR + 10)
    declared = declare({"y": number}, metrics=[f"y>{FAR}", f"y>={FAR + 4}"])
    grid = Grid(number=number, points=(0, 1, 2, 3, 4, 6, 10))
    measure = base_measure(Categories(declared=declared, grids=(grid,)))
    thirds = [measure[:1].sum(), measure[1:4].sum(), measure[4:].sum()]
    np.testing.assert_allclose(thirds, [1 / 3] * 3)
    np.testing.assert_allclose(measure[4:] * 3, [1 / 6, 3 / 6, 2 / 6])


def test_rounding_a_prior_is_what_rounding_rows_does() -> None:
    """Against the exact distribution of every row, two numbers and a constraint among them."""
    number = Number(FAR, FAR + 6)
    declared = declare({"x": number, "buys": "0,1", "y": number}, constraints=[f"y>{FAR} -> buys"])
    whole = Grid(number=number, points=tuple(range(7)))
    fine = Categories(declared=declared, grids=(whole, whole), most=1000)
    coarse = Categories(
        declared=declared,
        grids=(
            Grid(number=number, points=(0, 4, 6)),
            Grid(number=number, points=(0, 1, 6)),
        ),
    )
    probs = np.arange(1, fine.n_categories + 1) / sum(range(1, fine.n_categories + 1))
    expected = np.zeros(coarse.n_categories)
    for category, (x, buys, y) in enumerate(fine.outcome_values().T):
        for found, prob in category_probs(coarse, {"x": x, "buys": buys, "y": y}).items():
            expected[found] += probs[category] * float(prob)
    np.testing.assert_allclose(rounded_prior(fine, probs, coarse), expected, atol=1e-12)


def funnel() -> DeclaredOutcomes:
    return declare(
        ["visit=0,1", "conversion=0,1", "spend=number:0..499"],
        constraints=["conversion -> visit", "spend>0 -> conversion"],
    )


def test_a_funnel_has_its_rates_and_moments() -> None:
    baseline = {"visit": 0.15, "conversion": "0.009", "spend": "mean:1.05,std:15"}
    categories, prior = choose_categories(funnel(), margins(funnel(), **baseline))
    assert max(prior.misses.values()) < 1e-6
    np.testing.assert_allclose(
        categories.metric_values() @ prior.probs, [0.15, 0.009, 1.05], rtol=1e-4
    )
    spread = np.sqrt(prior.probs @ categories.metric_values()[2] ** 2 - 1.05**2)
    assert 15 <= spread < 15.2  # rounding adds a little


@pytest.mark.parametrize(
    "outcomes",
    [
        {"y": Number(0, 493)},
        {"a": "0,1", "b": "0,1", "y": Number(0, 493)},
        {"a": "0,1", "x": Number(0, 1), "y": Number(-5, 493)},
        {"a": "0..6", "b": "0..3"},
    ],
)
def test_grids_have_as_many_points_as_are_quick_and_no_fewer_than_four(
    outcomes: dict[str, Any],
) -> None:
    categories, prior = choose_categories(declare(outcomes), {})
    n_numbers = len(categories.grids)
    n_finite = categories.n_categories // max(
        1, int(np.prod([len(grid.points) for grid in categories.grids]))
    )
    points = {len(grid.points) for grid in categories.grids}
    for n_points in points:
        assert n_points in {4, 16} or n_finite * (n_points + 1) ** n_numbers > 24
        assert n_points == 4 or categories.n_categories <= 24
    assert prior.probs.shape == (categories.n_categories,)
    assert prior.probs.sum() == pytest.approx(1)


def test_with_nothing_declared_grids_are_even() -> None:
    categories, _ = choose_categories(declare({"y": Number(0, 150)}), {})
    assert categories.grids[0].values == tuple(range(0, 151, 10))


@pytest.mark.parametrize("mean", [-970, 0, 960])
def test_grids_are_dense_where_the_reference_has_its_mass(mean: float) -> None:
    declared = declare({"y": Number(-1000, 1000)})
    reference = margins(declared, y=f"mean:{mean},std:10")
    categories, prior = choose_categories(declared, reference)
    values = categories.metric_values()[0]
    assert prior.probs @ values == pytest.approx(mean, abs=1e-3)
    spread = np.sqrt(prior.probs @ (values - mean) ** 2)
    assert 10 <= spread < 10.5
    near = values[abs(values - mean) < 25]
    assert (near < mean).sum() >= 4
    assert (near > mean).sum() >= 4


def test_what_cannot_fit_is_refused_early() -> None:
    with pytest.raises(ParameterError, match="at most 64"):
        choose_categories(declare({"a": "0..32", "y": Number(0, 1)}), {})


BINARY, CLICKS, SPEND = OutcomeSpace.binary(), OutcomeSpace.integers(0, 3), Number(0, 499)


@pytest.mark.parametrize(
    ("space", "text", "margin"),
    [
        (BINARY, "0.15", ValueShares(shares=(0.85, 0.15))),
        (BINARY, 0.15, ValueShares(shares=(0.85, 0.15))),
        (CLICKS, "4,3,2,1", ValueShares(shares=(0.4, 0.3, 0.2, 0.1))),
        (SPEND, "mean:1.05, std:15", Moments(mean=1.05, std=15)),
        (SPEND, "mean:1.05", Moments(mean=1.05)),
    ],
)
def test_margins_are_read(space: Any, text: Any, margin: Margin) -> None:
    assert parse_margin("y", text, space) == margin


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (BINARY, "1.5"),
        (BINARY, "-0.5"),
        (BINARY, "nan"),
        (CLICKS, "0.5"),
        (CLICKS, "1,2,3"),
        (CLICKS, "0,0,0,0"),
        (CLICKS, "what"),
        (CLICKS, "mean:4"),
        (CLICKS, "mean:1,std:9"),
        (CLICKS, "mean:nan"),
        (SPEND, "0.5"),
        (SPEND, "mean:0,std:1"),
        (SPEND, "mean:1,std:0"),
        (SPEND, "mean:1,std:nan"),
    ],
)
def test_bad_margins_are_refused(space: Any, text: str) -> None:
    with pytest.raises(ParameterError):
        parse_margin("y", text, space)


def test_margins_of_several_outcomes_are_read() -> None:
    spaces = {"visit": BINARY, "clicks": CLICKS}
    read = parse_margins(["visit=0.5", "clicks = mean:1,std:1"], spaces)
    assert read == {"visit": ValueShares(shares=(0.5, 0.5)), "clicks": Moments(mean=1, std=1)}
    assert parse_margins({"visit": 0.5, "clicks": "mean:1,std:1"}, spaces) == read
    with pytest.raises(ParameterError, match="'sales', which is not a declared outcome"):
        parse_margins(["sales=0.5"], spaces)
    with pytest.raises(ParameterError, match="OUTCOME=MARGIN"):
        parse_margins(["visit"], spaces)


def test_parts_of_a_range_have_their_shares() -> None:
    declared = declare({"y": Number(0, 400)})
    grid = Grid(number=Number(0, 400), points=tuple(range(0, 4_000_001, 50_000)))
    categories = Categories(declared=declared, grids=(grid,), most=1000)
    prior = fit_prior(categories, margins(declared, y="0.7,0.2,0.06,0.04"))
    values = categories.outcome_values()[0]
    found = [
        prior.probs[(values >= low) & ((values < high) | (high == 400))].sum()
        for low, high in itertools.pairwise([0, 100, 200, 300, 400])
    ]
    np.testing.assert_allclose(found, [0.7, 0.2, 0.06, 0.04], atol=1e-6)
