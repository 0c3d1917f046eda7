"""What estimates say: notes on what is shown, natural sentences, no number where there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp._text import p_text
from clusterdp.document.text import aligned
from clusterdp.estimation.effects.effect import EffectTarget, short_label
from clusterdp.estimation.metrics.observed import ATTRITION_LEVEL, attrition_notes
from clusterdp.estimation.report import sentences
from clusterdp.outcomes.declaration import declare
from reports import effect, estimate_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED: dict[str, Any] = {"unit": "user", "arm": "arm", "cluster": "market", "control": "control"}


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Visits, revenue that is mostly zero, and a score that few give."""
    rng, n_units = np.random.default_rng(5), 4_000
    revenue = np.where(rng.random(n_units) < 0.1, rng.uniform(1, 90, n_units).round(), 0.0)
    score = pl.Series(rng.integers(0, 3, n_units)).cast(pl.Int64)
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": rng.choice(["control", "mens", "womens"], n_units),
            "market": rng.integers(0, 2, n_units),
            "visit": rng.integers(0, 2, n_units),
            "revenue": revenue,
            "score": score,
            "before": rng.normal(size=n_units),
            "tier": rng.choice(["basic", "gold"], n_units),
        }
    ).with_columns(score=pl.when(pl.Series(rng.random(n_units) < 0.8)).then("score"))


@pytest.fixture(scope="module")
def released(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> cdp.Release:
    """A release of customers in three questions."""
    outcomes = {"visit": "0,1", "revenue": "number:0..100", "score": "0..2"}
    published = cdp.publish(
        table,
        out=tmp_path_factory.mktemp("said") / "published",
        outcomes=outcomes,
        missing=["score"],
        question=["visit", "revenue", "score"],
        mechanism="uniform-prior-dp",
        epsilon=4,
        passthrough=["before", "tier"],
        unit_name="customer",
        **SHARED,
    )
    return published.read()


def words(texts: tuple[str, ...]) -> str:
    return " ".join(texts)


def test_notes_are_about_what_is_shown(released: cdp.Release) -> None:
    every = words(cdp.estimate(released).notes)
    for text in (
        "revenue is clipped",
        "score: mean over customers",
    ):
        assert text in every
    visits = cdp.estimate(released, metrics="visit")
    of_visits = words(visits.notes)
    assert "answers one question (visit 28% of customers)." in words(visits.method)
    assert "revenue" not in of_visits
    assert "score" not in of_visits
    ratio = words(cdp.estimate(released, metrics="revenue/visit").notes)
    assert "revenue is clipped" in ratio
    assert "score" not in ratio


def test_a_function_is_of_the_outcomes_it_changes_with(released: cdp.Release) -> None:
    values = {"log": ("revenue", np.log1p)}
    assert "revenue is clipped" in words(cdp.estimate(released, metrics=values).notes)


def test_units_are_called_what_their_owner_calls_them(released: cdp.Release) -> None:
    found = cdp.estimate(released, metrics="visit", by="tier")
    said = repr(found) + repr(cdp.estimate(released, metrics="visit")) + found.to_html()
    assert "customers" in said
    assert "units" not in said.replace("units.parquet", "")


def test_a_threshold_that_rounding_hides_has_no_estimate(released: cdp.Release) -> None:
    """A tenth of customers have revenue, and the grid's first step is far above zero."""
    found = cdp.estimate(released, metrics="revenue>0")
    one = found["mens"]
    assert math.isnan(one.effect)
    assert one.control_mean is None
    assert one.treated_mean is None
    assert one.lift() is None
    assert one.bounds is not None
    low, high = one.ci()
    assert low <= one.bounds[0] <= 0 <= one.bounds[1] <= high
    flat = found.to_rows()[0]
    assert (flat["bounds_low"], flat["bounds_high"]) == one.bounds
    assert math.isnan(flat["effect"])
    (note,) = [one for one in found.notes if "not answerable" in one]
    assert 'metrics = ["revenue > 0"]' in note
    shown, page = repr(found), found.to_html()
    assert "lift" not in shown
    assert "No clear effect" not in shown
    assert "not answerable from this release" in shown
    assert "not answerable from this release" in page
    assert "too few" not in shown + page
    found.plot()
    # The negative control: the mean has an estimate, and so have thresholds that were declared.
    assert cdp.estimate(released, metrics="revenue")["mens"].bounds is None


def test_narrow_bounds_keep_their_estimate(table: pl.DataFrame) -> None:
    declared = {"revenue": "number:0..100"}
    fine = cdp.release(
        table,
        outcomes=declared,
        metric=["revenue>=50"],
        mechanism="uniform-prior-dp",
        epsilon=4,
        **SHARED,
    )
    exact = cdp.estimate(fine, metrics="revenue>=50")["mens"]
    assert exact.bounds is None
    assert not math.isnan(exact.effect)


def test_a_heterogeneity_test_is_of_the_effects_to_report(released: cdp.Release) -> None:
    options: dict[str, Any] = {"metrics": "visit", "by": "tier", "differences": "rest"}
    adjusted = cdp.estimate(released, adjust="before", **options)
    assert len(adjusted.tests) == 4  # plain and adjusted, of two arms
    said = sentences.heterogeneity_sentences(adjusted)
    assert len(said) == 2
    assert all("(adjusted)" in one for one in said)
    plain = sentences.heterogeneity_sentences(cdp.estimate(released, **options))
    assert len(plain) == 2


def several(*sizes: float) -> Iterator[cdp.Effect]:
    """Effects of arms of one metric, in standard errors."""
    for place, size in enumerate(sizes):
        of = EffectTarget(f"m{place // 2}", "BC"[place % 2], "A")
        yield effect(size, 1.0, of)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((0.1, 0.2), "No clear effect."),
        ((0.1,) * 8, "No clear effect."),
        ((9, 0.1), "No clear effect on m0 (C)."),
        ((9, 0.1, 0.2, 9), "No clear effect on m0 (C) or m1 (B)."),
        ((9, *(0.1,) * 7), "No clear effect on the others."),
    ],
)
def test_no_clear_effect_is_said_in_words(sizes: tuple[float, ...], said: str) -> None:
    assert sentences.significance(estimate_of(*several(*sizes)))[-1] == said


def test_arms_are_named_in_words() -> None:
    found = estimate_of(effect(1, 1), effect(1, 1, EffectTarget("visit", "C", "A")))
    assert sentences.comparison(found, "A", ["B", "C"]) == "B and C vs A (control)"
    assert sentences.comparison(found, "control", ["B", "C"]) == "B and C vs control"
    assert sentences.comparison(found, "Control", ["B"]) == "B vs Control"


def test_differences_are_counted_in_words() -> None:
    of = [EffectTarget("visit", "B", "A", (("tier", name),), against="rest") for name in "xyz"]
    found = [effect(number, 1.0, one) for number, one in zip((0.1, 0.2, 9), of, strict=True)]
    estimate = estimate_of(*found)
    said = sentences.segment_sentence(estimate, estimate.effects)
    assert said == "1 of 3 differences is significant."
    none = estimate_of(*(replace(one, effect=0.1) for one in found))
    assert sentences.segment_sentence(none, none.effects) == "No difference is significant."


def test_attrition_is_tested_for_all_arms_together() -> None:
    declared = declare({"y": "0..3"}, missing=["y"])
    reach = {0.8: 2.653, 0.4: 2.878}  # |z| of p = 0.8% and 0.4%

    def warned(*numbers: float) -> int:
        effects = [
            effect(number, 1.0, EffectTarget("y_observed", arm, "A"))
            for number, arm in zip(numbers, "BC", strict=False)
        ]
        notes = attrition_notes(declared, effects)
        assert notes is not None
        return len(notes)

    assert pytest.approx(0.01) == ATTRITION_LEVEL
    assert warned(reach[0.8]) == 1
    assert warned(reach[0.8], 0.0) == 0
    assert warned(reach[0.4], 0.0) == 1


def test_p_values_are_written_alike() -> None:
    assert p_text(9e-25) == "p < 0.0001"
    assert p_text(0.0213) == "p = 0.0213"


def test_long_labels_differ_at_their_ends() -> None:
    arms = [f"a metric with a very long name and more · {arm}" for arm in ("mens", "womens")]
    first, second = (short_label(one, 36) for one in arms)
    assert first != second
    assert len(first) == len(second) == 36
    assert short_label("short", 36) == "short"


def test_a_table_that_is_a_little_too_wide_breaks_its_header() -> None:
    rows = [("", "with privacy", "no privacy"), ("visit", "12 pp", "3 pp")]
    narrow = aligned(rows, 26)
    assert max(map(len, narrow)) <= 26
    assert len(narrow) == 3  # two lines of header, and no second table
    assert [line.split() for line in narrow[:2]] == [["with", "no"], ["privacy", "privacy"]]
    assert len(aligned(rows, 80)) == 2
