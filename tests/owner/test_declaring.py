"""Outcomes as they are declared: in Python, by commands, in files; and what is expected of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.spec.parse import read_options
from drafts import draft_of

if TYPE_CHECKING:
    from pathlib import Path

PYTHON: dict[str, Any] = {
    "outcomes": {"visit": [0, 1], "order": cdp.OutcomeSpace.binary(), "spend": cdp.Number(0, 50)},
    "implies": ("order -> visit", "spend>0 -> order"),
    "metric": "spend>=20",
    "weight": {"spend": 2, "spend>=20": 0.5},
    "reference": {"visit": 0.3, "order": [0.9, 0.1], "spend": "mean:2,std:8"},
}
TEXTS: dict[str, Any] = {
    "outcomes": ["visit=0,1", "order=0,1", "spend=number:0..50"],
    "implies": ["order -> visit", "spend>0 -> order"],
    "metric": ["spend>=20"],
    "weight": ["spend=2", "spend>=20=0.5"],
    "reference": ["visit=0.3", "order=0.9,0.1", "spend=mean:2,std:8"],
}
ARRAYS = """
outcomes = ["visit=0,1", "order=0,1", "spend=number:0..50"]
implies = ["order -> visit", "spend>0 -> order"]
metric = ["spend>=20"]
weight = ["spend=2", "spend>=20=0.5"]
reference = ["visit=0.3", "order=0.9,0.1", "spend=mean:2,std:8"]
"""
TABLES = """
implies = ["order -> visit", "spend>0 -> order"]
metric = "spend>=20"
[outcomes]
visit = [0, 1]
order = "0,1"
spend = "number:0..50"
[weight]
spend = 2
"spend>=20" = 0.5
[reference]
visit = 0.3
order = [0.9, 0.1]
spend = "mean:2,std:8"
"""
PUBLIC: dict[str, Any] = {"arm": "treated", "cluster": "market", "epsilon": 1}


@pytest.fixture
def visits(rng: np.random.Generator) -> pl.DataFrame:
    """An experiment of 600 users with a funnel of three outcomes."""
    visit = rng.random(600) < 0.5
    order = visit & (rng.random(600) < 0.5)
    return pl.DataFrame(
        {
            "user": np.arange(600),
            "treated": np.arange(600) % 2,
            "market": np.arange(600) // 2 % 5,
            "visit": visit.astype(int),
            "order": order.astype(int),
            "spend": np.where(order, np.round(rng.uniform(0.5, 60, 600), 2), 0.0),
        }
    )


def test_one_meaning_wherever_it_comes_from(tmp_path: Path) -> None:
    by_python, by_texts = draft_of(PYTHON), draft_of(TEXTS)
    assert by_python.request.outcomes == by_texts.request.outcomes
    assert by_python.spaces == by_texts.spaces
    np.testing.assert_array_equal(by_python.questions[0].probs, by_texts.questions[0].probs)
    for text in (ARRAYS, TABLES):
        path = tmp_path / "spec.toml"
        path.write_text(text)
        assert read_options(path) == by_texts.request.options


def test_a_command_declares_the_same(visits: pl.DataFrame, tmp_path: Path) -> None:
    source, by_hand, by_command = (tmp_path / name for name in ("t.parquet", "a.toml", "b.toml"))
    visits.write_parquet(source)
    cdp.plan(source, **{**PYTHON, **PUBLIC}, mechanism="uniform-prior-dp").save(by_hand)
    flags = [
        word
        for name, texts in TEXTS.items()
        for text in texts
        for word in (f"--{'outcome' if name == 'outcomes' else name}", text)
    ]
    public = ("--arm", "treated", "--cluster", "market", "--epsilon", 1)
    more = ("--mechanism", "uniform-prior-dp", "--out", by_command)
    ran = run("plan", source, *flags, *public, *more)
    assert ran.exit_code == 0, ran.output
    written = by_command.read_text()
    assert written.replace("order=0,1", "order=0..1") == by_hand.read_text()
    for said in ("visit", "spend>=20", "alone", "10% segment"):
        assert said in ran.stdout


def test_a_release_by_a_plan_has_the_plans_grids(visits: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    plan = cdp.plan(visits, **{**PYTHON, **PUBLIC}, mechanism="uniform-prior-dp")
    plan.save(path)
    again = cdp.Plan.load(path)
    assert again.options == plan.options
    assert draft_of(again.options).spaces[0] == draft_of(plan.options).spaces[0]
    # The grids follow from the plan alone, also if the reference is another.
    other = path.read_text().replace("mean:2,std:8", "mean:20,std:20")
    path.write_text(other)
    moved = cdp.Plan.load(path).options
    assert draft_of(moved).spaces[0].grids == draft_of(plan.options).spaces[0].grids
    assert (
        draft_of({**PYTHON, "reference": moved.reference}).spaces[0].grids
        != draft_of(moved).spaces[0].grids
    )
    released = cdp.release(visits, plan, unit="user")
    assert released.questions[0].space == draft_of(plan.options).spaces[0]


def test_a_plan_shows_every_metric(visits: pl.DataFrame) -> None:
    plan = cdp.plan(visits, **{**PYTHON, **PUBLIC}, mechanism="optimal")
    content = plan.to_dict()
    metrics = ["visit", "order", "spend", "spend>=20"]
    assert content["metrics"] == metrics
    (option,) = content["options"]
    assert list(option["overall"]) == list(option["segment"]) == metrics
    for text in (repr(plan), plan._repr_html_()):
        assert "optimal, metric by metric" in text


def test_a_ledger_records_all_outcomes_and_their_grids(
    visits: pl.DataFrame, tmp_path: Path
) -> None:
    ledger = tmp_path / "budget.db"
    assert run("ledger", "init", ledger, "--cap-epsilon", 4).exit_code == 0
    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    asked = {**PYTHON, **PUBLIC, "unit": "user", "mechanism": "uniform-prior-dp", **whose}
    cdp.publish(visits, out=tmp_path / "out", **asked)
    (entry,) = cdp.Ledger(ledger).balance("us").spent
    assert entry.outcomes == ("visit", "order", "spend")
    options = entry.content["options"]
    assert draft_of({**options, "reference": None}).spaces == draft_of(PYTHON).spaces


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": "0.5,0.5"}, "a reference reads OUTCOME=MARGIN"),
        ({"reference": ["visit=0.5", "visit=0.4"]}, "reference gives 'visit' twice"),
        ({"reference": {"clicks": 0.5}}, "'clicks', which is no declared outcome"),
        ({"reference": ["past.parquet", "visit=0.5"]}, "no table is read for it"),
        ({"weight": {"clicks": 2}}, "there is no such metric"),
        ({"metric": 5}, "metric must be metrics such as"),
        ({"implies": "order => visit"}, "an implication reads"),
        ({"mde": {"clicks": 0.1}, "epsilon": None}, "there is no metric 'clicks'"),
        ({"mde": "visit=few", "epsilon": None}, "mde reads METRIC=EFFECT"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str, visits: pl.DataFrame) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message.replace("(", r"\(")):
        cdp.plan(visits, **{**PYTHON, **PUBLIC, "mechanism": "uniform-prior-dp", **change})


def test_margins_that_contradict_implications_are_noted() -> None:
    chosen = draft_of({**PYTHON, "reference": {"visit": 0.1, "order": 0.4}})
    assert any("contradicts the implications" in note for note in chosen.notes)
    assert not draft_of(PYTHON).notes


def test_an_effect_on_a_metric() -> None:
    assert draft_of({**PYTHON, "mde": 0.2}).target() == (0, 0, 0.2)
    assert draft_of({**PYTHON, "mde": "0.2"}).target() == (0, 0, 0.2)
    assert draft_of({**PYTHON, "mde": {"spend": 3}}).target() == (0, 2, 3.0)
    assert draft_of({**PYTHON, "mde": "spend>=20=0.1"}).target() == (0, 3, 0.1)
