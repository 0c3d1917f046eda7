"""The owner's half in a browser, from a table to a folder, a ledger, an answer and a correction."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from browsers import WIDTHS, assert_accessible, assert_fits
from cli_runs import run
from clusterdp.published.verification import verify_folder
from clusterdp.releasing import targets
from running_app import Visit, running_app, visited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser
# What differs between two releases of the same declaration: what follows from noise.
NOISE = {"files", "sha256"}
# Times that no page shows by chance.
SECRET = 40.0 + np.arange(1500) / 7919


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The owner's table; each value of `minutes` is there once."""
    place = tmp_path_factory.mktemp("owner")
    rng = np.random.default_rng()
    n_users = len(SECRET)
    pl.DataFrame(
        {
            "user": rng.permutation(n_users),
            "treated": np.arange(n_users) % 2,
            "market": np.arange(n_users) // 2 % 3,
            "visit": rng.integers(0, 2, n_users),
            "minutes": rng.permutation(SECRET),
            "note": ["x"] * n_users,
        }
    ).write_parquet(place / "shop.parquet")
    return place


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    with running_app() as running, visited(browser, running) as found:
        found.page.set_default_timeout(30_000)
        yield found
        # No true outcome reached the browser, in any answer.
        assert found.bodies
        assert not any(map(shows_outcomes, found.bodies))
        assert shows_outcomes(f"<p>{SECRET[7]}</p>")


def shows_outcomes(body: str) -> bool:
    """Whether a text has one of the times of the table, in six digits or more."""
    secret = {f"{value:.7f}"[:9] for value in SECRET[1:]}
    return not secret.isdisjoint(one[:9] for one in re.findall(r"4\d\.\d{6,}", body))


def at(page: Page) -> str:
    found = re.match(r"http://[^/]+/[^/]+", page.url)
    assert found is not None
    return found[0]


def column(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=re.compile(rf"^{name} "))


def open_table(page: Page, place: Path) -> None:
    page.get_by_role("link", name="clusterdp", exact=True).click()
    page.get_by_role("textbox", name="Path of the table").fill(str(place / "shop.parquet"))
    page.get_by_role("button", name="Open the table").click()
    page.get_by_role("heading", name="What is in your table?").wait_for()


def declare(page: Page, *, epsilon: str = "1", has_minutes: bool = True) -> None:
    """Ids, arms and outcomes; what columns are called suggests the first two."""
    for name, role in (
        ("user", "unit"),
        ("treated", "arm"),
        ("market", "cluster"),
        ("visit", "outcome"),
        ("minutes", "outcome" if has_minutes else ""),
    ):
        column(page, name).get_by_label("This column is").select_option(role)
    column(page, "visit").get_by_label("It can be").select_option("binary")
    column(page, "visit").get_by_label("Expected mean").fill("0.5")
    page.get_by_role("textbox", name="ε to begin with").fill(epsilon)
    if has_minutes:
        column(page, "minutes").get_by_label("It can be").select_option("number")
        column(page, "minutes").get_by_label("Allowed values").fill("0, 100")
        column(page, "minutes").get_by_label("Expected mean").fill("40")
        column(page, "minutes").get_by_label("Expected standard deviation").fill("5")


def plan(page: Page) -> None:
    page.get_by_role("button", name="Plan").click()
    page.get_by_role("heading", name="What can we measure").wait_for()
    page.wait_for_load_state("load")  # its slider works from here on


def choose(page: Page, epsilon: str) -> None:
    page.locator(".decide [name=epsilon]").fill(epsilon)
    page.get_by_role("button", name="Use this ε").click()
    page.get_by_role("heading", name="Where, from which budget").wait_for()


def check(page: Page, **typed: str) -> None:
    for name, text in typed.items():
        page.locator(f"#{name}").fill(text)
    page.get_by_role("button", name="Check", exact=True).click()


def publish(page: Page) -> None:
    page.get_by_role("heading", name="This is going to be published").wait_for()
    page.get_by_label("I checked this.").check()
    page.get_by_role("button", name="Publish", exact=True).click()


def declared_release(page: Page, place: Path, name: str, **typed: str) -> None:
    """Everything up to the button that publishes."""
    open_table(page, place)
    declare(page, epsilon="2", has_minutes=False)
    plan(page)
    choose(page, "2")
    check(page, out=str(place / name), file=str(place / f"{name}.toml"), **typed)


def manifest(folder: Path) -> dict[str, Any]:
    held = json.loads((folder / "manifest.json").read_text())
    return {name: value for name, value in held.items() if name not in NOISE}


@pytest.mark.slow
def test_a_release_is_that_of_the_commands(visit: Visit, place: Path) -> None:
    page = visit.page
    open_table(page, place)
    assert column(page, "user").get_by_label("This column is").input_value() == ""
    assert column(page, "treated").get_by_label("This column is").input_value() == "arm"
    declare(page)
    plan(page)
    # The slider moves what is shown at once, and what is going to be used.
    before = page.locator("[data-slot=sure]").first.inner_text()
    page.locator("#epsilon").press("ArrowRight")
    assert page.locator("[data-slot=sure]").first.inner_text() != before
    assert float(page.locator(".decide [name=epsilon]").input_value()) > 1
    moved = page.evaluate(
        """() => { const slider = document.getElementById("epsilon");
        const begun = performance.now();
        slider.value = 0; slider.dispatchEvent(new Event("input", { bubbles: true }));
        return performance.now() - begun; }"""
    )
    assert moved < 100
    choose(page, "2")
    check(page, out=str(place / "app"), file=str(place / "app.toml"), title="A shop")
    assert "ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2" in page.locator("main").inner_text()
    assert not (place / "app.toml").exists()  # nothing is written before
    page.get_by_role("button", name="Publish", exact=True).click()
    assert page.locator("#sure-error").inner_text() == "Check the box to publish."
    publish(page)
    page.get_by_role("heading", name="Published", exact=True).wait_for()
    assert all(one.problem is None for one in verify_folder(place / "app"))
    # The same declaration by command, as the page says it.
    text = page.get_by_label("The same as experiment.toml").locator("code").inner_text()
    assert text.strip() == (place / "app.toml").read_text().partition("\n\n")[2].strip()
    (place / "cli.toml").write_text(text.replace(str(place / "app"), str(place / "cli")))
    commands = page.get_by_label("The same as commands").locator("code").inner_text()
    for line in commands.replace(str(place / "app.toml"), str(place / "cli.toml")).splitlines():
        done = run(*shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
    assert manifest(place / "app") == manifest(place / "cli")
    assert (place / "app.lock").read_text().splitlines()[-1:] == (
        (place / "cli.lock").read_text().splitlines()[-1:]
    )
    # What was published opens, and effects are estimated from it.
    page.get_by_role("link", name="Check that it is sound").click()
    page.get_by_text("This folder is sound").wait_for()
    page.get_by_role("link", name="Estimate effects").click()
    page.get_by_role("button", name="Estimate", exact=True).click()
    page.get_by_role("heading", name="Effect of treated on visit and minutes").wait_for()


WRONG = (
    ("values-4", "100, 0", "100"),
    ("values-4", "many", "many"),
    ("values-4", "", "Fill in the least and the largest value"),
    ("mean-3", "half", "'half' is not a number."),
    ("mean-3", "7", "7"),
    ("constraint", "visit -> nothing", "nothing"),
    ("metric", "p90(", "p90("),
    ("epsilon", "", "Fill in a number"),
    ("epsilon", "-1", "-1"),
    ("epsilon", "much", "'much' is not a number."),
    ("control", "7", "7"),
)


def test_what_is_wrong_is_said_at_its_field(visit: Visit, place: Path) -> None:
    page = visit.page
    open_table(page, place)
    declare(page)
    for name, typed, sentence in WRONG:
        field = page.locator(f"#{name}")
        before = field.input_value()
        field.fill(typed)
        page.get_by_role("button", name="Plan").click()
        page.get_by_role("alert").wait_for()
        page.wait_for_load_state("load")  # then the field that is wrong has the focus
        said = page.locator(".error:visible")
        assert said.count() == 1, typed
        assert sentence in said.inner_text()
        assert field.input_value() == typed
        assert said.get_attribute("id") == f"{name}-error"
        assert page.locator("#mean-4").input_value() == "40"  # all else is kept
        field.fill(before)


def test_roles_are_checked(visit: Visit, place: Path) -> None:
    page = visit.page
    open_table(page, place)
    page.get_by_role("button", name="Plan").click()
    assert "Choose the column of outcomes." in page.get_by_role("alert").inner_text()
    page.wait_for_load_state("load")
    declare(page)
    column(page, "note").get_by_label("This column is").select_option("unit")
    page.get_by_role("button", name="Plan").click()
    assert page.locator("#role-5-error").inner_text() == "Only one column can be unit."


def test_places_are_checked_and_nothing_is_written(visit: Visit, place: Path) -> None:
    page = visit.page
    (place / "taken.toml").write_text("mine")
    declared_release(page, place, "places")
    publish_button = page.get_by_role("button", name="Publish", exact=True)
    publish_button.wait_for()
    page.get_by_text("Change", exact=True).click()
    for field, typed, sentence in (
        ("out", str(place), "exists"),
        ("file", str(place / "taken.toml"), "exists, and stays as it is"),
        ("file", str(place / "other.txt"), "must end in .toml"),
        ("ledger", str(place / "nothing.db"), "nothing.db"),
    ):
        before = page.locator(f"#{field}").input_value()
        check(page, **{field: typed, "population": "shop" if field == "ledger" else ""})
        page.locator(f"#{field}-error").get_by_text(sentence).wait_for()
        page.wait_for_load_state("load")
        assert page.locator(f"#{field}").input_value() == typed
        page.locator(f"#{field}").fill(before)
    assert (place / "taken.toml").read_text() == "mine"
    assert not (place / "places").exists()
    assert not (place / "places.toml").exists()


@pytest.mark.slow
def test_an_interrupted_release_is_resumed_answered_and_corrected(
    visit: Visit, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, ledger = visit.page, place / "budget.db"
    page.goto(f"{at(page)}/ledger")
    page.locator("#new-ledger").fill(str(ledger))
    page.locator("#cap_epsilon").fill("8")
    page.get_by_role("button", name="Create the ledger").click()
    page.get_by_text(f"Created {ledger}.").wait_for()

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    declared_release(page, place, "resumed", ledger=str(ledger), population="shop")
    with monkeypatch.context() as patched:
        patched.setattr(targets, "totals_table", interrupt)
        publish(page)
        page.get_by_role("heading", name="This was not finished").wait_for()
    assert not (place / "resumed").exists()
    page.get_by_role("link", name="Look at the ledger").click()
    page.get_by_role("button", name="Resume it").click()
    page.get_by_role("heading", name="Published", exact=True).wait_for()
    assert all(one.problem is None for one in verify_folder(place / "resumed"))
    assert cdp.Ledger(ledger).balance("shop").basic.epsilon == 2
    # A question that was asked later is answered, and a correction is added.
    tiers = pl.DataFrame({"user": range(len(SECRET)), "tier": ["a", "b", "c"] * 500})
    cdp.ask(place / "resumed", segments=tiers, by="tier", out=place / "followup", metrics="visit")
    page.goto(f"{at(page)}/answer?ledger={ledger}")
    page.locator("#followup").fill(str(place / "followup"))
    page.locator("#epsilon").fill("0.5")
    page.locator("#out").fill(str(place / "answer"))
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_label("I checked this.").check()
    page.get_by_role("button", name="Publish the answer").click()
    page.get_by_role("heading", name="Published", exact=True).wait_for()
    assert all(one.problem is None for one in verify_folder(place / "answer"))
    page.goto(f"{at(page)}/errata")
    page.locator("#folder").fill(str(place / "resumed"))
    page.locator("#text").fill("12 users were assigned twice")
    page.get_by_role("button", name="Add the correction").click()
    page.get_by_text("Added to errata.md").wait_for()
    assert "12 users were assigned twice" in (place / "resumed" / "errata.md").read_text()


@pytest.mark.slow
def test_a_closed_tab_ends_no_release(browser: Browser, place: Path) -> None:
    with running_app() as running:
        with visited(browser, running) as found:
            declared_release(found.page, place, "closed")
            publish(found.page)
        # The page is gone, and the release is not.
        from clusterdp.app import owner

        for job in owner.running_jobs():
            job.wait(60)
    assert all(one.problem is None for one in verify_folder(place / "closed"))


@pytest.mark.slow
def test_pages_fit_and_are_accessible(visit: Visit, place: Path) -> None:
    page = visit.page
    open_table(page, place)
    declare(page)
    draft = page.url
    plan(page)
    pages = [draft, page.url]
    choose(page, "1")
    check(page, out=str(place / "fits"), file=str(place / "fits.toml"))
    page.get_by_role("heading", name="This is going to be published").wait_for()
    for url in [None, *pages, f"{at(page)}/publish", f"{at(page)}/ledger", f"{at(page)}/answer"]:
        if url is not None:
            page.goto(url)
        page.set_viewport_size({"width": WIDTHS[-1], "height": 900})
        assert_accessible(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert_fits(page)
    page.set_viewport_size({"width": WIDTHS[-1], "height": 900})
