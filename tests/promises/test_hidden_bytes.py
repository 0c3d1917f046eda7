"""Bytes of a Parquet file that no reader shows: `verify` sees them, wherever they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import clusterdp as cdp
from clusterdp.engines.local.table import write_parquet
from clusterdp.published import _parquet_bytes, verification
from clusterdp.published.verification import verify_folder
from clusterdp.storage.reading import LocalFiles
from forging import forge

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = b"user 17 clicked"
FILES = ("units.parquet", "cells.parquet", "channels.parquet")


def publish(table: pl.DataFrame, out: Path, **more: Any) -> Path:
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"clicks": "0..3"}}
    asked |= {"cluster": "market", "mechanism": cdp.optimal(epsilon=2)}
    cdp.publish(table, out=out, **asked, **more)
    return out


@pytest.fixture
def folder(table: pl.DataFrame, tmp_path: Path) -> Path:
    return publish(table, tmp_path / "out")


def failed(folder: Path) -> list[str]:
    return [check.problem for check in verify_folder(folder) if check.problem is not None]


def before_the_footer(path: Path) -> None:
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:start] + HIDDEN + content[start:])


def as_if_by_another_polars(path: Path) -> None:
    here = f"version {pl.__version__}".encode()
    other = b"version " + b"9" * (len(here) - 8)
    content = path.read_bytes()
    assert here in content
    path.write_bytes(content.replace(here, other))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by_another", [False, True])
def test_between_pages_and_footer(name: str, by_another: bool, folder: Path) -> None:
    assert failed(folder) == []
    if by_another:
        as_if_by_another_polars(folder / name)
        forge(folder)
        assert failed(folder) == []
        assert any("except inside pages" in check.name for check in verify_folder(folder))
    before_the_footer(folder / name)
    pl.read_parquet(folder / name)  # which shows nothing of it
    forge(folder)
    assert failed(folder) == [f"{name} has bytes outside its columns"]


def test_a_file_is_to_the_last_byte_what_its_columns_lead_to(folder: Path) -> None:
    """As where values are encoded, or compressed, in a way that spells something."""
    path = folder / "units.parquet"
    pl.read_parquet(path).write_parquet(path, compression_level=9, statistics=False)
    forge(folder)
    (problem,) = failed(folder)
    assert problem.startswith("units.parquet is not what Polars")


@pytest.mark.parametrize("before", ["a column", "the first", "the footer", None])
@pytest.mark.parametrize("named", [False, True], ids=["no column's", "a column's"])
def test_between_columns_and_pages(before: str | None, named: bool, tmp_path: Path) -> None:
    """With a footer that leads around what is hidden, or names it as part of a column."""
    rows = pl.select(one=pl.int_range(2**19), two=pl.int_range(2**19).hash())
    path, files = tmp_path / "t.parquet", LocalFiles(tmp_path)
    write_parquet(rows.lazy(), path)
    ranges = sorted(
        _parquet_bytes.ParquetBytes.in_folder(files, path.name).footer[1][4][0][1],
        key=lambda one: one[3][9],
    )
    columns = [one[3] for one in ranges]
    pieces = [files.part(path.name, min(one.get(11, one[9]), one[9]), one[7]) for one in columns]
    content, described = b"PAR1", []
    for place, piece in enumerate(pieces):
        hides = before == ("the first" if place == 0 else "a column")
        content += HIDDEN * (hides and not named)
        held = piece + HIDDEN * (before is not None and named and place == 0)
        described.append({3: {4: 6, 7: len(held), 9: len(content)}})
        content += held
    content += HIDDEN * (before == "the footer")
    path.write_bytes(content)
    footer = {4: [{1: described}]}
    try:
        file = _parquet_bytes.ParquetBytes.in_folder(files, path.name)
        found = file.is_filled(footer, len(content))
    except (LookupError, ValueError):
        found = False
    assert found == (before is None)


def test_spark_writes_rows_in_parts_alone(folder: Path) -> None:
    """Its files may have statistics, which could spell anything."""
    path = folder / "cells.parquet"
    here, content = _parquet_bytes.writer_here().encode(), path.read_bytes()
    start, end = b"parquet-mr version ", b" (build 0)"
    forged = start + b"1" * (len(here) - len(start + end)) + end
    path.write_bytes(content.replace(here, forged))
    forge(folder)
    assert failed(folder) == ["cells.parquet was written by unknown software"]


def in_files(folder: Path, *n_rows: int) -> None:
    """Put the rows into files, as many machines write them."""
    rows = pl.read_parquet(folder / "units.parquet")
    (folder / "units.parquet").unlink()
    (folder / "units").mkdir()
    names = [f"units/part-{number:05}.parquet" for number in range(len(n_rows))]
    for name, length in zip(names, n_rows, strict=True):
        write_parquet(rows.head(length).lazy(), folder / name)
        rows = rows.slice(length)

    def rename(content: dict[str, Any]) -> None:
        del content["files"]["units.parquet"]
        content["files"] |= dict.fromkeys(names)

    forge(folder, rename)


@pytest.mark.parametrize(
    ("n_rows", "order", "problem"),
    [
        ((300, 300), "ids", None),
        ((290, 310), "ids", None),
        ((200, 200, 200), "ids", "the number of row files does not match"),
        ((300, 299, 1), "table", "the number of row files does not match"),
        ((600,), "table", "the number of row files does not match"),
        ((300, 300), "table", None),
        ((301, 299), "table", "part-00000.parquet has an unexpected number of rows"),
    ],
)
def test_in_how_many_files_rows_are(
    n_rows: tuple[int, ...],
    order: str,
    problem: str | None,
    table: pl.DataFrame,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = publish(table, tmp_path / "out", keep_order=order == "table")
    monkeypatch.setattr(verification, "ROWS_PER_PART", 300)
    in_files(folder, *n_rows)
    found = failed(folder)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_behind_what_a_page_unpacks_to() -> None:
    packed = pa.compress(b"released" * 9999, codec="zstd", asbytes=True)
    skipped = (0x184D2A50).to_bytes(4, "little") + len(HIDDEN).to_bytes(4, "little") + HIDDEN
    assert _parquet_bytes.is_frame(packed)
    for forged in (packed + skipped, skipped + packed, packed + HIDDEN, packed[:-1], HIDDEN):
        assert not _parquet_bytes.is_frame(forged)
