"""`clusterdp calibrate`: the rows of a folder, for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_are_written_as_python_gives_them(
    suffix: str, published: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"rows.{suffix}"
    assert run("calibrate", published, "--out", out).exit_code == 0
    written = pl.read_csv(out) if suffix == "csv" else pl.read_parquet(out)
    expected = cdp.calibrated_rows(published).collect()
    assert written.columns == expected.columns
    assert written["clicks_calibrated"].to_list() == expected["clicks_calibrated"].to_list()


def test_other_files_and_places_are_refused(published: Path, tmp_path: Path) -> None:
    for out, why in (
        (tmp_path / "rows.xlsx", "must end in .parquet or .csv"),
        (published / "rows.csv", "inside the published folder"),
        (tmp_path / "missing" / "rows.csv", "make it first"),
    ):
        assert_refused(run("calibrate", published, "--out", out), why)
        assert not out.exists()
