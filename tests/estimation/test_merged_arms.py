"""Arms compared as one: what they are a union of, by any estimator, calibrated, with its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run
from fixed_randomness import fixed_randomness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")

RATES = {"none": 0.3, "mens": 0.45, "womens": 0.36}
SHARES = {"none": 0.5, "mens": 0.4, "womens": 0.1}
N_CLUSTERS = 4


def draw(n_units: int, rng: np.random.Generator) -> pl.DataFrame:
    """Arms of other shares in every cluster, whose levels differ."""
    market = np.arange(n_units) % N_CLUSTERS
    uniform, names = rng.random(n_units), np.array(list(RATES))
    first = 0.4 + 0.05 * market
    arm = names[(uniform > first).astype(int) + (uniform > 0.95 - 0.1 * market)]
    rate = np.array([RATES[one] for one in arm]) + 0.05 * market
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": arm,
            "market": market,
            "tier": np.arange(n_units) // N_CLUSTERS % 2,
            "age": rng.normal(size=n_units),
            "visit": (rng.random(n_units) < rate).astype(int),
            "spend": np.minimum(rng.poisson(2 * rate), 4),
        }
    )


def options(**given: Any) -> dict[str, Any]:
    return {
        "unit": "user",
        "arm": "arm",
        "cluster": "market",
        "control": "none",
        "outcomes": {"visit": "0,1", "spend": "0..4"},
        "passthrough": "tier,age",
        "question": "visit,spend",
        **given,
    }


def renamed(table: pl.DataFrame) -> pl.DataFrame:
    """The table as if there had been one e-mail."""
    return table.with_columns(arm=pl.col("arm").replace({"mens": "email", "womens": "email"}))


def true_effect(table: pl.DataFrame) -> float:
    """The difference of means of visits within markets, each of which counts by its users."""
    means = table.pivot("arm", index="market", values="visit", aggregate_function="mean")
    sizes = table.group_by("market").len().join(means, on="market")
    return float(((sizes["email"] - sizes["none"]) * sizes["len"]).sum() / len(table))


EMAIL = {"email": ["mens", "womens"]}
ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"by": "tier"},
    {"by": "tier", "differences": "rest", "metrics": "visit"},
    {"adjust": "age", "metrics": "visit"},
    {"metrics": ["p90(spend)", "spend/visit", "spend>=2", "dist(spend)"]},
    {"estimator": "unstratified"},
    {"exposure": "visit", "metrics": "spend"},
)


@pytest.mark.parametrize("asked", ASKED, ids=lambda one: "-".join(map(str, one)) or "overall")
def test_they_are_as_one_arm(asked: dict[str, Any], rng: np.random.Generator) -> None:
    """With the same words for rows, effects are those of a release in which they are one arm."""
    table = draw(4000, rng)
    with fixed_randomness():
        separate = cdp.release(table, **options(mechanism=cdp.optimal(epsilon=3)))
        together = cdp.release(renamed(table), **options(mechanism=cdp.optimal(epsilon=3)))
    merged = cdp.estimate(separate, arms=EMAIL, **asked)
    expected = cdp.estimate(together, **asked)
    assert len(merged.effects) == len(expected.effects)
    for one, other in zip(merged.effects, expected.effects, strict=True):
        assert one.of == other.of
        assert (one.n_treated, one.n_control) == (other.n_treated, other.n_control)
        assert one.effect == pytest.approx(other.effect, rel=1e-6, abs=1e-9)
        assert one.ci() == pytest.approx(other.ci(), rel=1e-6, abs=1e-9)
    assert merged.origin.arm_sizes == expected.origin.arm_sizes


@pytest.mark.parametrize(
    "more",
    [
        {"totals_share": 0.2},
        {"sums_share": 0.3},
        {"totals_share": 0.1, "breakdown": "tier", "breakdown_share": 0.1},
    ],
    ids="-".join,
)
def test_published_sums_of_each_arm_are_used(
    more: dict[str, Any], rng: np.random.Generator
) -> None:
    """Effects are unbiased, their errors are as stated, and smaller than those of rows."""
    truth, found, rows, errors = [], [], [], []
    for _ in range(40):
        table = draw(2000, rng)
        release = cdp.release(table, **options(mechanism="optimal", epsilon=4, **more))
        one = cdp.estimate(release, arms=EMAIL, metrics="visit")["visit"]
        alone = cdp.estimate(release, arms=EMAIL, metrics="visit", use="rows")["visit"]
        truth.append(true_effect(renamed(table)))
        found.append(one.effect)
        rows.append(alone.effect)
        errors.append((one.privacy_variance, alone.privacy_variance))
    off, of_rows = np.array(found) - truth, np.array(rows) - truth
    stated, of_rows_stated = np.mean(errors, axis=0)
    for gap, variance in ((off, stated), (of_rows, of_rows_stated)):
        distance = (gap**2).sum() / variance
        assert stats.chi2.ppf(ALPHA, 40) / 1.5 < distance < stats.chi2.isf(ALPHA, 40) * 1.5
        assert abs(gap.mean()) < 5 * np.sqrt(variance / 40)
    assert stated < of_rows_stated


def test_merged_arms_against_each_other_and_in_folders(rng: np.random.Generator) -> None:
    table = draw(6000, rng)
    first = cdp.release(table.head(3000), **options(epsilon=8))
    second = cdp.release(table.tail(3000), **options(epsilon=8))
    both = cdp.estimate([first, second], arms=EMAIL, metrics="visit")
    assert both["visit"].n_treated + both["visit"].n_control == 6000
    only = cdp.estimate(first, arms={"one": ["none", "womens"]}, control="one", metrics="visit")
    assert only["visit"].of.arm == "mens"
    assert "one is none and womens together." in only.notes


@pytest.fixture
def emails(tmp_path: Path, rng: np.random.Generator) -> Path:
    cdp.publish(draw(3000, rng), out=tmp_path / "emails", **options(epsilon=4))
    return tmp_path / "emails"


def test_on_the_command_line(emails: Path) -> None:
    shown = run("estimate", emails, "--arms", "email=mens+womens", width=80).stdout
    assert "email vs none (control)" in shown
    assert "email is mens and womens together." in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ("email=mens", "mens\\+womens"),
        ("email=mens+wimens", "is not an arm. Did you mean 'womens'"),
        (["a=mens+womens", "b=mens+none"], "merges 'mens' twice"),
        ({"all": ["none", "mens", "womens"]}, "at least 2 arms"),
        ({"none": ["mens", "womens"]}, "at least 2 arms"),
        (3, "must name arms"),
    ],
)
def test_what_is_refused(emails: Path, arms: Any, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.estimate(emails, arms=arms)
