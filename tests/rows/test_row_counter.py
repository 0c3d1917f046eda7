"""Pass 1 counts what the statistics ask for, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.outcomes.baseline import choose_categories
from clusterdp.outcomes.declaration import declare
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.rows.encoding import RowEncoder
from clusterdp.rows.keys import ReleaseKey
from clusterdp.rows.tally import CountRequest, Tally
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from clusterdp.outcomes.categories import Categories

KEY = ReleaseKey(bytes(32))
COLUMNS = Columns(unit="user", arm="arm", cluster="cluster", outcomes=("bought", "spend"))


def space_of() -> Categories:
    declared = declare({"bought": "0,1,2000000000", "spend": cdp.Number(0, 10)})
    return choose_categories(declared, {}, 12)[0]


@pytest.mark.parametrize(
    ("mechanism", "sums", "counts"),
    [
        (cdp.optimal(epsilon=2), False, False),
        (cdp.optimal(epsilon=2, sums=cdp.SumShares(clusters=0.3)), True, False),
        (cdp.optimal(epsilon=2, noise_scale=9), False, True),
        (cdp.optimal(epsilon=2, noise_scale=9, sums=cdp.SumShares(clusters=0.3)), True, True),
    ],
    ids=["rows alone", "sums", "counts", "both"],
)
def test_what_is_counted(mechanism: cdp.Mechanism, *, sums: bool, counts: bool) -> None:
    table = pl.DataFrame({"user": [1, 2], "arm": [0, 1], "cluster": [0, 0]})
    table = table.with_columns(bought=pl.lit(2_000_000_000), spend=pl.lit(3.5))
    space = space_of()
    prepared = prepare(table, columns=COLUMNS, spaces=(space,))
    encoder = RowEncoder.for_spaces(COLUMNS, (space,), prepared.encoder, clip=False)
    asked = asked_of(mechanism, prepared.layout)
    (counter,) = Tally(encoder, prepared.layout, [asked]).questions
    assert bool(counter.n_sums) == sums
    assert bool(counter.rounding_keys) == counts
    assert counter.table.shape[1] == space.n_categories * (1 + counts) + 4 * sums


def test_sums_of_numbers_are_those_of_the_table(rng: np.random.Generator) -> None:
    n_rows = 400
    table = pl.DataFrame(
        {
            "user": np.arange(n_rows),
            "arm": np.arange(n_rows) % 2,
            "cluster": np.zeros(n_rows, np.int64),
            "bought": rng.choice([0, 1, 2_000_000_000], n_rows),
            "spend": np.round(rng.uniform(-2, 12, n_rows), 3),
        }
    )
    space = space_of()
    prepared = prepare(table, columns=COLUMNS, spaces=(space,))
    (totals,) = prepared.count([CountRequest(sums=True)]).counted.totals
    unit = float(space.metric_lattice().units[1])
    clipped = table.with_columns(pl.col("spend").clip(0, 10)).group_by("arm").agg(pl.sum("spend"))
    expected = clipped.sort("arm")["spend"].to_numpy()
    np.testing.assert_allclose(totals.sums[0, :, 1] * unit, expected, rtol=1e-9)
