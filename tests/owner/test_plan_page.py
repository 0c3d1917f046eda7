"""The page of a plan: its numbers are the plan's, at every ε; it names nothing of the owner's."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from browsers import WIDTHS, assert_accessible, assert_fits, opened
from cli_runs import assert_refused, run
from clusterdp._text import percent, three_digits, two_digits
from clusterdp.owner.keywords import plan_line
from clusterdp.owner.plan import make_plan
from clusterdp.spec.parse import parse, parse_options
from page_checks import assert_sound_page, page_text

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

HOSTILE = "<script>alert(1)</script>'&{{7*7}}"
N_USERS = 3000
PEOPLE = pl.DataFrame(
    {
        "user": range(N_USERS),
        "treated": np.arange(N_USERS) % 2,
        "market": np.arange(N_USERS) // 2 % 3,
        "tier": np.arange(N_USERS) // 6 % 5 // 2,
        "visit": np.zeros(N_USERS, dtype=int),
        "sale": np.zeros(N_USERS, dtype=int),
        "rounds": np.zeros(N_USERS),
    }
)
ONE: dict[str, Any] = {
    "outcomes": {"visit": "0,1"},
    "baseline": {"visit": 0.2},
    "unit": "user",
    "arm": "treated",
    "mechanism": "optimal",
    "epsilon": 2,
}
TWO_QUESTIONS: dict[str, Any] = {
    **ONE,
    "outcomes": {"visit": "0,1", "sale": "0,1", "rounds": "0..3"},
    "constraint": ["sale -> visit"],
    "question": ["visit,sale", "rounds"],
    "baseline": {"visit": 0.2, "sale": 0.1, "rounds": "mean:1,std:1"},
    "breakdown": ["tier"],
    "counts_share": 0.0,
}


class Made:
    """A plan and its page, with what the page says at each ε."""

    def __init__(self, plan: cdp.Plan) -> None:
        self.plan, self.page = plan, plan.to_html()
        found = re.search(r'id="stops">(.*?)</script>', self.page, re.DOTALL)
        assert found
        self.stops: list[dict[str, Any]] = json.loads(found[1])

    def text(self, epsilon: str, key: str) -> str:
        (stop,) = [one for one in self.stops if one["texts"]["epsilon"] == epsilon]
        return str(stop["texts"][key])


@pytest.fixture(scope="module")
def one() -> Made:
    return Made(cdp.plan(PEOPLE, **ONE))


@pytest.fixture(scope="module")
def questions() -> Made:
    return Made(cdp.plan(PEOPLE, **TWO_QUESTIONS))


def test_numbers_in_two_digits() -> None:
    numbers = (1.0, 0.0357, 171_234, 99.6, 7.74, 0.999, 0.0)
    assert [two_digits(number) for number in numbers] == [
        *("1.0", "0.036", "170,000", "100", "7.7", "1.0", "0")
    ]


def test_numbers_in_three_digits() -> None:
    numbers = (0.3, 12.5, 2500.0, 1_234_567.0, 0.01234, -3.0, 0.0)
    assert [three_digits(number) for number in numbers] == [
        *("0.3", "12.5", "2,500", "1,230,000", "0.0123", "-3", "0")
    ]


@pytest.mark.parametrize("made", ["one", "questions"])
def test_pages_are_sound(made: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(made).page
    assert_sound_page(page)
    assert "no outcome was read" in page_text(page).lower()
    assert len(page.encode()) < 200_000


def test_the_numbers_are_those_of_the_plan(one: Made) -> None:
    said = one.plan.to_dict()
    for place, name in enumerate(("all units", "10% segment")):
        effect = said["visible"][name]["visit"]["detectable_effect"]
        assert one.text("2", f"change-0-0-{place}") == f"{two_digits(100 * effect)} pp"
    written = page_text(one.page)
    overall, segment = (one.text("2", f"change-0-0-{place}") for place in (0, 1))
    sentence = (
        f"With ε = 2 we can detect a change in visit of {overall} among all 3,000 units. In a 10% "
        f"segment the smallest detectable change is {segment}"
    )
    assert re.search(r"privacy costs a factor of 1\.\d among all units, and of", written)
    assert sentence in written.replace("\xa0", " ").replace(" ,", ",")
    assert cdp.Guarantee(epsilon=2).statement().plain in written
    for name, part in said["budget"].items():
        (stop,) = [stop for stop in one.stops if stop["texts"]["epsilon"] == "2"]
        assert stop["shares"][f"0-{name}"] == pytest.approx(100 * part, abs=0.01)


def test_other_budgets_are_as_plans_for_them(one: Made) -> None:
    other = cdp.plan(PEOPLE, **{**ONE, "epsilon": 0.5}).to_dict()
    effect = other["visible"]["10% segment"]["visit"]["detectable_effect"]
    assert one.text("0.5", "change-0-0-1") == f"{two_digits(100 * effect)} pp"
    sure_after = [
        float(re.findall(r"([\d.]+)%", stop["texts"]["privacy"])[1]) for stop in one.stops
    ]
    assert sure_after == sorted(sure_after)
    assert [float(stop["texts"]["epsilon"]) for stop in one.stops] == [
        *(0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    ]


def test_every_question_is_shown_and_has_all_of_epsilon(questions: Made) -> None:
    first, second = questions.plan.to_dict()["questions"]
    effect = second["visible"]["all units"]["rounds"]["detectable_effect"]
    assert questions.text("2", "change-1-0-0") == two_digits(effect)
    groups = [value for name, value in first["visible"].items() if name.startswith("tier=")]
    worst = max(group["sale"]["detectable_effect"] for group in groups)
    assert questions.text("2", "change-0-1-1") == f"{two_digits(100 * worst)} pp"
    for stop in questions.stops:
        assert sum(stop["shares"].values()) == pytest.approx(100, abs=0.1)
    (stop,) = [stop for stop in questions.stops if stop["texts"]["epsilon"] == "2"]
    assert first["epsilon"] == second["epsilon"] == 2
    assert first["budget"] == pytest.approx(second["budget"])
    assert stop["shares"]["0-rows"] == pytest.approx(100 * first["budget"]["rows"], abs=0.01)
    assert first["asked"] + second["asked"] == 1
    said = " ".join(page_text(questions.page).split())
    assert f"visit, sale: {percent(first['asked'])} of units answer this question." in said
    assert said.count("our baselines:") + said.count("No baseline was given") <= 1


def test_names_are_text_and_never_run() -> None:
    labels = pl.Series([f"{HOSTILE}0", f"{HOSTILE}1"]).gather(PEOPLE["treated"])
    people = PEOPLE.rename({"visit": HOSTILE, "tier": f"{HOSTILE}tier"}).with_columns(
        treated=labels
    )
    options = {
        **ONE,
        "outcomes": {HOSTILE: "0,1"},
        "baseline": None,
        "control": f"{HOSTILE}0",
        "breakdown": [f"{HOSTILE}tier"],
    }
    page = cdp.plan(people, **options).to_html()
    assert_sound_page(page)
    assert page.count("<script") == 2
    assert HOSTILE in page_text(page)
    assert f"{HOSTILE}tier groups" in page_text(page)


def test_the_command_makes_the_same_plan_and_names_no_file(tmp_path: Path) -> None:
    import shlex

    source = tmp_path / "people.parquet"
    PEOPLE.write_parquet(source)
    options = {**ONE, "baseline": {"visit": 0.2}, "passthrough": ["tier"]}
    options |= {"folds": 3, "mechanism": None}
    plan = cdp.plan(source, **options)
    page = plan.to_html()
    assert str(tmp_path) not in page
    assert "people" not in page_text(page).replace("protects people", "")
    found = re.search(r'data-slot="command">(.*?)</code>', page, re.DOTALL)
    assert found
    words = shlex.split(unescape(found[1]).replace("\\\n", ""))
    assert words[:3] == ["clusterdp", "plan", "TABLE"]
    files = {"TABLE": str(source), "experiment.toml": str(tmp_path / "experiment.toml")}
    done = run(*(files.get(word, word) for word in words[1:]))
    assert done.exit_code == 0, done.output
    again = cdp.Plan.load(tmp_path / "experiment.lock").options.to_dict()
    del again["experiment"]
    assert again == plan.options.to_dict()
    by_file = cdp.plan(tmp_path / "experiment.toml").to_html()
    assert "clusterdp plan experiment.toml --epsilon 2" in page_text(by_file)
    assert "clusterdp release experiment.toml" in page_text(by_file)


def test_a_budget_that_cannot_be_had_is_left_out() -> None:
    """Noisy counts cost 1 at every ε, so that nothing is left for rows at a smaller one."""
    given = parse({**ONE, "mechanism": "cluster-dp", "noise_scale": 2.0})
    made = Made(make_plan(PEOPLE, given))
    budgets = [float(stop["texts"]["epsilon"]) for stop in made.stops]
    assert min(budgets) > 1
    assert 2 in budgets
    assert max(budgets) == 8
    assert "clusterdp plan experiment.toml --epsilon" in page_text(made.page)


def test_a_pilot_that_was_asked_for_stays_at_every_budget() -> None:
    people = PEOPLE.with_columns(rounds=0.0)
    options = {**ONE, "outcomes": {"rounds": "0..3"}, "baseline": None, "mechanism": None}
    made = Made(cdp.plan(people, **options, pilot=0.1, optimize_for="segments"))
    assert made.plan.options.pilot == 0.1
    assert all(stop["shares"]["0-pilot"] == pytest.approx(10) for stop in made.stops)
    assert "--pilot 0.1" in made.text("2", "command")
    assert "No baseline was given for rounds" in page_text(made.page)


def test_aggregates_alone_have_no_segments() -> None:
    made = Made(cdp.plan(PEOPLE, **{**ONE, "mechanism": "noisy-histogram"}))
    assert_sound_page(made.page)
    assert "10% segment" not in page_text(made.page)
    assert "change-0-0-1" not in made.stops[0]["texts"]


def test_the_command_line_writes_the_page(tmp_path: Path) -> None:
    source, page = tmp_path / "people.parquet", tmp_path / "plan.html"
    PEOPLE.write_parquet(source)
    words = "--unit user --arm treated --outcome visit=0,1 --baseline visit=0.2 --epsilon 2"
    options = words.split()
    done = run("plan", source, *options, "--html", page)
    assert done.exit_code == 0, done.output
    assert f"{page}" in done.stdout.replace("\n", "")
    assert (
        page.read_text(encoding="utf-8") == cdp.plan(PEOPLE, **ONE | {"mechanism": None}).to_html()
    )
    refused = run("plan", source, *options, "--html", tmp_path / "nowhere" / "plan.html")
    assert_refused(refused, "there is no folder")


def shown(page: Page) -> tuple[str, ...]:
    """What changes with ε: sentences, the mark, the bar, the command."""
    mark = page.locator(".panel:not([hidden]) .mark line")
    return (
        page.locator(".panel:not([hidden]) .lead").inner_text(),
        page.locator(".lead.privacy").inner_text(),
        str(page.locator(".sure .after").get_attribute("width")),
        str(mark.get_attribute("x1")),
        str(page.locator(".stack .part").first.get_attribute("style")),
        page.locator("#plan-command").inner_text(),
    )


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_slider_moves_all_of_it(
    width: int, tmp_path: Path, browser: Browser, questions: Made
) -> None:
    path = tmp_path / "plan.html"
    path.write_text(questions.page, encoding="utf-8")
    with opened(browser, path, width) as page:
        assert_fits(page)
        assert_accessible(page)
        planned = shown(page)
        assert "With ε\xa0=\xa02 we" in planned[0]
        page.keyboard.press("Tab")  # past the link that skips
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowLeft")
        by_key = shown(page)
        assert "With ε\xa0=\xa01.5 we" in by_key[0]
        assert questions.text("1.5", "change-0-0-0") in by_key[0]
        assert all(before != after for before, after in zip(planned, by_key, strict=True))
        assert page.locator("#epsilon").get_attribute("aria-valuetext") == "ε = 1.5"
        box = page.locator("#epsilon").bounding_box()
        assert box
        page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
        by_mouse = shown(page)
        assert "With ε\xa0=\xa08 we" in by_mouse[0]
        assert all(before != after for before, after in zip(by_key, by_mouse, strict=True))
        page.select_option("#metric", label="rounds")
        assert "change in rounds" in shown(page)[0]
        assert page.locator(".panel:visible").count() == 3
        assert_fits(page)


@pytest.mark.browser
def test_a_phone_shows_the_whole_table(tmp_path: Path, browser: Browser, one: Made) -> None:
    path = tmp_path / "plan.html"
    path.write_text(one.page, encoding="utf-8")
    with opened(browser, path, WIDTHS[0]) as page:
        wider = "table => table.parentElement.scrollWidth - table.parentElement.clientWidth"
        assert page.locator("table.mde").evaluate(wider) == 0


@pytest.mark.browser
def test_without_scripts_the_page_is_complete(
    tmp_path: Path, browser: Browser, questions: Made
) -> None:
    path = tmp_path / "plan.html"
    path.write_text(questions.page, encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 800, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator(".panel:visible").count() == 9
    assert page.locator(".panel .mark:visible").count() == 3
    assert not page.locator("#controls").is_visible()
    context.close()


def test_the_command_of_a_page_names_no_query() -> None:
    options = parse_options(
        {
            "input": "duckdb://",
            "query": "select * from '/home/me/people.csv'",
            "arm": "treated",
            "outcomes": {"visited": ["no", "yes"]},
        }
    )
    command = plan_line(options, 1.0)
    assert "--query QUERY" in command
    assert "--outcome visited=no,yes" in command
    assert "people" not in command
