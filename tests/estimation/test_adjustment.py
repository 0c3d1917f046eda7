"""Covariate adjustment: numbers, categories, what is missing, and which effect to report."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import statsmodels.formula.api as smf

import clusterdp as cdp
from clusterdp.estimation.means import adjustment
from clusterdp.estimation.reading import covariates
from clusterdp.estimation.reading import covariates as covariate_rows
from clusterdp.estimation.report.screen import estimate_text

PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"clicks": "0..3"},
}
MECHANISM = cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.3)


@pytest.fixture
def release(table: pl.DataFrame) -> cdp.Release:
    """Of one cluster, where adjustment is Lin's regression."""
    return cdp.release(table.with_columns(market=pl.lit("all")), mechanism=MECHANISM, **PARTS)


@pytest.fixture
def known(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """What an analyst knows: clicks, a region, a plan; some values are missing."""
    nth = np.arange(len(table))
    return table.select(
        "user",
        before=pl.col("clicks") + rng.normal(size=len(table)),
        region=pl.Series(nth // 10 % 2 + 1),
        gaps=pl.when(pl.Series(nth % 7 > 0)).then(pl.Series(rng.normal(size=len(table)))),
        plan=pl.when(pl.Series(nth % 11 > 0)).then(pl.Series(np.array(["a", "b", "c"])[nth % 3])),
    )


@pytest.fixture
def whole_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes count in full, however noisy they are."""
    monkeypatch.setattr(adjustment, "_SHARES", np.ones(1))


def lins(frame: pl.DataFrame, terms: dict[str, Any]) -> tuple[float, float]:
    """Debiased ~ arm * centred covariates, HC2, by statsmodels."""
    frame = frame.select("treated", "clicks_debiased", **terms)
    centred = frame.with_columns((pl.col(name) - pl.col(name).mean()) for name in terms)
    formula = f"clicks_debiased ~ treated * ({' + '.join(terms)})"
    fit = smf.ols(formula, centred.to_pandas()).fit(cov_type="HC2")
    return float(fit.params["treated"]), float(fit.bse["treated"])


TERMS: dict[str, dict[str, Any]] = {
    "before,region": {"before": pl.col("before"), "region": pl.col("region").cast(pl.Float64)},
    "gaps": {
        "gaps": pl.col("gaps").fill_null(5.0),  # any number will do beside the indicator
        "is_missing": pl.col("gaps").is_null().cast(pl.Float64),
    },
    "plan": {
        plan: pl.col("plan").eq_missing(pl.lit(plan)).cast(pl.Float64) for plan in ("a", "b", "c")
    },
}


@pytest.mark.usefixtures("whole_slopes")
@pytest.mark.parametrize("names", TERMS)
def test_adjustment_in_one_cluster_is_lins(
    names: str, release: cdp.Release, known: pl.DataFrame
) -> None:
    adjust = names.split(",")
    plain, adjusted = cdp.estimate(release, segments=known, adjust=adjust, use="rows").effects
    joined = release.units.join(known, on="user", how="left")
    effect, std_error = lins(joined, TERMS[names])
    assert adjusted.effect == pytest.approx(effect)
    assert adjusted.std_error == pytest.approx(std_error, rel=0.03)
    assert adjusted.n_treated == plain.n_treated == 300
    assert (plain.of.adjusted, adjusted.of.adjusted) == (False, True)


@pytest.mark.usefixtures("whole_slopes")
@pytest.mark.parametrize("n_together", [None, 7], ids=["together", "a few at a time"])
def test_adjustment_in_segments_of_one_cluster_is_lins(
    n_together: int | None,
    release: cdp.Release,
    known: pl.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Units without a plan are in no segment; pieces of rows change nothing."""
    if n_together is not None:
        monkeypatch.setattr(covariate_rows, "_ROWS_IN_ORDER", 10 * n_together)
        monkeypatch.setattr(covariates, "_ROWS_OF_PIECE", n_together)
        monkeypatch.setattr(covariates, "_ROWS_TOGETHER", n_together)
    dimensions = ["plan", "plan,region"]
    found = cdp.estimate(release, segments=known, adjust="before", by=dimensions, use="rows")
    adjusted = [one for one in found.effects if one.of.adjusted and one.of.segment]
    assert len(adjusted) == 3 + 6
    joined = release.units.join(known, on="user", how="left")
    for one in adjusted:
        part = joined.filter(pl.col(name) == value for name, value in one.of.segment)
        effect, std_error = lins(part, {"before": pl.col("before")})
        assert one.effect == pytest.approx(effect)
        assert one.std_error == pytest.approx(std_error, rel=0.1)
        assert one.n_treated + one.n_control == len(part)


@pytest.mark.usefixtures("whole_slopes")
def test_what_is_not_a_number_is_a_segment_too(release: cdp.Release, known: pl.DataFrame) -> None:
    scored = known.with_columns(
        score=pl.when(pl.int_range(pl.len()) // 2 % 3 == 0).then(float("nan")).otherwise(0.5)
    )
    found = cdp.estimate(release, segments=scored, adjust="before", by="score", use="rows")
    (one,) = (one for one in found.effects if one.of.label == "score=nan (adjusted)")
    part = release.units.join(scored, on="user").filter(pl.col("score").is_nan())
    assert one.effect == pytest.approx(lins(part, {"before": pl.col("before")})[0])
    assert one.n_treated + one.n_control == len(part) == 200


def test_units_that_lack_a_covariate_stay(release: cdp.Release, known: pl.DataFrame) -> None:
    """Also those that the table does not have, and numbers that are none."""
    some = known.head(570).with_columns(
        before=pl.when(pl.int_range(pl.len()) < 5).then(float("nan")).otherwise("before")
    )
    found = cdp.estimate(release, segments=some, adjust=["before", "region"])
    assert found.effects[1].n_treated + found.effects[1].n_control == 600
    assert np.isfinite(found.effects[1].std_error)
    notes = [note for note in found.notes if " ids have no " in note]
    assert [note.split(".")[0] for note in notes] == [
        "35 ids have no before",
        "30 ids have no region",
    ]


def test_covariates_that_tell_the_same_have_one_slope(
    release: cdp.Release, known: pl.DataFrame
) -> None:
    twice = known.with_columns(again=1000 * pl.col("gaps") + 7)
    one = cdp.estimate(release, segments=twice, adjust="gaps").effects[1]
    both = cdp.estimate(release, segments=twice, adjust=["gaps", "again"]).effects[1]
    assert both.effect == pytest.approx(one.effect)
    assert both.std_error == pytest.approx(one.std_error, rel=0.05)


def test_what_is_the_same_within_clusters_has_no_slope(
    table: pl.DataFrame, known: pl.DataFrame
) -> None:
    """Cells have their own means, so it tells nothing; rounding must not make a slope of it."""
    released = cdp.release(table, mechanism=MECHANISM, **PARTS)
    of_market = table.select("user", wealth=(0.37 * pl.col("market") + 1.1) ** 2)
    theirs = known.join(of_market, on="user")
    plain, adjusted = cdp.estimate(released, segments=theirs, adjust="wealth").effects
    assert adjusted.effect == pytest.approx(plain.effect)
    assert adjusted.std_error == pytest.approx(plain.std_error, rel=0.01)
    alone = cdp.estimate(released, segments=theirs, adjust="before").effects[1]
    both = cdp.estimate(released, segments=theirs, adjust=["before", "wealth"]).effects[1]
    assert both.effect == pytest.approx(alone.effect)


def test_adjustment_lowers_sampling_noise(rng: np.random.Generator) -> None:
    """A covariate that explains most of the outcome takes most of the sampling variance away."""
    n_users = 20_000
    before = rng.binomial(3, 0.5, n_users)
    table = pl.DataFrame(
        {
            "user": np.arange(n_users),
            "treated": rng.integers(0, 2, n_users),
            "market": rng.integers(0, 10, n_users),
            "clicks": before,
        }
    )
    release = cdp.release(table, mechanism=cdp.uniform_prior_dp(epsilon=4), **PARTS)
    known = pl.DataFrame({"user": np.arange(n_users), "before": before + 0.0})
    estimate = cdp.estimate(release, segments=known, adjust=["before"], by=[])
    plain, adjusted = estimate.effects
    assert adjusted.sampling_variance < 0.4 * plain.sampling_variance
    # What is left is privacy noise, of which a few thousand redrawn rows are a sample.
    assert adjusted.std_error**2 == pytest.approx(plain.privacy_variance, rel=0.3)
    assert abs(adjusted.effect) < 6 * adjusted.std_error


def test_one_of_two_is_to_be_reported(release: cdp.Release, known: pl.DataFrame) -> None:
    """The adjusted one, or where units are few the plain one: outcomes do not decide it."""
    ids = known["user"]
    small = known.with_columns(vip=pl.Series(np.arange(len(ids)) < 30))
    found = cdp.estimate(release, segments=small, adjust="gaps", by="vip")
    assert [(one.of.label, one.to_report) for one in found.effects] == [
        ("overall", False),
        ("overall (adjusted)", True),
        ("vip=False", False),
        ("vip=False (adjusted)", True),
        ("vip=True", True),
        ("vip=True (adjusted)", False),
    ]
    assert "Covariate-adjusted (CUPED) for" in str(found)
    assert estimate_text(found, 200, verbose=True).count("yes *") == 4
    alone = cdp.estimate(release, segments=small, by="vip")
    assert all(one.to_report for one in alone.effects)
    assert "CUPED" not in str(alone)


def test_covariates_that_cannot_be_adjusted_for(release: cdp.Release, known: pl.DataFrame) -> None:
    theirs = known.with_columns(
        id=pl.col("user").cast(pl.String), none=pl.lit(None, pl.Float64), day=pl.date(2026, 1, 1)
    )
    refused = {
        "id": "it has 600 categories, and the limit is 50",
        "none": "every released unit lacks it",
        "day": "its type is Date",
        "colour": "no such column",
    }
    for name, message in refused.items():
        with pytest.raises(cdp.ClusterDPError, match=message):
            cdp.estimate(release, segments=theirs, adjust=name)


def test_several_metrics_are_adjusted_in_segments(table: pl.DataFrame, known: pl.DataFrame) -> None:
    """Each alone gives the same."""
    parts = {**PARTS, "outcomes": {"clicks": "0..3", "any": "0,1"}}
    given = table.with_columns(any=pl.col("clicks").sign())
    released = cdp.release(given, mechanism=cdp.optimal(epsilon=4), **parts)
    asked: dict[str, Any] = {"segments": known, "adjust": "before", "by": ["region", "plan"]}
    both = cdp.estimate(released, **asked)
    for name in ("clicks", "any"):
        alone = cdp.estimate(released, metrics=name, **asked)
        found = [one.effect for one in both.effects if one.of.metric == name]
        np.testing.assert_allclose(found, [one.effect for one in alone.effects])
