"""Folders that were changed and sealed anew: what could carry outcomes is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
import pytest

from clusterdp.published.manifest import unseal
from clusterdp.published.verification import verify_folder
from clusterdp.storage.files import FileSum
from edited_cards import edited_card

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def seal_again(folder: Path, name: str) -> None:
    """Name a changed file in the manifest, as whoever can write the folder could."""
    manifest = unseal((folder / "manifest.json").read_bytes())
    files = {**manifest.files, name: FileSum.of(folder / name)}
    if name != "index.html":
        page = edited_card((folder / "index.html").read_text(), manifest.files, files)
        (folder / "index.html").write_text(page)
        files["index.html"] = FileSum.of(folder / "index.html")
    (folder / "manifest.json").write_bytes(manifest.sealed(files))


def problems(folder: Path) -> list[str]:
    return [check.name for check in verify_folder(folder) if check.problem is not None]


def in_the_lowest_bit(rows: pl.DataFrame) -> pl.DataFrame:
    """A secret of each row in the last bit of its debiased outcome."""
    numbers = rows["clicks_debiased"].to_numpy().copy()
    moved = np.where(np.arange(len(numbers)) % 2, np.nextafter(numbers, np.inf), numbers)
    return rows.with_columns(clicks_debiased=pl.Series(moved))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (in_the_lowest_bit, "debiased outcomes follow from responses"),
        (
            lambda rows: rows.with_columns(response=pl.lit(9999, dtype=pl.Int32)),
            "rows fill the cells",
        ),
        (
            lambda rows: rows.with_columns(response=pl.lit(-1, dtype=pl.Int32)),
            "rows fill the cells",
        ),
    ],
    ids=["the lowest bit", "a response beyond all", "a response below all"],
)
def test_rows_that_say_more_than_their_responses(
    change: Callable[[pl.DataFrame], pl.DataFrame], problem: str, published: Path
) -> None:
    assert problems(published) == []
    path = published / "units.parquet"
    rows = change(pl.read_parquet(path))
    path.unlink()
    rows.write_parquet(path)
    seal_again(published, "units.parquet")
    assert problems(published) == [problem]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("README.md", "the README"), ("index.html", "index.html")],
)
def test_another_text_for_people(name: str, problem: str, published: Path) -> None:
    path = published / name
    path.write_text(path.read_text().replace("epsilon = 2.0", "epsilon = 0.001"))
    seal_again(published, name)
    assert problems(published) == [f"{problem} follows from the manifest"]


def test_another_provenance_needs_another_page(published: Path) -> None:
    manifest = unseal((published / "manifest.json").read_bytes())
    about = msgspec.structs.replace(manifest.provenance, contact="somebody else")
    forged = msgspec.structs.replace(manifest, provenance=about)
    (published / "manifest.json").write_bytes(forged.sealed(manifest.files))
    texts = ["the README follows from the manifest", "index.html follows from the manifest"]
    assert problems(published) == texts


def test_pages_of_another_version_are_said_not_to_be_checked(published: Path) -> None:
    manifest = unseal((published / "manifest.json").read_bytes())
    other = msgspec.structs.replace(manifest, software="clusterdp 9.9")
    (published / "README.md").write_text("Epsilon is 0.")
    files = {**manifest.files, "README.md": FileSum.of(published / "README.md")}
    (published / "manifest.json").write_bytes(other.sealed(files))
    names = [check.name for check in verify_folder(published)]
    assert not any("follows from the manifest" in name for name in names)
    assert any("were not checked beyond their checksums" in name for name in names)
