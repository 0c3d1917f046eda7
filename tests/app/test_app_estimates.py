"""The analyst's half in a browser, from the folder to what is saved and asked later."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import nbformat
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from browsers import WIDTHS, assert_accessible, assert_fits
from cli_runs import run
from clusterdp.demo import simulate_campaign
from running_app import Visit, running_app, visited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release, and the analyst's own table."""
    place = tmp_path_factory.mktemp("analyst")
    shop = simulate_campaign(np.random.default_rng())
    units = shop.owner.head(6000)
    plan = cdp.plan(
        units,
        unit="user",
        arm="treated",
        cluster="market",
        outcomes={"visit": "0,1", "order": "0,1"},
        baseline={"visit": "0.3", "order": "0.1"},
        epsilon=4,
    )
    cdp.publish(units, plan, out=place / "published")
    shop.analyst.head(6000).write_csv(place / "crm.csv")
    return place


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    """Pages of one app; what they asked for and complained of is checked at the end."""
    with running_app() as running, visited(browser, running) as found:
        yield found


def box(page: Page, name: str) -> Locator:
    return page.get_by_role("textbox", name=name, exact=True)


def open_folder(page: Page, place: Path) -> None:
    page.get_by_role("link", name="clusterdp").click()
    box(page, "Path of the folder").fill(str(place / "published"))
    page.get_by_role("button", name="Open the folder").click()


def estimated(page: Page, place: Path) -> None:
    """By tier, of the analyst's own table, with differences."""
    open_folder(page, place)
    box(page, "Table with columns to segment by or adjust for").fill(str(place / "crm.csv"))
    page.get_by_role("button", name="Read the names of its columns").click()
    page.get_by_role("group", name="Segment by").get_by_label("tier").check()
    page.get_by_label("Compare segments").select_option("rest")
    page.get_by_role("button", name="Estimate", exact=True).click()
    page.get_by_role("heading", name="Effect of treated on visit and order").wait_for()


@pytest.mark.slow
def test_an_estimate_from_the_folder_to_what_is_saved(
    visit: Visit, place: Path, tmp_path: Path
) -> None:
    page = visit.page
    estimated(page, place)
    expected = cdp.estimate(
        place / "published", segments=place / "crm.csv", by="tier", differences="rest"
    )
    saved = {}
    for words in ("report", "numbers", "figure", "notebook", "script"):
        with page.expect_download() as started:
            page.get_by_role("link", name=f"Save the {words}").or_(
                page.get_by_role("link", name=f"Save a {words}")
            ).click()
        path = tmp_path / started.value.suggested_filename
        started.value.save_as(path)
        saved[words] = path
    # To the last digit, by any way.
    assert (
        pl.read_csv(saved["numbers"]).rows()
        == pl.read_csv(expected.to_polars().write_csv().encode()).rows()
    )
    shown = page.locator("#segments-1 tbody.rows tr").evaluate_all(
        "rows => rows.map(row => [row.cells[0].textContent, row.dataset.e])"
    )
    assert {name: float(e) for name, e in shown} == {
        one.of.label: float(f"{one.effect:.6g}")
        for one in expected.effects
        if one.of.metric == "visit" and one.of.segment and one.of.against is None
    }
    command, python = (
        page.get_by_label(f"The same {where}").locator("code").inner_text()
        for where in ("as a command", "in Python")
    )
    copied = shlex.split(command.replace("\\\n", " "))
    assert copied[:2] == ["clusterdp", "estimate"]
    result = run(*copied[1:], "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["effects"] == json.loads(
        json.dumps(expected.to_dict()["effects"])
    )
    names: dict[str, cdp.Estimate] = {}
    exec(python, names)  # noqa: S102 - what the page says to copy
    assert names["estimate"].to_dict()["effects"] == expected.to_dict()["effects"]
    assert saved["script"].read_text().strip() == python.strip()
    notebook = nbformat.read(saved["notebook"], as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    assert notebook.cells[0].source in python.replace("print(estimate)", "estimate")
    page_text = saved["report"].read_text()
    assert page_text.startswith("<!DOCTYPE html>")
    assert "clusterdp estimate" in page_text
    assert saved["figure"].read_text().count("<svg") == 1


def test_rows_are_sorted_and_filtered(visit: Visit, place: Path) -> None:
    page = visit.page
    estimated(page, place)
    panel = page.get_by_role("region", name="Effects by segment")
    panel.get_by_label("Sort by").select_option("effect")
    values = page.locator("#segments-1 tbody.rows tr").evaluate_all(
        "rows => rows.map(row => Number(row.dataset.e))"
    )
    assert values == sorted(values, reverse=True)
    panel.get_by_label("Name contains").fill("gold")
    assert "Showing 2 of 6." in panel.get_by_role("status").inner_text()


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"release": "/nowhere"}, "Published folder", "nowhere"),
        ({"segments": "/nowhere.csv"}, "Table with columns", "There is no file /nowhere.csv"),
        ({"level": "high"}, "Confidence level", "'high' is not a confidence level."),
        ({"level": "2"}, "Confidence level", "between 0 and 1"),
        ({"fold": "x"}, "One fold only", "not a whole number"),
        ({"metric_texts": "p90(nothing)"}, "", "nothing"),
        ({"by_crossed": "nothing"}, "", "nothing"),
        ({"control": "7"}, "Control arm", "7"),
        ({"look": "9/3"}, "Look", "9/3"),
        ({"answers": "/nowhere"}, "", "nowhere"),
        ({"margins": "visit"}, "Margins", "visit"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_is_kept(
    visit: Visit, place: Path, typed: dict[str, str], field: str, sentence: str
) -> None:
    page = visit.page
    given = {"release": str(place / "published"), "by": "market", "go": "1"} | typed
    at = re.match(r"http://[^/]+/[^/]+", page.url)
    assert at is not None
    page.goto(f"{at[0]}/estimate?{urlencode(given)}")
    wrong = page.locator(".error:visible, [role=alert] p:visible")
    texts = [one for one in wrong.all_inner_texts() if "marked in red" not in one]
    assert len(texts) == 1
    assert sentence in texts[0]
    assert "Traceback" not in page.content()
    for name, value in typed.items():
        assert page.locator(f"[name={name}]").first.input_value() == value
    if field:
        marked = page.locator("[aria-invalid]")
        assert field in page.locator(f"label[for={marked.get_attribute('id')}]").inner_text()
        described = (marked.get_attribute("aria-describedby") or "").split()
        assert page.locator(f"#{described[-1]}").inner_text() == texts[0]
        assert marked.evaluate("one => one === document.activeElement")


def test_a_later_question_is_written(visit: Visit, place: Path, tmp_path: Path) -> None:
    page = visit.page
    estimated(page, place)
    page.get_by_role("link", name="Ask the owner a later question").click()
    assert page.get_by_label("tier").is_checked()
    page.get_by_role("button", name="Write the question").click()
    assert page.locator("#out-error").inner_text().startswith("Fill in the folder to write")
    page.wait_for_load_state("load")
    assert page.get_by_label("tier").is_checked()
    box(page, "Folder to write").fill(str(tmp_path / "followup"))
    page.get_by_role("button", name="Write the question").click()
    page.get_by_text("the owner will see these labels").wait_for()
    assert (tmp_path / "followup" / "labels.parquet").exists()
    command = page.get_by_label("The same as a command").locator("code").inner_text()
    again = command.replace(str(tmp_path / "followup"), str(tmp_path / "again"))
    result = run(*shlex.split(again)[1:])
    assert result.exit_code == 0, result.output


def test_it_works_by_keyboard(visit: Visit, place: Path) -> None:
    """A folder is chosen by its name, and effects are estimated, without a pointer."""
    page = visit.page
    page.get_by_role("link", name="clusterdp").click()
    box(page, "Path of the folder").focus()
    page.keyboard.type(str(place))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    chosen = page.get_by_role("button", name="published/")
    chosen.wait_for()
    while not chosen.evaluate("one => one === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Choose this folder").wait_for()
    page.locator("#picker-place", has_text="/published").wait_for()
    page.get_by_role("button", name="Choose this folder").focus()
    page.keyboard.press("Enter")
    assert box(page, "Path of the folder").input_value() == str(place / "published")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Estimate effects").wait_for()
    box(page, "Other metrics").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Effect of treated").wait_for()


@pytest.mark.slow
def test_pages_fit_and_are_accessible(visit: Visit, place: Path) -> None:
    page = visit.page
    open_folder(page, place)
    pages = [page.url]
    estimated(page, place)
    at = re.match(r"http://[^/]+/[^/]+", page.url)
    assert at is not None
    folder = urlencode({"release": place / "published"})
    pages += [page.url, f"{at[0]}/", f"{at[0]}/folder?{folder}&verify=1", f"{at[0]}/ask?{folder}"]
    for url in pages:
        page.goto(url)
        page.set_viewport_size({"width": WIDTHS[-1], "height": 900})
        assert_accessible(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert_fits(page)
    page.set_viewport_size({"width": WIDTHS[-1], "height": 900})


def test_an_analyst_loads_nothing_of_the_owner() -> None:
    code = (
        "import json, sys, clusterdp.app.analyst\n"
        "print(json.dumps([name.split('.')[1] for name in sys.modules if name.startswith("
        "'clusterdp.')]))"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert {"owner", "ledger", "planning", "releasing"}.isdisjoint(json.loads(done.stdout))
