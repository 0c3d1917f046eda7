"""A request is parsed once, and written as options that give it back."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.outcomes import declaration
from clusterdp.planning import outcomes as chosen_outcomes
from clusterdp.planning.decide import Draft
from clusterdp.spec import parse as parsing
from clusterdp.spec.fields import DECLARED, MECHANISM_NAMES
from clusterdp.spec.parse import parse, to_options
from clusterdp.spec.terms import Terms

if TYPE_CHECKING:
    from pathlib import Path

SHARES = st.floats(0, 0.9, allow_nan=False)
ABOVE_ZERO = st.floats(0.01, 10, allow_nan=False)
OUTCOMES: dict[str, Any] = {
    "visit": st.sampled_from(["0,1", [0, 1], "no,yes", cdp.OutcomeSpace.binary()]),
    "clicks": st.sampled_from(["0..3", "0,1,5", [0, 2, 4]]),
    "spend": st.sampled_from(["number:0..50", cdp.Number(0, 50), "number:0..1.5"]),
}
# Every option that stands alone, with values as people give them.
ALONE: dict[str, Any] = {
    "unit": st.just("user"),
    "arm": st.just("arm"),
    "cluster": st.sampled_from(["market", "market,region", ["market", "region"]]),
    "breakdown": st.sampled_from(["region", [["region", "age"], "half"], ["region,age"]]),
    "keep": st.sampled_from(["a", "a,b", ["a", "b"]]),
    "folds": st.integers(1, 10),
    "control": st.sampled_from([0, "A", True, 1.5]),
    "arm_shares": st.sampled_from([{"A": 0.5, "B": 0.5}, ["A=1", "B=2"]]),
    "min_cell_size": st.integers(1, 50),
    "clip": st.booleans(),
    "decimal": st.sampled_from([".", ","]),
    "epsilon": ABOVE_ZERO,
    "delta": st.sampled_from([0.0, 1e-6]),
    "mechanism": st.sampled_from(MECHANISM_NAMES),
    "look": SHARES,
    "counts_share": SHARES,
    "totals_share": SHARES,
    "prior": st.sampled_from(["0.5,0.5", [1, 2, 3]]),
    "purpose": st.sampled_from(["overall", "breakdowns", "segments", "segments:0.05"]),
    "aggregate": st.sampled_from(["sum", ["max"]]),
    "title": st.just("Visits of March"),
    "engine": st.just("local"),
    "out": st.just("published"),
}


@st.composite
def asked_for(draw: st.DrawFn) -> dict[str, Any]:
    """Options of a release, as Python gives them."""
    names = draw(st.lists(st.sampled_from(list(OUTCOMES)), min_size=1, unique=True))
    found: dict[str, Any] = {"outcomes": {name: draw(OUTCOMES[name]) for name in names}}
    found |= draw(st.fixed_dictionaries({}, optional=ALONE))
    if draw(st.booleans()):
        found["missing"] = names[:1]
    if draw(st.booleans()):
        found["weight"] = {names[-1]: 2}
    if "spend" in names and draw(st.booleans()):
        found |= {"metric": "spend>=1", "reference": {"spend": "mean:0.5,std:0.5"}}
    if draw(st.booleans()):
        found["question"] = [[name] for name in names]
    if "cluster" in found and draw(st.booleans()):
        found |= {"private_cluster": 0.5, "labels": ["north", "south"]}
        found["label_shares"] = {"north": 3, "south": 1}
    return found


@given(asked_for())
def test_options_give_the_request_back(given: dict[str, Any]) -> None:
    request = parse(given)
    written = to_options(request)
    assert parse(written) == request
    assert set(written) <= set(DECLARED)
    lines = [f"{name} = {json.dumps(value)}" for name, value in written.items()]
    assert parse(tomllib.loads("\n".join(lines))) == request


def test_a_request_with_its_questions_chosen_gives_the_same_ones_again() -> None:
    asked = {"outcomes": {"visit": "0,1", "spend": "number:0..50"}, "epsilon": 1.0}
    asked |= {"reference": {"spend": "mean:2,std:8"}, "arm": "arm"}
    first = Draft.from_request(parse(asked))
    again = Draft.from_request(parse(first.to_options()))
    assert again.to_options() == first.to_options()
    assert again.spaces == first.spaces
    for one, other in zip(again.questions, first.questions, strict=True):
        np.testing.assert_array_equal(one.probs, other.probs)


@pytest.fixture
def people() -> pl.DataFrame:
    """600 people in three regions, with two outcomes."""
    number = pl.int_range(600)
    return pl.select(
        user=number,
        arm=number % 2,
        region=pl.Series(["north", "south", "east"]).gather(number % 3),
        visit=(number.hash() % 3 == 0).cast(pl.Int64),
        spend=(number.hash() % 40).cast(pl.Float64),
    )


PARTS: dict[str, Any] = {
    "arm": "arm",
    "cluster": "region",
    "private_cluster": 0.5,
    "labels": "north,south,east",
    "outcomes": {"visit": "0,1", "spend": "number:0..50"},
    "epsilon": 3,
}


@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
@pytest.mark.parametrize("look", [0.0, 0.1])
def test_a_release_by_a_plan_reads_every_text_once(
    look: float, people: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cdp.plan(people, **PARTS, look=look).save(tmp_path / "plan.toml")
    calls: Counter[str] = Counter()

    def watch(owner: Any, name: str) -> None:
        honest = getattr(owner, name)

        def counted(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return honest(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    watch(parsing, "parse_options")
    watch(parsing, "declare")
    watch(declaration, "declare")  # of what a manifest has as text
    watch(chosen_outcomes, "categories_on")
    watch(Draft, "from_request")
    watch(ClusterResponse, "for_epsilon")
    watch(Terms, "of")
    cdp.publish(people, tmp_path / "plan.toml", out=tmp_path / "out", unit="user")
    assert calls["declare"] == 1
    assert calls["from_request"] == 1
    assert calls["for_epsilon"] == 1
    assert calls["of"] == (2 if look else 1)  # the second time for what the look led to
    assert calls["parse_options"] == 2  # the file, and it with what was given beside it
    assert calls["categories_on"] == len(cdp.read_release(tmp_path / "out").questions)
