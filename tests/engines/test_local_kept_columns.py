"""Kept columns of tables too large to be counted whole: numbers by some rows, others by values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.engines.local import table as local_table
from clusterdp.engines.local.table import LocalTable
from clusterdp.releasing.prepare import prepare_table
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import add_exact_noise
from runs import release_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable

N_ROWS = 60_000
# Of each value there are 30 rows: one in ten of them would be too few to tell.
N_VALUES = N_ROWS // 30
OF_VALUES: dict[str, tuple[Callable[[Any, np.random.Generator], Any], bool]] = {
    "text that reveals": (
        lambda y, rng: texts(2 * rng.integers(0, N_VALUES // 2, N_ROWS) + y),
        True,
    ),
    "text that does not": (lambda y, rng: texts(rng.integers(0, N_VALUES, N_ROWS)), False),
    "names": (lambda y, rng: texts(rng.permutation(N_ROWS)), False),
    "numbers that reveal": (lambda y, rng: y + rng.random(N_ROWS) / 2, True),
    "numbers that do not": (lambda y, rng: rng.random(N_ROWS), False),
    "few numbers that reveal": (lambda y, rng: 7 - 2 * y, True),
    "few numbers that do not": (lambda y, rng: rng.integers(0, 9, N_ROWS), False),
    "nothing at all": (lambda y, rng: pl.Series([None] * N_ROWS, dtype=pl.Float64), False),
}


def texts(numbers: Any) -> pl.Series:
    return pl.select(pl.format("value {}", pl.Series(numbers))).to_series()


@pytest.mark.filterwarnings("ignore::clusterdp.OwnerNotice")
@pytest.mark.parametrize("case", OF_VALUES)
def test_large_tables_are_judged_as_small_ones_are(
    case: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_table, "_SAMPLED_NUMBERS", 2**12)
    monkeypatch.setattr(local_table, "_MOST_COUNTED", 2**10)
    make, reveals = OF_VALUES[case]
    clicks = rng.integers(0, 2, N_ROWS)
    frame = pl.DataFrame(
        {
            "user": np.arange(N_ROWS),
            "treated": rng.integers(0, 2, N_ROWS),
            "clicks": clicks,
            "extra": pl.Series(make(clicks, rng)),
        }
    )
    table = LocalTable(
        rows=frame.lazy(),
        columns=Columns(
            unit="user", arm="treated", cluster=None, outcomes=("clicks",), kept=("extra",)
        ),
        spaces=(one_outcome("clicks", cdp.OutcomeSpace.binary()),),
    )
    prepared, key = prepare_table(table), ReleaseKey.from_system()
    told: list[str] = []
    monkeypatch.setattr("clusterdp.releasing.prepare.notify_owner", told.append)
    release_in_memory(prepared, (cdp.uniform_prior_dp(epsilon=1),), key, add_exact_noise)
    assert ["'extra' almost certainly reveals" in one for one in told] == [True] * reveals
