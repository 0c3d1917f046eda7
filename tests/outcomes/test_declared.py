from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from clusterdp import ParameterError
from clusterdp.outcomes.declaration import DeclaredOutcomes, DeclaredRecord, declare
from clusterdp.outcomes.number import Number

FUNNEL: dict[str, Any] = {
    "constraints": ["conversion -> visit", "spend>0 -> conversion"],
    "metrics": ["spend>=10", "visit*spend"],
    "weights": ["spend=2", "spend>=10=0.5"],
}


def funnel() -> DeclaredOutcomes:
    return declare(["visit=0,1", "conversion=binary", "spend=number:0..499"], **FUNNEL)


def test_texts_and_values_declare_the_same() -> None:
    spaces = {"visit": [0, 1], "conversion": "0..1", "spend": Number(0, 499)}
    assert declare(spaces, **FUNNEL) == funnel()
    assert declare(spaces, **{**FUNNEL, "weights": {"spend": 2, "spend >= 10": 0.5}}) == funnel()


def test_every_outcome_is_a_metric_first() -> None:
    declared = funnel()
    shown = [str(metric) for metric in declared.metrics]
    assert shown == ["visit", "conversion", "spend", "spend>=10", "visit*spend"]
    assert declared.multipliers == (1, 1, 2, 0.5, 1)


def test_cuts_come_from_metrics_and_from_ends_in_constraints() -> None:
    number = Number(0, 499)
    ten = int(10 / number.unit)
    assert funnel().cuts("spend") == (1, ten)
    assert declare({"spend": number}).cuts("spend") == ()
    alone = declare({"visit": "0,1", "spend": number}, constraints=["spend -> visit"])
    assert alone.cuts("spend") == (1,)
    full = declare({"visit": "0,1", "spend": number}, constraints=["visit -> spend<499"])
    assert full.cuts("spend") == (number.n_steps,)


def test_declarations_survive_a_manifest() -> None:
    written = json.loads(msgspec.json.encode(funnel().record()))
    assert msgspec.convert(written, DeclaredRecord).declared() == funnel()
    names = [one["name"] for one in written["outcomes"]]
    assert names == ["visit", "conversion", "spend"]


@pytest.mark.parametrize(
    "change",
    [
        {"outcomes": []},
        {"outcomes": {"visit": "0,1"}},
        {"outcomes": [{"name": "visit", "space": 3}]},
        {"outcomes": [{"name": "visit", "space": "what"}]},
        {"metrics": ["sales"]},
        {"weights": {"visit": "much"}},
        {"weights": {"visit": -1}},
        {"constraints": ["visit"]},
        {"surprise": 1},
    ],
)
def test_damaged_declarations_are_refused(change: dict[str, Any]) -> None:
    written = msgspec.to_builtins(funnel().record())
    with pytest.raises((ParameterError, msgspec.ValidationError)):
        msgspec.convert(written | change, DeclaredRecord).declared()


@pytest.mark.parametrize(
    ("outcomes", "options", "message"),
    [
        ([], {}, "at least one"),
        (["visit"], {}, "NAME=VALUES"),
        (["=0,1"], {}, "must not be empty"),
        (["visit=0,1", "visit=0..5"], {}, "'visit' is declared twice"),
        ({'a"b': "0,1"}, {}, "rename the column"),
        (["visit=0,1"], {"metrics": ["visit"]}, "metric 'visit' is declared twice"),
        (["visit=0,1"], {"metrics": ["sales>0"]}, "not a declared outcome"),
        (["visit=0,1"], {"weights": ["sales=2"]}, "there is no such metric"),
        (["visit=0,1"], {"weights": ["visit=0"]}, "above 0"),
        (["visit=0,1"], {"weights": ["visit=lots"]}, "METRIC=NUMBER"),
        (["visit=0,1"], {"weights": ["visit"]}, "METRIC=NUMBER"),
        (["visit=0,1"], {"constraints": ["visit -> sales"]}, "not a declared outcome"),
        (
            ["visit=0,1", "spend=number:0..499"],
            {"constraints": ["spend>10 -> visit"]},
            "declare the comparison as a metric",
        ),
        (["visit=0,1"], {"constraints": ["visit>1 -> visit"]}, "the same for every value"),
        (["stars=1..5", "visit=0,1"], {"constraints": ["stars -> visit"]}, "the same for every"),
        (
            ["visit=0,1", "debt=number:-5..5"],
            {"constraints": ["debt -> visit"]},
            "declare the comparison as a metric",
        ),
    ],
)
def test_bad_declarations_are_refused(outcomes: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        declare(outcomes, **options)


def test_a_threshold_of_an_constraint_may_be_that_of_a_metric() -> None:
    declared = declare(
        ["visit=0,1", "spend=number:0..499"],
        metrics=["spend>10"],
        constraints=["spend>10 -> visit"],
    )
    assert declared.cuts("spend") == (int(10 / Number(0, 499).unit) + 1,)
