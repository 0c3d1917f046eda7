"""Pages of studies: long tables are CSV files, and one writer makes both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
from bench import study_page
from bench.release_lines import HEADER

from sitepages.pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
PAGES = ("README.md", "release_coverage.md")
PAGE = """# A study

## By ε
| n | share |
|---|---:|
| *all* | |
{rows}

| short | table |
|---|---|
| 1 | 2 |
"""


def test_long_tables_become_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_page, "STUDIES_FOLDER", tmp_path)
    rows = "\n".join(f"| {1000 + number:,} | {number}% |" for number in range(25))
    study_page.write_study("some", PAGE.format(rows=rows))
    written = (tmp_path / "some.md").read_text()
    assert "[25 rows as CSV](some_by_epsilon.csv): guarantee, n, share.\n\n| short |" in written
    assert len(study_page.written_rows("some", ("guarantee", "n", "share"))) == 25
    assert study_page.written_rows("some", ("short", "table")) == [["1", "2"]]
    table = pl.read_csv(tmp_path / "some_by_epsilon.csv")
    assert table.columns == ["guarantee", "n", "share"]
    assert table.row(1) == ("all", 1001, "1%")


def test_no_page_has_a_long_table() -> None:
    for path in (DOCS / "studies").glob("*.md"):
        lengths = [table.count("\n") - 2 for table in TABLE.findall(path.read_text())]
        assert max(lengths, default=0) <= study_page.MOST_ROWS, path.name


def test_the_overview_says_what_the_page_of_releases_says() -> None:
    overview, written = ((DOCS / "studies" / name).read_text() for name in PAGES)
    found = re.search(r"(\d+ of (\d+) lines) meet every criterion", overview)
    assert found is not None
    assert f"{found[1]} are as wanted in everything" in written
    assert len(study_page.written_rows("release_coverage", HEADER)) == int(found[2])
