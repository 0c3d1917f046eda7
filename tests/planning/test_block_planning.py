"""Which outcomes share a channel, and how blocks share ε."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.channels.integers import TABLE_TOTAL
from clusterdp.channels.plain import k_ary_response
from clusterdp.errors import ParameterError
from clusterdp.experiment.blocks import (
    check_blocks,
    declared_of,
    linked_outcomes,
    parse_block,
)
from clusterdp.experiment.categories import MOST_CATEGORIES, Categories
from clusterdp.experiment.declared import declare
from clusterdp.experiment.margins import parse_margins
from clusterdp.owner.parsing import parse_options
from clusterdp.planning import blocks as planning
from clusterdp.privacy.composition import split_budget

if TYPE_CHECKING:
    from clusterdp.experiment.declared import DeclaredOutcomes

FUNNEL = declare(
    {"visit": "0,1", "sale": "0,1", "spend": "0..2", "rounds": "number:0..9", "rating": "1..5"},
    implications=["sale -> visit"],
    metrics=["sale*spend", "rounds>=5"],
    weights={"rounds": 2},
)
EIGHT = declare(
    {f"b{place}": "0,1" for place in range(5)}
    | {"rounds": "number:0..493", "spend": "number:0..100", "minutes": "number:0..60"}
)


def test_linked_outcomes_stay_together() -> None:
    assert linked_outcomes(FUNNEL) == (("visit", "sale", "spend"), ("rounds",), ("rating",))
    own = declared_of(FUNNEL, ("rounds", "rating"))
    assert own.names == ("rounds", "rating")
    assert [str(one) for one in own.metrics] == ["rounds", "rating", "rounds>=5"]
    assert own.multipliers == (2, 1, 1)
    assert own.implications == ()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["visit,sale,spend", "rounds"], "'rating' is in 0 blocks"),
        (["visit,sale,spend", "rounds,rating", "rating"], "'rating' is in 2 blocks"),
        (["visit,sale", "spend", "rounds,rating"], "must be in one block"),
        (["visit,sale,spend,clicks", "rounds,rating"], "'clicks', which is no declared outcome"),
        (["visit,sale,spend=0.5", "rounds,rating"], "every block its share"),
        (["visit,sale,spend=0.9", "rounds,rating=0.2"], "together at most 1"),
        (["visit,sale,spend=2", "rounds,rating"], "lies in (0, 1]"),
        (["=0.5", "rounds,rating"], "a block names outcomes"),
    ],
)
def test_blocks_that_cannot_be(texts: list[str], said: str) -> None:
    with pytest.raises(ParameterError) as refused:
        check_blocks([parse_block(text) for text in texts], FUNNEL)
    assert said in str(refused.value)


def test_blocks_are_read_back() -> None:
    for text in ("visit,sale", "visit,sale=0.41"):
        assert str(parse_block(text)) == text


@given(st.floats(0.01, 20), st.lists(st.floats(0.01, 1), min_size=1, max_size=6).map(np.array))
def test_parts_of_a_budget_never_exceed_it(total: float, weights: np.ndarray) -> None:
    shares = planning.rounded_shares(weights / weights.sum())
    parts = split_budget(total, shares)
    exact = sum(Fraction(part) for part in parts if part is not None)
    assert exact <= Fraction(total)
    assert exact >= Fraction(total) * (1 - Fraction(1, 10**9))
    assert all(part is not None and part > 0 for part in parts)


def two_metrics() -> Categories:
    return Categories(declared=declare({"visit": "0,1", "clicks": "0..3"}))


def cost_at(declared: DeclaredOutcomes, epsilon: float) -> tuple[float, float]:
    """The two predictions for one block, by k-ary response and by one metric at random."""
    parts = [
        planning._Part.of(declared, {}, names, 12)  # noqa: SLF001 - what is compared
        for names in linked_outcomes(declared)
    ]
    block = planning._block(tuple(parts))  # noqa: SLF001 - what is compared
    return block(epsilon), planning._one_metric_at_random(parts)(epsilon)  # noqa: SLF001 - as above


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_predictions_are_those_of_channels_that_exist(epsilon: float) -> None:
    """Both channels, computed from their tables, over all categories alike."""
    space = two_metrics()
    values, size = space.metric_values(), space.n_categories
    best, at_random = cost_at(space.declared, epsilon)
    table, outputs = k_ary_response(values, Fraction(np.exp(epsilon)))
    probs = table / TABLE_TOTAL  # [true, released]
    noise = np.einsum("tr,mr->mt", probs, outputs**2) - values**2
    k_ary = (noise.mean(axis=1) / values.var(axis=1)).sum()
    # One of two metrics, by a coin that costs nothing, through Warner's response to its ends.
    kept = np.exp(epsilon) / (1 + np.exp(epsilon))
    middle, half = (values.max(axis=1) + values.min(axis=1)) / 2, np.ptp(values, axis=1) / 2
    weights = half / values.std(axis=1)
    picked, total = weights / weights.sum(), 0.0
    for metric, category in itertools.product(range(2), range(size)):
        place = (values[metric, category] - middle[metric]) / half[metric]
        high = (1 + place) / 2 * kept + (1 - place) / 2 * (1 - kept)
        reach = half[metric] / (2 * kept - 1) / picked[metric]
        mean, square = picked[metric] * (2 * high - 1) * reach, picked[metric] * reach**2
        assert mean == pytest.approx(values[metric, category] - middle[metric])
        total += (square - mean**2) / values[metric].var() / size
    assert at_random == pytest.approx(total)
    assert best == pytest.approx(min(k_ary, total), rel=1e-6)


def test_shares_are_the_best_there_are() -> None:
    costs = [lambda eps: 3 / eps**2, lambda eps: 24 / eps**2]
    assert planning.best_shares(costs, 2.0) == pytest.approx([1 / 3, 2 / 3])
    warner = [lambda eps: 1 / np.sinh(eps / 2) ** 2, lambda eps: 20 / np.sinh(eps / 2) ** 2]
    found = planning.best_shares(warner, 6.0)
    tried = np.linspace(0.01, 0.99, 981)
    totals = [warner[0](6 * one) + warner[1](6 * (1 - one)) for one in tried]
    best = warner[0](6 * found[0]) + warner[1](6 * found[1])
    assert best <= 1.01 * min(totals)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_eight_outcomes_are_put_into_blocks(epsilon: float) -> None:
    margins = parse_margins(["b0=0.05", "rounds=mean:20,std:40"], EIGHT.spaces)
    found = planning.best_partition(EIGHT, margins, epsilon, 12)
    assert sorted(name for block in found.blocks for name in block) == sorted(EIGHT.names)
    assert len(found.blocks) == 2
    assert sum(found.shares) == pytest.approx(1)
    assert found.cost < found.separate / 2
    outcomes = [f"{one.name}={one.space}" for one in EIGHT.outcomes]
    options = parse_options({"outcomes": outcomes, "epsilon": epsilon})
    for space in options.spaces:
        assert space.n_categories <= MOST_CATEGORIES
        assert all(len(grid.points) >= 4 for grid in space.grids)


def test_many_outcomes_are_merged_one_by_one() -> None:
    many = declare({f"b{place}": "0,1" for place in range(11)})
    found = planning.best_partition(many, {}, 2.0, 12)
    assert sorted(map(len, found.blocks)) == [5, 6]


def test_what_is_linked_and_too_large_is_refused() -> None:
    large = declare({"a": "0..9", "b": "0..9", "c": "0,1"}, metrics=["a*b"])
    with pytest.raises(ParameterError, match=r"100 categories, and at most 64 can share a channel"):
        planning.best_partition(large, {}, 1.0, 12)


def test_one_block_wherever_it_fits() -> None:
    options = parse_options({"outcomes": {f"b{place}": "0,1" for place in range(6)}})
    assert len(options.spaces) == 1
    assert options.with_grids().block is None
    several = parse_options({"outcomes": {f"b{place}": "0,1" for place in range(7)}, "epsilon": 1})
    assert [len(space.declared.names) for space in several.spaces] in ([6, 1], [1, 6])
    assert several.with_grids().spaces == several.spaces


def test_a_prior_is_of_one_block_after_another() -> None:
    outcomes = {"visit": "0,1", "clicks": "0..2"}
    given = {"outcomes": outcomes, "block": ["visit=0.5", "clicks=0.5"], "epsilon": 2.0}
    requests = parse_options({**given, "prior": [0.9, 0.1, 0.5, 0.3, 0.2]}).requests()
    assert [one.prior for one in requests] == [(0.9, 0.1), (0.5, 0.3, 0.2)]
    assert [one.epsilon for one in requests] == [1.0, 1.0]
    assert [one.mechanism for one in requests] == ["optimal", "optimal"]
