"""Several folders in one estimate: the numbers of one table, and refusals by name and reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.reading.folders import folder_names

if TYPE_CHECKING:
    from pathlib import Path

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


def exact_release(table: pl.DataFrame) -> cdp.Release:
    """A release whose rows are true. At any ε a few in a hundred thousand rows are another one."""
    while True:
        release = release_of(table)
        rows = release.units.join(table, on="user", validate="1:1")
        if all((rows[f"{name}_debiased"] - rows[name]).abs().max() < 0.01 for name in OUTCOMES):
            return release


def split(table: pl.DataFrame) -> list[cdp.Release]:
    return [exact_release(table.filter(pl.col("place") == place)) for place in range(3)]


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
    one = cdp.estimate(exact_release(of_one), **options)
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


def test_three_folders_are_close_to_one_of_all_units(whole: pl.DataFrame) -> None:
    """The same outcomes, randomized twice: both differ by the noise of privacy alone."""

    def noisy_release(part: pl.DataFrame) -> cdp.Release:
        return release_of(part, mechanism=cdp.optimal(epsilon=2.0))

    folders = [noisy_release(whole.filter(pl.col("place") == place)) for place in range(3)]
    found, one = cdp.estimate(folders), cdp.estimate(noisy_release(whole))
    for metric in OUTCOMES:
        first, second = found[metric], one[metric]
        privacy = math.sqrt(first.privacy_variance + second.privacy_variance)
        # Clusters of one release are across folders, so that weights differ, and little else.
        reach = stats.norm.isf(ALPHA / 4) * privacy + second.std_error
        assert abs(first.effect - second.effect) <= reach
        assert 0.8 < first.std_error / second.std_error < 1.25


def stratified_effect(table: pl.DataFrame, outcome: str) -> float:
    """The true effect on a mean within clusters of folders, weighted by their units."""
    cells = table.group_by("place", "market", "arm").agg(pl.len(), pl.col(outcome).mean())
    clusters = cells.pivot("arm", index=["place", "market"], values=["len", outcome])
    sizes = clusters["len_0"] + clusters["len_1"]
    effects = clusters[f"{outcome}_1"] - clusters[f"{outcome}_0"]
    return float(np.average(effects, weights=sizes))


def test_ranges_and_grids_may_differ(rng: np.random.Generator) -> None:
    """Means are of clipped numbers in each folder, and that is said."""
    table = make_table(rng, 4000).with_columns(spend=pl.Series(rng.exponential(20, 4000)))
    parts = {high: table.filter(pl.col("place") == place) for place, high in ((0, 50), (1, 80))}
    folders = [
        release_of(part, outcomes={"spend": f"number:0..{high}"}, mechanism=cdp.optimal(epsilon=2))
        for high, part in parts.items()
    ]
    found = cdp.estimate(folders, metrics="spend")
    clipped = [part.with_columns(pl.col("spend").clip(0, high)) for high, part in parts.items()]
    true = stratified_effect(pl.concat(clipped), "spend")
    privacy = math.sqrt(found.effects[0].privacy_variance)
    assert abs(found.effect - true) <= stats.norm.isf(ALPHA / 2) * privacy
    assert any("clipped differently" in note for note in found.notes)
    with pytest.raises(cdp.ParameterError, match=r"rounded to the same grid in folder 2"):
        cdp.estimate(folders, metrics="p90(spend)")


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "arms": ({"arm": "tier", "control": "basic"}, "arms are basic, gold, silver in one, and 0, 1"),
    "outcomes": ({"outcomes": {"visit": "0,1"}}, "only one has clicks"),
    "kind": ({"outcomes": {"visit": "0,1", "clicks": "number:0..3"}}, "clicks is number"),
    "values": ({"outcomes": {"visit": "0,1", "clicks": "0..4"}}, "clicks is 0"),
    "questions": (
        {"question": ["visit", "clicks"], "mechanism": None, "epsilon": 1.0},
        "different questions",
    ),
    "rows": (
        {"mechanism": cdp.noisy_horvitz_thompson(epsilon=1), "outcomes": {"visit": "0,1"}},
        "without rows",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_rejected_by_name_and_reason(week: pl.DataFrame, case: str) -> None:
    options, reason = MISFITS[case]
    first = release_of(week.filter(pl.col("place") == 0))
    other = release_of(week.filter(pl.col("place") == 1), **options)
    with pytest.raises(cdp.ParameterError, match=reason) as found:
        cdp.estimate([first, other])
    text = str(found.value)
    assert "folder 2 and folder 1 cannot be estimated together" in text
    assert "Nothing was estimated. Fix:" in text


def test_folders_that_share_units_are_rejected(week: pl.DataFrame) -> None:
    folders = [release_of(week.filter(pl.col("place") <= place)) for place in (0, 1)]
    n_shared = week.filter(pl.col("place") == 0).height
    with pytest.raises(cdp.DataError, match=rf"{n_shared} ids are in more than one folder"):
        cdp.estimate(folders)


def test_ids_of_other_types_cannot_be_compared(week: pl.DataFrame) -> None:
    first = release_of(week.filter(pl.col("place") == 0))
    texts = week.with_columns(pl.col("user").cast(pl.String))
    with pytest.raises(cdp.DataError, match="Ids are String in folder 2 and Int64 in folder 1"):
        cdp.estimate([first, release_of(texts.filter(pl.col("place") == 1))])


@pytest.mark.parametrize(
    ("given", "message"),
    [([], "lists no folder"), ([3], "path of a published folder"), ("here", "there is no folder")],
)
def test_other_lists_are_rejected(given: Any, message: str) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message):
        cdp.estimate(given)


def test_a_list_of_one_is_the_folder(published: Path) -> None:
    assert cdp.estimate([published]).to_dict() == cdp.estimate(published).to_dict()


def test_folders_are_called_by_what_tells_them_apart() -> None:
    assert folder_names(["a/week1", "b/week2"]) == ("week1", "week2")
    assert folder_names(["us/published", "de/published"]) == ("us/published", "de/published")
    with pytest.raises(cdp.ParameterError, match="given twice"):
        folder_names(["a/week1", "a/week1"])


def test_segments_of_an_analyst_are_joined_over_all_folders(week: pl.DataFrame) -> None:
    """An id that no folder has is counted once, and a folder may have no unit of a segment."""
    folders = split(week)
    mine = week.with_columns(lone=(pl.col("place") == 2).cast(pl.Int64)).select("user", "lone")
    mine = pl.concat([mine, pl.DataFrame({"user": [-1], "lone": [5]})])
    found = cdp.estimate(folders, metrics="visit", segments=mine, by=["lone", "folder,lone"])
    sizes = {one.of.label: one.n_treated + one.n_control for one in found.effects}
    of_place = dict(week["place"].value_counts().iter_rows())
    assert sizes["lone=1"] == sizes["folder=folder 3, lone=1"] == of_place[2]
    assert sizes["lone=0"] == of_place[0] + of_place[1]
    assert sum("folder=" in label for label in sizes) == 3
    assert any("1 of 601 ids of the segments table are not" in note for note in found.notes)


def test_a_column_of_an_analyst_cannot_be_called_folder(week: pl.DataFrame) -> None:
    folders = split(week)
    mine = week.select("user", "tier", folder="place")
    assert cdp.estimate(folders, segments=mine, by="tier").effects
    with pytest.raises(cdp.DataError, match="has a column 'folder'"):
        cdp.estimate(folders, segments=mine, by=["tier", "folder"])


def test_different_control_arms_need_a_name(week: pl.DataFrame) -> None:
    parts = [week.filter(pl.col("place") == place) for place in (0, 1)]
    folders = [release_of(part, control=place) for place, part in enumerate(parts)]
    with pytest.raises(cdp.ParameterError, match="different control arms"):
        cdp.estimate(folders)
    assert cdp.estimate(folders, control=1)["visit"].of.control == 1


def test_looks_and_heterogeneity_of_folders_have_notes(whole: pl.DataFrame) -> None:
    folders = split(whole)
    found = cdp.estimate(folders, metrics="visit", by="folder", differences="rest")
    assert any("not accounted for" in note for note in found.notes)
    parts = [one for one in found.effects if one.of.segment and one.of.against is None]
    weights = np.array([one.std_error**-2 for one in parts])
    effects = np.array([one.effect for one in parts])
    q = weights @ (effects - np.average(effects, weights=weights)) ** 2
    assert any(f"Cochran's Q = {q:.3g}" in note for note in found.method)
    assert "not accounted for" not in " ".join(cdp.estimate(folders, look="1/2").notes)


PLANS: dict[str, dict[str, Any]] = {
    "questions": {"mechanism": None, "epsilon": 2.0, "question": ["visit", "clicks"]},
    "whole groups": {"randomization_unit": "group", "cluster": None},
    "missing outcomes": {"outcomes": {"visit": "0,1", "spend": "0..3"}, "missing": ["spend"]},
    "no clusters": {"cluster": None},
    "noisy counts": {"mechanism": cdp.optimal(epsilon=2.0, noise_scale=4.0)},
    "cell sums": {"mechanism": cdp.optimal(epsilon=2.0, sums=cdp.SumShares(clusters=0.3))},
}


@pytest.mark.parametrize("plan", PLANS)
def test_in_every_plan_a_folder_among_others_has_its_own_effect(
    rng: np.random.Generator, plan: str
) -> None:
    n_units = 9600 if plan == "questions" else 2400  # so many that every stratum has enough asked
    table = make_table(rng, n_units).with_columns(group=pl.col("user") // 30)
    arms = rng.integers(0, 2, 240)
    if plan == "whole groups":
        table = table.with_columns(arm=pl.Series(arms).gather(table["group"].to_numpy() % 240))
        table = table.with_columns(place=pl.col("group") % 3)
    spend = pl.when(pl.Series(rng.random(n_units) < 0.8)).then(pl.col("clicks"))
    table = table.with_columns(spend=spend)
    parts = [table.filter(pl.col("place") == place) for place in range(3)]
    options = {"mechanism": cdp.optimal(epsilon=2.0), **PLANS[plan]}
    folders = [release_of(part, **options) for part in parts]
    found = cdp.estimate(folders, by="folder", estimator="stratified")
    for place, release in enumerate(folders, start=1):
        for one in cdp.estimate(release).effects:
            same = found[one.of.metric, f"folder=folder {place}"]
            assert math.isclose(same.effect, one.effect, rel_tol=1e-6, abs_tol=1e-9)
            assert math.isclose(same.std_error, one.std_error, rel_tol=0.1)
    overall = [one for one in found.effects if not one.of.segment]
    assert all(one.std_error > 0 for one in overall)


def test_true_clusters_that_are_private_are_of_one_folder(rng: np.random.Generator) -> None:
    """Noisy clusters are strata as others are; effects in true ones are estimated by folder."""
    table = make_table(rng, 900).with_columns(market=pl.format("m{}", "market"))
    labels = [f"m{place}" for place in range(4)]
    options: dict[str, Any] = {"private_cluster": 1.0, "labels": labels}
    folders = [
        release_of(table.filter(pl.col("place") == place), mechanism=None, epsilon=3.0, **options)
        for place in range(2)
    ]
    found = cdp.estimate(folders, metrics="visit", by="folder")
    alone = cdp.estimate(folders[1], metrics="visit")
    assert math.isclose(found["folder=folder 2"].effect, alone.effect, rel_tol=1e-6)
    with pytest.raises(cdp.ParameterError, match="market is private"):
        cdp.estimate(folders, by="market")
