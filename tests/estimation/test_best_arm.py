"""How probable it is that an arm is the best: by simulation, its calibration, its words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run
from clusterdp.estimation.effects.effect import Effect, EffectTarget
from clusterdp.estimation.effects.margins import best_arms, best_probs

if TYPE_CHECKING:
    from pathlib import Path

N_DRAWS = 20_000


@pytest.mark.parametrize("n_arms", [2, 3, 6])
def test_probabilities_are_those_of_draws(n_arms: int, rng: np.random.Generator) -> None:
    means, errors = rng.normal(0, 1, n_arms), 10 ** rng.uniform(-2, 0.5, n_arms)
    found = best_probs(means, errors**2)
    assert found.sum() == pytest.approx(1)
    largest = rng.normal(means, errors, (N_DRAWS, n_arms)).argmax(axis=1)
    counts = np.bincount(largest, minlength=n_arms)
    low, high = (stats.binom.ppf(end, N_DRAWS, found) for end in (ALPHA, 1 - ALPHA))
    assert ((low <= counts) & (counts <= high)).all()


def test_of_two_arms_it_is_a_one_sided_test() -> None:
    for distance in (-3.0, 0.0, 1.0):
        found = best_probs(np.array([0.0, distance]), np.array([0.3, 0.7]))
        assert found[1] == pytest.approx(stats.norm.cdf(distance), abs=1e-5)


def effects_of(means: np.ndarray, errors: np.ndarray) -> list[Effect]:
    """Effects of arms 1, 2, … against arm 0."""
    return [
        Effect(
            of=EffectTarget("visit", arm, 0),
            effect=means[arm] - means[0],
            std_error=float(np.hypot(errors[arm], errors[0])),
            sampling_variance=float(errors[arm] ** 2 + errors[0] ** 2),
            privacy_variance=0.0,
            n_treated=1000,
            n_control=1000,
            control_mean=means[0],
            control_std_error=errors[0],
        )
        for arm in range(1, len(means))
    ]


def test_what_is_stated_is_how_often_it_is_true(rng: np.random.Generator) -> None:
    """Of true means that are spread far; and not if it were a tenth less."""
    errors = np.array([1.5, 0.4, 0.6, 0.5])
    off, wrong, spread = 0.0, 0.0, 0.0
    for _ in range(1500):
        truth = rng.normal(0, 8, 4)
        found = rng.normal(truth, errors)
        (best,) = best_arms(effects_of(found, errors), ())
        for arm, prob in best.arms:
            off += (arm == truth.argmax()) - prob if arm == best.arms[0][0] else 0.0
        prob = best.arms[0][1]
        spread += prob * (1 - prob)
        wrong += (best.arms[0][0] == truth.argmax()) - 0.9 * prob
    deviation = np.sqrt(spread) + 1e-9
    assert abs(off) / deviation < stats.norm.isf(ALPHA / 2)
    assert abs(wrong) / deviation > stats.norm.isf(ALPHA / 2)


@pytest.fixture
def three(tmp_path: Path, rng: np.random.Generator) -> Path:
    arm = np.arange(3000) % 3
    table = pl.DataFrame(
        {
            "user": np.arange(3000),
            "arm": np.array(["A", "B", "C"])[arm],
            "visit": (rng.random(3000) < np.array([0.3, 0.4, 0.7])[arm]).astype(int),
        }
    )
    cdp.publish(
        table,
        out=tmp_path / "three",
        unit="user",
        arm="arm",
        control="A",
        outcomes={"visit": "0,1"},
        epsilon=4,
    )
    return tmp_path / "three"


@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
def test_best_arms_are_shown(three: Path) -> None:
    shown = run("estimate", three, width=80).stdout
    assert "Probability of the highest visit (flat prior): C >99%" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())
    turned = run("estimate", three, "--lower-is-better", "visit").stdout
    assert "Probability of the lowest visit (flat prior): A" in turned
    (best,) = json.loads(run("estimate", three, "--json").stdout)["best_arm"]
    assert best["arms"][0]["arm"] == "C"
    assert sum(one["probability"] for one in best["arms"]) == pytest.approx(1)
    assert "Probability of the highest visit" in cdp.estimate(three).to_html()
    merged = run("estimate", three, "--arms", "both=B+C")
    assert "Probability" not in merged.stdout
    with pytest.raises(cdp.ParameterError, match="no effect on 'vist'"):
        cdp.estimate(three, lower_is_better="vist")


def test_what_is_known_exactly_has_no_noise() -> None:
    """Where arms decide who is exposed, no share of exposed units has an error."""
    zero = np.zeros(3)
    np.testing.assert_allclose(
        best_probs(np.array([0.0, 1.0, 1.0]), zero), [0, 0.5, 0.5], atol=1e-6
    )
    np.testing.assert_allclose(best_probs(np.array([0.0, 1.0]), zero[:2]), [0, 1], atol=1e-6)
    np.testing.assert_allclose(best_probs(zero, zero), 1 / 3, atol=1e-6)
