"""Impossible results are told, and numbers that people are shown are possible ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.effects.margins import margin_verdicts
from clusterdp.estimation.effects.notes import range_notes
from clusterdp.estimation.report.screen import estimate_text

PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"bought": "0,1"},
    "folds": 2,
}
SHARE = cdp.Effect(
    of=EffectTarget("bought", 1, 0),
    effect=0.5,
    std_error=0.1,
    sampling_variance=0.005,
    privacy_variance=0.005,
    n_treated=500,
    n_control=500,
    treated_mean=0.55,
    treated_std_error=0.07,
    control_mean=0.05,
    control_std_error=0.02,
    possible=(0.0, 1.0),
)


@pytest.fixture
def release(rng: np.random.Generator) -> cdp.Release:
    n_users = 6000
    table = pl.DataFrame(
        {
            "user": np.arange(n_users),
            "treated": rng.permutation(n_users) % 2,
            "market": rng.integers(0, 4, n_users),
            "bought": rng.binomial(1, 0.1, n_users),
        }
    )
    return cdp.release(table, mechanism=cdp.optimal(epsilon=0.3), **PARTS)


def chosen(release: cdp.Release, rng: np.random.Generator, rows: pl.Expr) -> pl.DataFrame:
    """A segment that some rows chose: mostly units of the treatment that were said to buy.

    Weakly enough not to be refused as a function of responses.
    """
    debiased = pl.col("bought_debiased")
    wins = (pl.col("treated") == 1) == (debiased > debiased.mean())
    lucky = pl.Series(rng.random(len(release.units)) < 0.55)
    return pl.DataFrame(release.units).select("user", best=(rows & wins & lucky) | (~rows & lucky))


def test_a_segment_that_one_fold_chose_has_another_effect_in_the_other(
    release: cdp.Release, rng: np.random.Generator
) -> None:
    mine = chosen(release, rng, pl.col("fold") == 0)
    found = cdp.estimate(release, segments=mine, by="best")
    verdicts = {one.name: one.verdict for one in found.checks}
    assert verdicts["Folds"] == "warning"
    assert any("in fold 0, " in one and "--fold" in one for one in found.warnings)
    held = cdp.estimate(release, segments=mine, by="best", fold=1)
    assert not any("fold 0" in one for one in held.warnings)


def test_a_segment_that_nobody_chose_has_one_effect(release: cdp.Release) -> None:
    """A false alarm has a probability of 0.1% in each of three estimates: all three raise none."""
    columns = {f"by_{n}": pl.col("user") // 7 % n for n in (2, 3, 5)}
    mine = pl.DataFrame(release.units).select("user", **columns)
    every = [cdp.estimate(release, segments=mine, by=name) for name in columns]
    assert any(not any("in fold 0, " in text for text in one.warnings) for one in every)


@pytest.mark.parametrize("use", ["rows", "everything"])
def test_a_mean_far_outside_the_range_is_told(
    use: Any, release: cdp.Release, rng: np.random.Generator
) -> None:
    mine = chosen(release, rng, pl.lit(value=True))
    found = cdp.estimate(release, segments=mine, by="best", use=use)
    (warned,) = [one for one in found.warnings if one.startswith("best=True: means of bought are")]
    assert "far outside its allowed values: " in warned
    assert "% in arm 1 (" in warned


def test_an_effect_that_is_impossible_is_not_significant() -> None:
    """It had an interval without width at the largest effect that is possible."""
    off = replace(SHARE, effect=1.6, std_error=0.1, treated_mean=1.3, control_mean=-0.3)
    off = replace(off, is_share=True)
    assert off.is_impossible
    assert all(map(math.isnan, (*off.ci(), *off.simultaneous_ci(), off.p_value)))
    assert off.lift() is None
    assert off.on_scale("ratio") is None
    (note,) = range_notes([off])
    assert "130.0%" in note.text
    assert "-30.0%" in note.text
    near = replace(off, effect=1.39)
    assert not near.is_impossible
    assert near.ci() == (1.0, 1.0)
    # Neither mean is off by as many of its own.
    unsure = replace(off, effect=-1.5, treated_std_error=0.09, control_std_error=0.08)
    (note,) = range_notes([unsure])
    assert "their difference is -150 pp" in note.text


@pytest.mark.parametrize(
    ("mean", "n_notes"), [(-0.1, 0), (-0.26, 0), (-0.29, 1), (1.27, 0), (1.29, 1)]
)
def test_a_mean_that_noise_took_outside_is_not_told(mean: float, n_notes: int) -> None:
    """Four standard errors at least: many means are a little outside."""
    assert len(range_notes([replace(SHARE, treated_mean=mean)])) == n_notes
    many = [replace(SHARE, of=SHARE.of._replace(metric=str(one))) for one in range(500)]
    assert len(range_notes([replace(SHARE, treated_mean=mean), *many])) <= n_notes


def test_intervals_and_lifts_are_possible() -> None:
    wide = replace(SHARE, std_error=0.9)
    assert wide.ci() == (-1.0, 1.0)
    assert replace(wide, possible=None).ci()[1] > 2
    low = replace(SHARE, control_mean=0.05, control_std_error=0.025)
    ratio, lowest, highest = low.lift() or (0, 0, 0)
    assert (replace(low, possible=None).lift() or (0, 0, 0))[2] > 100
    assert ratio == pytest.approx(10)
    assert math.isinf(highest)
    assert lowest > 0
    assert low.to_dict()["lift_ci_high"] is None
    falls = replace(SHARE, effect=-0.05, control_mean=0.06, control_std_error=0.02, std_error=0.05)
    assert (falls.lift() or (0, 0, 0))[1] == -1.0


def test_texts_show_what_is_possible(release: cdp.Release) -> None:
    found = cdp.estimate(release)
    shown = replace(
        found,
        effects=(
            replace(SHARE, effect=1.04, treated_mean=1.02, control_mean=-0.02),
            replace(SHARE, of=SHARE.of._replace(arm=2), control_std_error=0.025),
        ),
    )
    text = estimate_text(shown, 80, verbose=True)
    assert "1.04" not in text
    assert "-0.02" not in text
    assert "above +" in text
    assert shown.effects[0].effect == 1.04
    assert "1.04" not in shown.to_html()


@pytest.mark.parametrize("n_effects", [1, 2])
def test_pages_and_verdicts_have_no_impossible_effect(n_effects: int, release: cdp.Release) -> None:
    off = replace(SHARE, effect=1.6, treated_mean=1.3, control_mean=-0.3)
    assert not off.has_ci
    other = replace(SHARE, of=SHARE.of._replace(metric="clicked"))
    shown = replace(cdp.estimate(release), effects=(off, other)[:n_effects])
    assert "bought has no CI, because its means are far outside" in shown.to_html()
    assert "significant" not in estimate_text(replace(shown, effects=(off,)), 80)
    assert margin_verdicts([off, other], {"bought": 0.1}, {}, 0.95) == ()


def test_two_units_have_no_effect_and_it_is_said() -> None:
    table = pl.DataFrame({"user": [1, 2], "treated": [0, 1], "bought": [0, 1]})
    found = cdp.estimate(cdp.release(table, **PARTS | {"cluster": None}, epsilon=2))
    assert [math.isnan(one.effect) for one in found.effects] == [True]
    assert "bought is not reported: an arm has too few units." in found.notes
    assert "bought is not reported" in str(found)
    assert "Variance due to privacy" not in str(found)
