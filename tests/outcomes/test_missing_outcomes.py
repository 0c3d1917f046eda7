"""Outcomes that may be missing: their levels, metrics, constraints, integers and references."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.errors import ParameterError
from clusterdp.outcomes.baseline import choose_categories, parse_margins
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.statistics._sum_noise import sum_noise
from rounding_probs import category_probs

NAN = float("nan")
SPEND = cdp.Number(0, 10)
# Half of the range is no point of the grid, and no multiple of the unit times two.
GRID = Grid(number=SPEND, points=(0, 1, SPEND.n_steps // 3, SPEND.n_steps))
FUNNEL = Categories(
    declared=declare(
        {"visit": "0,1", "sale": "0,1", "spend": SPEND},
        constraints=["sale -> visit", "spend>0 -> sale"],
        metrics=["visit*spend"],
        missing=["sale", "spend"],
    ),
    grids=(GRID,),
)
SPACES = {
    "binary": {"y": "0,1"},
    "three values": {"y": "0,1,5"},
    "bins": {"y": "bins:0,1,10,100"},
    "number": {"y": "number:-3..10"},
}


def test_metrics_are_named_and_listed() -> None:
    names = ["visit", "sale", "spend", "sale_observed", "spend_observed", "visit*spend"]
    assert [str(metric) for metric in FUNNEL.declared.metrics] == names
    assert FUNNEL.record().categories == FUNNEL


def test_what_metrics_count_as() -> None:
    """R·(y − middle), R, and products with R: from the definition, category by category."""
    visit, sale, spend = FUNNEL.outcome_values()
    expected = [
        visit,
        np.nan_to_num(sale - 0.5),
        np.nan_to_num(spend - 5),
        ~np.isnan(sale),
        ~np.isnan(spend),
        np.nan_to_num(visit * spend),
    ]
    np.testing.assert_allclose(FUNNEL.metric_values(), expected)


def test_an_constraint_is_about_observed_values() -> None:
    """A missing value breaks none: it could be what the constraint asks for."""
    found = FUNNEL.outcome_values().T
    for visit, sale, spend in itertools.product([0, 1], [0, 1, NAN], [0, 10, NAN]):
        broken = (sale == 1 and visit == 0) or (spend > 0 and sale == 0)
        row = np.array([visit, sale, spend])
        assert any(np.array_equal(one, row, equal_nan=True) for one in found) != broken


def test_who_is_observed_can_be_implied() -> None:
    declared = declare(
        {"visit": "0,1", "spend": "0..2"},
        constraints=["spend_observed -> visit"],
        missing=["spend"],
    )
    visit, spend = Categories(declared=declared).outcome_values()
    assert np.isnan(spend[visit == 0]).all()
    assert len(spend[visit == 1]) == 4


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_missing_rows_have_a_category_of_their_own(kind: type) -> None:
    """Also beside clipped ones; and a missing number is never rounded."""
    encoder = FUNNEL.encoder()
    table = {
        "visit": np.array([1, 1, 1, 0]),
        "sale": np.array([1, NAN, 1, NAN], dtype=kind),
        "spend": np.array([NAN, 99, 3, NAN], dtype=kind),
    }
    rows = encoder.encode(table)
    assert (rows.n_missing, rows.n_outside, rows.n_broken) == (0, 0, 0)
    assert rows.n_clipped == (0, 0, 1)
    labels = [FUNNEL.labels()[category] for category in encoder.table[rows.positions]]
    assert labels[0] == "visit=1, sale=1, spend=missing"
    assert labels[1] == "visit=1, sale=missing, spend=10"
    assert labels[3] == "visit=0, sale=missing, spend=missing"
    for words in (np.zeros((4, 1), np.uint64), np.full((4, 1), 2**64 - 1, np.uint64)):
        rounded = encoder.round(rows, words)
        assert [FUNNEL.labels()[category] for category in rounded[[0, 1, 3]]] == labels[
            :2
        ] + labels[3:]
    only = category_probs(FUNNEL, {"visit": 1, "sale": 1, "spend": NAN})
    assert list(only.values()) == [Fraction(1)]


def test_what_must_not_be_missing_still_must_not() -> None:
    encoder = FUNNEL.encoder()
    rows = encoder.encode(
        {"visit": np.array([NAN, 1.0]), "sale": np.array([1, NAN]), "spend": np.array([0.0, NAN])}
    )
    assert rows.n_missing == 1


def test_sums_are_of_the_numbers_themselves() -> None:
    rows = {
        "visit": np.array([1, 1, 1, 0]),
        "sale": np.array([1, NAN, 1, 0]),
        "spend": np.array([2.5, 7.25, NAN, 0]),
    }
    encoded = FUNNEL.encoder().encode(rows)
    expected = [
        rows["visit"],
        np.nan_to_num(rows["sale"] - 0.5),
        np.nan_to_num(rows["spend"] - 5),
        ~np.isnan(rows["sale"]),
        ~np.isnan(rows["spend"]),
        np.nan_to_num(rows["visit"] * rows["spend"]),
    ]
    for metric, wanted in zip(FUNNEL.declared.metrics, expected, strict=True):
        integers = FUNNEL.integers_of(metric)
        found = float(integers.unit) * integers.of_rows(encoded)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("outcomes", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("metrics", [[], ["y>=1"]], ids=["mean", "threshold"])
def test_sums_of_who_is_observed_cost_what_is_stated(
    outcomes: dict[str, Any], metrics: list[str]
) -> None:
    """Over all pairs of categories the largest loss of sums and squares is ε."""
    epsilon = 0.7
    space, _ = choose_categories(declare(outcomes, metrics=metrics, missing=["y"]), {})
    noise, lattice = sum_noise(space, epsilon), space.metric_lattice()
    both = ((noise.of_sums, lattice.integers), (noise.of_squares, lattice.squares()))
    losses = [
        sum(
            max(
                -(-abs(int(values[metric, one] - values[metric, other])) // width)
                for metric, width in zip(box.metrics, box.widths, strict=True)
            )
            / box.scale(epsilon)
            for boxes, values in both
            for box in boxes
        )
        for one, other in itertools.combinations(range(space.n_categories), 2)
    ]
    assert 0.999 * epsilon <= max(losses) <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("outcomes", SPACES.values(), ids=SPACES)
def test_whether_an_outcome_was_observed_costs_nothing(outcomes: dict[str, Any]) -> None:
    """Sums of y are as noisy as if it could not be missing."""
    space, _ = choose_categories(declare(outcomes, missing=["y"]), {})
    plain, _ = choose_categories(
        declare(outcomes), {}, len(space.grids and space.grids[0].points) or 2
    )
    of_space, of_plain = (
        sum_noise(one, 0.7).of_sums[0].cost * one.metric_lattice().units[0]
        for one in (space, plain)
    )
    assert float(of_space) == pytest.approx(float(of_plain))


def test_a_reference_is_about_those_observed() -> None:
    declared = declare({"spend": SPEND, "visit": "0,1"}, missing=["spend", "visit"])
    given = {"spend": "mean:2,std:1.5", "spend_observed": 0.8, "visit": 0.3}
    categories, prior = choose_categories(declared, parse_margins(given, declared.margin_spaces))
    spend, visit = categories.outcome_values()
    observed = ~np.isnan(spend)
    share = prior.probs @ observed
    assert share == pytest.approx(0.8, abs=1e-6)
    assert prior.probs[observed] @ spend[observed] / share == pytest.approx(2, abs=1e-4)
    seen = ~np.isnan(visit)
    assert prior.probs[seen] @ visit[seen] / prior.probs[seen].sum() == pytest.approx(0.3, abs=1e-6)
    assert max(prior.misses.values()) < 1e-6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"missing": ["spent"]}, "missing names 'spent', which is not a declared outcome"),
        ({"missing": ["visit", "visit"]}, "missing outcome 'visit' is declared twice"),
        (
            {"missing": ["visit"], "metrics": ["visit_observed"]},
            "metric 'visit_observed' is declared",
        ),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        declare({"visit": "0,1"}, **given)
