"""Metrics that an analyst asks for: in memory, in folders, on the command line."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.estimation.effects.effect import Segment
    from clusterdp.published.release import Release

N_UNITS = 4000
ASKED = [
    "spend",
    "spend>=2",
    "visit*spend",
    "p90(spend)",
    "median(spend)",
    "spend/visit",
    "(spend>0)/visit",
    {"odd": [0, 1, 0, 1, 0]},
]
NAMES = (*(one for one in ASKED if isinstance(one, str)), "odd")
# All that publish rows; ε is so high that estimates are near the truth.
MECHANISMS: dict[str, dict[str, Any]] = {
    "optimal": {},
    "optimal, totals": {"totals_share": 0.1},
    "optimal, sums": {"sums_share": 0.2},
    "optimal, counts": {"counts_share": 0.3},
    "cluster-dp": {"mechanism": "cluster-dp", "noise_scale": 2.0, "prior_floor": 0.02},
    "cluster-free-dp": {"mechanism": "cluster-free-dp", "noise_scale": 2.0, "prior_floor": 0.02},
    "uniform-prior-dp": {"mechanism": "uniform-prior-dp"},
}


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    rng = np.random.default_rng()
    arm, market = rng.permutation(N_UNITS) % 2, np.arange(N_UNITS) % 4
    visit = rng.random(N_UNITS) < 0.3 + 0.1 * arm + 0.05 * market
    return pl.DataFrame(
        {
            "user": np.arange(N_UNITS),
            "arm": np.array(["A", "B"])[arm],
            "market": market,
            "tier": np.array(["gold", "iron"])[rng.integers(0, 2, N_UNITS)],
            "visit": visit.astype(np.int64),
            "spend": visit * rng.integers(0, 4, N_UNITS),
        }
    )


PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "market",
    "passthrough": ["tier"],
    "control": "A",
    "outcomes": {"visit": "0,1", "spend": "0..3"},
    "constraint": ["spend>0 -> visit"],
}


@pytest.fixture(scope="module")
def release(visits: pl.DataFrame) -> Release:
    return cdp.release(visits, epsilon=3, **PARTS)


def truth(rows: pl.DataFrame, name: str) -> float:
    """What a metric is in some rows."""
    visit, spend = (rows[column].to_numpy() for column in ("visit", "spend"))
    every = {
        "spend": spend.mean(),
        "spend>=2": (spend >= 2).mean(),
        "visit*spend": (visit * spend).mean(),
        "p90(spend)": np.quantile(spend, 0.9, method="inverted_cdf"),
        "median(spend)": np.quantile(spend, 0.5, method="inverted_cdf"),
        "spend/visit": spend.mean() / visit.mean(),
        "(spend>0)/visit": (spend > 0).mean() / visit.mean(),
        "odd": ((visit == 1) & (spend == 0) | (spend == 2)).mean(),
    }
    return float(every[name])


def of_segment(rows: pl.DataFrame, segment: Segment) -> pl.DataFrame:
    return rows.filter(pl.col("tier") == segment[0][1]) if segment else rows


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_that_publishes_rows(name: str, visits: pl.DataFrame) -> None:
    """Estimates are within six standard errors of those of true outcomes (2e-9 each)."""
    released = cdp.release(visits, epsilon=6, **PARTS, **MECHANISMS[name])
    found = cdp.estimate(released, metrics=ASKED, by="tier")
    assert found.metrics == NAMES
    assert len(found.effects) == 3 * len(NAMES)
    for effect in found.effects:
        rows = of_segment(visits, effect.of.segment)
        arms = (rows.filter(pl.col("arm") == arm) for arm in "AB")
        control, treated = (truth(arm, effect.of.metric) for arm in arms)
        assert effect.control_mean is not None
        assert effect.control_std_error is not None
        if "(spend)" in effect.of.metric:
            low, high = effect.ci(1 - 1e-9)
            assert low <= treated - control <= high
        else:
            assert abs(effect.effect - (treated - control)) <= 6 * effect.std_error
            assert abs(effect.control_mean - control) <= 6 * effect.control_std_error
        assert 0 <= effect.p_value <= 1


def test_every_declared_metric_by_default(release: Release) -> None:
    default, asked = cdp.estimate(release), cdp.estimate(release, metrics=["visit", "spend"])
    assert default.effects == asked.effects
    values = {"spend again": [0, 0, 1, 2, 3]}
    again = cdp.estimate(release, metrics=values).effects[0]
    assert again.effect == pytest.approx(default["spend"].effect)
    assert again.std_error == pytest.approx(default["spend"].std_error)


def test_values_by_outcomes(release: Release) -> None:
    listed = cdp.estimate(release, metrics={"odd": [0, 1, 0, 1, 0]})
    keys = [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
    mapped = cdp.estimate(release, metrics={"odd": dict(zip(keys, [0, 1, 0, 1, 0], strict=True))})
    assert listed.effects == mapped.effects


def test_a_function_of_a_number_is_bounded(rng: np.random.Generator) -> None:
    """However many units there are, the interval holds the truth; values at grid points do not."""
    n_units, middle = 40_000, 7.5
    amount = np.where(rng.random(n_units) < 0.5, middle, 0.0)
    table = pl.DataFrame(
        {"user": np.arange(n_units), "arm": rng.integers(0, 2, n_units), "spend": amount}
    ).with_columns(spend=pl.col("spend") * pl.col("arm"))
    options: dict[str, Any] = {"outcomes": {"spend": cdp.Number(0, 60)}, "unit": "user"}
    release = cdp.release(table, arm="arm", mechanism="uniform-prior-dp", epsilon=6, **options)
    (effect,) = cdp.estimate(release, metrics={"log": ("spend", np.log1p)}).effects
    low, high = effect.ci(1 - ALPHA)
    assert low <= np.log1p(amount).mean() <= high
    found = cdp.estimate(
        release, metrics={"log": ("spend", np.log1p), "same": ("spend", np.asarray)}
    )
    assert any(one.startswith("log is not answerable") for one in found.notes)
    same, spend = found["same"], cdp.estimate(release)["spend"]
    assert same.effect == pytest.approx(spend.effect)
    assert same.ci() == pytest.approx(spend.ci())
    points = [float(one) for one in release.questions[0].space.grids[0].values]
    with pytest.raises(cdp.ParameterError, match="give the function itself"):
        cdp.estimate(release, metrics={"log": list(np.log1p(points))})
    twice = cdp.estimate(release, metrics={"twice": [2 * one for one in points]})
    assert twice.effects[0].effect == pytest.approx(2 * spend.effect)
    with pytest.raises(cdp.ParameterError, match="there is no outcome"):
        cdp.estimate(release, metrics={"log": ("spent", np.log1p)})
    with pytest.raises(cdp.ParameterError, match="give it with its outcome"):
        cdp.estimate(release, metrics={"log": np.log1p})
    with pytest.raises(cdp.ParameterError, match="a function of arrays with finite results"):
        cdp.estimate(
            release, metrics={"log": ("spend", lambda values: np.full_like(values, np.nan))}
        )


def test_one_metric_that_rows_do_not_tell_leaves_the_others(rng: np.random.Generator) -> None:
    """A joint channel of twelve categories has a span of fewer dimensions."""
    table = pl.DataFrame({"user": np.arange(600), "arm": rng.permutation(600) % 2}).with_columns(
        pl.Series(name, rng.integers(0, n_values, 600))
        for name, n_values in {"a": 2, "b": 2, "c": 3}.items()
    )
    outcomes = {"a": "0,1", "b": "0,1", "c": "0..2"}
    options: dict[str, Any] = {"unit": "user", "arm": "arm", "mechanism": cdp.optimal(epsilon=1)}
    release = cdp.release(table, outcomes=outcomes, **options)
    found = cdp.estimate(release, metrics=["a*b", "c", "a"])
    assert found.metrics == ("c", "a")
    assert any('--metric "a*b"' in one and "Not estimated: " in one for one in found.warnings)
    with pytest.raises(cdp.ParameterError, match=r'--metric "a\*b"'):
        cdp.estimate(release, metrics=["a*b"])


def test_distributions_are_shown(release: Release, visits: pl.DataFrame) -> None:
    found = cdp.estimate(release, metrics="dist(spend)", by="tier")
    assert not found.effects
    assert len(found.distributions) == 6
    for one in found.distributions:
        rows = of_segment(visits, one.segment).filter(pl.col("arm") == one.arm)
        true = [(rows["spend"] <= value).mean() for value in one.values]
        width = (one.high - one.low) * 6 / 3.92 + 1e-9  # an interval, stretched
        assert (np.abs(one.shares - true) <= width).all()
    assert "spend, overall: units at or below each value (95% CI)" in str(found)
    assert len(found.to_dict()["distributions"]) == 24
    assert "Share of units with spend at or below a value" in found._repr_html_()
    with pytest.raises(cdp.ParameterError, match="no effects to plot"):
        found.plot()


def test_ratios_without_bounds_say_so(visits: pl.DataFrame) -> None:
    """A denominator that nobody has cannot be told from zero, whatever the noise."""
    nobody = visits.with_columns(visit=pl.lit(0), spend=pl.lit(0)).head(200)
    released = cdp.release(nobody, epsilon=0.5, **PARTS)
    found = cdp.estimate(released, metrics="spend/visit", level=1 - 1e-9)
    assert found.effects[0].ci(1 - 1e-9) == (-math.inf, math.inf)
    assert found.effects[0].to_dict(1 - 1e-9)["ci_low"] is None
    assert any("holds every possible value" in note for note in found.notes)
    json.dumps(found.to_dict())
    assert found.plot() is not None


def test_numbers_between_cuts_are_bounded(visits: pl.DataFrame) -> None:
    rng = np.random.default_rng()
    table = visits.with_columns(rounds=np.minimum(rng.lognormal(2.3, 1.0, N_UNITS), 60))
    released = cdp.release(
        table,
        **{**PARTS, "outcomes": {"rounds": cdp.Number(0, 60)}, "constraint": []},
        metric=["rounds>=10"],
        mechanism="uniform-prior-dp",
        epsilon=6,
    )
    found = cdp.estimate(
        released, metrics=["rounds>=10", "rounds>=17", "rounds<17", "median(rounds)"]
    )
    at_cut, between, under, median = found.effects
    assert between.bounds is not None
    assert under.bounds is not None
    assert between.bounds == pytest.approx((-under.bounds[1], -under.bounds[0]))
    assert at_cut.std_error < (between.ci()[1] - between.ci()[0]) / 4
    assert any("rounds>=17 is not answerable from this release" in note for note in found.notes)
    assert not any("rounds>=10:" in note for note in found.notes)
    rounds = table["rounds"].to_numpy()
    for effect, of in ((between, lambda y: (y >= 17).mean()), (median, np.median)):
        treated, control = (of(rounds[table["arm"] == arm]) for arm in "BA")
        low, high = effect.ci(1 - 1e-9)
        assert low <= treated - control <= high
    with pytest.raises(cdp.ParameterError, match=r'--metric "rounds\*\(rounds>=17\)"'):
        cdp.estimate(released, metrics="rounds*(rounds>=17)")
    with pytest.raises(cdp.ParameterError, match="needs a declared threshold of 'rounds'"):
        cdp.estimate(released, metrics="rounds==17")


REFUSED: dict[str, tuple[Any, str]] = {
    "no metric": ([], "metrics is empty"),
    "a number": (3, "metrics must be texts such as"),
    "an unknown outcome": ("rounds", "there is no outcome 'rounds'"),
    "an unknown quantile": ("p90(rounds)", "there is no outcome 'rounds'"),
    "too few values": ({"odd": [0, 1]}, "for each of 5 outcome combinations, in this order"),
    "texts as values": ({"odd": ["a"] * 5}, "a finite number for each of 5 outcome combinations"),
    "one value": ({"odd": [1] * 5}, "the same value for every outcome combination"),
    "wrong keys": ({"odd": {0: 1, 1: 2}}, "must have a value for each of"),
    "a function": ({"odd": np.log1p}, "give it with its outcome"),
    "a function by its outcome": ({"odd": {"spend": np.log1p}}, "give it with its outcome"),
    "a constant": ("spend>=0", "is the same for every value of 'spend'"),
    "an implied constant": ("(spend>0)*(visit<1)", "the same value for every outcome combination"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_refused(case: str, release: Release) -> None:
    metrics, said = REFUSED[case]
    with pytest.raises(cdp.ParameterError) as refused:
        cdp.estimate(release, metrics=metrics)
    assert said in str(refused.value)


def test_hopeless_noise_is_said(visits: pl.DataFrame) -> None:
    """Twelve levels at ε = 0.02: rows tell shares with errors of more than one."""
    table = visits.head(200).with_columns(spend=pl.lit(1))
    parts = {**PARTS, "outcomes": {"spend": "0..11"}, "constraint": []}
    found = cdp.estimate(cdp.release(table, epsilon=0.02, **parts), metrics="spend>=6")
    assert any("mostly privacy noise" in text for text in found.warnings)


def test_noise_that_few_rows_carry_is_said(visits: pl.DataFrame) -> None:
    """Amounts of hundreds in a range of millions: the channel tells hardly any apart."""
    table = visits.head(400).with_columns(spend=pl.col("spend") * 300)
    parts = {**PARTS, "outcomes": {"spend": "0,300,600,900,16000000"}, "constraint": []}
    released = cdp.release(table, **parts, metric=["spend>=300"], epsilon=6)
    found = cdp.estimate(released, metrics=["dist(spend)", "spend>=300"])
    said = found.warnings + found.notes
    assert any("dist(spend)" in text and "Ask the owner" in text for text in said)
    assert not any("spend>=300: " in note for note in found.notes)


def test_releases_without_rows_have_declared_metrics_alone(visits: pl.DataFrame) -> None:
    released = cdp.release(visits, **PARTS, mechanism="noisy-histogram", epsilon=1)
    with pytest.raises(cdp.ParameterError, match="publishes no rows, only overall"):
        cdp.estimate(released, metrics="spend>=2")


def test_what_is_of_means_alone_is_said(release: Release) -> None:
    asked = ["spend/visit", "p90(spend)"]
    found = cdp.estimate(release, metrics=asked, by="tier", differences="rest")
    assert sum("for means only" in note for note in found.notes) == 2
    assert not found.tests


def test_folders_and_the_command_line(visits: pl.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "published"
    visits.write_parquet(tmp_path / "visits.parquet")
    cdp.publish(tmp_path / "visits.parquet", out=folder, epsilon=3, **PARTS)
    shown = run("estimate", folder, "--metric", "p90(spend)", "--metric", "spend/visit", "--json")
    rows = json.loads(shown.stdout)["effects"]
    assert [row["metric"] for row in rows] == ["p90(spend)", "spend/visit"]
    found = cdp.estimate(folder, metrics=["p90(spend)", "spend/visit"])
    assert rows[1]["effect"] == found["spend/visit"].effect
    shown = run("estimate", folder, "--metric", "dist(spend)")
    assert "spend, overall: units at or below each value (95% CI)" in shown.stdout
