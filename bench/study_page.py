"""Pages of docs/studies: Markdown, with long tables as CSV files beside the page."""

from __future__ import annotations

import csv
import re
from pathlib import Path

STUDIES_FOLDER = Path(__file__).parents[1] / "docs" / "studies"
# A table of more rows than this is a CSV file.
MOST_ROWS = 20
_PARTS = re.compile(r"^#+ (?P<heading>.*)\n|(?P<table>(?:^\|.*\n)+)", re.MULTILINE)
_RULE = re.compile(r"\|[\s:|-]+\|")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")


def write_study(name: str, text: str) -> None:
    """Write the page of a study, and each of its long tables as a CSV file beside it."""
    (STUDIES_FOLDER / f"{name}.md").write_text(_with_files(name, text), encoding="utf-8")


def written_rows(name: str, header: tuple[str, ...]) -> list[list[str]]:
    """The rows of the table with this header, in the page of a study or in a file beside it."""
    for path in sorted(STUDIES_FOLDER.glob(f"{name}*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            first, *rows = csv.reader(file)
        if tuple(first) == header:
            return rows
    for found in _PARTS.finditer((STUDIES_FOLDER / f"{name}.md").read_text(encoding="utf-8")):
        if found["table"] is not None:
            first, *rows = _cells(found["table"])
            if tuple(first) == header:
                return rows
    return []


def without_thousands(text: str) -> str:
    """Text without the commas that group digits, as files have numbers."""
    return _THOUSANDS.sub("", text)


def _with_files(name: str, text: str) -> str:
    """The page with links in place of its long tables."""
    headings = [""]
    names: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found["heading"] is not None:
            level = found[0].index(" ")
            headings[level:] = [found["heading"]]
            return found[0]
        if found[0].count("\n") - 2 <= MOST_ROWS:
            return found[0]
        header, *rows = _cells(found[0])
        names.append(_file_name(name, headings[2:], names))
        _write_csv(STUDIES_FOLDER / names[-1], header, rows)
        return f"[{len(rows)} rows as CSV]({names[-1]}): {', '.join(header)}.\n"

    return _PARTS.sub(replaced, text)


def _cells(table: str) -> list[list[str]]:
    """The cells of a table, its header first. A line across becomes a column of its own."""
    lines = [line for line in table.splitlines() if not _RULE.fullmatch(line)]
    header, *rows = [_row(line) for line in lines]
    if not any(_is_across(row) for row in rows):
        return [header, *rows]
    across, kept = "", []
    for row in rows:
        if _is_across(row):
            across = row[0].strip("*")
        else:
            kept.append([across, *row])
    return [["guarantee", *header], *kept]


def _row(line: str) -> list[str]:
    return [without_thousands(cell.strip()) for cell in line.strip("|").split("|")]


def _is_across(row: list[str]) -> bool:
    return row[0].startswith("*") and not any(row[1:])


def _file_name(name: str, headings: list[str], taken: list[str]) -> str:
    words = re.findall("[a-z0-9]+", " ".join(headings).replace("ε", "epsilon").lower())[:8]
    stem = "_".join([name, *words])
    number = 2
    file = f"{stem}.csv"
    while file in taken:
        file, number = f"{stem}_{number}.csv", number + 1
    return file


def _write_csv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
