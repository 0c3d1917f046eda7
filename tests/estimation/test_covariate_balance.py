"""A covariate that follows from treatment is found, and does not carry the headline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.metrics.sample_ratio import balance_p_value, difference_notes

PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"bought": "0,1"},
    "passthrough": ["before", "pageviews", "tier", "survey", "device"],
}


@pytest.fixture
def estimate(rng: np.random.Generator) -> Any:
    """Estimates of a release whose arms have other shares in every market."""
    n_users = 8000
    market = rng.integers(0, 4, n_users)
    treated = rng.random(n_users) < 0.3 + 0.1 * market
    before = rng.normal(size=n_users)
    bought = rng.random(n_users) < 0.3 + 0.1 * treated + 0.1 * (before > 0)
    table = pl.DataFrame(
        {
            "user": np.arange(n_users),
            "treated": treated.astype(int),
            "market": market,
            "bought": bought.astype(int),
            "before": before,
            # Visitors of the treated arm look at more pages, and buyers do.
            "pageviews": rng.poisson(2 + treated + 2 * bought),
            "tier": pl.Series(["gold", "silver", "basic"]).gather(rng.integers(0, 3, n_users)),
            "survey": np.where(rng.random(n_users) < 0.5 + 0.3 * treated, before, np.nan),
            "device": pl.Series(["app", "web", "shop"]).gather(
                np.where(rng.random(n_users) < 0.3, 0, 1 + treated)
            ),
        }
    )
    release = cdp.release(table, mechanism=cdp.optimal(epsilon=4), **PARTS)
    return lambda *names: cdp.estimate(release, adjust=names)


def reported(found: cdp.Estimate) -> cdp.Effect:
    (effect,) = (one for one in found.effects if one.to_report)
    return effect


@pytest.mark.parametrize("name", ["pageviews", "survey", "device"])
def test_what_follows_from_treatment_is_not_reported(name: str, estimate: Any) -> None:
    """A number, a category, and who lacks a value; beside a sound covariate, too."""
    found = estimate("before", name)
    assert any(f"{name} differs between arms (p " in one for one in found.warnings)
    assert not any(one.startswith("before differs") for one in found.warnings)
    assert not reported(found).of.adjusted
    verdicts = {one.name: one.verdict for one in found.checks}
    assert verdicts["Covariate balance"] == "warning"
    assert "Effects are unadjusted" in str(found)


def test_a_sound_covariate_is_named_where_it_is_reported(estimate: Any) -> None:
    """The false alarm rate is 0.1%: fewer than three of three estimates raise one."""
    every = [estimate(*names) for names in (["before"], ["tier"], ["before", "tier"])]
    sound = [one for one in every if not any("treatment" in text for text in one.warnings)]
    assert sound
    for one in sound:
        assert reported(one).of.adjusted
        named = ", ".join(one.adjusted_for)
        assert f"Covariate-adjusted (CUPED) for {named}." in one.to_html()
        assert f"Covariate-adjusted (CUPED) for {named}." in str(one)
        assert one.to_dict()["adjusted_for"] == list(one.adjusted_for)


@pytest.mark.parametrize(("n_errors", "n_notes"), [(0.0, 0), (3.0, 0), (-4.0, 1), (9.0, 1)])
def test_effects_that_differ_by_more_than_chance_are_told(
    n_errors: float, n_notes: int, estimate: Any
) -> None:
    """Of one pair, at 0.1%: from 3.29 standard errors on."""
    plain, adjusted = estimate("before").effects
    error = np.hypot(plain.std_error, adjusted.std_error)
    moved = replace(adjusted, effect=plain.effect + n_errors * error)
    notes = difference_notes([plain, moved], [plain.of.metric])
    assert len(notes) == n_notes
    assert all(" pp unadjusted and " in one.text for one in notes)


@pytest.mark.parametrize(
    ("n_units", "n_arm", "n_class"),
    [(20, 10, 10), (40, 20, 5), (100, 50, 50), (400, 20, 20), (1000, 10, 10), (2000, 1000, 100)],
)
def test_p_values_are_bounds_in_small_arms(n_units: int, n_arm: int, n_class: int) -> None:
    """Against the exact distribution: a p-value of x has a probability of at most x."""
    inside = np.arange(max(0, n_class + n_arm - n_units), min(n_arm, n_class) + 1)
    found = np.array(
        [
            balance_p_value(
                np.array([0.0, 1.0]),
                np.array([[[n_units - n_arm - n_class + k, n_arm - k]], [[n_class - k, k]]]),
            )
            for k in inside
        ]
    )
    probs = stats.hypergeom(n_units, n_arm, n_class).pmf(inside)
    for p_value in found:
        assert probs[found <= p_value * (1 + 1e-9)].sum() <= p_value * (1 + 1e-9)


def test_ranks_that_do_not_follow_arms_raise_no_alarm(rng: np.random.Generator) -> None:
    """Three arms of which one is small, in clusters of different sizes."""
    n_tables, level, alarms = 1000, 0.05, 0
    for _ in range(n_tables):
        cluster, arm = rng.geometric(0.2, 300), rng.choice(3, 300, p=[0.05, 0.35, 0.6])
        number = np.minimum(rng.geometric(0.3, 300), 12) + cluster
        sizes = np.zeros((number.max() + 1, cluster.max() + 1, 3), np.int64)
        np.add.at(sizes, (number, cluster, arm), 1)
        totals = sizes.sum(axis=(1, 2))
        alarms += balance_p_value(np.cumsum(totals) - totals / 2, sizes) < level
    assert alarms <= stats.binom(n_tables, level).isf(ALPHA)
