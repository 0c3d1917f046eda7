"""Terms are read back as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.published.verification import verify_folder

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

NAMES: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": "clicks=0..3",
}


@pytest.mark.parametrize("worth", [64, np.float64(8), 2.5])
def test_a_number_may_be_whole(worth: float, table: pl.DataFrame, tmp_path: Path) -> None:
    """A folder whose manifest had `64` for `64.0` could not be read, and its ε was spent."""
    shares = cdp.SumShares(totals=0.2, noise_in_rows=worth)
    cdp.publish(table, out=tmp_path / "out", mechanism=cdp.optimal(epsilon=3, sums=shares), **NAMES)
    assert all(check.problem is None for check in verify_folder(tmp_path / "out"))
