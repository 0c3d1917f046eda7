"""The site: its guides run, it is built without a warning, and it needs no other host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import nbformat
import pytest
import typer.main

import clusterdp as cdp
from browsers import WIDTHS, assert_accessible, assert_fits
from clusterdp.cli.app import app
from sitepages.notebooks import to_notebook, to_python
from sitepages.pages import DOCS, FOLDERS, Page, guides, start_of
from sitepages.running import GuideError, run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

ROOT = DOCS.parent
# What a browser would load by itself: scripts, styles, images, fonts.
LOADED = re.compile(r"""(?:src=|url\(|@import )["']?([^"')\s>]+)|<link[^>]*href="([^"]+)"[^>]*>""")
PAGES = [page for folder in FOLDERS for page in guides(folder) if page.runs]
# One worker builds the site, once.
ONE_WORKER = pytest.mark.xdist_group("site")


# Libraries of the guides warn about their own dependencies.
@pytest.mark.filterwarnings("default")
@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_guides_run(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "96")
    printed = run_folder(folder)
    assert any(any(outputs) for outputs in printed.values())


def test_a_block_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitepages.pages.DOCS", tmp_path)
    (tmp_path / "index.md").write_text("[A page](start/page.md)\n")
    (tmp_path / "start").mkdir()
    page = "# A page\n\n```python\nprint(1)\n```\n\n```python\nprint(missing)\n```\n"
    (tmp_path / "start" / "page.md").write_text(page)
    with pytest.raises(GuideError, match=r"start/page\.md, line 8: NameError"):
        run_folder("start")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.notebook_name)
def test_a_notebook_has_the_code_of_its_page(page: Page) -> None:
    start = start_of(page)
    printed = [f"printed {number}" for number, _ in enumerate(page.blocks)]
    notebook = to_notebook(page, printed, start)
    nbformat.validate(notebook)
    cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    own = [code for code in map(to_python, page.blocks) if code is not None]
    before = [] if start is None else start.blocks
    setup = [block.code.rstrip("\n") for block in before if block.language == "python"]
    assert cells == [*setup, *own]


def test_the_reference_has_every_public_name_and_every_command() -> None:
    api = (DOCS / "reference" / "api.md").read_text()
    names = re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", api, re.MULTILINE)
    assert sorted(names) == sorted(set(cdp.__all__) - {"__version__"})
    page = (DOCS / "reference" / "cli.md").read_text()
    shown = re.findall(r"^clusterdp (\w+)", page, re.MULTILINE)
    assert sorted(set(shown)) == sorted(typer.main.get_group(app).commands)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly, without running the guides once more."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    folder = tmp_path_factory.mktemp("site")
    strict = ["-W", "-n", "--keep-going", "-q", "-D", "run_guides=0"]
    places = ["-c", "docs", "-d", str(folder / "doctrees"), ".", str(folder / "site")]
    done = subprocess.run(  # noqa: S603 - our own interpreter and our own documents
        [sys.executable, "-m", "sphinx", *strict, *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
@ONE_WORKER
def test_the_site_is_built_strictly_and_asks_no_other_host(site: Path) -> None:
    assert (site / "index.html").exists()
    notebooks = {path.name for path in (site / "notebooks").glob("*.ipynb")}
    assert notebooks == {page.notebook_name for page in PAGES}
    loaded = {
        target
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for found in LOADED.findall(path.read_text())
        for target in found
    }
    assert loaded
    assert [target for target in loaded if re.match(r"(https?:)?//", target)] == []


@pytest.mark.slow
@pytest.mark.browser
@ONE_WORKER
def test_a_browser_shows_the_first_page_and_searches(site: Path, tmp_path: Path) -> None:
    assert "Choose clusters and breakdowns" in opened(site / "docs" / "index.html", tmp_path)
    found = opened(site / "search.html", tmp_path, "?q=ledger")
    assert re.search(r'<a href="docs/owner/budget\.html', found)


@pytest.mark.slow
@pytest.mark.browser
@ONE_WORKER
def test_the_site_fits_a_phone_and_is_accessible_and_searched_by_keyboard(
    site: Path, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
    for name in ("owner/plan", "analyst/effects", "reference/cli", "explanation/how", "index"):
        page.goto((site / "docs" / f"{name}.html").as_uri())
        assert_fits(page)
        assert_accessible(page)
    page.get_by_placeholder("Search the guides").focus()
    page.keyboard.type("quantile")
    page.keyboard.press("Enter")
    found = page.locator("ul.search li a")
    found.first.wait_for()
    assert "analyst/metrics.html" in " ".join(
        found.evaluate_all("links => links.map(one => one.href)")
    )
    page.close()


def opened(page: Path, home: Path, query: str = "") -> str:
    """A page as Chromium has it after its scripts ran, without a network."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not on this machine")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}"]
    offline = ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    done = subprocess.run(  # noqa: S603 - our own pages
        [program, *options, *offline, "--dump-dom", f"{page.as_uri()}{query}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(home)},
    )
    return done.stdout
