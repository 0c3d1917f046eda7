"""Whether a plan pays for noisy counts where nothing is declared, and what they gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.planning import choose as planning
from clusterdp.planning.advice import scope_of_counts, share_of_counts
from clusterdp.planning.compare import compare, mechanism_options
from clusterdp.precision import expected as reference
from clusterdp.precision.expected import Scenario
from clusterdp.precision.forecast import predict
from clusterdp.precision.row_noise import unit_noise
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.studies import formulas as theory
from clusterdp.studies import populations as paper
from joint_populations import funnel_space
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp.outcomes.space import CategorySpace

LEVELS = cdp.OutcomeSpace.integers(0, 11)
LARGE_CELLS, SMALL_CELLS = make_layout(np.full((5, 2), 1000)), make_layout(np.full((200, 2), 25))


def blind(layout: cdp.Layout, space: CategorySpace = LEVELS) -> Scenario:
    """Nothing is known of outcomes."""
    return Scenario(layout, space, reference.uniform_baseline(space))


def counts_of(request: BudgetRequest, scenario: Scenario) -> NoisyCounts | None:
    """The noisy counts of a plan."""
    return planning.choose(request, scenario).find(NoisyCounts)


def test_counts_are_of_cells_where_these_are_large_and_else_of_arms() -> None:
    of_cells, of_arms = (
        counts_of(BudgetRequest(epsilon=4), blind(one)) for one in (LARGE_CELLS, SMALL_CELLS)
    )
    assert of_cells is not None
    assert of_arms is not None
    assert (of_cells.scope, of_arms.scope) == ("cluster", "population")
    for counts in (of_cells, of_arms):
        assert 2 / counts.noise_scale <= 0.1
    assert scope_of_counts(LARGE_CELLS, LEVELS, 1e6) == "population"


@pytest.mark.parametrize(
    "scenario",
    [
        blind(LARGE_CELLS, cdp.OutcomeSpace.binary()),
        blind(LARGE_CELLS, funnel_space()),
        blind(make_layout([[20, 20]])),
    ],
    ids=["two categories", "several metrics", "few units"],
)
def test_counts_that_could_not_pay_are_not_recommended(scenario: Scenario) -> None:
    assert share_of_counts(scenario, 4.0) == 0


@pytest.mark.parametrize(
    "request_",
    [
        BudgetRequest(epsilon=1.9),
        BudgetRequest(epsilon=4, optimize_for="overall"),
        BudgetRequest(epsilon=4, counts_share=0),
        BudgetRequest(epsilon=4, prior=(1,) * 12),
    ],
    ids=str,
)
def test_plans_without_counts(request_: BudgetRequest) -> None:
    assert counts_of(request_, blind(LARGE_CELLS)) is None


def test_a_declared_reference_is_trusted() -> None:
    declared = reference.histogram_baseline(LEVELS, [1.0] * 12)
    assert counts_of(BudgetRequest(epsilon=4), Scenario(LARGE_CELLS, LEVELS, declared)) is None


@pytest.mark.parametrize("layout", [LARGE_CELLS, SMALL_CELLS], ids=["large", "small"])
@pytest.mark.parametrize("epsilon", [3.0, 6.0])
def test_counts_cost_little_if_outcomes_are_uniform_after_all(
    layout: cdp.Layout, epsilon: float
) -> None:
    """The default plan's segments, against those of the best plan for uniform outcomes."""
    made, plain = (
        planning.choose(BudgetRequest(epsilon=epsilon, counts_share=share), blind(layout))
        for share in (None, 0.0)
    )
    assert made.find(NoisyCounts) is not None
    segments = [predict(one, blind(layout))[0].segment(0.1) for one in (made, plain)]
    errors = [one.std_error for one in segments if one is not None]
    assert errors[0] <= 1.05 * errors[1]


def test_the_options_of_a_plan_make_it_again() -> None:
    for layout, purpose in ((LARGE_CELLS, None), (SMALL_CELLS, None), (LARGE_CELLS, "overall")):
        plan = compare([BudgetRequest(epsilon=4, optimize_for=purpose)], [blind(layout)])[0]
        assert plan.chosen == "optimal"
        options = mechanism_options([plan])
        assert planning.choose(BudgetRequest(**options), blind(layout)) == plan.choice.mechanism


@pytest.mark.slow
def test_what_counts_gain_in_experiment_one() -> None:
    """A segment of 10% at ε = 4, over 24 populations.

    Variances follow from the channels that drawn counts led to: nothing is predicted. The ratio was
    between 0.62 and 0.78 in each of 100 populations, so that a mean above 0.85 is no bad luck.
    """
    tables = [paper.sub_population(draw) for draw in range(24)]
    scenario = blind(tables[0].layout, tables[0].space)
    rng = np.random.default_rng()

    def variance(request: BudgetRequest) -> float:
        mechanism = planning.choose(request, scenario)
        found = [
            theory.excess_variance(
                table.assign(1, rng)[0],
                table.layout,
                table.space,
                mechanism,
                rng=rng,
                n_draws=2,
                use="everything",
                segment_share=0.1,
            ).value.max()
            for table in tables
        ]
        return float(np.mean(found))

    segments = "segments:0.1"
    learned = variance(BudgetRequest(epsilon=4, optimize_for=segments))
    plain = variance(BudgetRequest(epsilon=4, optimize_for=segments, counts_share=0.0))
    assert learned <= 0.85 * plain


@pytest.mark.slow
def test_counts_insure_against_a_wrong_baseline(rng: np.random.Generator) -> None:
    """Outcomes are high where low ones were declared; cells of 1,000, far from any noise."""
    wrong = np.exp(-0.5 * np.arange(12))
    truth = wrong[::-1] / wrong.sum()
    counts = rng.multinomial(np.full((5, 2), 1000), truth)
    scenario = blind(LARGE_CELLS)

    def variance(counts_share: float, prior: tuple[float, ...]) -> float:
        request = BudgetRequest(
            epsilon=4, prior=prior, optimize_for="segments:0.1", counts_share=counts_share
        )
        made = planning.choose(request, scenario)
        noise = unit_noise(counts, LARGE_CELLS, LEVELS, made, rng)
        return float(noise.mean())

    known = variance(0.0, tuple(truth))
    assert variance(0.0, tuple(wrong)) >= 1.3 * known
    assert variance(0.02, tuple(wrong)) <= 1.25 * known
