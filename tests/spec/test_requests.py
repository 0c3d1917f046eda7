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

import clusterdp as cdp
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.outcomes import declaration
from clusterdp.planning import decide
from clusterdp.planning.decide import Draft
from clusterdp.spec import experiment as files
from clusterdp.spec import parse as parsing
from clusterdp.spec.fields import DECLARED
from clusterdp.spec.parse import parse
from clusterdp.spec.terms import Terms
from requests_asked import asked_for

if TYPE_CHECKING:
    from pathlib import Path


@given(asked_for())
def test_options_give_the_request_back(given: dict[str, Any]) -> None:
    request = parse(given)
    written = request.options.to_dict()
    assert parse(written) == request
    assert set(written) <= set(DECLARED)
    lines = [f"{name} = {json.dumps(value)}" for name, value in written.items()]
    assert parse(tomllib.loads("\n".join(lines))) == request


def test_a_request_with_its_questions_chosen_gives_the_same_ones_again() -> None:
    asked = {"outcomes": {"visit": "0,1", "spend": "number:0..50"}, "epsilon": 1.0}
    asked |= {"baseline": {"spend": "mean:2,std:8"}, "arm": "arm"}
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
@pytest.mark.parametrize("pilot", [0.0, 0.1])
def test_a_release_by_a_plan_reads_every_text_once(
    pilot: float, people: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cdp.plan(people, **PARTS, pilot=pilot).save(tmp_path / "plan.lock")
    calls: Counter[str] = Counter()

    def watch(owner: Any, name: str) -> None:
        honest = getattr(owner, name)

        def counted(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return honest(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    watch(parsing, "parse_options")
    watch(files, "parse_options")  # of a lock
    watch(parsing, "declare")
    watch(declaration, "declare")  # of what a manifest has as text
    watch(decide, "categories_on")
    watch(Draft, "from_request")
    watch(ClusterResponse, "for_epsilon")
    watch(Terms, "from_questions")
    cdp.publish(people, tmp_path / "plan.lock", out=tmp_path / "out", unit="user")
    assert calls["declare"] == 1
    assert calls["from_request"] == 1
    assert calls["for_epsilon"] == 1
    assert calls["from_questions"] == (
        2 if pilot else 1
    )  # the second time for what the pilot led to
    assert calls["parse_options"] == 2  # the file, and it with what was given beside it
    assert calls["categories_on"] == len(cdp.read_release(tmp_path / "out").questions)
