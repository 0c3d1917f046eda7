"""Pages of studies: long tables are CSV files, and one writer makes both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
from bench import study_page

from sitepages.pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
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
    table = pl.read_csv(tmp_path / "some_by_epsilon.csv")
    assert table.columns == ["guarantee", "n", "share"]
    assert table.row(1) == ("all", 1001, "1%")


def test_no_page_has_a_long_table() -> None:
    for path in (DOCS / "studies").glob("*.md"):
        lengths = [table.count("\n") - 2 for table in TABLE.findall(path.read_text())]
        assert max(lengths, default=0) <= study_page.MOST_ROWS, path.name
