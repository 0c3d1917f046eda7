"""The analyst's page in a real browser: it fits, can be sorted and filtered, and is accessible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from browsers import WIDTHS, assert_accessible, assert_fits, opened
from reports import many_segments

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
# What JupyterLab and nbconvert say of tables, drawings and lists of descriptions in outputs.
JUPYTER = """
.jp-RenderedHTMLCommon { font-size: 14px; line-height: 1.6; width: 860px; }
.jp-RenderedHTMLCommon table { border: none; font-size: 13px; table-layout: fixed;
  margin-left: auto; margin-bottom: 1em; margin-right: auto; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {
  vertical-align: middle; padding: 0.5em; white-space: normal; max-width: none; border: none; }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th { text-align: right; font-weight: bold; }
.jp-RenderedHTMLCommon img, .jp-RenderedHTMLCommon svg { max-width: 100%; height: auto; }
.jp-OutputArea-output dl, .jp-OutputArea-output dt, .jp-OutputArea-output dd { display: block; }
.jp-OutputArea-output dl { width: 100%; overflow: hidden; padding: 0; margin: 0; }
.jp-OutputArea-output dt { font-weight: bold; float: left; width: 20%; padding: 0; margin: 0; }
.jp-OutputArea-output dd { float: left; width: 80%; padding: 0; margin: 0; }
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(many_segments(12, "a place called number {}").to_html(), encoding="utf-8")
    return path


def shown(page: Page) -> list[tuple[str, str, float, int]]:
    """Segment, arm, effect and units of the rows that are shown, of the first metric."""
    rows = page.locator("#segments-1 tbody.rows tr:visible")
    read = """rows => rows.map(row => [
        row.cells[0].textContent, row.cells[1].textContent, row.dataset.e, row.dataset.n])"""
    return [(name, arm, float(e), int(n)) for name, arm, e, n in rows.evaluate_all(read)]


def test_a_report_fits_and_is_accessible(browser: Browser, report: Path) -> None:
    with opened(browser, report, WIDTHS[-1]) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert_fits(page)
            assert_accessible(page)
        # On a phone, numbers of a segment stand below it, and nothing is to be scrolled sideways.
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        wider = "tables => tables.map(table => table.scrollWidth - table.clientWidth)"
        assert set(page.locator(".forest").evaluate_all(wider)) == {0}
        hidden = "tables => tables.map(table => table.scrollHeight - table.clientHeight)"
        assert set(page.locator(".forest").evaluate_all(hidden)) == {0}
        assert page.locator(".forest .axis svg").first.is_visible()


def test_metrics_have_their_numbers_in_the_same_columns(browser: Browser, report: Path) -> None:
    with opened(browser, report, WIDTHS[-1]) as page:
        places = page.locator(".forest").evaluate_all(
            """tables => tables.map(table => [...table.querySelectorAll("thead th")].slice(2).map(
                one => Math.round(one.getBoundingClientRect().right)))"""
        )
        assert len(places) == 2
        assert places[0] == places[1]


def outputs(kind: str) -> str:
    """What a notebook shows of an estimate, or of what an owner sees before a release."""
    if kind == "estimate":
        return many_segments(3, "a place called number {}")._repr_html_()
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "epsilon": 2}
    asked["outcomes"] = {f"how many orders within {days} days": "0..3" for days in (7, 30)}
    numbers = pl.int_range(400, eager=True)
    treated, orders = (numbers % 2).alias("treated"), numbers % 4
    units = pl.DataFrame([numbers.alias("user"), treated, *map(orders.alias, asked["outcomes"])])
    plan = cdp.plan(units, **asked)
    return (plan if kind == "plan" else cdp.preview(units, plan))._repr_html_()


@pytest.mark.parametrize("kind", ["estimate", "plan", "preview"])
def test_a_notebook_shows_columns_side_by_side(kind: str, browser: Browser, tmp_path: Path) -> None:
    """Within the sheet of JupyterLab: no cell prints over the next, and charts stay small."""
    part = outputs(kind)
    page_text = (
        f"<!doctype html><html lang='en'><head><title>A</title><style>{JUPYTER}</style></head>"
        f"<body><div class='jp-RenderedHTMLCommon jp-OutputArea-output'>{part}</div></body></html>"
    )
    path = tmp_path / "notebook.html"
    path.write_text(page_text, encoding="utf-8")
    over = "cells => cells.filter(one => one.scrollWidth > one.clientWidth + 1).length"
    with opened(browser, path, 1000) as page:
        if kind == "estimate":
            assert page.locator("details").count() > 0
            assert page.locator("table:visible thead").first.locator("th").count() <= 6
        page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
        assert page.locator("td, th").evaluate_all(over) == 0
        # Names of what is described are in a line, and not broken into letters.
        heights = page.locator("dt").evaluate_all("all => all.map(one => one.clientHeight)")
        assert bool(heights) == (kind != "estimate")
        assert max(heights, default=0) < 2 * 24
        wider = "tables => tables.map(table => table.scrollWidth - table.clientWidth)"
        assert not any(page.locator(".forest").evaluate_all(wider))
        sizes = "all => all.map(one => one.getBoundingClientRect().width)"
        bars = page.locator(".forest svg").evaluate_all(sizes)
        assert bool(bars) == (kind == "estimate")
        assert min(bars, default=150) >= 150
        widths = page.locator("svg.chart").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().width)"
        )
        assert bool(widths) == (kind == "estimate")
        assert max(widths, default=0) <= 46 * 16


def test_rows_are_sorted(browser: Browser, report: Path) -> None:
    with opened(browser, report, 1400) as page:
        listed = shown(page)
        assert len(listed) == 24
        for way, key in (("effect", 2), ("size", 3)):
            page.get_by_label("Sort by").select_option(way)
            values = [row[key] for row in shown(page)]
            assert values == sorted(values, reverse=True)
            assert sorted(shown(page)) == sorted(listed)
        page.get_by_label("Sort by").select_option("name")
        numbers = [int(row[0].split()[-1]) for row in shown(page)]
        assert numbers == sorted(numbers)
        page.get_by_label("Sort by").select_option("listed")
        assert shown(page) == listed


def test_rows_are_filtered_by_keyboard(browser: Browser, report: Path) -> None:
    with opened(browser, report, 800) as page:
        page.get_by_label("Sort by").focus()
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.type("NUMBER 7")
        assert {row[0] for row in shown(page)} == {"store=a place called number 7"}
        assert page.get_by_role("status").inner_text() == "Showing 4 of 48."
        page.get_by_label("Arm").select_option("C")
        assert [row[1] for row in shown(page)] == ["C"]
        page.get_by_label("Metric").select_option("spend")
        assert shown(page) == []
        assert page.get_by_role("status").inner_text() == "Showing 1 of 48."


def test_without_scripts_the_tables_stand(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("#segments-1 tbody.rows tr").count() == 24
    assert not page.locator(".controls").first.is_visible()
    context.close()
