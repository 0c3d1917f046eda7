"""Outcomes as they are declared: in Python, by commands, in files; and what is expected of them."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.document.text import to_lines
from clusterdp.spec.experiment import ExperimentFile
from drafts import draft_of

if TYPE_CHECKING:
    from pathlib import Path

PYTHON: dict[str, Any] = {
    "outcomes": {"visit": [0, 1], "order": cdp.OutcomeSpace.binary(), "spend": cdp.Number(0, 50)},
    "constraint": ("order -> visit", "spend>0 -> order"),
    "metric": "spend>=20",
    "weight": {"spend": 2, "spend>=20": 0.5},
    "baseline": {"visit": 0.3, "order": [0.9, 0.1], "spend": "mean:2,std:8"},
}
TEXTS: dict[str, Any] = {
    "outcomes": ["visit=0,1", "order=0,1", "spend=number:0..50"],
    "constraint": ["order -> visit", "spend>0 -> order"],
    "metric": ["spend>=20"],
    "weight": ["spend=2", "spend>=20=0.5"],
    "baseline": ["visit=0.3", "order=0.9,0.1", "spend=mean:2,std:8"],
}
FILE = """
[outcomes]
visit = { type = "binary", baseline = 0.3 }
order = { type = "binary", baseline = [0.9, 0.1] }
spend = { type = "number", range = [0, 50], baseline = { mean = 2, sd = 8 } }

[analysis]
constraints = ["order -> visit", "spend>0 -> order"]
metrics = ["spend>=20"]
weights = { spend = 2, "spend>=20" = 0.5 }
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
    path = tmp_path / "experiment.toml"
    path.write_text(FILE)
    assert ExperimentFile.read(path).options == by_texts.request.options


def test_a_command_declares_the_same(visits: pl.DataFrame, tmp_path: Path) -> None:
    source, by_hand, by_command = (tmp_path / name for name in ("t.parquet", "a.lock", "b.toml"))
    visits.write_parquet(source)
    cdp.plan(source, **{**PYTHON, **PUBLIC}).save(by_hand)
    flags = [
        word
        for name, texts in TEXTS.items()
        for text in texts
        for word in (f"--{'outcome' if name == 'outcomes' else name}", text)
    ]
    public = ("--arm", "treated", "--cluster", "market", "--epsilon", 1)
    ran = run("plan", source, *flags, *public, "--out", by_command, "-v")
    assert ran.exit_code == 0, ran.output
    written = by_command.with_suffix(".lock").read_text()
    own = re.sub(r'experiment = ".*"\n', "", written)
    assert own.replace("order=0,1", "order=0..1") == by_hand.read_text()
    for said in (
        "visit",
        "spend>=20",
        "larger than in a plan for the overall effect only",
        "10% segment",
    ):
        assert said in ran.stdout


def test_a_release_by_a_plan_has_the_plans_grids(visits: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "plan.lock"
    plan = cdp.plan(visits, **{**PYTHON, **PUBLIC}, mechanism="uniform-prior-dp")
    plan.save(path)
    again = cdp.Plan.load(path)
    assert again.options == plan.options
    assert draft_of(again.options).spaces[0] == draft_of(plan.options).spaces[0]
    # The grids follow from the plan alone, also if the baseline is another.
    other = path.read_text().replace("mean:2,std:8", "mean:20,std:20")
    path.write_text(other)
    moved = cdp.Plan.load(path).options
    assert draft_of(moved).spaces[0].grids == draft_of(plan.options).spaces[0].grids
    assert (
        draft_of({**PYTHON, "baseline": moved.baseline}).spaces[0].grids
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
    assert plan.report is not None
    shown, reviewed = repr(plan), "\n".join(to_lines(plan.report.review()))
    assert "Mechanism  optimal" in reviewed
    for metric in metrics:
        assert re.search(rf"^  {metric} +\d", shown, re.MULTILINE)
        assert f'<th scope="row">{escape(metric)}</th>' in plan._repr_html_()
        assert f"Minimum detectable effect on {metric}\n" in reviewed


def test_a_ledger_records_all_outcomes_and_their_grids(
    visits: pl.DataFrame, tmp_path: Path
) -> None:
    ledger = tmp_path / "budget.db"
    assert run("ledger", "init", ledger, "--cap-epsilon", 4).exit_code == 0
    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    asked = {**PYTHON, **PUBLIC, "unit": "user", "mechanism": "uniform-prior-dp", **whose}
    cdp.publish(visits, out=tmp_path / "out", **asked)
    (entry,) = cdp.Ledger(ledger).balance("us").spent
    assert entry.terms.outcome_names == ("visit", "order", "spend")
    options = entry.content["options"]
    assert draft_of({**options, "baseline": None}).spaces == draft_of(PYTHON).spaces


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "0.5,0.5"}, "a baseline must be OUTCOME=MARGIN"),
        ({"baseline": ["visit=0.5", "visit=0.4"]}, "baseline gives 'visit' twice"),
        ({"baseline": {"clicks": 0.5}}, "'clicks', which is not a declared outcome"),
        ({"baseline": ["past.parquet", "visit=0.5"]}, "never taken from the table"),
        ({"weight": {"clicks": 2}}, "there is no such metric"),
        ({"metric": 5}, "metric must be metrics such as"),
        ({"constraint": "order => visit"}, "a constraint must be"),
        ({"mde": {"clicks": 0.1}, "epsilon": None}, "there is no metric 'clicks'"),
        ({"mde": "visit=few", "epsilon": None}, "mde must be METRIC=EFFECT"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str, visits: pl.DataFrame) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message.replace("(", r"\(")):
        cdp.plan(visits, **{**PYTHON, **PUBLIC, "mechanism": "uniform-prior-dp", **change})


def test_margins_that_contradict_constraints_are_noted() -> None:
    chosen = draft_of({**PYTHON, "baseline": {"visit": 0.1, "order": 0.4}})
    assert any("contradicts the constraints" in note for note in chosen.notes)
    assert not draft_of(PYTHON).notes


def test_an_effect_on_a_metric() -> None:
    assert draft_of({**PYTHON, "mde": 0.2}).target() == (0, 0, 0.2)
    assert draft_of({**PYTHON, "mde": "0.2"}).target() == (0, 0, 0.2)
    assert draft_of({**PYTHON, "mde": {"spend": 3}}).target() == (0, 2, 3.0)
    assert draft_of({**PYTHON, "mde": "spend>=20=0.1"}).target() == (0, 3, 0.1)
