"""Effects on those exposed: whatever tells exposure, in every form, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

import clusterdp as cdp
from asked_releases import release_questions
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.cli.app import app
from clusterdp.estimation.means.arms import group_scores
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.metrics._composed import product_bounds
from clusterdp.estimation.metrics.exposure import ExposedEffect
from clusterdp.estimation.metrics.ratio import Covariance
from clusterdp.estimation.report.screen import estimate_text
from clusterdp.estimation.report.sentences import effect_sentences
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp._arrays import FloatArray

N_UNITS = 3000
ARMS: dict[str, Any] = {"unit": "user", "arm": "arm", "cluster": "market", "control": "A"}
BOTH: dict[str, Any] = {"clicked": "0,1", "spend": "0..3"}
# What tells exposure; ε is so high that estimates are near the truth.
RELEASES: dict[str, dict[str, Any]] = {
    "same question": {"outcomes": BOTH, "epsilon": 5},
    "kept": {"outcomes": {"spend": "0..3"}, "passthrough": ["clicked"], "epsilon": 5},
    "joined": {"outcomes": {"spend": "0..3"}, "epsilon": 5},
}


def some_table(rng: np.random.Generator, n_units: int = N_UNITS) -> pl.DataFrame:
    """Three arms, of which C exposes half as often as B; a twentieth is exposed in every arm."""
    arm = rng.permutation(n_units) % 3
    complier, always = rng.random(n_units) < 0.4, rng.random(n_units) < 0.05
    exposed = always | (complier & (rng.random(n_units) < np.array([0, 1, 0.5])[arm]))
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": np.array(["A", "B", "C"])[arm],
            "market": np.arange(n_units) % 3,
            "tier": np.where(rng.random(n_units) < 0.5, "gold", "iron"),
            "clicked": exposed.astype(np.int64),
            "spend": rng.binomial(3, 0.2 + 0.2 * complier + 0.3 * exposed),
        }
    )


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return some_table(np.random.default_rng())


@pytest.fixture(scope="module")
def releases(visits: pl.DataFrame) -> dict[str, cdp.Release]:
    made = {
        name: cdp.release(
            visits, **ARMS, **{**options, "passthrough": [*options.get("passthrough", []), "tier"]}
        )
        for name, options in RELEASES.items()
    }
    return {**made, "another question": asked_apart(visits)}


def asked_apart(visits: pl.DataFrame) -> cdp.Release:
    """A release in which half of the units say whether they clicked, and half what they spent."""
    columns = Columns(
        unit="user", arm="arm", cluster="market", outcomes=("clicked", "spend"), kept=("tier",)
    )
    spaces = [Categories(declared=declare({name: text})) for name, text in BOTH.items()]
    mechanisms = [cdp.optimal(epsilon=5, sums=cdp.SumShares(totals=0.1))] * 2
    asked, rng = [ASKED_TOTAL // 2] * 2, np.random.default_rng()
    return release_questions(
        visits, columns, spaces, mechanisms, asked, rng=rng, control=ARMS["control"]
    )


def own_table(told: str, visits: pl.DataFrame) -> dict[str, Any]:
    """The analyst's table, where that has the exposure."""
    return {"segments": visits.select("user", "clicked")} if told == "joined" else {}


def fieller(rows: FloatArray, arms: FloatArray, level: float) -> list[float]:
    """Where (N̂ − r·D̂)² is q² times its variance, from rows of an outcome and of exposure."""
    effects, covariances = np.zeros(2), np.zeros((2, 2))
    for arm, sign in (("A", -1), ("B", 1)):
        chosen = rows[:, arms == arm]
        effects += sign * chosen.mean(axis=1)
        covariances += np.cov(chosen) / chosen.shape[1]
    squared = stats.norm.isf((1 - level) / 2) ** 2
    (above, below), ((first, both), (_, second)) = effects, covariances
    roots = np.roots(
        [
            below**2 - squared * second,
            -2 * (above * below - squared * both),
            above**2 - squared * first,
        ]
    )
    return sorted(roots.tolist())


@pytest.mark.parametrize("told", RELEASES)
def test_intervals_of_rows_alone_follow_from_debiased_columns(
    told: str, releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    """The noise of rows is in their spread: nothing else is needed, whatever tells exposure."""
    release = releases[told]
    found = cdp.estimate(
        release,
        exposure="clicked",
        use="rows",
        estimator="unstratified",
        **own_table(told, visits),
    )
    rows = (
        release.units.join(visits.select("user", "clicked"), on="user")
        if told == "joined"
        else release.units
    )
    exposure = "clicked" if "clicked" in rows.columns else "clicked_debiased"
    columns = rows.select("spend_debiased", exposure).to_numpy().T
    effect = found["cace(spend, clicked)", "B"]
    means = {arm: columns[:, (rows["arm"] == arm).to_numpy()].mean(axis=1) for arm in "AB"}
    above, below = means["B"] - means["A"]
    assert effect.effect == pytest.approx(above / below)
    assert effect.p_value == pytest.approx(found["spend", "B"].p_value)
    assert effect.ci(0.9) == pytest.approx(fieller(columns, rows["arm"].to_numpy(), 0.9))
    assert found["clicked", "B"].effect == pytest.approx(below)


@pytest.mark.parametrize("told", [*RELEASES, "another question"])
def test_effects_on_the_exposed_are_near_the_truth_in_every_segment(
    told: str, releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    """Exposure adds 0.9 to spend. A false alarm has 1e-8 for each of six effects."""
    options: dict[str, Any] = {"exposure": "clicked", "by": "tier", **own_table(told, visits)}
    found = cdp.estimate(releases[told], **options)
    plain = cdp.estimate(releases[told], by="tier")
    assert found["spend", "B", "tier=gold"].effect == plain["spend", "B", "tier=gold"].effect
    effects = [one for one in found.effects if one.of.metric == "cace(spend, clicked)"]
    assert len(effects) == 6
    assert len(found.effects) == 18
    for one in effects:
        low, high = one.ci(1 - 1e-8)
        assert low < 0.9 < high
        other = found[("spend", one.of.arm, one.of.label)]
        assert one.p_value == pytest.approx(other.p_value)
        assert (low <= 0 <= high) == (other.ci(1 - 1e-8)[0] <= 0)


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "cluster-dp", "noise_scale": 2.0, "prior_floor": 0.02},
        {"counts_share": 0.3},
    ],
    ids=str,
)
def test_rows_of_every_kind_tell_it(options: dict[str, Any], visits: pl.DataFrame) -> None:
    """A function that no sum is published of, too. A false alarm has 1e-8 for each effect."""
    release = cdp.release(visits, **ARMS, outcomes=BOTH, epsilon=8, **options)
    found = cdp.estimate(release, exposure="clicked", metrics=["spend", {"same": [0, 1, 2, 3] * 2}])
    for metric in ("spend", "same"):
        low, high = found[f"cace({metric}, clicked)", "B"].ci(1 - 1e-8)
        assert low < 0.9 < high


def test_an_exposure_is_no_metric_of_its_own_exposed(releases: dict[str, cdp.Release]) -> None:
    found = cdp.estimate(releases["same question"], exposure="clicked", metrics="spend>=2")
    assert found.metrics == ("spend>=2", "cace(spend>=2, clicked)", "clicked")
    both = cdp.estimate(
        releases["same question"], exposure="clicked", metrics=["clicked", "spend>=2"]
    )
    assert both.metrics == ("clicked", "spend>=2", "cace(spend>=2, clicked)")
    assert both["clicked", "B"].effect == found["clicked", "B"].effect


def test_everyone_is_told(releases: dict[str, cdp.Release], tmp_path: Path) -> None:
    """Text that fits 80 columns, HTML, JSON, CSV, Arrow and a plot."""
    found = cdp.estimate(releases["kept"], exposure="clicked", metrics=["spend", "p90(spend)"])
    text = estimate_text(found, 80)
    assert max(map(len, text.splitlines())) <= 80
    name = "cace(spend, clicked)"
    assert text.count(name) >= 2
    assert name in found._repr_html_()
    (row,) = found.to_polars().filter(pl.col("metric") == name, pl.col("arm") == "B").to_dicts()
    effect = found[name, "B"]
    assert (row["ci_low"], row["ci_high"]) == effect.ci()
    assert row["ci_gap_low"] is None
    assert row["treated_mean"] is None
    assert effect.lift() is None
    assert effect.holm_p_value >= effect.p_value
    assert effect.family_size == len(found.effects)
    assert json.loads(json.dumps(found.to_dict()))["metrics"] == list(found.metrics)
    found.plot(tmp_path / "plot.svg")
    notes = " ".join(found.notes)
    assert "effect on compliers" in notes
    assert (
        "of A have clicked anyway. The CACE of B describes units that have it only because of B"
        in notes
    )
    turned = cdp.estimate(releases["kept"], exposure="clicked", control="B")
    assert "The CACE of A describes units that have it only because of B" in " ".join(turned.notes)
    assert "effect of B on clicked: z = " in " ".join(found.method)
    assert "Complier effects exist for means only. p90(spend) is shown without." in notes


def test_one_sided_exposure_has_no_compliers_to_speak_of(
    releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    own = visits.select("user", clicked=(pl.col("clicked") == 1) & (pl.col("arm") != "A"))
    found = cdp.estimate(releases["joined"], exposure="clicked", segments=own)
    assert not [note for note in found.notes if "of A have clicked" in note]
    assert found["clicked", "B"].control_mean == 0


def test_full_compliance_is_assignment(
    releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    own = visits.select("user", clicked=(pl.col("arm") != "A").cast(pl.Float64))
    found = cdp.estimate(releases["joined"], exposure="clicked", segments=own)
    for arm in "BC":
        exposed, assigned = found["cace(spend, clicked)", arm], found["spend", arm]
        assert exposed.ci() == pytest.approx(assigned.ci())
        assert exposed.std_error == pytest.approx(assigned.std_error)


def test_nobody_exposed_has_no_effect(
    releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    own = visits.select("user", clicked=pl.lit(0))
    found = cdp.estimate(releases["joined"], exposure="clicked", segments=own)
    assert math.isnan(found["cace(spend, clicked)", "B"].effect)
    assert math.isnan(found["cace(spend, clicked)", "B"].p_value)
    assert found["clicked", "B"].p_value == 1
    assert any("Weak instrument: B" in note for note in found.notes)
    assert "cace" in str(found)


@pytest.mark.parametrize("both", [(0.01, 0.01), (-0.02, 0.015), (-0.018, -0.012)])
def test_an_interval_holds_what_is_not_rejected(both: tuple[float, float]) -> None:
    """Each value is tested with the covariance that is worse for it."""
    tried, reach = np.linspace(-30, 30, 4001), stats.norm.isf(0.025)
    spread = np.max([0.04 - 2 * tried * one + tried**2 * 0.01 for one in both], axis=0)
    for above, below in itertools.product((0.9, 0.3, -0.1, -0.8), (0.5, 0.15, -0.02, -0.3)):
        covariances = Covariance(0.04, 0.01, *both), Covariance(0, 0, 0, 0)
        effect = ExposedEffect(above, below, *covariances, math.inf)
        (low, high), gap = effect.ci(0.95), effect.gap(0.95) or (math.nan, math.nan)
        inside = (low <= tried) & (tried <= high) & ~((gap[0] < tried) & (tried < gap[1]))
        kept = np.abs(above - tried * below) <= reach * np.sqrt(spread)
        np.testing.assert_array_equal(kept, inside)
        assert (effect.p_value < 0.05) == (abs(above) > reach * 0.2)


def test_what_is_possible_is_said_where_there_are_no_bounds(
    releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    """About as many are exposed in every arm, and never exactly as many.

    Spend differs by 7 standard errors, so zero is left out.
    """
    number, treated = pl.int_range(pl.len()).over("arm", "market"), pl.col("arm") == "B"
    own = visits.select("user", clicked=(number % 2 == treated.cast(pl.Int64)) | (number == 0))
    own = own.with_columns(pl.col("clicked").cast(pl.Int64))
    options: dict[str, Any] = {"exposure": "clicked", "segments": own}
    p_value = cdp.estimate(releases["joined"], **options)["spend", "B"].p_value
    level = 1 - max(2 * p_value, 1e-9)
    found = cdp.estimate(releases["joined"], level=level, **options)
    effect = found["cace(spend, clicked)", "B"]
    assert effect.ci(level) == (-math.inf, math.inf)
    gap = effect.ci_gap(level)
    assert gap is not None
    assert gap[0] < 0 < gap[1]
    assert "outside [" in str(found)
    assert "B: an effect on cace(spend, clicked) (" in " ".join(effect_sentences(found))
    assert effect.to_dict(level)["ci_gap_low"] == gap[0]
    said = f"of B can have any value outside {gap[0]:.4g} to {gap[1]:.4g}"
    assert any(said in note for note in found.notes)
    assert any("Weak instrument: B (F < 10)" in note for note in found.notes)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_products_are_told_or_bounded(epsilon: float) -> None:
    """The mean of what responses tell, by enumeration of categories."""
    space = Categories(declared=declare({"clicked": "0,1", "spend": "-1,1,4"}))
    exposure, spend = (CategoryFunction.declared(str(place), space, place) for place in (0, 1))
    channel = cdp.optimal(epsilon=epsilon).settled_rows(space).public_channel(space)
    product, transition = spend.values * exposure.values, channel.transition()[0]
    for tilt in (0.0, 2.0, -2.0):
        prior = np.exp(tilt * (exposure.values + spend.values / 4))
        products = product_bounds(spend, exposure, channel, (prior / prior.sum())[np.newaxis])
        least, most = (one[0] @ transition for one in products)
        assert (least <= product + 1e-9).all()
        assert (most >= product - 1e-9).all()
        assert (least < product - 1e-3).any() == (products[0] is not products[1])
    told = np.linalg.matrix_rank(transition, tol=1e-9) == space.n_categories
    assert (products[0] is products[1]) == told


@pytest.mark.parametrize("product", [None, "clicked*spend"])
def test_a_covariance_that_rows_do_not_tell_is_noted(
    product: str | None, rng: np.random.Generator
) -> None:
    options: dict[str, Any] = {"outcomes": BOTH, "mechanism": cdp.optimal(epsilon=0.5)}
    release = cdp.release(some_table(rng, 600), **ARMS, **options, metric=product)
    found = cdp.estimate(release, exposure="clicked", metrics="spend")
    said = any("not identify the covariance of spend and clicked" in one for one in found.method)
    assert said == (product is None)


def test_groups_that_were_assigned_are_compared(rng: np.random.Generator) -> None:
    """The variance of N̂ − r·D̂ is that of how groups differ in y − r·e.

    At most two fifths of each school of A are exposed and three fifths or more of B: never alike.
    """
    n_units, n_groups = 3000, 40
    place, school = np.divmod(np.arange(n_units), n_groups)
    by_chance = rng.random(n_units) < 0.5
    clicked = np.where(school % 2, by_chance | (place % 5 < 3), by_chance & (place % 5 < 2))
    table = some_table(rng, n_units).with_columns(
        arm=pl.Series(np.array(["A", "B"])[school % 2]),
        school=pl.Series(school),
        clicked=pl.Series(clicked.astype(np.int64)),
    )
    parts: dict[str, Any] = {
        "unit": "user",
        "arm": "arm",
        "control": "A",
        "randomization_unit": "school",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cdp.OwnerNotice)  # schools are no order of outcomes
        release = cdp.release(
            table,
            **parts,
            outcomes={"spend": "0..3"},
            passthrough="clicked",
            mechanism=cdp.optimal(epsilon=6),
        )
    found = cdp.estimate(release, exposure="clicked")["cace(spend, clicked)"]
    assert isinstance(found.interval, ExposedEffect)
    total, rows = found.interval.total, release.units
    for tried in (-1.0, 0.0, 2.0):
        expected = 0.0
        for arm in ("A", "B"):
            of_arm = rows.filter(pl.col("arm") == arm)
            debiased = pl.col("spend_debiased") - tried * pl.col("clicked")
            groups = of_arm.group_by("school").agg(
                debiased.sum() / len(of_arm), n=pl.len() / len(of_arm)
            )
            expected += group_scores(
                groups["n"].to_numpy(), groups["spend_debiased"].to_numpy()
            ).variance
        assert total.of_difference(tried) == pytest.approx(expected)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such column": (
        {"exposure": "opened"},
        "no outcome or column 'opened' .* Available: spend, clicked, tier",
    ),
    "no name": ({"exposure": ["clicked"]}, "exposure must be the name"),
    "three values": ({"exposure": "spend"}, "'spend' was declared as 0..3"),
    "an arm": ({"exposure": "arm"}, "no outcome or column 'arm'"),
    "text": (
        {"exposure": "tier"},
        "for every released unit, and its type is String",
    ),
    "cut by it": ({"exposure": "clicked", "by": "clicked"}, "leave it out of by and adjust"),
    "adjusted for it": ({"exposure": "clicked", "adjust": "clicked"}, "leave it out of by"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_exposure_is_refused(case: str, releases: dict[str, cdp.Release]) -> None:
    options, match = REFUSED[case]
    with pytest.raises((cdp.ParameterError, cdp.DataError), match=match):
        cdp.estimate(releases["kept"], **options)


COLUMNS: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "missing": (lambda own: own.head(-2), "is missing for 2. Fix: set it to 0"),
    "null": (
        lambda own: own.with_columns(clicked=pl.when(pl.col("user") > 0).then("clicked")),
        "is missing for 1.",
    ),
    "other values": (lambda own: own.with_columns(clicked=2 * pl.col("clicked")), "other values"),
    "not a number": (
        lambda own: own.with_columns(clicked=pl.col("clicked").cast(float).log()),
        "other values",
    ),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_a_column_that_is_not_0_or_1_is_refused(
    case: str, releases: dict[str, cdp.Release], visits: pl.DataFrame
) -> None:
    change, match = COLUMNS[case]
    own = change(visits.select("user", "clicked"))
    with pytest.raises(cdp.DataError, match=match):
        cdp.estimate(releases["joined"], exposure="clicked", segments=own)


def test_an_exposure_has_one_source(releases: dict[str, cdp.Release], visits: pl.DataFrame) -> None:
    own = visits.select("user", "clicked")
    with pytest.raises(cdp.ParameterError, match="outcome of the release and a column"):
        cdp.estimate(releases["same question"], exposure="clicked", segments=own)


def test_an_exposure_made_of_responses_is_refused(releases: dict[str, cdp.Release]) -> None:
    units = releases["joined"].units
    own = units.select("user", made=(pl.col("spend_debiased") > 1).cast(pl.Int64))
    with pytest.raises(cdp.DataError, match="'made' appears to be derived"):
        cdp.estimate(releases["joined"], exposure="made", segments=own)


def test_an_exposure_that_may_be_missing_is_refused(visits: pl.DataFrame) -> None:
    options: dict[str, Any] = {"outcomes": BOTH, "missing": ["clicked"], "epsilon": 5}
    release = cdp.release(visits.head(600), **ARMS, mechanism="uniform-prior-dp", **options)
    with pytest.raises(cdp.ParameterError, match="'clicked' may be missing"):
        cdp.estimate(release, exposure="clicked")


def test_a_release_without_rows_has_no_exposed(visits: pl.DataFrame) -> None:
    release = cdp.release(
        visits, **ARMS, outcomes={"spend": "0..3"}, mechanism=cdp.noisy_histogram(noise_scale=2)
    )
    with pytest.raises(cdp.ParameterError, match="publishes no rows, only"):
        cdp.estimate(release, exposure="clicked")


def test_the_command_line_has_it(visits: pl.DataFrame, tmp_path: Path) -> None:
    folder, own = tmp_path / "published", tmp_path / "own.csv"
    cdp.publish(visits, out=folder, **ARMS, **RELEASES["joined"])
    visits.select("user", "clicked").write_csv(own)
    command = ["estimate", str(folder), "--exposure", "clicked", "--segments", str(own), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    metrics = ["spend", "cace(spend, clicked)", "clicked"]
    assert json.loads(done.stdout)["metrics"] == metrics
    same = cdp.estimate(folder, exposure="clicked", segments=visits.select("user", "clicked"))
    assert list(same.metrics) == metrics
