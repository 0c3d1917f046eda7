"""Which outcomes form a question, how often it is asked, and what a plan expects of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from assertions import assert_variance
from clusterdp.channels import _optimal_channel as channels
from clusterdp.channels._solver import generation, staircases
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import (
    check_partition,
    declare,
    declared_of,
    linked_outcomes,
    parse_question,
)
from clusterdp.owner.plan import make_plan
from clusterdp.planning import _partition as planning
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.compare import compare, mechanism_options
from clusterdp.precision.expected import Scenario, histogram_baseline
from clusterdp.precision.forecast import predict, purpose_variances
from clusterdp.spec.parse import parse
from clusterdp.spec.purpose import parse_purpose
from clusterdp.spec.request import BudgetRequest
from drafts import draft_of
from page_checks import assert_sound_page
from populations import make_layout

FUNNEL = declare(
    {"visit": "0,1", "sale": "0,1", "spend": "0..2", "rounds": "number:0..9", "rating": "1..5"},
    constraints=["sale -> visit"],
    metrics=["sale*spend", "rounds>=5"],
    weights={"rounds": 2},
)
# As tried by a new user: a share, a count with a long tail, revenue, and a score that most lack.
FOUR = {
    "converted": "0,1",
    "sessions": "number:0..200",
    "revenue": "number:0..5000",
    "score": "number:0..10",
}


def test_linked_outcomes_stay_together() -> None:
    assert linked_outcomes(FUNNEL) == (("visit", "sale", "spend"), ("rounds",), ("rating",))
    own = declared_of(FUNNEL, ("rounds", "rating"))
    assert own.names == ("rounds", "rating")
    assert [str(one) for one in own.metrics] == ["rounds", "rating", "rounds>=5"]
    assert own.multipliers == (2, 1, 1)
    assert own.constraints == ()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["visit,sale,spend", "rounds"], "'rating' is in no questions"),
        (["visit,sale,spend", "rounds,rating", "rating"], "'rating' is in 2 questions"),
        (["visit,sale", "spend", "rounds,rating"], "must be in one question"),
        (["visit,sale,spend,clicks", "rounds,rating"], "'clicks', which is not a declared outcome"),
        (["visit,sale,spend=0", "rounds,rating"], "a number above 0 (visit,sale=2)"),
        (["visit,sale,spend=often", "rounds,rating"], "a number above 0 (visit,sale=2)"),
        (["=0.5", "rounds,rating"], "a question names outcomes"),
    ],
)
def test_questions_that_cannot_be(texts: list[str], said: str) -> None:
    with pytest.raises(ParameterError) as refused:
        check_partition([parse_question(text) for text in texts], FUNNEL)
    assert said in str(refused.value)


def test_questions_are_read_back() -> None:
    for text in ("visit,sale", "visit,sale=2", "visit=0.5"):
        assert str(parse_question(text)) == text


@given(st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=40))
def test_units_are_asked_in_the_ratio_of_weights(weights: list[float]) -> None:
    asked = planning.whole_shares(weights)
    assert sum(asked) == ASKED_TOTAL
    assert min(asked) >= 1
    wanted = np.array(weights) / sum(weights) * ASKED_TOTAL
    assert np.abs(np.array(asked) - wanted).max() <= len(weights) + 1
    assert planning.whole_shares(asked) == asked


def noise_of(outcomes: dict[str, str], epsilon: float) -> tuple[list[int], float, float]:
    """The sizes of questions, their noise relative to the variance of metrics, and if ε is shared.

    By the formula Σ c/π − m, with π as the integers that are published.
    """
    declared = declare(outcomes)
    found = planning.best_partition(declared, {}, epsilon)
    total = 0.0
    for names, asked in zip(found.questions, found.asked, strict=True):
        space = Categories(declared=declared_of(declared, names))
        uniform = np.full(space.n_categories, 1 / space.n_categories)
        weights = space.metric_weights(uniform)
        rows = cdp.optimal(epsilon=epsilon, prior=uniform.tolist()).settled_rows(space)
        channel = rows.public_channel(space)
        assert isinstance(channel, channels.OptimalChannel)
        noise = float(channel.weighted_noise(weights)[0] @ uniform)
        total += (len(weights) + noise) * ASKED_TOTAL / asked
    noise = total - len(outcomes)
    return sorted(map(len, found.questions)), noise, found.saving * noise


BINARY = {f"b{place}": "0,1" for place in range(5)}
THREE = {name: BINARY[name] for name in ("b0", "b1", "b2")}
LEVELS = {"a": "0,1", "b": "0,1", "c": "0..11"}
EIGHTS = {"a": "0..7", "b": "0..7"}


@pytest.mark.parametrize(
    ("outcomes", "epsilon", "sizes", "most", "shared"),
    [
        (THREE, 1, [1, 1, 1], 39.14, 107),
        (THREE, 2, [3], 8.90, 26.0),
        (THREE, 4, [3], 0.9624, 5.8),
        (BINARY, 1, [1] * 5, 112.07, 498),
        (BINARY, 2, [2, 3], 28.05, 123),
        (BINARY, 4, [2, 3], 7.33, 29.6),
        (LEVELS, 1, [1, 1, 1], 55.31, 163),
        (LEVELS, 2, [1, 2], 16.0, 40.2),
        (EIGHTS, 1, [1, 1], 38.7, 74.6),
        (EIGHTS, 2, [1, 1], 9.5, 18.3),
        (EIGHTS, 4, [1, 1], 3.0, 3.7),
        (EIGHTS, 8, [2], 0.1, math.inf),
    ],
)
def test_the_noise_of_the_design_is_reached(  # noqa: PLR0917 - a row of the table
    outcomes: dict[str, str],
    epsilon: float,
    sizes: list[int],
    most: float,
    shared: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within 1% of the best in the table of DESIGN that questions of 16 combinations can reach."""
    monkeypatch.setattr(planning, "_OF_ROWS", 1.0)
    found, noise, if_shared = noise_of(outcomes, epsilon)
    assert found == sizes
    assert noise <= 1.01 * most
    assert noise < if_shared
    if math.isfinite(shared):
        assert 0.9 * shared <= if_shared <= 1.01 * shared  # the table has equal shares


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 5.0, 8.0])
def test_no_partition_is_worse_than_sharing_epsilon(epsilon: float) -> None:
    for outcomes in (FOUR, {**BINARY, **LEVELS}, {"x": "number:0..1", "y": "number:0..9"}):
        assert planning.best_partition(declare(outcomes), {}, epsilon).saving > 1


def test_numbers_have_fewer_points_where_more_would_take_long() -> None:
    linked = {"x": "number:0..10", "y": "number:0..10"}
    options = draft_of({"outcomes": linked, "metric": ["(x>5)*(y>5)"], "epsilon": 1})
    (space,) = options.spaces
    assert space.n_categories <= 24
    alone = draft_of({"outcomes": linked, "epsilon": 1})
    assert [space.shape for space in alone.spaces] == [(16,), (16,)]


def test_what_is_linked_and_too_large_is_refused() -> None:
    large = declare({"a": "0..9", "b": "0..9", "c": "0,1"}, metrics=["a*b"])
    with pytest.raises(ParameterError, match=r"100 outcome combinations.* at most 64"):
        planning.best_partition(large, {}, 1.0)


def test_questions_of_a_plan_are_those_of_its_release() -> None:
    several = draft_of({"outcomes": BINARY, "epsilon": 2})
    fixed = draft_of(several.to_options())
    assert fixed.spaces == several.spaces
    assert [one.asked for one in fixed.budgets()] == [one.asked for one in several.budgets()]
    together = draft_of({"outcomes": BINARY, "epsilon": 9}).to_options()
    assert together["question"] == ["b0,b1,b2,b3,b4"]  # also where the budget changes
    assert "question" not in draft_of({"outcomes": {"b": "0,1"}, "epsilon": 1}).to_options()


def test_every_question_has_all_of_epsilon_unless_there_are_no_rows() -> None:
    outcomes = {"visit": "0,1", "clicks": "0..2"}
    given: dict[str, Any] = {"outcomes": outcomes, "question": ["visit=3", "clicks=1"]}
    prior = [0.9, 0.1, 0.5, 0.3, 0.2]
    options = draft_of({**given, "epsilon": 2.0, "prior": prior, "pilot": 0.1})
    requests = options.budgets()
    assert [one.prior for one in requests] == [(0.9, 0.1), (0.5, 0.3, 0.2)]
    assert [one.epsilon for one in requests] == [2.0, 2.0]
    assert [one.asked for one in requests] == [3 * ASKED_TOTAL // 4, ASKED_TOTAL // 4]
    assert [one.mechanism for one in requests] == ["optimal", "optimal"]
    assert [one.pilot for one in requests] == [None, 0.1]  # no prior changes a binary channel
    without = draft_of({**given, "epsilon": 2.0, "mechanism": "noisy-histogram"}).budgets()
    assert [(one.epsilon, one.asked) for one in without] == [(1.0, ASKED_TOTAL)] * 2


LAYOUT = make_layout([[4000, 4000], [2000, 2500]])
PROBS = ([0.7, 0.3], [0.4, 0.3, 0.2, 0.1])


def two_scenarios() -> list[Scenario]:
    spaces = [
        Categories(declared=declare({name: text})) for name, text in (("a", "0,1"), ("b", "0..3"))
    ]
    return [
        Scenario(LAYOUT, space, histogram_baseline(space, probs))
        for space, probs in zip(spaces, PROBS, strict=True)
    ]


def test_rows_of_those_who_are_asked_have_the_predicted_variance(
    rng: np.random.Generator,
) -> None:
    """Of an arm's mean over those asked: (σ² + v)/(nπ), by simulated questions and responses."""
    scenario, share = two_scenarios()[1], 0.3
    space, probs, n_units = scenario.space, np.array(PROBS[1]), 400
    alone = replace(scenario, layout=make_layout([[n_units, n_units]]))
    (mechanism,) = plan_mechanisms(
        [BudgetRequest(epsilon=1, totals_share=0.0, asked=round(share * ASKED_TOTAL))], [alone]
    ).mechanisms
    predicted = predict(mechanism, alone)[0]
    channel = mechanism.settled_rows(space).public_channel(space)
    transition, outputs = channel.transition()[0], channel.decode()[0]
    released = transition @ probs  # a unit's response, whatever its outcome was
    means = []
    for _ in range(4000):
        asked = rng.binomial(n_units, share, 2)
        drawn = [rng.multinomial(n, released) @ outputs / n for n in asked]
        means.append(drawn[1] - drawn[0])
    variance = predicted.overall.std_error**2
    # The number of those asked is random, which adds (1 − π)/(nπ) in proportion, and no more.
    assert_variance(np.array(means), variance * (1 + (1 - share) / (n_units * share)), 0.005)
    noise = channel.noise_variance()[0] @ probs
    spread = probs @ np.arange(4) ** 2 - (probs @ np.arange(4)) ** 2
    assert variance == pytest.approx(2 * (spread + noise) / (n_units * mechanism.asked_share))


def test_one_split_serves_all_questions() -> None:
    """Sums are common, rows have the rest of ε, and no other split is better for all metrics."""
    scenarios = two_scenarios()
    asked = [ASKED_TOTAL // 4, 3 * ASKED_TOTAL // 4]
    requests = [BudgetRequest(epsilon=1, optimize_for="segments:0.2", asked=one) for one in asked]
    comparisons = compare(requests, scenarios)
    made = [one.choice.mechanism for one in comparisons]
    assert [one.asked for one in made] == asked
    assert made[0].statistics == made[1].statistics
    assert all(
        one.guarantee(known.space).epsilon <= 1 for one, known in zip(made, scenarios, strict=True)
    )
    shares, purposes = mechanism_options(comparisons), parse_purpose("segments:0.2")
    again = plan_mechanisms(
        [BudgetRequest(**shares, asked=one) for one in asked], scenarios
    ).mechanisms
    assert list(again) == made

    def objective(totals: float) -> float:
        given = [
            BudgetRequest(epsilon=1, totals_share=totals, sums_share=0.0, asked=one)
            for one in asked
        ]
        tried = plan_mechanisms(given, scenarios).mechanisms
        return float(
            sum(
                purpose_variances(predict(one, known), purposes, known).max()
                for one, known in zip(tried, scenarios, strict=True)
            )
        )

    best = min(objective(totals) for totals in (0.0, 0.01, 0.03, 0.1, 0.3))
    assert objective(shares["totals_share"]) <= 1.01 * best


def test_a_plan_designs_a_handful_of_channels_and_its_release_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For any number of budgets on its page; the time that it takes is bounded by that."""
    designed: list[Any] = []
    near: list[Any] = []

    def counting(name: str, shapes: list[Any]) -> Any:
        real = getattr(staircases, name)

        def counted(values: Any, *rest: Any, **named: Any) -> Any:
            shapes.append(values.shape)
            return real(values, *rest, **named)

        return counted

    monkeypatch.setattr(staircases, "design_staircase", counting("design_staircase", designed))
    near_counted = counting("near_noise", near)
    for module in (staircases, planning):
        monkeypatch.setattr(module, "near_noise", near_counted)
    frame = pl.DataFrame({"user": np.arange(2000), "arm": np.arange(2000) % 2})
    plan = cdp.plan(frame, unit="user", arm="arm", outcomes=FOUR, missing=["score"], epsilon=1.3)
    plan.to_html()
    assert max(n_categories for _, n_categories in designed + near) <= 24
    assert len(near) <= 15 * len(FOUR)
    assert len(designed) <= len(FOUR)
    designed.clear()
    near.clear()
    draft = draft_of(plan.options)
    made = plan_mechanisms(draft.budgets(), draft.scenarios(make_layout([[1000, 1000]])))
    assert not designed
    assert not near
    assert sum(one.asked for one in made.mechanisms) == ASKED_TOTAL


PEOPLE = pl.DataFrame({"user": np.arange(6000), "arm": np.arange(6000) % 2})
ASKED: dict[str, Any] = {"unit": "user", "arm": "arm"}


class Told:
    """Progress that were begun, and the steps that were done in them."""

    def __init__(self) -> None:
        self.stages: dict[str, list[int]] = {}

    def stage(self, name: str, n_rows: int) -> Any:
        done = self.stages[name] = [n_rows]
        return done.append


def test_a_pilot_that_pays_is_of_the_questions_nobody_knows_about() -> None:
    outcomes = {"visit": "0,1", "spend": "number:0..100000", "rating": "1..5"}
    told = Told()
    options = parse(
        {**ASKED, "outcomes": outcomes, "baseline": {"rating": "mean:3,std:1"}, "epsilon": 1}
    )
    plan = make_plan(PEOPLE, options, told)
    shares = [one.pilot for one in draft_of(plan.options).budgets()]
    assert shares[0] is shares[2] is None
    assert shares[1] is not None
    assert told.stages["mechanisms"] == [2, 1, 1]
    n_total, *designed = told.stages["randomizers compared"]
    assert n_total == 0
    assert len(designed) >= len(outcomes)
    assert set(designed) == {1}
    assert plan.report is not None
    planned = [one.comparison.choice.mechanism for one in plan.report.questions]
    assert [one.pilot is None for one in planned] == [True, False, True]
    assert len({one.statistics for one in planned}) == 1
    scenarios = draft_of(plan.options).scenarios(make_layout([[3000, 3000]]))
    assert plan_mechanisms(draft_of(plan.options).budgets(), scenarios).mechanisms == tuple(planned)
    assert "pilot histogram (finds the range)" in " ".join(repr(plan).split())


def test_the_smallest_epsilon_is_of_all_questions() -> None:
    asked = {**ASKED, "outcomes": {"a": "0,1", "b": "0..3"}, "optimize_for": "segments:0.5"}
    at_two = cdp.plan(PEOPLE, **asked, question=["a", "b"], epsilon=2).to_dict()["questions"][1]
    effect = at_two["visible"]["50% segment"]["b"]["detectable_effect"]
    found = cdp.plan(PEOPLE, **asked, question=["a", "b"], mde={"b": effect})
    assert found.options.epsilon == pytest.approx(2, rel=0.05)


def test_without_rows_questions_share_epsilon() -> None:
    outcomes = {"a": "0,1", "b": "0..3"}
    plan = cdp.plan(PEOPLE, **ASKED, outcomes=outcomes, mechanism="noisy-histogram", epsilon=1)
    said = plan.to_dict()
    assert [one["epsilon"] for one in said["questions"]] == [0.5, 0.5]
    assert [one["asked"] for one in said["questions"]] == [1, 1]
    assert said["epsilon"] == 1
    assert_sound_page(plan.to_html())


def test_a_design_that_takes_long_is_stopped_and_the_plan_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generation, "_MOST_WORK", 0)
    monkeypatch.setattr(generation, "GOAL", 1e-9)
    outcomes = {"a": "0..2", "b": "0..3", "c": "0,1"}
    asked = {**ASKED, "outcomes": outcomes, "question": ["a,b,c"], "mechanism": "optimal"}
    plan = cdp.plan(PEOPLE, **asked, epsilon=1.37)
    assert "with 24 outcome combinations" in " ".join(repr(plan).split())
