"""Ratios, odds ratios and lift: one test with the difference, oracles, and where they are shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run
from clusterdp.estimation.effects.effect import Effect, EffectTarget
from clusterdp.estimation.effects.intervals import odds_ratio, ratio_of_means

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.estimation.effects.intervals import Scale

N_DRAWS = 4000
REACH = 1.959963984540054


RATIOS: tuple[Scale, ...] = ("ratio", "odds", "lift")


def effect(treated: float, control: float, errors: tuple[float, ...], **given: Any) -> Effect:
    """The effect on a share."""
    means = {"treated_mean": treated, "control_mean": control}
    each = {"treated_std_error": errors[0], "control_std_error": errors[1]}
    variance = errors[0] ** 2 + errors[1] ** 2
    options: dict[str, Any] = {"possible": (0.0, 1.0), "is_share": True, **means, **each}
    options |= given
    return Effect(
        of=EffectTarget("visit", "B", "A"),
        effect=treated - control,
        std_error=math.sqrt(variance),
        sampling_variance=variance,
        privacy_variance=0.0,
        n_treated=1000,
        n_control=1000,
        **options,
    )


def test_ratios_leave_out_one_where_the_difference_leaves_out_zero(
    rng: np.random.Generator,
) -> None:
    for _ in range(500):
        treated, control = rng.uniform(0.01, 0.99, 2)
        one = effect(treated, control, tuple(rng.uniform(0.001, 0.2, 2)))
        is_clear = one.p_value < 0.05
        for scale in RATIOS:
            found = one.on_scale(scale)
            assert found is not None
            none = 0.0 if scale == "lift" else 1.0
            assert (not found.low <= none <= found.high) == is_clear
            assert math.isnan(found.value) or found.low <= found.value <= found.high


def test_of_many_true_outcomes_they_are_those_of_tables() -> None:
    """Of 2×2 tables without noise, Katz's and Woolf's intervals by logarithms."""
    n_units, shares = 200_000, (0.12, 0.1)
    errors = tuple(math.sqrt(share * (1 - share) / n_units) for share in shares)
    one = effect(shares[0], shares[1], errors)
    by_log: dict[Scale, float] = {
        "ratio": math.sqrt(sum((1 - share) / share / n_units for share in shares)),
        "odds": math.sqrt(sum(1 / (share * (1 - share)) / n_units for share in shares)),
    }
    truth: dict[Scale, float] = {"ratio": 1.2, "odds": 0.12 / 0.88 / (0.1 / 0.9)}
    for scale in RATIOS[:2]:
        found = one.on_scale(scale)
        assert found is not None
        assert found.value == pytest.approx(truth[scale])
        reach = REACH * by_log[scale]
        expected = [truth[scale] * math.exp(sign * reach) for sign in (-1, 1)]
        assert [found.low, found.high] == pytest.approx(expected, rel=2e-3)


def of_means(treated: float, control: float, ratio: float) -> float:
    return treated - ratio * control


def of_odds(treated: float, control: float, ratio: float) -> float:
    return treated * (1 - control) - ratio * control * (1 - treated)


def test_limits_are_where_the_test_of_a_ratio_changes(rng: np.random.Generator) -> None:
    """There p₁ − ρp₀, or what odds compare, is q standard errors from zero."""
    for _ in range(100):
        treated, control = rng.uniform(0.05, 0.9, 2)
        of_treated, of_control = rng.uniform(1e-5, 1e-3, 2)
        for scaled, contrast in ((ratio_of_means, of_means), (odds_ratio, of_odds)):
            found = scaled((treated, control), (of_treated, of_control), REACH)
            for limit in filter(math.isfinite, found[1:]):
                # It is linear in each mean, so that its slopes are differences.
                by_treated = contrast(1, control, limit) - contrast(0, control, limit)
                by_control = contrast(treated, 1, limit) - contrast(treated, 0, limit)
                both = sum(
                    sign * contrast(p, q, limit)
                    for p, q, sign in ((1, 1, 1), (0, 0, 1), (1, 0, -1), (0, 1, -1))
                )
                variance = by_treated**2 * of_treated + by_control**2 * of_control
                variance += both**2 * of_treated * of_control
                distance = contrast(treated, control, limit) ** 2 / variance
                assert limit == 0 or distance == pytest.approx(REACH**2)


def test_without_a_clear_control_there_is_no_upper_limit() -> None:
    one = effect(0.05, 0.01, (0.01, 0.01))
    for scale in RATIOS:
        found = one.on_scale(scale)
        assert found is not None
        assert math.isinf(found.high)
        assert found.low > (0.0 if scale == "lift" else 1.0)  # the effect is clear
    below = effect(0.05, -0.01, (0.01, 0.01)).on_scale("ratio")
    assert below is not None
    assert math.isnan(below.value)
    assert one.lift() is None


def test_what_has_no_ratio() -> None:
    spend = effect(3.0, 2.5, (0.1, 0.1), possible=(0.0, 200.0), is_share=False)
    assert spend.on_scale("odds") is None
    ratio = spend.on_scale("ratio")
    assert ratio is not None
    assert ratio.value == pytest.approx(1.2)
    profit = effect(0.5, 0.1, (0.1, 0.1), possible=(-5.0, 5.0), is_share=False)
    assert profit.on_scale("ratio") is None
    unknown = replace(effect(0.5, 0.4, (0.1, 0.1)), control_mean=None)
    assert unknown.on_scale("ratio") is None


@pytest.mark.parametrize("rates", [(0.02, 0.03), (0.5, 0.45)])
def test_intervals_cover(rates: tuple[float, float], rng: np.random.Generator) -> None:
    """At 95%, of shares with noise; and not if they were a third shorter."""
    control, treated = rates
    errors = (0.006, 0.005)
    drawn = rng.normal((treated, control), errors, (N_DRAWS, 2))
    truth: dict[Scale, float] = {"ratio": treated / control}
    truth["odds"] = truth["ratio"] * (1 - control) / (1 - treated)
    held, short = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for pair in drawn:
        one = effect(pair[0], pair[1], errors)
        for scale, true in truth.items():
            for level, counted in ((0.95, held), (0.8, short)):
                found = one.on_scale(scale, level)
                assert found is not None
                counted[scale] += found.low <= true <= found.high
    low, high = stats.binom.ppf([ALPHA, 1 - ALPHA], N_DRAWS, 0.95)
    for scale in truth:
        assert low <= held[scale] <= high
        assert short[scale] < low


@pytest.fixture
def rare(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Visits, which are frequent, and orders, of which there are too few to see."""
    arm = np.arange(4000) % 2
    table = pl.DataFrame(
        {
            "user": np.arange(4000),
            "arm": arm,
            "visit": (rng.random(4000) < 0.5 + 0.2 * arm).astype(int),
            "order": (np.arange(4000) < 2).astype(int),
        }
    )
    cdp.publish(
        table,
        out=tmp_path / "rare",
        unit="user",
        arm="arm",
        control=0,
        outcomes={"visit": "0,1", "order": "0,1"},
        epsilon=4,
    )
    return tmp_path / "rare"


@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
def test_scales_on_screens_and_pages(rare: Path) -> None:
    surely = ("--level", 1 - ALPHA / 10)  # so that chance makes nothing clear
    screen = run("estimate", rare, "--scale", "ratio", *surely, width=80).stdout
    assert "risk ratio" in screen
    assert all(len(line) <= 80 for line in screen.splitlines())
    said = " ".join(screen.split())
    assert "the risk ratio of order has no upper limit" in said
    assert "not significantly different from zero" in said
    assert "of visit has no upper limit" not in said
    assert "odds ratio" in cdp.estimate(rare, scale="odds").to_html()
    assert "lift" in str(cdp.estimate(rare, scale="lift"))
    effects = {
        one["metric"]: one
        for one in json.loads(run("estimate", rare, *surely, "--json").stdout)["effects"]
    }
    visit = effects["visit"]
    assert visit["ratio_ci_low"] < visit["ratio"] < visit["ratio_ci_high"]
    assert visit["ratio"] < visit["odds_ratio"]
    assert effects["order"]["ratio_ci_high"] is None
    with pytest.raises(cdp.ParameterError, match='scale must be "difference", "ratio", "odds" or'):
        cdp.estimate(rare, scale="log")  # type: ignore[arg-type]
