"""Exact pricing by cells of spheres, against every set there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clusterdp.channels._solver import sets as pricing
from clusterdp.channels._solver.generation import find_optimum
from clusterdp.channels._solver.program import ConeProgram, Prices, solve_cones
from clusterdp.channels._solver.sets import all_sets, first_sets, n_cells


def random_program(rng: np.random.Generator, n_metrics: int, n_categories: int) -> ConeProgram:
    return ConeProgram(
        values=rng.normal(size=(n_metrics, n_categories)),
        prior=rng.dirichlet(np.full(n_categories, 2.0)),
        ratio=float(np.exp(rng.uniform(0.3, 3))),
        delta=0.0,
        ends=np.zeros((n_metrics, 2)),
    )


def random_prices(rng: np.random.Generator, program: ConeProgram) -> Prices:
    """Prices of a program that knows too few sets, as they occur in a search."""
    known = np.eye(program.n_categories, dtype=np.bool_)
    mixture = solve_cones(program, np.vstack([known, ~known]))
    assert mixture is not None
    noise = rng.normal(size=program.n_categories) * program.prior
    return Prices(mixture.prices.total + 0.1 * noise, mixture.prices.mean)


@pytest.mark.parametrize("n_metrics", [1, 2, 3])
def test_cells_hold_the_best_of_all_sets(n_metrics: int, rng: np.random.Generator) -> None:
    for _ in range(30):
        program = random_program(rng, n_metrics, 9)
        prices = random_prices(rng, program)
        excess = program.excess(prices, all_sets(9))
        priced = pricing.price_cells(program, prices)
        assert priced.is_proved
        # The bound is one, and not far off: a second pilot leaves a little open.
        assert excess.max() <= priced.most + 1e-9
        if excess.max() > 1e-6:
            best = program.excess(prices, priced.high[:1])[0]
            assert best >= 0.999 * excess.max()
            assert priced.most <= 3 * excess.max() + 1e-9


def test_all_sets_are_summed_right(rng: np.random.Generator) -> None:
    program = random_program(rng, 3, 7)
    prices = random_prices(rng, program)
    excess = program.excess(prices, all_sets(7))
    priced = pricing.price_all_sets(program, prices)
    assert priced.most == pytest.approx(excess.max(), rel=1e-9)
    np.testing.assert_allclose(
        program.excess(prices, priced.high), -np.sort(-excess[excess > 1e-11])[: len(priced.high)]
    )


def test_local_search_claims_no_proof(rng: np.random.Generator) -> None:
    program = random_program(rng, 2, 8)
    mixture = solve_cones(program, first_sets(program)[::7])
    assert mixture is not None
    found = pricing.price_locally(program, mixture.prices, mixture)
    exact = pricing.price_all_sets(program, mixture.prices)
    assert not found.is_proved
    assert found.most <= exact.most + 1e-9


@pytest.mark.parametrize(("n_metrics", "n_categories"), [(1, 40), (2, 14), (3, 12)])
def test_the_bound_is_below_the_cost_and_near(
    n_metrics: int, n_categories: int, rng: np.random.Generator
) -> None:
    program = random_program(rng, n_metrics, n_categories)
    found = find_optimum(program)
    assert found is not None
    cost = program.value_of(found[0].prices)
    excess = cost - float((program.prior * program.values**2).sum())
    assert -1e-6 <= cost - found[1] <= 2e-3 * excess + 1e-6


def test_small_budgets_are_solved(rng: np.random.Generator) -> None:
    """Mixtures whose equations were open looked cheaper than the bound, in half of these."""
    for _ in range(5):
        program = replace(random_program(rng, 1, 40), ratio=1.4)
        found = find_optimum(program)
        assert found is not None
        cost = program.cost_of(found[0])
        assert abs(cost - program.value_of(found[0].prices)) <= 1e-6 * cost
        assert cost >= found[1] * (1 - 1e-9)


def test_a_bound_from_too_few_sets_would_be_wrong(rng: np.random.Generator) -> None:
    """A negative control: prices that only some sets respect exceed the least cost."""
    program = random_program(rng, 2, 8)
    few = solve_cones(program, np.eye(8, dtype=np.bool_))
    found = find_optimum(program)
    assert few is not None
    assert found is not None
    assert program.value_of(few.prices) > found[1] * 1.01


def test_cells_are_counted() -> None:
    assert n_cells(1, 64) == 4 * 64
    assert n_cells(2, 10) == 4 * 10 + 8 * 45


def test_where_sets_are_too_many_metrics_alone_give_the_bound(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = random_program(rng, 3, 12)
    proved = find_optimum(program)
    monkeypatch.setattr(pricing, "_MOST_EVERY_ROUND", n_cells(1, 12))
    monkeypatch.setattr(pricing, "MOST_AT_ALL", n_cells(1, 12))
    stated = find_optimum(program)
    assert proved is not None
    assert stated is not None
    assert (program.prior * program.values**2).sum() < stated[1] < proved[1]
    # Local search alone comes near what exact pricing finds.
    found = program.value_of(stated[0].prices)
    assert found <= program.value_of(proved[0].prices) * 1.02
