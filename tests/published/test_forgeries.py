"""Folders that were changed and sealed anew: what could carry outcomes is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from clusterdp.published.manifest import unseal
from clusterdp.published.verification import verify_folder
from clusterdp.storage.files import FileSum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def seal_again(folder: Path, name: str) -> None:
    """Name a changed file in the manifest, as whoever can write the folder could."""
    manifest = unseal((folder / "manifest.json").read_bytes())
    files = {**manifest.files, name: FileSum.of(folder / name)}
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


def test_another_readme(published: Path) -> None:
    path = published / "README.md"
    path.write_text(path.read_text().replace("epsilon = 2.0", "epsilon = 0.001"))
    seal_again(published, "README.md")
    assert problems(published) == ["the README follows from the manifest"]
