"""A look is recommended where it pays, with a reason; it is never turned on silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from cli_runs import run
from clusterdp.planning.look_advice import _share
from clusterdp.planning.row_noise import warner

if TYPE_CHECKING:
    from pathlib import Path

WIDE = {"rounds": "number:0..1000000"}
# What a look may cost in variance where it finds nothing.
MOST_COST = 0.05


def table(n_units: int = 20_000) -> pl.DataFrame:
    number = pl.int_range(n_units)
    hashed = number.hash()
    return pl.select(user=number, treated=number % 2, rounds=hashed % 7, clicks=hashed % 3)


def planned(outcomes: Any, epsilon: float, **options: Any) -> cdp.Plan:
    named = {"outcomes": outcomes, "arm": "treated", "unit": "user", "mechanism": "optimal"}
    return cdp.plan(table(), epsilon=epsilon, **{**named, **options})


@pytest.mark.parametrize(
    ("outcomes", "epsilon", "options", "recommended"),
    [
        (WIDE, 1, {}, True),
        (WIDE, 1, {"look": 0}, False),
        (WIDE, 1, {"reference": {"rounds": "mean:20,std:60"}}, False),
        ({"clicks": "0..2"}, 1.5, {}, False),
        ({"clicks": "0..5"}, 4, {}, False),  # counts of cells are planned
        ({"clicks": "0..5", "visit": "0,1"}, 4, {}, True),
        ({"clicks": "0..5"}, 4, {"reference": [0.5, 0.2, 0.1, 0.1, 0.05, 0.05]}, False),
        ({"clicks": "0,1"}, 6, {}, False),
        ({"clicks": "0..5"}, 4, {"mechanism": "uniform-prior-dp"}, False),
    ],
)
def test_a_look_is_recommended_where_it_pays(
    outcomes: Any, epsilon: float, options: Any, recommended: bool
) -> None:
    plan = planned(outcomes, epsilon, **options)
    assert bool(plan.options.look) == recommended
    assert ("With a look, at" in repr(plan)) == recommended
    assert (plan.to_dict()["look"] is not None) == recommended
    assert plan.report is not None
    mechanism = plan.report.blocks[0].comparison.choice.mechanism
    assert (mechanism.look is not None) == recommended


def test_a_release_has_the_look_of_its_plan_and_no_other() -> None:
    plan = planned(WIDE, 3)
    by_plan = cdp.release(table(), plan)
    assert by_plan.look is not None
    assert by_plan.guarantee.epsilon == pytest.approx(3)
    without = cdp.release(table(), epsilon=3, outcomes=WIDE, unit="user", arm="treated")
    assert without.look is None


@given(st.integers(100, 10**8), st.floats(0.05, 12))
def test_the_share_costs_little_where_a_look_finds_nothing(n_units: int, epsilon: float) -> None:
    share = _share(n_units, epsilon)
    assert 0 < share < 1
    assert warner((1 - share) * epsilon) / warner(epsilon) < 1 + MOST_COST


def test_the_command_line_looks(tmp_path: Path) -> None:
    source, plan, out = tmp_path / "t.parquet", tmp_path / "plan.toml", tmp_path / "out"
    table().write_parquet(source)
    asked = ["--unit", "user", "--arm", "treated", "--outcome", "rounds=number:0..1000000"]
    made = run("plan", source, *asked, "--epsilon", 2, "--mechanism", "optimal", "--out", plan)
    assert made.exit_code == 0, made.output
    assert "look = 0.0" in plan.read_text()
    released = run("release", source, "--plan", plan, "--out", out)
    assert released.exit_code == 0, released.output
    assert run("verify", out).exit_code == 0
    assert "found by a look" in run("inspect", out).output
