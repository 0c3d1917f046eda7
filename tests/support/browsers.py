"""Pages in a real browser: Chromium, driven by Playwright, from disk and without a network."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

WIDTHS = (400, 800, 1400)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As tests run in containers: without a sandbox, and without much shared memory.
_SWITCHES = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def chromium() -> str | None:
    """Where Chromium is; None if it is not installed."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def missing_browser() -> str | None:
    """Why no page can be opened; None if one can."""
    return None if chromium() else "no Chromium on this machine: apt-get install chromium"


def running_browser() -> Iterator[Browser]:
    """A browser, for as long as it is used."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=_SWITCHES)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, path: Path, width: int) -> Iterator[Page]:
    """A page from disk at some width; fails at the end if it asked for anything or complained."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda one: requests.append(one.url))
    page.on("console", lambda one: complaints.append(one.text))
    page.on("pageerror", lambda one: complaints.append(str(one)))
    page.goto(path.as_uri())
    yield page
    context.close()
    asked = [url for url in requests if url != path.as_uri() and not url.startswith("data:")]
    assert asked == []
    assert complaints == []


def assert_fits(page: Page) -> None:
    """Nothing reaches over the side of the page."""
    assert page.evaluate(_OVERFLOW) <= 0


def assert_accessible(page: Page) -> None:
    """Axe finds nothing serious on a page, light or dark, with all that is folded opened."""
    from axe_playwright_python.sync_playwright import Axe

    folded = page.locator("details:not([open])").element_handles()
    for one in folded:
        one.evaluate("one => { one.open = true; }")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        named = [(one["id"], [node["html"] for node in one["nodes"]]) for one in grave]
        assert named == [], scheme
    for one in folded:
        one.evaluate("one => { one.open = false; }")
