"""Terms are read back as they are written, or nothing is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.mechanisms.draw import Question
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.published.verification import verify_folder
from clusterdp.spec.terms import Terms
from clusterdp.statistics.sums import NoisyTotals

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


@pytest.mark.parametrize("written", [64, np.float64(8)])
def test_what_cannot_be_read_back_is_refused(written: float) -> None:
    """A statistic that does not take care of its numbers is noticed before anything is spent."""
    space = Categories(declared=declare({"clicks": "0,1"}), grids=())
    shares = cdp.SumShares(totals=0.2, noise_in_rows=64.0)
    mechanism = cdp.optimal(epsilon=3, sums=shares)
    totals = mechanism.find(NoisyTotals)
    assert totals is not None
    msgspec.structs.force_setattr(totals, "noise_in_rows", written)
    with pytest.raises(cdp.ParameterError, match="of a mechanism"):
        Terms.from_questions([Question(space=space, mechanism=mechanism)])
