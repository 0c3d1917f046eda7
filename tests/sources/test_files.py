"""Files as they come: what is damaged or of another kind is refused in one line, without values."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release
from clusterdp.rows.column_types import NO_NUMBER, PLAIN, texts_as_numbers
from clusterdp.sources.opening import scan_files
from clusterdp.sources.source import ColumnRequest, NamedSource
from clusterdp.sources.text import find_delimiter
from source_forms import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def lines_of(table: pl.DataFrame) -> list[str]:
    return [json.dumps(row) for row in table.to_dicts()]


def cut(form: str) -> Callable[[pl.DataFrame, Path], Path]:
    """A compressed file without its end."""

    def make(table: pl.DataFrame, path: Path) -> Path:
        whole = FORMS[form](table, path.parent).name
        path.write_bytes((path.parent / whole).read_bytes()[:-200])
        return path

    return make


def written(change: Callable[[list[str]], list[str]]) -> Callable[[pl.DataFrame, Path], Path]:
    """NDJSON with other lines."""

    def make(table: pl.DataFrame, path: Path) -> Path:
        path.write_text("\n".join(change(lines_of(table))))
        return path

    return make


def as_bytes(content: bytes) -> Callable[[pl.DataFrame, Path], Path]:
    def make(table: pl.DataFrame, path: Path) -> Path:
        path.write_bytes(content)
        return path

    return make


DAMAGED: dict[str, tuple[str, Callable[[pl.DataFrame, Path], Path], str]] = {
    "a gzip file that ends early": ("t.csv.gz", cut("csv.gz"), "ends too early"),
    "a zstd file that ends early": ("t.csv.zst", cut("csv.zst"), "ends too early"),
    "NDJSON that ends early": ("t.jsonl.gz", cut("jsonl.gz"), "ends too early"),
    "zstd that is none": ("t.csv.zst", as_bytes(b"words, no zstd"), "no column 'user'"),
    "a broken line": (
        "t.ndjson",
        written(lambda lines: [*lines, '{"user": "word4321"']),
        "every line must be one JSON object",
    ),
    "a list of objects": (
        "t.jsonl",
        written(lambda lines: [f"[{','.join(lines)}]"]),
        "JSON object",
    ),
    "text of Windows": ("t.csv", as_bytes("user;é4321\n1;2\n".encode("cp1252")), "is not UTF-8"),
    "an empty file": ("t.csv", as_bytes(b""), "cannot be read as csv"),
    "an empty NDJSON file": ("t.ndjson", as_bytes(b""), "cannot be read as ndjson"),
    "a sheet": ("t.xlsx", as_bytes(b"PK"), "save the sheet as CSV"),
    "SPSS": ("t.sav", as_bytes(b"$FL2"), "pandas.read_spss"),
    "Stata": ("t.dta", as_bytes(b"x"), "pandas.read_stata"),
    "JSON": ("t.json", as_bytes(b"[]"), "jq -c '.[]'"),
    "an archive": ("t.csv.zip", as_bytes(b"PK"), "unpack it"),
    "compressed Parquet": ("t.parquet.gz", as_bytes(b"PK"), "unpack it"),
    "a database": ("t.sqlite", as_bytes(b"x"), "give sqlite:///FILE, and a query"),
    "a text of some kind": ("t.txt", as_bytes(b"x"), "name it .csv"),
    "anything": ("t.doc", as_bytes(b"x"), "use .parquet, .csv, .tsv, .ndjson"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_cannot_be_read_is_refused_in_one_line(
    case: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    name, make, message = DAMAGED[case]
    (tmp_path / "in").mkdir()
    path = make(table, tmp_path / "in" / name)
    assert_refused(release(path, tmp_path / "out"), message)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_no_sqlite_database_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"word4321" * 1000)
    asked = ("--query", "select * from people")
    refused = release(f"sqlite:///{tmp_path}/t.db", tmp_path / "out", *asked)
    assert_refused(refused, "is not a SQLite database, or is damaged")
    refused = release(f"sqlite:///{tmp_path}/none.db", tmp_path / "out", *asked)
    assert_refused(refused, "there is no database")


def test_sqlite_is_only_read(table: pl.DataFrame, tmp_path: Path) -> None:
    source = FORMS["sqlite"](table, tmp_path)
    before = (tmp_path / "people.sqlite").read_bytes()
    for query in ("delete from people returning *", "select 1; drop table people", "selec 1"):
        refused = release(source.name, tmp_path / "out", "--query", query)
        assert_refused(refused, "SQLite rejected the query")
    assert (tmp_path / "people.sqlite").read_bytes() == before


def test_the_header_alone_tells_the_delimiter() -> None:
    assert find_delimiter("user;treated;clicks") == ";"
    assert find_delimiter("user|treated,or not|clicks") == "|"
    assert find_delimiter('"a;b;c;d",treated') == ","
    assert find_delimiter("user\ttreated") == "\t"
    assert find_delimiter("user") == ","


# What one line may say of its outcome. Alone in a file, or beside others, it is read as itself.
OUTCOMES = ("1", "2.5", '"word"', "true", "null", '[1, "a"]', '{"a": 1}', '{"a": {"b": []}}', "[]")
NUMBERS = {"1": 1.0, "2.5": 2.5, "true": 1.0, "null": None}


def test_types_of_other_lines_do_not_decide_how_a_json_outcome_is_read(tmp_path: Path) -> None:
    """Polars finds no type for some of these together."""

    def outcomes_of(lines: list[str]) -> list[float | None]:
        path = tmp_path / "t.ndjson"
        path.write_text("".join(f'{{"user": "a", "n": 1, "o": {line}}}\n' for line in lines))
        wanted = ColumnRequest(public=("user", "n"), outcomes=("o",))
        rows = scan_files(NamedSource(name=str(path)), wanted)
        assert rows.collect_schema() == {"user": pl.String, "n": pl.Int64, "o": pl.String}
        return texts_as_numbers(rows, ["o"], PLAIN).collect()["o"].to_list()

    alone = {line: outcomes_of([line])[0] for line in OUTCOMES}
    assert alone == {**dict.fromkeys(OUTCOMES, NO_NUMBER), **NUMBERS}
    for first in OUTCOMES:
        for second in OUTCOMES:
            assert outcomes_of([first, second]) == [alone[first], alone[second]]


def test_an_outcome_that_no_line_names_is_missing(table: pl.DataFrame, tmp_path: Path) -> None:
    """Whether some line names it can follow from outcomes."""
    path = tmp_path / "t.ndjson"
    path.write_text("\n".join(lines_of(table.drop("clicks"))))
    assert_refused(release(path, tmp_path / "out"), "has missing values")
    some = [row if row["clicks"] else {**row, "clicks": None} for row in table.to_dicts()]
    path.write_text("\n".join(json.dumps(row) for row in some))
    assert_refused(release(path, tmp_path / "out"), "has missing values")


def test_compressed_parts_of_a_folder(table: pl.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.csv.gz").write_bytes(gzip.compress(table[:100].write_csv().encode()))
    table[100:].write_csv(folder / "b.csv")
    assert release(folder, tmp_path / "out").exit_code == 0
    assert cdp.read_release(tmp_path / "out").layout.n_units == len(table)


def test_types_follow_from_all_rows_of_all_files(tmp_path: Path) -> None:
    """Polars looks at ten files by itself."""
    for part in range(14):
        odd = ("007", "word") if part == 13 else (str(part), f"{part}.5")
        (tmp_path / f"{part:02}.csv").write_text(f"user,score,o\n{odd[0]},{odd[1]},1\n")
    wanted = ColumnRequest(public=("user", "score"), outcomes=("o",), unit="user")
    rows = scan_files(NamedSource(name=str(tmp_path)), wanted).collect()
    assert rows.schema == {"user": pl.String, "score": pl.String, "o": pl.String}
    assert rows["user"].to_list() == [*map(str, range(13)), "007"]


@pytest.mark.parametrize(
    ("module", "source", "extra"),
    [
        ("adbc_driver_postgresql", "postgresql://me@host/shop", "postgres"),
        ("duckdb", "duckdb://", "duckdb"),
    ],
)
def test_what_is_not_installed_is_named_with_its_command(
    module: str, source: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    refused = release(source, tmp_path / "out", "--query", "select 1")
    assert_refused(refused, f"pip install '.[{extra}]'")
