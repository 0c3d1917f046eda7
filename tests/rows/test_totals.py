"""Totals by group, fold and arm are those of the table, to the last digit."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.cells.layout import LARGEST_WEIGHT
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.rows.keys import ReleaseKey, UnitIds, fold_numbers
from clusterdp.spec.clusters import PublicClusters
from clusterdp.spec.columns import Columns
from clusterdp.statistics.sums import DrawnMetricSums
from runs import run_release

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray

HOURS = cdp.Number(0, 40)
FINITE = Categories(declared=declare({"visit": "0,1", "spend": "-5,0,2.5,1000000"}))
NUMBERS = Categories(
    declared=declare({"visit": "0,1", "hours": HOURS}, metrics=["visit*hours"]),
    grids=(Grid(number=HOURS, points=(0, HOURS.n_steps // 4, HOURS.n_steps)),),
)
ALONE = Categories(declared=declare({"visit": "0,1", "hours": HOURS}), grids=NUMBERS.grids)
N_UNITS = 900


def experiment(rng: np.random.Generator) -> pl.DataFrame:
    """Clusters of many sizes, arms of different shares, and groups of every type."""
    user = rng.choice(2**62, N_UNITS, replace=False)
    market = np.minimum(rng.geometric(0.15, N_UNITS), 12)
    return pl.DataFrame(
        {
            "user": user,
            "treated": (rng.random(N_UNITS) < 0.1 + 0.06 * market).astype(np.int64),
            "market": market,
            "half": rng.integers(0, 2, N_UNITS),
            "region": rng.choice(["north", "south", "é"], N_UNITS),
            "new": rng.random(N_UNITS) < 0.2,
            "day": np.datetime64("2024-01-01") + rng.integers(0, 4, N_UNITS),
            "one": np.full(N_UNITS, 7),
            "visit": rng.integers(0, 2, N_UNITS),
            "spend": rng.choice([-5, 0, 2.5, 1_000_000], N_UNITS),
            "hours": np.round(rng.uniform(0, 40, N_UNITS), 3),
        }
    )


class Case(NamedTuple):
    """How a table is released."""

    space: Categories
    cluster: str | None = "market"
    by: tuple[str, ...] = ("region",)
    folds: int = 2
    min_cell_size: int | None = None
    text_ids: bool = False


CASES = {
    "finite outcomes": Case(FINITE),
    "numbers": Case(NUMBERS),
    "squares of numbers": Case(ALONE),
    "one fold": Case(NUMBERS, folds=1),
    "five folds": Case(FINITE, folds=5),
    "ids as text": Case(NUMBERS, text_ids=True),
    "two columns": Case(NUMBERS, by=("new", "day")),
    "integers": Case(FINITE, by=("half",)),
    "one group": Case(FINITE, by=("one",)),
    "clusters": Case(FINITE, by=("market",)),
    "pooled clusters": Case(NUMBERS, min_cell_size=30),
    "crossed clusters": Case(FINITE, cluster="half,new", by=("half",)),
    "crossed and pooled": Case(NUMBERS, cluster="market,half", by=("half",), min_cell_size=20),
    "no clusters": Case(NUMBERS, cluster=None),
}


def as_they_are(values: IntArray, scale: float, widths: tuple[int, ...] = (1,)) -> IntArray:
    """No noise: what is published then is what was counted."""
    del scale
    return values


def multiples(values: pl.Series, unit: Fraction) -> list[int]:
    """Outcomes in units: the nearest ones, half a unit to the even one."""
    return [round(Fraction(value) / unit) for value in values.to_list()]


@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_totals_are_those_of_the_table(case: Case, rng: np.random.Generator) -> None:
    table = experiment(rng)
    if case.text_ids:
        table = table.with_columns(user=pl.format("unité {}", pl.col("user")))
    released = release_of(table, case)
    totals = {
        one.level: one
        for one in released.questions[0].statistics
        if isinstance(one, DrawnMetricSums) and one.level is not None
    }
    assert set(totals) == {(), case.by}
    rows = counted_by_hand(released, table, case)
    for by, drawn in totals.items():
        labels = [table[name].unique().sort().to_list() for name in by]
        n_groups = math.prod(map(len, labels))
        assert drawn.sums.shape[:-1] == (n_groups, case.folds, 2)
        for kind, found in (("sum", drawn.sums), ("square", drawn.squares)):
            if found is None:
                assert "square 0" not in rows
                continue
            names = [f"{kind} {place}" for place in range(found.shape[-1])]
            wanted = np.zeros_like(found)
            for row in (
                rows.group_by([*by, "fold", "treated"]).agg(pl.sum(*names)).iter_rows(named=True)
            ):
                group = 0
                for name, known in zip(by, labels, strict=True):
                    group = group * len(known) + known.index(row[name])
                wanted[group, row["fold"], row["treated"]] = [row[name] for name in names]
            np.testing.assert_array_equal(found, wanted)


def release_of(table: pl.DataFrame, case: Case) -> cdp.Release:
    sums = cdp.SumShares(totals=0.2, breakdowns=((case.by, 0.2),))
    return run_release(
        table,
        mechanism=cdp.uniform_prior_dp(epsilon=2, sums=sums),
        space=case.space,
        columns=Columns(
            unit="user",
            arm="treated",
            cluster=case.cluster,
            outcomes=case.space.declared.names,
            breakdowns=(case.by,),
            folds=case.folds,
        ),
        clusters=PublicClusters(min_cell_size=case.min_cell_size),
        key=ReleaseKey(bytes(32)),
        add_noise=as_they_are,
    )


def counted_by_hand(released: cdp.Release, table: pl.DataFrame, case: Case) -> pl.DataFrame:
    """Each unit's group, fold and arm as they are published, and its weighted metrics."""
    named: dict[str, Any] = {one.name: one.space.unit for one in case.space.declared.outcomes}
    if case.cluster is not None and "," in case.cluster:
        assert set(case.cluster.split(",")) <= set(released.units.columns)
    secret = table.select("user", *named)
    units: pl.DataFrame = released.units
    rows = units.join(secret, on="user").join(released.cells, on=list(released.columns.cell))
    assert len(rows) == N_UNITS
    if case.folds == 1:
        assert "fold" not in rows
        rows = rows.with_columns(fold=pl.lit(0, pl.Int32))
    np.testing.assert_array_equal(rows["fold"], fold_numbers(UnitIds(rows["user"]), case.folds))
    metrics = [multiples(rows[name], unit) for name, unit in named.items()]
    if case.space is NUMBERS:
        metrics.append([one * other for one, other in zip(*metrics, strict=True)])
    summed = {f"sum {place}": metric for place, metric in enumerate(metrics)}
    squares = filter(None, map(squares_of, metrics, *lattice_of(case.space)))
    summed |= {f"square {place}": metric for place, metric in enumerate(squares)}
    weight = rows["weight"].to_list()
    return rows.with_columns(
        pl.Series(name, [w * m for w, m in zip(weight, metric, strict=True)])
        for name, metric in summed.items()
    )


def lattice_of(space: Categories) -> tuple[list[int], list[int], list[bool]]:
    """Of each metric: least plus largest integer, lost bits, and whether squares are published."""
    lattice = space.metric_lattice()
    ends = [min(one) + max(one) for one in lattice.integers.tolist()]
    return ends, list(lattice.shifts), list(lattice.squared)


def squares_of(metric: list[int], ends: int, shift: int, squared: bool) -> list[int] | None:
    """Squares of twice the distance from the middle, less some bits; None if not published."""
    return [((2 * one - ends) >> shift) ** 2 for one in metric] if squared else None


def test_the_largest_totals_fit_64_bits_or_are_refused() -> None:
    """The largest weight, and the largest value; squares of three values take twice the bits."""
    table = pl.DataFrame({"user": range(64), "treated": [0, 1] * 32, "y": [2**30] * 64})
    columns = Columns(unit="user", arm="treated", cluster=None, outcomes=("y",))
    asked: dict[str, Any] = {
        "mechanism": cdp.uniform_prior_dp(epsilon=2, sums=cdp.SumShares(totals=0.2)),
        "columns": columns,
        "key": ReleaseKey(bytes(32)),
        "add_noise": as_they_are,
    }
    space = Categories(declared=declare({"y": f"1,{2**30}"}))
    (drawn,) = run_release(table, space=space, **asked).questions[0].statistics
    assert isinstance(drawn, DrawnMetricSums)
    assert drawn.sums.ravel().tolist() == [LARGEST_WEIGHT * 32 * 2**30] * 2
    space = Categories(declared=declare({"y": f"0,1,{2**30}"}))
    with pytest.raises(cdp.ParameterError, match="too large for exact 64-bit sums"):
        run_release(table, space=space, **asked)
