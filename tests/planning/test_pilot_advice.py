"""A pilot is recommended where it pays, with a reason; it is never turned on silently."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run
from clusterdp._text import percent
from clusterdp.planning.advice import _share
from clusterdp.precision.row_noise import warner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WIDE = {"rounds": "number:0..1000000"}
# What a pilot may cost in variance where it finds nothing.
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
        (WIDE, 1, {"pilot": 0}, False),
        (WIDE, 1, {"baseline": {"rounds": "mean:20,std:60"}}, False),
        ({"clicks": "0..2"}, 1.5, {}, False),
        ({"clicks": "0..5"}, 4, {}, False),  # counts of cells are planned
        ({"clicks": "0..5", "visit": "0,1"}, 4, {}, True),
        ({"clicks": "0..5"}, 4, {"baseline": [0.5, 0.2, 0.1, 0.1, 0.05, 0.05]}, False),
        ({"clicks": "0,1"}, 6, {}, False),
        ({"clicks": "0..5"}, 4, {"mechanism": "uniform-prior-dp"}, False),
    ],
)
def test_a_pilot_is_recommended_where_it_pays(
    outcomes: Any, epsilon: float, options: Any, recommended: bool
) -> None:
    plan = planned(outcomes, epsilon, **options)
    assert bool(plan.options.pilot) == recommended
    shown = " ".join(repr(plan).split())
    assert ("A pilot histogram finds " in shown) == recommended
    assert ("of ε. --pilot 0 goes without." in shown) == recommended
    advice = plan.to_dict()["pilot"]
    assert (advice is not None) == recommended
    if recommended:
        assert f"note: {advice['reason']} The pilot uses {percent(advice['share'])} of ε. " in shown
    assert plan.report is not None
    mechanism = plan.report.questions[0].comparison.choice.mechanism
    assert (mechanism.pilot is not None) == recommended


def test_a_release_has_the_pilot_of_its_plan_and_no_other() -> None:
    plan = planned(WIDE, 3)
    by_plan = cdp.release(table(), plan)
    assert by_plan.pilots[0] is not None
    assert by_plan.guarantee.epsilon == pytest.approx(3)
    without = cdp.release(table(), epsilon=3, outcomes=WIDE, unit="user", arm="treated")
    assert without.pilots[0] is None


@given(st.integers(100, 10**8), st.floats(0.05, 12))
def test_the_share_costs_little_where_a_pilot_finds_nothing(n_units: int, epsilon: float) -> None:
    share = _share(n_units, epsilon)
    assert 0 < share < 1
    assert warner((1 - share) * epsilon) / warner(epsilon) < 1 + MOST_COST


def test_the_command_line_pilots(tmp_path: Path) -> None:
    source, file, out = tmp_path / "t.parquet", tmp_path / "experiment.toml", tmp_path / "out"
    table().write_parquet(source)
    asked = ["--unit", "user", "--arm", "treated", "--outcome", "rounds=number:0..1000000"]
    made = run("plan", source, *asked, "--epsilon", 2, "--out", file)
    assert made.exit_code == 0, made.output
    assert "pilot = 0.0" in file.with_suffix(".lock").read_text()
    released = run("release", file, "--out", out)
    assert released.exit_code == 0, released.output
    assert "rounds is clipped to 0–" in released.output
    assert "--pilot" not in released.output
    assert run("verify", out).exit_code == 0
    assert "which a pilot histogram" in " ".join(run("inspect", out).output.split())


@pytest.mark.parametrize(("pilot", "advised"), [(None, True), (0.0, False), (0.05, False)])
def test_a_preview_advises_a_pilot_where_nobody_knows_the_range(
    pilot: float | None, advised: bool
) -> None:
    asked: dict[str, Any] = {"outcomes": {"rounds": "number:0..1000000"}, "arm": "treated"}
    shown = cdp.preview(table(), epsilon=2, unit="user", pilot=pilot, **asked)
    reason = "rounds (0..1000000) has a wide range and no baseline. Noise grows with the range."
    remedy = "A pilot histogram finds where the values end. Use --pilot 0.0"
    assert any(note.startswith(f"{reason} {remedy}") for note in shown.notes) == advised


def game(rng: np.random.Generator) -> tuple[pl.DataFrame, Callable[[float], float]]:
    """Players of a game, and the true effect on their rounds if these are clipped."""
    luck, arm = rng.normal(size=60_000), rng.integers(0, 2, 60_000)
    rounds = np.floor(np.exp(2.7 + 1.5 * luck - 0.3 * arm))
    kept = (luck + rng.normal(size=60_000) > 0.8).astype(np.int64)
    table = pl.DataFrame({"user": range(60_000), "arm": arm, "rounds": rounds, "kept": kept})

    def effect(high: float) -> float:
        everyone = stats.norm.ppf((np.arange(10**6) + 0.5) / 10**6)
        means = [
            np.minimum(np.floor(np.exp(2.7 + 1.5 * everyone - 0.3 * one)), high).mean()
            for one in (0, 1)
        ]
        return float(means[1] - means[0])

    return table, effect


def publish_and_estimate(source: Path, out: Path) -> tuple[float, float, float]:
    """The range that one command found, the effect on rounds in it, and its standard error."""
    asked = ["--unit", "user", "--arm", "arm", "--outcome", "kept=0,1"]
    wide = ["--outcome", "rounds=number:0..1000000", "--epsilon", 2, "--pilot", 0.02]
    released = run("release", source, *asked, *wide, "--out", out)
    assert released.exit_code == 0, released.output
    found = re.search(r"rounds is clipped to 0–([\d.e+]+),", released.output)
    told = json.loads(run("estimate", out, "--json").output)["effects"]
    rounds = next(one for one in told if one["metric"] == "rounds")
    high = float(found.group(1)) if found else 1e6
    return high, rounds["effect"], rounds["std_error"]


@pytest.mark.slow
def test_a_stranger_publishes_heavy_tailed_rounds_in_one_command(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Nothing but the names of columns and the widest range there could be.

    Noise leads to a range above 20,000 in about one of a thousand pilots, so that three in a row
    are no bad luck. In a smaller one the effect is ten standard errors from 0.
    """
    table, true_effect = game(rng)
    table.write_parquet(tmp_path / "game.parquet")
    for attempt in range(3):
        high, effect, error = publish_and_estimate(
            tmp_path / "game.parquet", tmp_path / str(attempt)
        )
        assert abs(effect - true_effect(high)) <= stats.norm.isf(ALPHA / 2) * error
        if high <= 20_000:
            break
    assert high <= 20_000
    assert effect < 0
