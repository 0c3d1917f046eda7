"""What a plan shows follows from ε as people expect it, and what it costs to plan is small."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.channels._solver.staircases import design_staircase, near_noise
from clusterdp.channels.optimal import OptimalRows
from clusterdp.outcomes.categories import Categories
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.decide import assumed_in_words
from clusterdp.precision.forecast import predict_quickly
from drafts import draft_of
from populations import make_layout

NUMBERS: dict[str, Any] = {
    "outcomes": ["visits=number:0..30", "revenue=number:-100..300"],
    "baseline": ["visits=mean:1,std:2", "revenue=mean:2,std:15"],
}
LAYOUT = make_layout([[30_000, 30_000]])


def overall(epsilon: float, **asked: Any) -> dict[str, tuple[float, float]]:
    """The expected standard error of each metric's overall effect, and that without privacy."""
    draft = draft_of({**NUMBERS, **asked, "epsilon": epsilon})
    scenarios, found = draft.scenarios(LAYOUT), {}
    made = plan_mechanisms(draft.budgets(), scenarios).mechanisms
    for space, mechanism, known in zip(draft.spaces, made, scenarios, strict=True):
        for metric, one in zip(
            space.declared.metrics, predict_quickly(mechanism, known), strict=True
        ):
            found[str(metric)] = one.overall.std_error, one.overall.sampling_std_error
    return found


def test_a_larger_budget_is_better_for_everyone() -> None:
    """Also where it puts outcomes into one question, whose numbers have fewer points."""
    every = [overall(epsilon) for epsilon in (1, 2, 4)]
    n_questions = [len(draft_of({**NUMBERS, "epsilon": epsilon}).questions) for epsilon in (1, 2)]
    assert n_questions == [2, 1]
    for smaller, larger in itertools.pairwise(every):
        for metric, (error, sampling) in larger.items():
            assert error < smaller[metric][0]
            assert sampling == pytest.approx(smaller[metric][1])
    by_hand = 15 * np.sqrt(2 / 30_000)
    assert every[0]["revenue"][1] == pytest.approx(by_hand)


def test_assumptions_are_one_list() -> None:
    draft = draft_of({**NUMBERS, "metric": ["visits>0"], "epsilon": 1})
    assert len(draft.questions) == 2
    said = assumed_in_words(zip(draft.questions, draft.scenarios(LAYOUT), strict=True))
    assert said.startswith(
        "your baselines: visits mean 1 (sd 2), revenue mean 2 (sd 15). Implied: "
    )
    assert said.count("your baselines") == 1
    assert "visits>0 2" in said.partition("Implied")[2]


def some_questions() -> list[Categories]:
    """Categories of several metrics, and of one."""
    outcomes = [
        {"outcomes": ["visits=number:0..30", "buys=0,1"], "question": ["visits,buys"]},
        {"outcomes": ["revenue=number:-100..300"]},
        {"outcomes": ["score=1..5"], "missing": ["score"]},
    ]
    return [draft_of({**one, "epsilon": 2}).spaces[0] for one in outcomes]


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_noise_that_plans_take_is_that_of_designed_channels(epsilon: float) -> None:
    for space in some_questions():
        values, prior = space.metric_values(), np.exp(-np.arange(space.n_categories) / 5)
        prior /= prior.sum()
        weights, ratio = space.metric_weights(prior), float(np.exp(epsilon))
        found = near_noise(values, prior, weights, ratio=ratio)
        designed = design_staircase(values, prior, weights, ratio=ratio)
        assert found is not None
        assert designed is not None
        best = weights @ designed.noise(values) @ prior
        assert 0.995 * best <= weights @ found @ prior <= 1.015 * best


def test_noise_that_plans_take_is_of_delta_too() -> None:
    (space, *_) = some_questions()
    values, prior = space.metric_values(), np.full(space.n_categories, 1 / space.n_categories)
    weights, noises = space.metric_weights(prior), []
    for delta in (0.0, 0.05):
        rows = cdp.optimal(epsilon=2, delta=delta, prior=prior.tolist()).settled_rows(space)
        assert isinstance(rows, OptimalRows)
        channel = rows.public_channel(space)
        exact = np.array([channel.noise_variance(metric)[0] for metric in range(len(values))])
        near = rows.near_noise(space)
        assert weights @ near @ prior == pytest.approx(weights @ exact @ prior, rel=0.01)
        noises.append(weights @ near @ prior)
    assert noises[1] < noises[0]
