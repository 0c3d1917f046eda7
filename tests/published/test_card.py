"""The page of a folder: sound, in plain words, true, and without anything that is not public."""

from __future__ import annotations

import re
import shlex
from html import unescape
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from asked_answers import make_experiment
from browsers import WIDTHS, assert_accessible, assert_fits, opened
from cli_runs import run
from clusterdp.document.model import Paragraph, Section, code
from clusterdp.published import document
from clusterdp.published.contents import FolderView
from clusterdp.published.folder import read_files
from clusterdp.storage.reading import open_folder
from page_checks import assert_sound_page, page_text
from pilot_runs import ASKED, PILOT, players
from two_questions import some_table

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

ABOUT = {
    "title": "Two e-mails or none",
    "description": "Customers were sent an e-mail, or none.",
    "collected": "March 2008, 14 days",
    "contact": "Experiments, experiments@example.org",
    "licence": "CC BY 4.0",
    "approved_by": "Data protection office",
    "reason": "Effects of a point must be detectable.",
}
NAMES: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
FUNNEL: dict[str, Any] = {
    "outcomes": {"visit": "0,1", "sale": "0,1", "rounds": "number:0..4"},
    "constraint": ["sale -> visit"],
    "mechanism": "uniform-prior-dp",
    "epsilon": 2,
    **NAMES,
}
HOSTILE = "</title><script>alert(1)</script> `x` [a](b) *c* \\ {{ 7 * 7 }} & \"'"


def publish(table: Any, folder: Path, **options: Any) -> str:
    """Publish a folder; returns its page."""
    cdp.publish(table, out=folder, **options)
    return (folder / "index.html").read_text()


def problems(folder: Path) -> list[str]:
    done = run("verify", folder)
    return [line for line in done.output.splitlines() if line.startswith("FAIL")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose owner said everything; tests leave it as it is."""
    place = tmp_path_factory.mktemp("card") / "out"
    table = some_table(400, np.random.default_rng())
    publish(table, place, **FUNNEL, breakdown=["tier"], **ABOUT)
    return place


@pytest.fixture
def page(folder: Path) -> str:
    return (folder / "index.html").read_text()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "Constraint: sale -> visit"),
        ({"question": ["visit,sale=2", "rounds"]}, "Each unit's row answers one question."),
        ({"missing": ["rounds"]}, "It may be missing; whether it is missing is protected."),
        (
            {"outcomes": {"rounds": "bins:0,2,5 as 1,3"}, "constraint": None},
            "bins with edges 0, 2, 5",
        ),
        ({"delta": 1e-6}, "except with probability at most 2δ"),
        ({"randomization_unit": "market", "cluster": None}, "Arms were assigned by market"),
        ({"mechanism": "noisy-histogram"}, "The release has no rows of units."),
    ],
    ids=["one question", "questions", "missing", "bins", "delta", "groups", "aggregates"],
)
def test_pages_of_all_kinds_are_sound(
    more: dict[str, Any], told: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    table = some_table(400, rng)
    if "randomization_unit" in more:
        table = table.with_columns(market=pl.col("user") % 40, treated=pl.col("user") % 2)
    written = publish(table, tmp_path / "out", **{**FUNNEL, **more})
    assert_sound_page(written)
    assert told in page_text(written)
    assert problems(tmp_path / "out") == []


def test_a_section_that_is_added_is_in_both_files(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(view: FolderView) -> Section:
        text = f"All {view.manifest.n_units} units, and {code('more')}"
        return Section("One more", [Paragraph(text)], "more")

    monkeypatch.setattr(document, "SECTIONS", (*document.SECTIONS, more))
    written = publish(some_table(200, rng), tmp_path / "out", **FUNNEL)
    assert_sound_page(written)
    assert "One more All 200 units, and more" in page_text(written)
    assert "## One more\n\nAll 200 units, and `more`\n" in (tmp_path / "out/README.md").read_text()
    assert problems(tmp_path / "out") == []


def test_a_pilot_is_told_of(tmp_path: Path) -> None:
    written = publish(players(), tmp_path / "out", mechanism=PILOT, **ASKED)
    assert_sound_page(written)
    assert "a noisy histogram of all units" in page_text(written)
    assert problems(tmp_path / "out") == []


def test_the_questions_of_a_reader_are_answered(page: str, folder: Path) -> None:
    text = page_text(page)
    for about in ABOUT.values():
        assert about in text
    assert "one row for each of 400 units in a randomized experiment" in text
    assert "Protected: the outcomes of every unit ( visit , sale and rounds )" in text
    assert "50% 11% 89%" in text
    assert "no ledger tracked them" in text
    assert "Not a median, quantile or maximum of a" in text
    release, manifest = read_files(open_folder(folder))
    channels = [question.channel for question in release.questions]
    seen = FolderView.from_parts(manifest, release.layout, channels)
    for metric, precision in zip(seen.metrics, seen.precisions, strict=True):
        small = precision.segment(0.05)
        assert small is not None
        assert f"5% segment {metric.change(small.std_error)} " in text
    for name, one in manifest.files.items():
        assert (one.sha256 in page) == (name != "index.html")


def test_what_was_not_said_is_told(tmp_path: Path, rng: np.random.Generator) -> None:
    text = page_text(publish(some_table(200, rng), tmp_path / "out", **FUNNEL))
    assert "Not stated description, dates, contact, license, approver, reason for ε" in text
    assert "no ledger: earlier releases about these units are unknown" in text


def test_hostile_words_are_shown_as_they_are(tmp_path: Path, rng: np.random.Generator) -> None:
    table = some_table(200, rng).rename({"tier": "<img src=x onerror=alert(1)>"})
    table = table.with_columns(treated=pl.format("<b>{}</b>", "treated"))
    given = {**FUNNEL, "passthrough": "<img src=x onerror=alert(1)>", "control": "<b>0</b>"}
    written = publish(table, tmp_path / "out", **given, **dict.fromkeys(ABOUT, HOSTILE))
    assert_sound_page(written)
    assert "<script" not in written
    assert HOSTILE in page_text(written)
    readme = (tmp_path / "out" / "README.md").read_text()
    assert readme.startswith("# \\</title\\>\\<script\\>")
    assert "[a](b)" not in readme
    assert problems(tmp_path / "out") == []


def test_nothing_but_what_is_public_is_on_the_page(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Neither true outcomes, nor ids, paths, keys, or what a ledger calls things."""
    spent = rng.uniform(100, 900, 200).round(4)
    ids = [f"unit-{one:012x}" for one in rng.integers(0, 2**48, 200)]
    table = some_table(200, rng).with_columns(user=pl.Series(ids), spend=pl.Series(spent))
    source = tmp_path / "hidden-place" / "table.parquet"
    source.parent.mkdir()
    table.write_parquet(source)
    ledger = cdp.Ledger.create(tmp_path / "hidden.db", 8, passphrase="hidden-words-" * 3)
    folder = cdp.publish(
        str(source),
        out=tmp_path / "out",
        outcomes={"spend": "number:0..1000"},
        mechanism="uniform-prior-dp",
        epsilon=2,
        ledger=ledger,
        population="hidden-people",
        new_population=True,
        **NAMES,
    )
    written = (tmp_path / "out" / "index.html").read_text()
    assert folder.release_id is not None
    hidden = [*map(repr, spent.tolist()), *ids, "hidden", str(tmp_path), folder.release_id]
    assert [one for one in hidden if one in written] == []


def test_recipes_on_the_page_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = re.findall(r"<figcaption>([^<]*)</figcaption>\n<pre><code>([^<]*)</code>", page)
    codes = dict(found)
    rows = duckdb.execute(unescape(codes["SQL (DuckDB)"])).fetchall()
    first = cdp.read_release(folder).columns.debiased[0]
    asked = pl.read_parquet("units.parquet", columns=[first])[first].count()
    assert sum(row[3] for row in rows) == asked > 0
    exec(unescape(codes["pandas"]), {"print": lambda _: None})  # noqa: S102 - our own page
    (commands,) = (text for label, text in codes.items() if label.startswith("clusterdp:"))
    for line in unescape(commands).splitlines():
        program, *given = shlex.split(line, comments=True)
        if program == "clusterdp":
            done = run(*(word.replace("COLUMN", "tier") for word in given))
            assert done.exit_code == 0, (line, done.output)


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_it(folder: Path, browser: Browser, width: int) -> None:
    with opened(browser, folder / "index.html", width) as shown:
        assert_fits(shown)
        assert_accessible(shown)
        assert shown.title() == ABOUT["title"]


@pytest.mark.browser
def test_a_browser_shows_an_answer(
    tmp_path: Path, rng: np.random.Generator, browser: Browser
) -> None:
    made = make_experiment(tmp_path, rng)
    made.ask()
    made.answer()
    with opened(browser, tmp_path / "answer" / "index.html", WIDTHS[0]) as shown:
        for width in WIDTHS:
            shown.set_viewport_size({"width": width, "height": 900})
            assert_fits(shown)
            assert_accessible(shown)
