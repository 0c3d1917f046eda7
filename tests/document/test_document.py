"""A page is one text that needs nothing else; whatever is put in is escaped."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pytest

from browsers import WIDTHS, assert_accessible, assert_fits, opened
from clusterdp.document.charts import (
    Axis,
    ChartLine,
    interval_axis,
    interval_chart,
    line_chart,
)
from clusterdp.document.markup import render, to_markdown, to_page
from clusterdp.document.model import Document, Paragraph, Section
from clusterdp.document.scales import Interval, Logarithmic
from page_checks import assert_sound_page, page_text
from sample_page import INTERVALS, sample

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

HOSTILE = "<script>alert(1)</script> \"'&{{ 7 * 7 }}"


def test_a_page_is_sound_and_needs_nothing_else() -> None:
    assert_sound_page(sample("A title"))


def test_what_is_put_in_is_escaped_and_never_run() -> None:
    page = sample(HOSTILE)
    assert_sound_page(page)
    assert "<script" not in page
    assert HOSTILE in page_text(page)


def test_no_line_ends_within_a_budget() -> None:
    said = Paragraph("The release has ε = 2, δ = 0.")
    document = Document("A title", [Section("One", [said])])
    assert "ε\xa0=\xa02, δ\xa0=\xa00." in to_page(document)
    assert said.text in to_markdown(document)


def test_a_name_that_was_not_given_is_an_error() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        render("page_templates", "sample.html", heading="alone")


def test_a_page_is_the_same_every_time() -> None:
    assert sample("A title") == sample("A title")


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_all_parts(tmp_path: Path, browser: Browser, width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(sample("A title " + "that is long " * 12), encoding="utf-8")
    with opened(browser, path, width) as page:
        assert_fits(page)
        assert_accessible(page)


def test_what_reaches_beyond_an_axis_ends_in_an_arrow() -> None:
    axis = interval_axis("effect", INTERVALS)
    drawn = interval_chart(INTERVALS, axis, reference=0.5, title="t", description="d")
    assert any(math.isinf(one.high) for one in INTERVALS)
    assert "inf" not in drawn
    assert "nan" not in drawn
    # One drawing is for wide screens, one for narrow ones.
    assert drawn.count("<svg") == 2
    assert drawn.count("<circle") == 2 * len(INTERVALS)


def test_a_line_is_interrupted_where_nothing_is_known() -> None:
    line = ChartLine("one", [1.0, 2.0, 3.0, 4.0], [1.0, math.nan, 2.0, 3.0])
    scale = Logarithmic.over([1, 4])
    drawn = line_chart([line], Axis("x", scale), Axis("y", scale), title="t", description="d")
    (path,) = [part for part in drawn.split("<") if part.startswith("path")]
    assert path.count("M") == 2
    assert path.count("L") == 1
    assert "nan" not in drawn


@pytest.mark.parametrize("odd", [0.0, math.inf, math.nan])
def test_no_number_stops_a_chart(odd: float) -> None:
    """Pages are written when a release is nearly done: nothing may fail there."""
    for values in ([odd, odd], [1.0, odd]):
        scale = Logarithmic.over(values)
        axis = Axis("x", scale)
        lines = [ChartLine("one", [0.1, 1.0], values)]
        drawn = str(line_chart(lines, axis, axis, title="t", description="d"))
        one = Interval("one", values[0], values[1], odd, "unknown")
        drawn += interval_chart(
            [one], interval_axis("x", [one]), reference=odd, title="t", description="d"
        )
        assert not re.search(r"[\" ](nan|-?inf)", drawn)


def test_texts_of_charts_are_escaped() -> None:
    scale = Logarithmic.over([1, 4])
    lines = [ChartLine(HOSTILE, [1.0, 2.0], [1.0, 2.0])]
    axis = Axis(HOSTILE, scale)
    drawn = line_chart(lines, axis, axis, title=HOSTILE, description=HOSTILE)
    assert "<script" not in drawn
