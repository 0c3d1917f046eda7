"""The analyst's half in Python: paths, selection, tables, figures, arguments of a wrong type."""

from __future__ import annotations

import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import clusterdp as cdp

PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "market",
    "outcomes": {"clicks": cdp.OutcomeSpace.integers(0, 3)},
    "control": "A",
}


@pytest.fixture
def three_arms(table: pl.DataFrame) -> pl.DataFrame:
    arms = pl.Series("arm", list("ABC") * 200)
    return table.with_columns(arms, tier=pl.col("user") % 2, region=pl.col("user") % 3)


@pytest.fixture
def estimate(three_arms: pl.DataFrame) -> cdp.Estimate:
    release = cdp.release(three_arms, mechanism=cdp.optimal(epsilon=2), **PARTS)
    segments = three_arms.select("user", "tier", "region")
    return cdp.estimate(release, segments=segments, by=["tier", "region", "tier,region"])


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_read(kind: Any, published: Path) -> None:
    by_path = cdp.estimate(kind(published))
    assert by_path.to_dict() == cdp.estimate(cdp.read_release(published)).to_dict()


def test_effects_are_selected_by_arm_and_segment(estimate: cdp.Estimate) -> None:
    assert estimate["B"].of.label == "overall"
    assert estimate["C", "overall"] == estimate["C"]
    chosen = estimate["B", "tier=1, region=2"]
    assert (chosen.of.arm, chosen.of.segment) == ("B", (("tier", 1), ("region", 2)))
    assert {id(estimate[one.of.arm, one.of.label]) for one in estimate.effects} == {
        id(one) for one in estimate.effects
    }


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "tier=9",
            (
                "no effect of 'tier=9'; the metrics are 'clicks'; the arms are 'B', 'C'; the "
                "segments are 'overall', 'tier=0'"
            ),
        ),
        (("A", "tier=0"), "the arms are 'B', 'C'"),
        (3, "no effect of 3"),
        ("tier=0", r"several arms \('B', 'C'\); name one too: estimate\['tier=0', 'B'\]"),
    ],
)
def test_unknown_keys_say_what_there_is(key: Any, message: str, estimate: cdp.Estimate) -> None:
    with pytest.raises(KeyError, match=message):
        _ = estimate[key]


def test_one_treatment_needs_no_arm(published: Path) -> None:
    estimate = cdp.estimate(published, by="market", adjust="secret")
    assert estimate["market=3"].of.segment == (("market", 3),)
    assert estimate["overall (adjusted)"].of.adjusted
    assert estimate["market=3 (adjusted)"] == estimate[1, "market=3 (adjusted)"]


def test_tables_hold_every_effect(estimate: cdp.Estimate) -> None:
    ours = estimate.to_polars()
    assert ours["segment"].to_list() == [effect.of.label for effect in estimate.effects]
    assert ours["effect"].to_list() == [effect.effect for effect in estimate.effects]
    assert_frame_equal(pl.from_pandas(estimate.to_pandas()), ours, check_dtypes=False)


def test_a_plot_is_a_figure_and_a_file(estimate: cdp.Estimate, tmp_path: Path) -> None:
    figure = estimate.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:3] == ["overall · B", "overall · C", "tier=0 · B"]
    estimate.plot(str(tmp_path / "forest.svg"))
    assert "tier=0 · B" in (tmp_path / "forest.svg").read_text()
    with pytest.raises(cdp.ParameterError, match=r"\.svg, \.png or \.pdf"):
        estimate.plot(tmp_path / "forest.txt")


def test_text_and_html_hold_the_same_table(estimate: cdp.Estimate) -> None:
    page = unescape(estimate._repr_html_())
    tables = [line for line in repr(estimate).splitlines() if line.startswith("  ")]
    assert len(tables) > len(estimate.effects)
    for line in tables:
        for number in re.findall(r"[-+]?\d[\d,.]+", line[: line.find("   ", 30)]):
            assert number in page


@pytest.mark.parametrize("mechanism", [cdp.optimal(epsilon=2), cdp.noisy_histogram(epsilon=2)])
def test_a_release_describes_itself(mechanism: cdp.Mechanism, three_arms: pl.DataFrame) -> None:
    release = cdp.release(three_arms, mechanism=mechanism, **PARTS)
    text, page = " ".join(repr(release).split()), unescape(release._repr_html_())
    words = ["600", "A (control), B, C", "0..3", "estimate(release)"]
    words += [mechanism.name, release.guarantee.statement().plain]
    words += ["market (cluster)"] if mechanism.releases_rows else ["noisy statistics of cells only"]
    assert all(word in text and word in page for word in words)


def test_html_of_a_release_escapes_labels(three_arms: pl.DataFrame) -> None:
    marked = three_arms.with_columns(
        arm=pl.col("arm").replace_strict({"A": "A", "B": "<b>", "C": "&"})
    )
    page = cdp.release(marked, mechanism=cdp.optimal(epsilon=2), **PARTS)._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": 3}, "release must be a Release or the path of a published folder, got int"),
        ({"by": 3}, "by must be a column or a list of columns, got 3"),
        ({"by": ["tier", 3]}, "by must be a column or a list of columns, got 3"),
        ({"adjust": None}, "adjust must be a column or a list of columns, got None"),
        ({"adjust": [1]}, "adjust must be a column"),
        ({"shares": [0.5, 0.5]}, "shares must have a number above 0 for every arm"),
        ({"shares": {0: 1, 1: "1"}}, "shares must have a number above 0 for every arm"),
        ({"shares": {0: 1, 1: math.nan}}, "shares must have a number above 0 for every arm"),
        ({"level": "95"}, "level must lie between 0 and 1, as 0.95 does; got '95'"),
        ({"level": None}, "level must lie between"),
        ({"segments": 5, "by": "tier"}, "segments must be a pandas, Polars, .* table, got int"),
        ({"segments": pl.DataFrame(), "on": 3}, "on must be the name of a column, got 3"),
        ({"use": "all"}, 'use must be "everything" or "rows"'),
        ({"estimator": ["stratified"]}, 'estimator must be "stratified" or "unstratified"'),
        ({"control": []}, r"control \[\] is not an arm"),
    ],
)
def test_arguments_of_a_wrong_type(options: dict[str, Any], message: str, published: Path) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.estimate(**{"release": published, **options})


def test_shares_are_found_by_label_or_its_text(published: Path) -> None:
    given: list[dict[Any, float]] = [{0: 1, 1: 1}, {"0": 0.5, "1": 0.5}]
    for shares in given:
        assert not any("SRM" in text for text in cdp.estimate(published, shares=shares).warnings)
    uneven = cdp.estimate(published, shares={0: 1, 1: 3})
    assert any("SRM" in text for text in uneven.warnings)


def test_dimensions_together_are_as_alone(three_arms: pl.DataFrame) -> None:
    release = cdp.release(three_arms, mechanism=cdp.optimal(epsilon=2), **PARTS)
    segments = three_arms.select("user", "tier", "region").filter(pl.col("user") > 50)
    both = cdp.estimate(release, segments=segments, by=["tier", "region"])
    for name in ("tier", "region"):
        alone = cdp.estimate(release, segments=segments, by=name)
        for effect in alone.effects:
            same = both[effect.of.arm, effect.of.label]
            assert (same.effect, same.std_error) == (effect.effect, effect.std_error)
