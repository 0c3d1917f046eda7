"""The analyst's page: sound, complete, the same numbers as the terminal, and nothing private."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release_declared, run
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.report.sentences import effect_sentences
from clusterdp.estimation.report.tables import first_columns, more_columns
from page_checks import assert_sound_page, page_text
from reports import (
    HOSTILE,
    SECRET,
    SECRET_ID,
    customers,
    effect,
    estimate_of,
    many_segments,
    released,
)

if TYPE_CHECKING:
    from pathlib import Path

ASKED: dict[str, dict[str, Any]] = {
    "all metrics": {},
    "segments": {"by": ["tier", "tier,lone"], "differences": "rest"},
    "one unit in a segment": {"by": "lone"},
    "ratios, quantiles, distributions": {
        "metrics": ["orders/visit", "median(orders)", "dist(orders)", "orders>=2"],
        "by": "tier",
    },
    "distributions alone": {"metrics": "dist(visit)"},
    "unstratified rows": {"use": "rows", "estimator": "unstratified", "level": 0.9},
}


@pytest.fixture(scope="module")
def release() -> cdp.Release:
    return released(customers(np.random.default_rng()))


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_every_page_is_sound(release: cdp.Release, asked: dict[str, Any]) -> None:
    estimate = cdp.estimate(release, **asked)
    page = estimate.to_html()
    assert_sound_page(page)
    assert not re.search(r"\bnan\b", page)
    assert page == estimate.to_html()
    text = page_text(page)
    for note in (*estimate.notes, *estimate.warnings, *estimate.method):
        assert " ".join(note.split()) in text


def test_distributions_are_shown_in_each_segment(release: cdp.Release) -> None:
    estimate = cdp.estimate(release, metrics=["dist(orders)"], by="tier")
    text = page_text(estimate.to_html())
    segments = [one for one in estimate.distributions if one.segment]
    assert segments
    for one in segments:
        for row in one.to_rows():
            assert f"{row['share']:.2%} [{row['ci_low']:.2%}, {row['ci_high']:.2%}]" in text


def test_a_page_of_adjusted_effects_marks_those_to_report() -> None:
    table = customers(np.random.default_rng())
    covariates = table.select("user", "before")
    found = cdp.estimate(released(table), segments=covariates, by="tier", adjust="before")
    page = found.to_html()
    assert_sound_page(page)
    assert "Covariate-adjusted (CUPED) for before." in page_text(page)
    assert "Mens E-Mail · yes *" in page_text(page)
    assert "covariates" in page_text(page).partition("checks passed:")[2].partition(".")[0]


def test_pages_of_other_releases_are_sound() -> None:
    table = customers(np.random.default_rng())
    missing = table.with_columns(visit=pl.when(pl.int_range(pl.len()) % 9 > 0).then("visit"))
    one = {"outcomes": {"visit": "0,1"}, "constraint": []}
    parts = {"unit": "user", "arm": "arm", "cluster": "market", "control": "No E-Mail"}
    for found in (
        cdp.estimate(released(missing, missing=["visit"], **one)),
        cdp.estimate(released(table, mechanism="noisy-histogram", passthrough=[], **one)),
        cdp.estimate_without_privacy(table, **one, **parts),  # type: ignore[arg-type]  # by name
    ):
        assert_sound_page(found.to_html())
        is_warned = "are not private" in page_text(found.to_html())
        assert is_warned == (found.guarantee is None)


def test_numbers_are_those_of_the_terminal(release: cdp.Release) -> None:
    estimate = cdp.estimate(release, by="tier", differences="rest")
    text, html = page_text(estimate.to_html()), page_text(estimate._repr_html_())
    overall = [effect for effect in estimate.effects if not effect.of.segment]
    every = [first_columns(estimate, overall), *more_columns(estimate, overall)]
    every += [
        [
            one
            for one in first_columns(
                estimate,
                [each for each in estimate.effects if (each.of.against is not None) == is_apart],
            )
            if not one.is_label
        ]
        for is_apart in (False, True)
    ]
    for column in (column for columns in every for column in columns):
        for cell in column.cells:
            assert " ".join(cell.split()) in html
            assert " ".join(cell.split()) in text


def test_names_are_escaped_and_never_run(release: cdp.Release) -> None:
    estimate = cdp.estimate(release, by="tier", differences="pairs")
    for page in (estimate.to_html(), estimate._repr_html_()):
        assert "<script>alert" not in page
        assert f"tier={HOSTILE}" in page_text(page) or HOSTILE in page_text(page)
    hostile = estimate_of(
        effect(0.1, 0.01, EffectTarget(HOSTILE, HOSTILE, "A", ((HOSTILE, HOSTILE),)))
    )
    assert_sound_page(hostile.to_html())
    assert "<script>alert" not in hostile.to_html()


def test_a_page_holds_no_true_outcome_id_or_path(tmp_path: Path) -> None:
    table, folder = customers(np.random.default_rng()), tmp_path / "published"
    table.write_parquet(tmp_path / "customers.parquet")
    table.select("user", "before").write_csv(tmp_path / "crm.csv")
    done = release_declared(
        tmp_path / "customers.parquet",
        folder,
        arm="arm",
        control="No E-Mail",
        outcomes=["spend=number:0..100"],
        passthrough="tier",
        epsilon=4,
        title="A sale of shoes",
    )
    assert done.exit_code == 0, done.output
    page = tmp_path / "report.html"
    asked = ["--by", "tier", "--segments", tmp_path / "crm.csv", "--adjust", "before"]
    done = run(
        "estimate", folder, *asked, "--metric", "dist(spend)", "--metric", "spend", "--html", page
    )
    assert done.exit_code == 0, done.output
    assert f"Wrote {page}" in done.output.replace("\n", "")
    written = page.read_text(encoding="utf-8")
    assert_sound_page(written)
    for private in (str(tmp_path), tmp_path.name, SECRET_ID, str(SECRET), f"{SECRET:.5f}"):
        assert private not in written
    command = (
        "clusterdp estimate published --metric 'dist(spend)' --metric spend --segments crm.csv "
        "--by tier --adjust before"
    )
    assert command in page_text(written)
    assert "A sale of shoes: " in page_text(written)
    called = cdp.estimate(folder, by=["tier"], differences="rest").to_html()
    assert "clusterdp.estimate('published', by=['tier'], differences='rest')" in page_text(called)
    assert str(tmp_path) not in called
    again = ["estimate", folder, "--html"]
    assert_refused(run(*again, folder / "report.html"), "is an input")
    assert_refused(run(*again, tmp_path / "nowhere" / "report.html"), "Cannot write")


@pytest.mark.parametrize(
    ("number", "std_error", "said"),
    [
        (0.0455, 0.0034, "raised visit by 4.55 percentage points (95% CI 3.88 to 5.22)."),
        (-0.0455, 0.0034, "lowered visit by 4.55 percentage points (95% CI 3.88 to 5.22)."),
        (0.001, 0.0034, "no clear effect on visit (95% CI -0.57 to 0.77 percentage points)."),
        (math.nan, math.nan, "visit is not reported, because an arm has too few units."),
    ],
)
def test_the_headline_is_plain(number: float, std_error: float, said: str) -> None:
    found = estimate_of(effect(number, std_error), shares=("visit",))
    assert said in page_text(found.to_html())
    (sentence, *_) = effect_sentences(estimate_of(effect(number, std_error)))
    assert "percentage" not in sentence


def test_the_headline_says_what_may_be_chance_among_several() -> None:
    others = [EffectTarget("visit", arm, "A") for arm in "CDEFG"]
    alone = estimate_of(effect(0.05, 0.022))
    together = estimate_of(effect(0.05, 0.022), *(effect(0.0, 0.02, of) for of in others))
    assert "after correcting" not in page_text(alone.to_html())
    assert "not significant after correcting for 6 tests" in page_text(together.to_html()).lower()


def test_a_page_of_many_segments_stays_small_and_says_what_it_leaves_out() -> None:
    whole, cut = many_segments(220), many_segments(500, "a store & its long name, number {}")
    assert "left out" not in page_text(whole.to_html())
    assert_sound_page(whole.to_html())
    page = cut.to_html()
    assert_sound_page(page)
    (left_out, n_effects) = re.findall(r"(\d[\d,]*) of (\d[\d,]*) effects, in the", page)[0]
    assert n_effects == "2,000"
    n_rows = page.count("<tr data-e") - 4  # the overall effects
    assert n_rows == 2000 - int(left_out.replace(",", ""))
    kept = re.findall(r"number (\d+)</th>", page)
    assert all(kept.count(one) == 4 for one in kept)  # of a segment, all or nothing


def test_a_notebook_gets_a_part_with_a_style_of_its_own(release: cdp.Release) -> None:
    part = cdp.estimate(release, by="tier")._repr_html_()
    assert part.startswith('<div class="clusterdp">')
    assert part.rstrip().endswith("</div>")
    for tag in ("<html", "<body", "<script", "<head"):
        assert tag not in part
    assert ".clusterdp.clusterdp.clusterdp {" in part
    assert ":root" not in part


def test_checks_have_verdicts(release: cdp.Release) -> None:
    found = cdp.estimate(
        release, by="lone", shares={"No E-Mail": 0.8, "Mens E-Mail": 0.1, "Womens E-Mail": 0.1}
    )
    verdicts = {check.name: check.verdict for check in found.checks}
    assert verdicts["Sample ratio"] == "warning"
    assert verdicts["Segment size"] == "note"
    (warned,) = [check.found for check in found.checks if check.verdict == "warning"]
    assert set(warned) <= set(found.warnings)
    assert found.to_dict()["checks"][0]["verdict"] == "warning"
    assert {check.verdict for check in cdp.estimate(release).checks} == {"passed"}
