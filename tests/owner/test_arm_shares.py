"""Planned shares of arms: declared by the owner, published, and compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.published.verification import verify_folder

if TYPE_CHECKING:
    from pathlib import Path

QUESTION, ALARM = "If that was not planned, assignment failed.", "SRM: arms have"
ARMS = ["control"] * 2 + ["email", "letter"]
ASKED: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "control": "control",
    "outcomes": {"visit": "0,1"},
    "epsilon": 2,
}
HALF = {"control": 0.5, "email": 0.25, "letter": 0.25}


@pytest.fixture
def mailing(rng: np.random.Generator) -> pl.DataFrame:
    """A sound test with arms of 50, 25 and 25%."""
    visits = (rng.random(4000) < 0.2).astype(np.int64)
    return pl.DataFrame({"user": range(4000), "arm": ARMS * 1000, "visit": visits})


def test_without_shares_there_is_a_question_and_no_alarm(mailing: pl.DataFrame) -> None:
    plan, preview = cdp.plan(mailing, **ASKED), cdp.preview(mailing, **ASKED)
    for notes in (plan.notes, preview.notes):
        (question,) = [note for note in notes if QUESTION in note]
        assert "--arm-shares control=...,email=...,letter=..." in question
    estimate = cdp.estimate(cdp.release(mailing, **ASKED))
    assert not any(ALARM in one for one in estimate.warnings)
    assert any(QUESTION in one for one in estimate.notes)


def test_declared_shares_are_published_and_compared_with(
    mailing: pl.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "published"
    plan = cdp.plan(mailing, arm_shares=HALF, **ASKED)
    assert not any(QUESTION in note for note in plan.notes)
    cdp.publish(mailing, out=out, plan=plan)
    assert not [check for check in verify_folder(out) if check[1]]
    assert cdp.read_release(out).layout.arm_shares == (0.5, 0.25, 0.25)
    for file in ("README.md", "index.html"):
        assert "planned: 25%" in (out / file).read_text()
    assert "planned: 25%" in run("inspect", out).stdout
    estimate = cdp.estimate(out)
    assert not any(QUESTION in one or ALARM in one for one in (*estimate.warnings, *estimate.notes))


def test_shares_that_arms_do_not_have_are_an_alarm(mailing: pl.DataFrame) -> None:
    meant = ASKED | {"arm_shares": "control=2,email=2,letter=1"}
    for notes in (cdp.plan(mailing, **meant).notes, cdp.preview(mailing, **meant).notes):
        assert any(ALARM in note for note in notes)
    assert any(ALARM in one for one in cdp.estimate(cdp.release(mailing, **meant)).warnings)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ("control=1,email=1", "add letter="),
        (
            "control=1,email=1,letter=1,phone=1",
            "must name each of control, email, letter once .*; got 'phone=1'",
        ),
        ("control=1,email=1,letter=0", "numbers above 0"),
    ],
)
def test_shares_are_of_all_arms(shares: str, message: str, mailing: pl.DataFrame) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.plan(mailing, arm_shares=shares, **ASKED)


def test_groups_that_were_assigned_as_a_whole_have_units_as_they_have(
    mailing: pl.DataFrame,
) -> None:
    """Large schools in one arm are no error of assignment."""
    large = pl.when(pl.col("arm") == "control").then(pl.col("user") // 400)
    schools = mailing.with_columns(school=large.otherwise(100 + pl.col("user") % 100))
    grouped = schools.with_columns(school=pl.format("{} {}", "arm", "school"))
    found = cdp.estimate(
        cdp.release(grouped, randomization_unit="school", arm_shares=HALF, **ASKED)
    )
    wrong = {"control": 1, "email": 1, "letter": 1}
    other = cdp.estimate(
        cdp.release(grouped, randomization_unit="school", arm_shares=wrong, **ASKED)
    )
    for one in (found, other):
        assert not any(ALARM in warning for warning in one.warnings)
