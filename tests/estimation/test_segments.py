from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from categories import one_outcome
from clusterdp.estimation.reading import rows as joining

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

SPACE = cdp.OutcomeSpace.integers(0, 3)
PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"clicks": SPACE},
}
MECHANISM = cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.3)


@pytest.fixture
def segments(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """What an analyst knows: a tier, a region and earlier clicks, in another order.

    Sizes are not left to chance. Gold has one unit in each cell of markets 3 and 4, which must be
    pooled with others; crossed with a region, all of gold is pooled.
    """
    market = table["market"].to_numpy()
    nth_of_cell = np.arange(len(table)) // 10
    gold = np.where(market < 3, nth_of_cell % 10 < 3, nth_of_cell < 2)
    return pl.DataFrame(
        {
            "user": table["user"],
            "tier": np.where(gold, "gold", "silver"),
            "region": nth_of_cell % 2 + 1,
            "before": table["clicks"] + rng.normal(size=len(table)),
        }
    ).sample(fraction=1.0, shuffle=True)


@pytest.fixture
def release(table: pl.DataFrame) -> cdp.Release:
    return cdp.release(table, mechanism=MECHANISM, **PARTS)


def chosen_pool(rows: pd.DataFrame, whole: pd.DataFrame) -> set[int]:
    """The markets to be pooled: by scipy's hypergeometric distribution, market by market."""
    expected, small = {}, set()
    for market, part in rows.groupby("market"):
        everyone = whole[whole["market"] == market]
        sizes = [int((everyone["treated"] == arm).sum()) for arm in (0, 1)]
        counts = [int((part["treated"] == arm).sum()) for arm in (0, 1)]
        expected[market] = np.array([len(part) * size / len(everyone) for size in sizes])
        chances = [stats.hypergeom(len(everyone), size, len(part)).cdf(1) for size in sizes]
        if max(chances) > 5e-4 or min(counts) < 2:
            small.add(market)
    pool = set(small)
    for market in sorted(expected, key=lambda one: expected[one].min()):
        if pool and np.sum([expected[one] for one in pool], axis=0).min() < 10:
            pool.add(market)
    return pool


def by_hand(rows: pd.DataFrame, whole: pd.DataFrame) -> tuple[float, float, int]:
    """Effect and variance row by row: Neyman's in strata, by the inverse of shares in the pool."""
    pool = chosen_pool(rows, whole)
    effect = variance = 0.0
    for _, part in rows[~rows["market"].isin(pool)].groupby("market"):
        arms = [part.loc[part["treated"] == arm, "clicks_debiased"] for arm in (0, 1)]
        weight = len(part) / len(rows)
        effect += weight * (arms[1].mean() - arms[0].mean())
        variance += weight**2 * sum(arm.var() / len(arm) for arm in arms)
    pooled = rows[rows["market"].isin(pool)]
    for arm in (0, 1) if len(pooled) else ():
        weights, outcomes, cells = [], [], []
        for market, part in pooled.groupby("market"):
            n_all = int((whole["market"] == market).sum())
            n_arm = int(((whole["market"] == market) & (whole["treated"] == arm)).sum())
            inverse = n_all / n_arm
            inverse *= 1 + (inverse - 1) * (n_all - len(part)) / (n_all - 1) / len(pooled)
            mine = part.loc[part["treated"] == arm, "clicks_debiased"]
            weights += [inverse] * len(mine)
            outcomes += list(mine)
            cells += [(market, n_arm)] * len(mine)
        scaled = np.array(weights) / sum(weights)
        mean = float(scaled @ np.array(outcomes))
        weight = len(pooled) / len(rows)
        effect += (2 * arm - 1) * weight * mean
        factor = 1 / (1 - 2 * (scaled**3).sum() / (scaled**2).sum() + (scaled**2).sum())
        influence = scaled * (np.array(outcomes) - mean)
        for cell in set(cells):
            inside = [value for value, one in zip(influence, cells, strict=True) if one == cell]
            padded = np.array(inside + [0.0] * (cell[1] - len(inside)))
            variance += weight**2 * factor * len(padded) * padded.var(ddof=1)
    return effect, variance, len(rows)


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_segments_by_hand(library: str, release: cdp.Release, segments: pl.DataFrame) -> None:
    theirs = {"polars": segments, "pandas": segments.to_pandas(), "pyarrow": segments.to_arrow()}
    estimate = cdp.estimate(
        release, segments=theirs[library], by=["tier", "tier,region"], use="rows"
    )
    joined = release.units.join(segments, on="user").to_pandas()
    labels = [effect.of.label for effect in estimate.effects]
    assert labels == [
        "overall",
        "tier=gold",
        "tier=silver",
        "tier=gold, region=1",
        "tier=gold, region=2",
        "tier=silver, region=1",
        "tier=silver, region=2",
    ]
    for effect in estimate.effects[1:]:
        chosen = joined
        for name, value in effect.of.segment:
            chosen = chosen[chosen[name] == value]
        expected, variance, n_rows = by_hand(chosen, joined)
        assert effect.effect == pytest.approx(expected)
        # By chance rows can vary less than their noise does; the noise is left then.
        assert effect.std_error**2 == pytest.approx(max(variance, effect.privacy_variance))
        assert effect.n_treated + effect.n_control == n_rows


@pytest.mark.parametrize("text_ids", [False, True], ids=["integers", "text"])
def test_large_tables_are_joined_in_parts(
    text_ids: bool, table: pl.DataFrame, segments: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effects are the same bit for bit, also of a lazy frame with columns that are not used."""
    far_apart = pl.col("user") * 10**15
    ids = far_apart.cast(pl.String) if text_ids else far_apart
    table, segments = (one.with_columns(ids) for one in (table, segments))
    release = cdp.release(table, mechanism=MECHANISM, **PARTS)
    segments = segments.head(len(segments) - 20)  # some units are in no part of the table
    asked: dict[str, Any] = {
        "by": ["tier", "region"],
        "adjust": ["before", "tier"],
        "differences": "pairs",
    }
    whole = cdp.estimate(release, segments=segments, **asked)
    monkeypatch.setattr(joining, "_IDS_TOGETHER", 37)
    assert cdp.estimate(release, segments=segments, **asked).to_dict() == whole.to_dict()
    lazy = segments.with_columns(unused=pl.lit("x")).lazy()
    assert cdp.estimate(release, segments=lazy, **asked).to_dict() == whole.to_dict()


def test_lazy_tables_that_cannot_be_read_are_refused(release: cdp.Release) -> None:
    broken = pl.LazyFrame({"user": ["1"], "tier": ["secret"]}).with_columns(
        pl.col("tier").cast(pl.Int64)
    )
    with pytest.raises(cdp.DataError, match="segments cannot be read") as caught:
        cdp.estimate(release, segments=broken, by=["tier"])
    assert "secret" not in str(caught.value)


def test_a_segment_without_an_arm_is_listed(release: cdp.Release, table: pl.DataFrame) -> None:
    one_sided = table.select("user", vip=(pl.col("treated") == 1) & (pl.col("user") < 50))
    estimate = cdp.estimate(release, segments=one_sided, by=["vip"])
    (vip,) = [effect for effect in estimate.effects if effect.of.segment == (("vip", True),)]
    assert math.isnan(vip.effect)
    assert vip.n_control == 0
    assert any("vip=True: not reported: no units in arm 0" in note for note in estimate.notes)
    assert "vip=True" in str(estimate)


def test_an_arm_of_one_unit_is_listed_without_numbers(
    release: cdp.Release, table: pl.DataFrame
) -> None:
    """Also where the other units of the segment are many."""
    first = table.filter(pl.col("treated") == 1)["user"][0]
    lone = table.select("user", vip=(pl.col("treated") == 0) | (pl.col("user") == first))
    for estimator in ("stratified", "unstratified"):
        estimate = cdp.estimate(release, segments=lone, by=["vip"], estimator=estimator)
        (vip,) = [effect for effect in estimate.effects if effect.of.segment == (("vip", True),)]
        assert math.isnan(vip.effect)
        assert math.isnan(vip.std_error)
        assert vip.treated_mean is None
        assert vip.lift() is None
        assert any("not reported: only one unit in arm 1" in note for note in estimate.notes)


def test_more_covariates_than_rows_give_no_interval(
    release: cdp.Release, table: pl.DataFrame, rng: np.random.Generator
) -> None:
    """A regression that fits every row has no residuals, and so no standard error."""
    names = [f"x{index}" for index in range(8)]
    few = table.with_columns(pl.col("market").cum_count().over("treated").alias("nth"))
    theirs = few.select("user", vip=pl.col("nth") <= 6).with_columns(
        pl.Series(name, rng.normal(size=len(few))) for name in names
    )
    estimate = cdp.estimate(release, segments=theirs, by=["vip"], adjust=names)
    (vip,) = [
        effect
        for effect in estimate.effects
        if effect.of.adjusted and effect.of.segment == (("vip", True),)
    ]
    assert math.isnan(vip.std_error)


def test_units_without_a_segment_count_overall(
    release: cdp.Release, segments: pl.DataFrame
) -> None:
    estimate = cdp.estimate(release, segments=segments.head(500), by=["tier"])
    assert any(note.startswith("100 of 600 released ids") for note in estimate.notes)
    assert sum(effect.n_treated + effect.n_control for effect in estimate.effects[1:]) == 500


def test_ids_and_values_that_are_missing_are_counted(
    release: cdp.Release, segments: pl.DataFrame
) -> None:
    gaps = segments.with_columns(
        tier=pl.when(pl.int_range(pl.len()) < 30).then(None).otherwise("tier")
    )
    strangers = pl.DataFrame({"user": [10**6, 10**6 + 1]}, schema={"user": segments.schema["user"]})
    theirs = pl.concat([gaps.head(500), strangers], how="diagonal")
    found = cdp.estimate(release, segments=theirs, by=["tier", "tier,region"])
    lacking = "100 of 600 released ids are not in the segments table"
    assert found.notes[:3] == (
        f"{lacking}. They count overall and in no segment.",
        "2 of 502 ids of the segments table are not in the release.",
        "30 ids of the segments table have no tier. They are in no segment by tier.",
    )


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_categories_keep_their_order(
    library: str, release: cdp.Release, table: pl.DataFrame
) -> None:
    names = ["small", "large", "huge"]
    sizes = table.select(
        "user",
        size=pl.Series(np.array(names)[table["user"] % 3], dtype=pl.Enum(names)),
        age=table["user"] % 11,
    )
    theirs: Any = sizes
    if library == "pandas":
        theirs = sizes.to_pandas()
        theirs["size"] = theirs["size"].astype(str).astype("category")
        theirs["size"] = theirs["size"].cat.reorder_categories(names, ordered=True)
    found = cdp.estimate(release, segments=theirs, by=["size", "age"])
    assert [dict(one.of.segment).get("size") for one in found.effects[1:4]] == names
    assert [dict(one.of.segment)["age"] for one in found.effects[4:]] == list(range(11))


def test_segment_columns_are_columns(release: cdp.Release, segments: pl.DataFrame) -> None:
    """Under their own names; one that is ours is told apart."""
    theirs = segments.rename({"region": "effect"})
    rows = cdp.estimate(release, segments=theirs, by=["tier", "tier,effect"]).to_polars()
    assert rows["tier"].to_list() == [None, "gold", "silver", *["gold"] * 2, *["silver"] * 2]
    assert rows["segment_effect"].to_list() == [None, None, None, 1, 2, 1, 2]
    assert rows["effect"].dtype == pl.Float64
    assert rows["segment"][3] == "tier=gold, effect=1"


def test_notes_on_many_segments_are_gathered(release: cdp.Release, table: pl.DataFrame) -> None:
    many = table.select("user", place=pl.col("user") % 20)
    found = cdp.estimate(release, segments=many, by="place")
    pooled = [note for note in found.method if "are pooled" in note]
    assert len(pooled) == 1
    assert pooled[0].startswith("20 segments: clusters with few units")


def test_absurd_cuts_are_refused(release: cdp.Release) -> None:
    """With the number of segments, and where they come from."""
    users = release.units["user"]
    theirs = pl.DataFrame({"user": users, "a": users % 40, "b": users % 37, "c": users + 1})
    message = r"by makes 1,200 segments, 600 of them by a,b \(a has 40 values, b has 37 values\)"
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.estimate(release, segments=theirs, by=["a,b", "c"])
    with pytest.raises(cdp.ParameterError, match=r'makes 1,446 pairs .* use differences="rest"'):
        cdp.estimate(release, segments=theirs, by=["a", "b"], differences="pairs")


def test_cutting_by_kept_columns_and_clusters(table: pl.DataFrame) -> None:
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.spec.columns import Columns
    from clusterdp.statistics.noise import add_exact_noise
    from runs import run_release

    release = run_release(
        table.with_columns(big=pl.col("user") > 300),
        mechanism=MECHANISM,
        space=one_outcome("clicks", SPACE),
        columns=Columns(
            unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("big",)
        ),
        control=None,
        clip=False,
        key=ReleaseKey.from_system(),
        add_noise=add_exact_noise,
    )
    estimate = cdp.estimate(release, by=["big", "market"])
    assert [effect.of.label for effect in estimate.effects[:3]] == [
        "overall",
        "big=False",
        "big=True",
    ]
    assert len(estimate.effects) == 1 + 2 + 5


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            lambda s: pl.concat([s, s.head(1).with_columns(tier=pl.lit("other"))]),
            {"by": ["tier"]},
            "duplicate ids with different values",
        ),
        (lambda s: s.rename({"user": "id"}), {"by": ["tier"]}, "no column 'user'"),
        (lambda s: s.with_columns(pl.col("user").cast(str)), {"by": ["tier"]}, "convert one"),
        (lambda s: s.rename({"tier": "market"}), {"by": ["market"]}, "both have a column 'market'"),
        (lambda s: s, {"by": ["colour"]}, "No column 'colour' to segment by"),
        (lambda s: s, {"by": ["treated"]}, "No column 'treated' to segment by"),
        (lambda s: s, {"adjust": ["colour"]}, "no such column"),
    ],
)
def test_segments_that_do_not_fit(
    change: Any,
    options: dict[str, Any],
    message: str,
    release: cdp.Release,
    segments: pl.DataFrame,
) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message):
        cdp.estimate(release, segments=change(segments), **options)


EMPTY = pl.Series("user", [None, None], pl.Int64)
FORMS: dict[str, tuple[Any, str | None]] = {
    "unused columns of ours": (
        lambda s: s.with_columns(fold=0, segment=1, market=2, clicks_debiased=3.0),
        None,
    ),
    "rows without an id": (
        lambda s: pl.concat([s, s.head(2).with_columns(EMPTY)]),
        "2 rows of the segments table without an id: ignored.",
    ),
    "rows twice": (
        lambda s: pl.concat([s, s.head(3)]),
        "3 duplicate rows of the segments table: ignored.",
    ),
    "float ids": (lambda s: s.with_columns(pl.col("user").cast(pl.Float64)), None),
    "float ids, some missing": (
        lambda s: pl.concat([s, s.head(1).with_columns(EMPTY.head(1))]).to_pandas(),
        "1 row of the segments table without an id: ignored.",
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_tables_as_analysts_have_them(
    form: tuple[Any, str | None], release: cdp.Release, segments: pl.DataFrame
) -> None:
    change, note = form
    ours = cdp.estimate(release, segments=segments, by="tier")
    theirs = cdp.estimate(release, segments=change(segments), by="tier")
    assert [str(one) for one in theirs.effects] == [str(one) for one in ours.effects]
    assert {*theirs.notes} - {*ours.notes} == {*([note] if note else [])}


@pytest.mark.parametrize("kind", ["cut", "qcut", "intervals", "integers"])
def test_bins_of_pandas_are_in_their_order(
    kind: str, release: cdp.Release, segments: pl.DataFrame
) -> None:
    import pandas as pd

    frame = segments.to_pandas()
    edges = [-20.0, 0.5, 1.5, 20.0]
    numbers = pd.cut(frame["before"], edges, labels=[10, 9, 100])
    made = {
        "cut": pd.cut(frame["before"], edges),
        "qcut": pd.qcut(frame["before"], 3),
        "intervals": pd.Series(pd.cut(frame["before"], edges).astype("interval")),
        "integers": numbers,
    }[kind]
    found = cdp.estimate(release, segments=frame.assign(level=made), by="level")
    expected = sorted(made.unique().dropna()) if kind == "intervals" else made.cat.categories
    assert [one.of.label for one in found.effects[1:]] == [f"level={one}" for one in expected]


def test_a_table_by_its_path(release: cdp.Release, segments: pl.DataFrame, tmp_path: Path) -> None:
    segments.write_csv(tmp_path / "crm.csv")
    ours = cdp.estimate(release, segments=segments, by="tier")
    for path in (tmp_path / "crm.csv", str(tmp_path / "crm.csv")):
        theirs = cdp.estimate(release, segments=path, by="tier")
        assert theirs.effects == ours.effects
        assert "segments='crm.csv'" in theirs.origin.made_by
    # As pandas writes ids that became floats: 7.0, and nothing where one is missing.
    floats = pl.concat([segments, segments.head(1).with_columns(EMPTY.head(1))])
    floats.with_columns(pl.col("user").cast(pl.Float64)).write_csv(tmp_path / "floats.csv")
    theirs = cdp.estimate(release, segments=tmp_path / "floats.csv", by="tier")
    assert theirs.effects == ours.effects
    assert "1 row of the segments table without an id: ignored." in theirs.notes
    with pytest.raises(cdp.ClusterDPError, match=r"other\.csv"):
        cdp.estimate(release, segments=str(tmp_path / "other.csv"), by="tier")


def test_two_segments_are_one_question(release: cdp.Release, segments: pl.DataFrame) -> None:
    """The second one against the rest is the first one against the rest, turned around."""
    found = cdp.estimate(release, segments=segments, by=["tier"], differences="rest")
    (only,) = (one for one in found.effects if one.of.against is not None)
    assert (only.of.label, only.family_size) == ("tier=gold vs rest", 1)
    assert only.holm_p_value == pytest.approx(only.p_value)
    gold, silver = found["tier=gold"], found["tier=silver"]
    assert only.effect == pytest.approx(gold.effect - silver.effect)
    several = cdp.estimate(release, by=["market"], differences="rest").effects
    assert sum(one.of.against is not None for one in several) == 5


def test_the_join_may_use_another_name(release: cdp.Release, segments: pl.DataFrame) -> None:
    renamed = segments.rename({"user": "id"})
    ours = cdp.estimate(release, segments=segments, by="tier")
    theirs = cdp.estimate(release, segments=renamed, on="id", by="tier")
    assert str(ours) == str(theirs)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (lambda users: users.cast(pl.Float64) + 0.1, "convert one"),
        (lambda users: users.cast(pl.Int64) + 2**40, "no id in common"),
    ],
    ids=["float ids", "ids too large"],
)
def test_ids_that_cannot_match(
    ids: Any, message: str, table: pl.DataFrame, segments: pl.DataFrame
) -> None:
    narrow = table.with_columns(pl.col("user").cast(pl.Int16))
    release = cdp.release(narrow, mechanism=MECHANISM, **PARTS)
    theirs = segments.with_columns(ids(segments["user"]).alias("user"))
    with pytest.raises(cdp.DataError, match=message):
        cdp.estimate(release, segments=theirs, by=["tier"])


def test_unstratified_segments_are_plain_differences(
    release: cdp.Release, segments: pl.DataFrame
) -> None:
    estimate = cdp.estimate(
        release, segments=segments, by=["tier"], estimator="unstratified", use="rows"
    )
    gold = release.units.join(segments.filter(pl.col("tier") == "gold"), on="user")
    means = dict(gold.group_by("treated").agg(pl.col("clicks_debiased").mean()).iter_rows())
    assert estimate.effects[1].effect == pytest.approx(means[1] - means[0])


def test_an_empty_arm_does_not_void_the_others(table: pl.DataFrame) -> None:
    three = table.with_columns(treated=pl.int_range(pl.len()) % 3)
    release = cdp.release(three, mechanism=MECHANISM, control=0, **PARTS)
    vip = three.select("user", vip=pl.col("treated") < 2)
    effects = [
        effect
        for effect in cdp.estimate(release, segments=vip, by=["vip"]).effects
        if effect.of.segment == (("vip", True),)
    ]
    assert [math.isnan(effect.effect) for effect in effects] == [False, True]


def test_aggregates_cannot_be_cut(table: pl.DataFrame, segments: pl.DataFrame) -> None:
    release = cdp.release(table, mechanism=cdp.noisy_histogram(epsilon=1), **PARTS)
    with pytest.raises(cdp.ParameterError, match="publishes no rows"):
        cdp.estimate(release, segments=segments, by=["tier"])


def test_sample_ratio_mismatch_is_reported(table: pl.DataFrame) -> None:
    uneven = table.filter((pl.col("treated") == 1) | (pl.int_range(pl.len()) % 4 == 0))
    estimate = cdp.estimate(cdp.release(uneven, mechanism=MECHANISM, **PARTS))
    assert any("If that was not planned" in note for note in estimate.notes)
    assert not any("sample-ratio" in warning for warning in estimate.warnings)
    n_control = uneven.filter(pl.col("treated") == 0).height
    shares = {"0": n_control / len(uneven), "1": 1 - n_control / len(uneven)}
    release = cdp.release(uneven, mechanism=MECHANISM, **PARTS)
    assert not cdp.estimate(release, shares=shares).warnings
    with pytest.raises(cdp.ParameterError, match="shares must have"):
        cdp.estimate(release, shares={"0": 1})


def test_a_cluster_with_another_ratio_is_reported(table: pl.DataFrame) -> None:
    skewed = table.filter(
        (pl.col("market") > 0) | (pl.col("treated") == 1) | (pl.int_range(pl.len()) < 100)
    )
    estimate = cdp.estimate(cdp.release(skewed, mechanism=MECHANISM, **PARTS))
    assert any("within 1 of 5 clusters: 0." in warning for warning in estimate.notes)


def test_differences_are_effects_of_their_own(release: cdp.Release, segments: pl.DataFrame) -> None:
    found = cdp.estimate(release, segments=segments, by=["tier", "region"], differences="rest")
    gold, silver = found["tier=gold"], found["tier=silver"]
    difference = found["tier=gold vs rest"]
    assert difference.effect == pytest.approx(gold.effect - silver.effect)
    assert [test.by for test in found.tests] == [("tier",), ("region",)]
    two = found.tests[1]  # of two segments with many units: the square of their difference
    apart = found["region=1 vs rest"]
    assert two.statistic == pytest.approx((apart.effect / apart.std_error) ** 2)
    assert two.p_value == pytest.approx(apart.p_value, rel=0.2)
    assert "Heterogeneity test, clicks by region" in str(found)
    assert found.to_dict()["heterogeneity_tests"][1]["p_value"] == two.p_value
    assert found.to_polars()["against"].to_list().count("rest") == 2
    with pytest.raises(cdp.ParameterError, match="--by"):
        cdp.estimate(release, differences="rest")


def test_clusters_without_an_arm_are_left_out(table: pl.DataFrame) -> None:
    """Units of the first market have one arm; what they say of effects is nothing."""
    one_arm = (pl.col("market") != 0) | (pl.col("treated") == 1)
    release = cdp.release(table.filter(one_arm), mechanism=MECHANISM, **PARTS)
    found = cdp.estimate(release)
    n_left = table.filter(one_arm & (pl.col("market") == 0)).height
    assert any(f"Their {n_left:,} units are left out" in note for note in found.notes)
    assert (
        found.effects[0].n_treated
        == table.filter(pl.col("treated") == 1, pl.col("market") != 0).height
    )
