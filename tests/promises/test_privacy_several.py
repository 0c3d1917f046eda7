"""The joint release of several outcomes, enumerated: counts, sums, rows, rounding of numbers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.cells.layout import LARGEST_WEIGHT
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.statistics.sums import NoisyTotals
from joint_enumeration import joint_release, losses_of_units, moved_noise, worst_delta, worst_loss
from neighbour_tables import NOISE_IN_ROWS, REGION, REGION_AND_TIER, NeighbourTables, Row

if TYPE_CHECKING:
    from collections.abc import Iterable

SLACK = 1e-9
DELTA = 0.05
ROUNDS = cdp.Number(0, 4)


class Case(NamedTuple):
    """A small space, the outcomes that a unit may have, and how far noisy counts are taken."""

    space: Categories
    rows: tuple[Row, ...]
    reach: int


def _of_levels(*levels: list[float | None]) -> tuple[Row, ...]:
    return tuple(itertools.product(*levels))


def _rounds(*points: float) -> Grid:
    return Grid(number=ROUNDS, points=tuple(int(ROUNDS.steps_to(point)) for point in points))


# Both ends, grid points, and numbers that are rounded.
_NUMBERS: list[float | None] = [0, 0.5, 1, 2.75, 4]
CASES = {
    "two binary": Case(
        Categories(declared=declare({"visit": "0,1", "sale": "0,1"})),
        _of_levels([0, 1], [0, 1]),
        reach=3,
    ),
    "funnel": Case(
        Categories(
            declared=declare(
                {"visit": "0,1", "sale": "0,1", "spend": "0..2"},
                constraints=["sale -> visit", "spend>0 -> sale"],
            )
        ),
        ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 1, 2)),
        reach=2,
    ),
    "binary and three levels": Case(
        Categories(declared=declare({"visit": "0,1", "clicks": "0..2"})),
        _of_levels([0, 1], [0, 1, 2]),
        reach=1,
    ),
    "number": Case(
        Categories(declared=declare({"rounds": ROUNDS}), grids=(_rounds(0, 1, 4),)),
        _of_levels(_NUMBERS),
        reach=4,
    ),
    "binary and number": Case(
        Categories(declared=declare({"visit": "0,1", "rounds": ROUNDS}), grids=(_rounds(0, 1, 4),)),
        _of_levels([0, 1], _NUMBERS),
        reach=1,
    ),
    "missing sale": Case(
        Categories(declared=declare({"sale": "0,1"}, missing=["sale"])),
        _of_levels([0, 1, None]),
        reach=3,
    ),
    "missing number": Case(
        Categories(
            declared=declare({"rounds": ROUNDS}, missing=["rounds"]), grids=(_rounds(0, 1, 4),)
        ),
        _of_levels([*_NUMBERS, None]),
        reach=2,
    ),
    "visit and missing sale": Case(
        Categories(
            declared=declare(
                {"visit": "0,1", "sale": "0,1"}, constraints=["sale -> visit"], missing=["sale"]
            )
        ),
        ((0, 0), (0, None), (1, 0), (1, 1), (1, None)),
        reach=1,
    ),
}
# Every level that sums can be of: everyone, cells, and two breakdowns that overlap.
EVERY_LEVEL = cdp.SumShares(
    totals=0.1,
    clusters=0.1,
    breakdowns=((REGION, 0.1), (REGION_AND_TIER, 0.1)),
    noise_in_rows=NOISE_IN_ROWS,
)
MECHANISMS = {
    "rows": cdp.optimal(epsilon=1.5),
    "sums": cdp.optimal(epsilon=1.5, sums=cdp.SumShares(clusters=0.4)),
    "counts": cdp.optimal(epsilon=1.5, noise_scale=3),
    "counts and sums": cdp.optimal(epsilon=1.5, noise_scale=4, sums=cdp.SumShares(clusters=0.3)),
    "uniform prior and sums": cdp.uniform_prior_dp(epsilon=1.5, sums=cdp.SumShares(clusters=0.5)),
}
WITH_TOTALS = {
    "totals": cdp.optimal(epsilon=1.5, sums=cdp.SumShares(totals=0.4, noise_in_rows=NOISE_IN_ROWS)),
    "totals and a breakdown": cdp.optimal(
        epsilon=1.5,
        sums=cdp.SumShares(totals=0.1, breakdowns=((REGION, 0.3),), noise_in_rows=NOISE_IN_ROWS),
    ),
    "breakdowns that overlap": cdp.optimal(
        epsilon=1.5,
        sums=cdp.SumShares(
            breakdowns=((REGION, 0.1), (REGION_AND_TIER, 0.3)), noise_in_rows=NOISE_IN_ROWS
        ),
    ),
    "every level": cdp.optimal(epsilon=1.5, sums=EVERY_LEVEL),
    "every level and counts": cdp.optimal(epsilon=1.5, noise_scale=6, sums=EVERY_LEVEL),
    "uniform prior and every level": cdp.uniform_prior_dp(epsilon=1.5, sums=EVERY_LEVEL),
}
# Counts of scale 0.4 cost 5, and are hardly ever beyond reach.
WITH_DELTA = {
    "rows": cdp.optimal(epsilon=1.5, delta=DELTA),
    "sums": cdp.optimal(epsilon=1.5, delta=DELTA, sums=cdp.SumShares(clusters=0.4)),
    "every level": cdp.optimal(epsilon=1.5, delta=DELTA, sums=EVERY_LEVEL),
    "counts": cdp.optimal(epsilon=6.5, delta=DELTA, noise_scale=0.4),
    "counts and sums": cdp.optimal(
        epsilon=7, delta=DELTA, noise_scale=0.4, sums=cdp.SumShares(clusters=0.1)
    ),
    "counts and every level": cdp.optimal(
        epsilon=7,
        delta=DELTA,
        noise_scale=0.4,
        sums=cdp.SumShares(
            totals=0.02,
            clusters=0.02,
            breakdowns=((REGION, 0.02), (REGION_AND_TIER, 0.02)),
            noise_in_rows=NOISE_IN_ROWS,
        ),
    ),
}


def tables_of(case: Case, folds: int = 1) -> NeighbourTables:
    """Tables whose other units all have the first of the outcomes that a unit may have."""
    return NeighbourTables(case.space, case.rows[0], folds)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_loss_is_stated_and_reached(case: Case, name: str) -> None:
    mechanism = MECHANISMS[name]
    stated = mechanism.guarantee(case.space).epsilon
    loss = worst_loss(mechanism, tables_of(case), joint_release(mechanism, *case))
    assert loss <= stated + SLACK
    assert stated <= 1.5
    assert loss >= 0.99 * stated


def _slow_if(of: str, name: str) -> tuple[pytest.MarkDecorator, ...]:
    """Noisy counts of five categories or more take a while."""
    many = of in (
        "funnel",
        "binary and three levels",
        "binary and number",
        "visit and missing sale",
    )
    return (pytest.mark.slow,) if many and "counts" in name else ()


def _all_of(cases: Iterable[str], mechanisms: Iterable[str]) -> list[Any]:
    return [
        pytest.param(of, name, marks=_slow_if(of, name))
        for of, name in itertools.product(cases, mechanisms)
    ]


@pytest.mark.parametrize("folds", [1, 2])
@pytest.mark.parametrize(("of", "name"), _all_of(CASES, WITH_TOTALS))
def test_the_heaviest_unit_reaches_what_is_stated(of: str, name: str, folds: int) -> None:
    """The one of the largest weight; others lose less, as their weights say."""
    case, mechanism = CASES[of], WITH_TOTALS[name]
    tables = tables_of(case, folds)
    stated, release = mechanism.guarantee(case.space).epsilon, joint_release(mechanism, *case)
    of_totals = sum(one.epsilon for one in mechanism.statistics if isinstance(one, NoisyTotals))
    assert stated <= 1.5
    assert {weight < LARGEST_WEIGHT for weight in tables.units.values()} == {True, False}
    for unit, loss in losses_of_units(mechanism, tables, release).items():
        most = stated - of_totals * (1 - tables.units[unit] / LARGEST_WEIGHT)
        assert 0.99 * most <= loss <= most + SLACK


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_prior_from_counts_is_accounted_for(case: Case) -> None:
    """A crowd in one category keeps all others at the floor, whatever the noise on counts."""
    mechanism = cdp.cluster_dp(noise_scale=4, prior_floor=0.1, epsilon=1.5, sums=EVERY_LEVEL)
    stated, tables = mechanism.guarantee(case.space).epsilon, tables_of(case, folds=2)
    for n_crowd in (0, 150):
        release = joint_release(mechanism, *case, n_crowd)
        loss = worst_loss(mechanism, tables, release)
        assert loss <= stated + SLACK
    assert loss >= 0.99 * stated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "name"), list(itertools.product(["two binary", "funnel", "number"], WITH_DELTA))
)
def test_delta_is_stated_and_reached(of: str, name: str) -> None:
    """Noisy counts beyond reach are too rare to add a hundredth to δ."""
    mechanism, case = WITH_DELTA[name], CASES[of]
    stated = mechanism.guarantee(case.space)
    assert stated.delta == DELTA
    release = joint_release(mechanism, case.space, case.rows, reach=3)
    assert release.tail() <= 0.01 * DELTA
    reached = worst_delta(mechanism, tables_of(case, folds=2), release, stated.epsilon)
    assert 0.99 * DELTA <= reached <= DELTA * (1 + SLACK)


@pytest.mark.parametrize(("shift", "scale"), [(1, 0.7), (3, 2.0), (-7, 1.3)])
def test_moved_noise_against_a_long_sum(shift: int, scale: float) -> None:
    """The merged outputs are those of the noise itself, value by value; so are loss and δ."""
    values = np.arange(-200, 201)
    log_one, log_other = -np.abs(values) / scale, -np.abs(values - abs(shift)) / scale
    one, other = (np.exp(log) / np.exp(log).sum() for log in (log_one, log_other))
    found = moved_noise(shift, scale)
    assert found.before.sum() == pytest.approx(1)
    assert found.after.sum() == pytest.approx(1)
    assert found.loss() == pytest.approx(abs(shift) / scale)
    for epsilon in (0.1, 0.5, 1.0):
        wanted = float(np.maximum(one - np.exp(epsilon) * other, 0).sum())
        reached = float(np.maximum(found.before - np.exp(epsilon) * found.after, 0).sum())
        assert reached == pytest.approx(wanted)
