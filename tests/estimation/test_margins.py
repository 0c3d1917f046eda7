"""Verdicts on margins: their errors at the boundary, their words, and where they are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run
from clusterdp.estimation.effects.effect import Effect, EffectTarget
from clusterdp.estimation.effects.looks import parse_look
from clusterdp.estimation.effects.margins import margin_verdicts

if TYPE_CHECKING:
    from pathlib import Path

OF = EffectTarget("visit", "B", "A")


def effect(estimate: float, **given: Any) -> Effect:
    return Effect(
        of=OF,
        effect=estimate,
        std_error=1.0,
        sampling_variance=1.0,
        privacy_variance=0.0,
        n_treated=1000,
        n_control=1000,
        **given,
    )


def holds(one: Effect, margin: float, *, is_equivalence: bool) -> bool:
    given = {"visit": margin}
    (verdict,) = margin_verdicts([one], *(({}, given) if is_equivalence else (given, {})), 0.95)
    assert verdict.holds == (verdict.p_value < 0.05)
    return verdict.holds


@pytest.mark.parametrize(("margin", "is_equivalence"), [(-4.0, False), (2.0, False), (4.0, True)])
def test_at_the_boundary_five_percent_are_wrong(
    margin: float, is_equivalence: bool, rng: np.random.Generator
) -> None:
    """10,000 experiments whose effect is at the margin; `bench.decisions` has those of releases."""
    found = margin + rng.standard_normal(10_000)
    wrong = [holds(effect(one), margin, is_equivalence=is_equivalence) for one in found]
    low, high = stats.binom.ppf([ALPHA, 1 - ALPHA], len(wrong), 0.05)
    assert low <= sum(wrong) <= high


def test_a_verdict_is_that_of_the_interval(rng: np.random.Generator) -> None:
    """At 90%, which has 5% outside on each side; with few degrees of freedom, too."""
    for degrees in (3.0, np.inf):
        for estimate in rng.normal(0, 3, 50):
            one = effect(estimate, degrees=degrees)
            low, high = one.ci(0.9)
            assert holds(one, -1.0, is_equivalence=False) == (low > -1)
            assert holds(one, 1.5, is_equivalence=True) == (low > -1.5 and high < 1.5)


def test_verdicts_hold_over_looks() -> None:
    look = parse_look("1/4", None, 2000)
    first, only = (effect(3.0, look=one) for one in (look, None))
    assert holds(only, 0.0, is_equivalence=False)
    assert not holds(first, 0.0, is_equivalence=False)
    assert holds(effect(9.0, look=look), 0.0, is_equivalence=False)


def test_verdicts_in_words(published: Path) -> None:
    asked = ("--margin", "clicks=-100", "--equivalence", "clicks=0.000001")
    text = " ".join(run("estimate", published, *asked).stdout.split())
    assert "clicks: not worse than control by more than 100" in text
    assert "clicks: not shown to be equivalent to control within ±0.0" in text
    better = cdp.estimate(published, margins={"clicks": 100})
    assert "clicks: not shown to be better than control by more than 100" in str(better)
    assert "not shown to be better" in better.to_html()
    both = json.loads(run("estimate", published, *asked, "--json").stdout)["verdicts"]
    assert [one["holds"] for one in both] == [True, False]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"margins": {"vsit": 1}}, "no effect on 'vsit'"),
        ({"margins": "clicks"}, "METRIC=NUMBER"),
        ({"margins": ["clicks=much"]}, "METRIC=NUMBER"),
        ({"margins": {"clicks": float("nan")}}, "METRIC=NUMBER"),
        ({"equivalence": {"clicks": -1}}, "must be above zero"),
    ],
)
def test_what_is_refused(published: Path, given: Any, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.estimate(published, **given)
