"""Mixtures of an interior-point method: their equations hold, and no mixture is better."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from all_sets import least_variance
from clusterdp.channels._solver.generation import find_optimum, reduce_mixture
from clusterdp.channels._solver.program import ConeProgram, Prices, StepMixture, solve_cones
from clusterdp.channels._solver.sets import all_sets, first_sets
from clusterdp.channels._solver.staircases import design_staircase

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

# Two binary metrics and a heavy-tailed number on 12 points, as in `bench/joint_frontier.py`.
POINTS = (0, 2, 5, 10, 18, 31, 53, 90, 150, 240, 360, 493)
SHARES = np.array([6, 11, 14, 16, 16, 14, 11, 6, 3.5, 1.6, 0.6, 0.3]) / 100


def game() -> tuple[FloatArray, FloatArray]:
    """What categories count as, each metric of variance 1, and how likely they are."""
    values = np.array(list(product((0, 1), (0, 1), POINTS)), dtype=np.float64).T
    returns = np.outer([0.55, 0.45], [0.81, 0.19]).ravel()
    prior = np.outer(returns, SHARES / SHARES.sum()).ravel()
    centred = values - (values @ prior)[:, np.newaxis]
    return centred / np.sqrt(centred**2 @ prior)[:, np.newaxis], prior


def program_of(values: FloatArray, prior: FloatArray, epsilon: float) -> ConeProgram:
    reach = np.sqrt((np.ptp(values, axis=1) ** 2).sum()) / np.tanh(epsilon / 2) / 2
    return ConeProgram(
        values=values / reach,
        prior=prior,
        ratio=float(np.exp(epsilon)),
        delta=0.0,
        ends=np.zeros((len(values), 2)),
    )


def most_open(program: ConeProgram, mixture: StepMixture) -> float:
    """By how much the worst equation is wrong."""
    levels = program.levels(mixture.high)
    totals = np.abs(mixture.mass @ levels - 1).max()
    return float(max(totals, np.abs(mixture.moved.T @ levels - program.values).max()))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 2.0, 8.0])
def test_equations_hold_where_they_are_nearly_dependent(epsilon: float) -> None:
    program = program_of(*game(), epsilon)
    mixture = solve_cones(program, first_sets(program))
    assert mixture is not None
    assert (mixture.mass > 0).all()
    assert most_open(program, mixture) <= 1e-7
    # Few outputs then cost no more.
    reduced = reduce_mixture(program, mixture)
    assert reduced is not None
    assert reduced.cost <= program.cost_of(mixture) * (1 + 1e-6)
    assert len(reduced.mass) <= 4 * 48


def test_a_penalty_leaves_equations_open() -> None:
    """A negative control: what holds prices gives the equations slack, and it is seen."""
    program = program_of(*game(), 0.5)
    nothing = Prices(np.zeros(48), np.zeros((3, 48)))
    held = solve_cones(program, first_sets(program), (1e-3, nothing))
    assert held is not None
    assert most_open(program, held) > 1e-4


def test_primal_and_dual_agree_with_the_oracle(rng: np.random.Generator) -> None:
    """Both costs are those of a general cone solver over all sets, good to about 1e-6."""
    for _ in range(20):
        n_metrics, n_categories = int(rng.integers(1, 4)), int(rng.integers(2, 8))
        values = rng.normal(size=(n_metrics, n_categories))
        prior = rng.dirichlet(np.ones(n_categories)) + 1e-3
        prior /= prior.sum()
        epsilon = float(rng.uniform(0.2, 5))
        program = program_of(values, prior, epsilon)
        mixture = solve_cones(program, all_sets(n_categories))
        assert mixture is not None
        cost = program.cost_of(mixture)
        assert cost == pytest.approx(program.value_of(mixture.prices), abs=1e-7)
        best = least_variance(program.values, prior, np.ones(n_metrics), epsilon)
        assert cost - program.spread == pytest.approx(best, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1])
def test_many_categories_at_small_epsilon_are_near_their_bound(epsilon: float) -> None:
    values, prior = game()
    found = design_staircase(values, prior, np.ones(3), ratio=float(np.exp(epsilon)))
    assert found is not None
    assert found.gap <= 0.002
    assert len(found.low) <= 4 * 48


def test_the_search_never_returns_worse_than_it_began(rng: np.random.Generator) -> None:
    values = rng.normal(size=(2, 18))
    program = program_of(values, rng.dirichlet(np.ones(18)), 1.0)
    first, found = solve_cones(program, first_sets(program)), find_optimum(program)
    assert first is not None
    assert found is not None
    assert found[1] <= program.cost_of(found[0]) + 1e-9
    assert program.cost_of(found[0]) <= program.cost_of(first)
