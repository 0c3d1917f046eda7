"""Several folders in one estimate: the numbers of one table, and refusals by name and reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp

# So much that rows are next to exact: estimates are those of true outcomes.
EXACT = 30.0
OUTCOMES: dict[str, Any] = {"visit": "0,1", "clicks": "0..3"}
METRICS = ["visit", "clicks", "clicks>=2", "median(clicks)", "clicks/visit", "dist(clicks)"]


def make_table(rng: np.random.Generator, n_units: int = 3000) -> pl.DataFrame:
    """Units of three folders, which differ in level; visits come before clicks."""
    arm, place = rng.integers(0, 2, n_units), rng.integers(0, 3, n_units)
    before = rng.normal(size=n_units)
    visit = rng.random(n_units) < 0.3 + 0.2 * arm + 0.1 * place
    clicks = np.where(visit, rng.integers(1, 4, n_units), 0)
    return pl.DataFrame(
        {
            "user": np.arange(n_units) * 3,
            "arm": arm,
            "market": rng.integers(0, 4, n_units),
            "visit": visit.astype(int),
            "clicks": clicks,
            "tier": rng.choice(["basic", "gold", "silver"], n_units),
            "before": before + visit,
            "exposed": (rng.random(n_units) < 0.2 + 0.6 * arm).astype(int),
            "place": place,
        }
    )


def release_of(table: pl.DataFrame, **options: Any) -> cdp.Release:
    given: dict[str, Any] = {
        "unit": "user",
        "arm": "arm",
        "control": 0,
        "cluster": "market",
        "outcomes": OUTCOMES,
        "mechanism": cdp.optimal(epsilon=EXACT),
    }
    return cdp.release(table, **{**given, **options})


def split(table: pl.DataFrame, **options: Any) -> list[cdp.Release]:
    return [
        release_of(table.filter(pl.col("place") == place), **options)
        for place in sorted(table["place"].unique())
    ]


@pytest.fixture
def whole(rng: np.random.Generator) -> pl.DataFrame:
    return make_table(rng)


@pytest.fixture
def week(rng: np.random.Generator) -> pl.DataFrame:
    return make_table(rng, 600)


def close(one: cdp.Effect, other: cdp.Effect, tolerance: float = 1e-4) -> bool:
    numbers = [(each.effect, each.std_error, *each.ci(), each.p_value) for each in (one, other)]
    first, second = map(np.array, numbers)
    return np.allclose(first, second, rtol=tolerance, atol=tolerance * 10, equal_nan=True)


@pytest.mark.parametrize("estimator", ["stratified", "unstratified"])
def test_folders_estimate_what_one_table_with_their_clusters_does(
    whole: pl.DataFrame, estimator: Any
) -> None:
    """Every kind of metric, segments, covariates, differences and exposure; without noise."""
    of_one = whole.with_columns(pl.format("{} {}", "place", "market").alias("market"))
    segments = whole.select("user", "tier", "before", "exposed")
    options: dict[str, Any] = {
        "segments": segments,
        "by": ["tier"],
        "metrics": METRICS,
        "differences": "rest",
        "adjust": ["before", "tier"],
        "exposure": "exposed",
        "estimator": estimator,
    }
    together = cdp.estimate(split(whole), **options)
    one = cdp.estimate(release_of(of_one), **options)
    assert [effect.of for effect in together.effects] == [effect.of for effect in one.effects]
    far = [
        f"{first.of.metric}, {first.of.label}: {first} against {second}"
        for first, second in zip(together.effects, one.effects, strict=True)
        if not close(first, second)
    ]
    assert far == []
    assert together.checks == one.checks or together.tests
    for first, second in zip(together.tests, one.tests, strict=True):
        assert math.isclose(first.statistic, second.statistic, rel_tol=1e-3, abs_tol=1e-3)
    for mine, theirs in zip(together.distributions, one.distributions, strict=True):
        assert np.allclose(mine.shares, theirs.shares, atol=1e-4)
    assert together.origin.n_units == whole.height


def test_a_segment_by_folder_is_the_folder_by_itself(whole: pl.DataFrame) -> None:
    folders = split(whole)
    found = cdp.estimate(folders, metrics="clicks", by=["folder"])
    for place, one in enumerate(folders, start=1):
        assert close(
            found[f"folder=folder {place}"], cdp.estimate(one, metrics="clicks").effects[0]
        )


def test_folders_count_by_their_units(whole: pl.DataFrame) -> None:
    found = cdp.estimate(split(whole), metrics="clicks", by=["folder"])
    parts = [one for one in found.effects if one.of.segment]
    sizes = np.array([one.n_treated + one.n_control for one in parts])
    expected = sizes / sizes.sum() @ [one.effect for one in parts]
    variance = (sizes / sizes.sum()) ** 2 @ [one.std_error**2 for one in parts]
    assert math.isclose(found["overall"].effect, expected, rel_tol=1e-6)
    assert math.isclose(found["overall"].std_error, math.sqrt(variance), rel_tol=0.01)


def test_folders_count_by_their_precision_if_asked(whole: pl.DataFrame) -> None:
    by_size = cdp.estimate(split(whole), metrics="clicks", by=["folder"])
    found = cdp.estimate(split(whole), metrics="clicks", folder_weights="precision")
    parts = [one for one in by_size.effects if one.of.segment]
    precisions = np.array([1 / one.std_error**2 for one in parts])
    expected = precisions / precisions.sum() @ [one.effect for one in parts]
    assert math.isclose(found.effect, expected, rel_tol=1e-3)
    assert math.isclose(found.std_error, precisions.sum() ** -0.5, rel_tol=0.01)


def noisy(table: pl.DataFrame) -> list[cdp.Release]:
    """Folders with sums of their own, at different ε, the last without folds or breakdowns."""
    parts = [table.filter(pl.col("place") == place) for place in range(3)]
    options: list[dict[str, Any]] = [
        {"epsilon": 1.0, "folds": 2, "breakdown": ["tier"]},
        {"epsilon": 4.0, "folds": 2, "breakdown": ["tier"]},
        {"epsilon": 2.0},
    ]
    return [
        release_of(part, mechanism=None, passthrough=["tier"], question=["visit,clicks"], **one)
        for part, one in zip(parts, options, strict=True)
    ]


def test_sums_of_every_folder_calibrate_its_own_rows(whole: pl.DataFrame) -> None:
    """Whatever the noise, a folder among others has the effect that it has by itself."""
    folders = noisy(whole)
    found = cdp.estimate(folders, by=["folder", "tier"])
    for metric in OUTCOMES:
        parts = [cdp.estimate(one, metrics=metric).effects[0] for one in folders]
        for place, one in enumerate(parts, start=1):
            same = found[metric, f"folder=folder {place}"]
            assert math.isclose(same.effect, one.effect, rel_tol=1e-6)
            assert math.isclose(same.privacy_variance, one.privacy_variance, rel_tol=1e-6)
        sizes = np.array([one.n_treated + one.n_control for one in parts])
        expected = sizes / sizes.sum() @ [one.effect for one in parts]
        privacy = (sizes / sizes.sum()) ** 2 @ [one.privacy_variance for one in parts]
        assert math.isclose(found[metric, "overall"].effect, expected, rel_tol=1e-6)
        assert math.isclose(found[metric, "overall"].privacy_variance, privacy, rel_tol=1e-6)
    alone = cdp.estimate(folders, use="rows")
    assert found["visit", "overall"].std_error < alone["visit"].std_error
