"""The same key, the same noise and the same channel give the rows they always gave.

`fixtures/rows.csv` was written before the modules were moved into packages, and anew when rows came
to carry responses; its debiased outcomes were those of before, to the last digit. Rows of the
optimal mechanism changed when its channel came to be found by another method. That channel is kept
beside them: its last digits differ between processors. A change that alters rows on purpose writes
both anew: `python tests/promises/test_same_rows.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.channels.optimal import OptimalRows
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import ALONE
from runs import run_release

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray

FIXTURES = Path(__file__).parents[1] / "fixtures"
ROWS, CHANNEL = FIXTURES / "rows.csv", FIXTURES / "optimal_channel.npz"
N_ROWS = 300
MECHANISMS = {
    "uniform": cdp.uniform_prior_dp(epsilon=1),
    "clusters": cdp.cluster_dp(
        noise_scale=4, prior_floor=0.05, epsilon=2, sums=cdp.SumShares(clusters=0.2)
    ),
    "population": cdp.cluster_free_dp(noise_scale=4, prior_floor=0.05, resample_prob=0.4),
    "optimal": cdp.optimal(epsilon=1.5, sums=cdp.SumShares(clusters=0.3)),
}
SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
COLUMNS = Columns(
    unit="unit", arm="treated", cluster="market", outcomes=("clicks",), kept=("user",)
)
IDS = {"integers": pl.col("user"), "text": pl.format("né {}", pl.col("user"))}


def fixed_noise(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    """Numbers that look a little like noise, and are the same on every machine."""
    pattern = np.arange(values.size).reshape(values.shape) % 5 - 2
    return np.asarray(values + pattern * int(np.ceil(scale)))


def kept_channel() -> OptimalChannel:
    """The channel that the rows of the optimal mechanism went through."""
    with np.load(CHANNEL) as arrays:
        return OptimalChannel(**dict(arrays), values=SPACE.metric_values())


def rows_now() -> pl.DataFrame:
    """One line per unit, with a column for each kind of ids and mechanism."""
    number = pl.int_range(N_ROWS)
    table = pl.select(
        user=number * 7919 % 100_003,
        treated=number % 2,
        market=number // 2 % 3,
        clicks=number * number % 4,
    )
    found = table.select("user").sort("user")
    for kind, ids in IDS.items():
        for name, mechanism in MECHANISMS.items():
            released = run_release(
                table.with_columns(unit=ids),
                mechanism=mechanism,
                space=SPACE,
                columns=COLUMNS,
                control=None,
                clip=False,
                key=ReleaseKey(bytes(range(32))),
                add_noise=fixed_noise,
            )
            units = released.units.sort("user")
            found = found.with_columns(
                units["response"].alias(f"{kind} {name} response"),
                units["clicks_debiased"].alias(f"{kind} {name} debiased"),
            )
    return found


@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
def test_rows_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OptimalRows, "public_channel", lambda *_: kept_channel())
    before, now = pl.read_csv(ROWS, infer_schema_length=None), rows_now()
    assert before.columns == now.columns
    np.testing.assert_allclose(now.to_numpy(), before.to_numpy(), rtol=1e-9, atol=1e-9)


if __name__ == "__main__":
    rows_now().write_csv(ROWS)
    found = MECHANISMS["optimal"].settled_rows(SPACE).public_channel(SPACE)
    arrays: dict[str, Any] = dict(found.arrays())
    np.savez_compressed(CHANNEL, **arrays)
