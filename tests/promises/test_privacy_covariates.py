"""An owner's covariates, enumerated: what a unit's outcomes lose, and what its covariates lose.

Tables differ in one unit's outcome, covariate, or both. They are counted and drawn by the code of
the release; of the noise, its centre and its scale are written down. All that is published of
covariates is drawn once more by noise that forgets its centre: then nothing may differ.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.mechanisms.draw import draw_together
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.rows.keys import KeyRing, ReleaseKey
from clusterdp.rows.tally import Tally
from clusterdp.spec.columns import Columns
from clusterdp.statistics import covariates as module
from clusterdp.statistics.covariates import Covariate, NoisyCovariates
from clusterdp.statistics.noise import ALONE
from neighbour_tables import Centre, shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp._arrays import IntArray
    from clusterdp.statistics.base import CellTotals

EPSILON, PRODUCTS, OF_COVARIATES = 1.2, 0.3, 0.7
SLACK = 1e-9
KEYS = KeyRing(ReleaseKey(bytes(32)))
SPACE = Categories(declared=declare({"orders": "0..3", "visit": "0,1"}))
COVARIATES = (
    Covariate(outcome="orders", column="before", low=0.0, high=10.0),
    Covariate(outcome="visit", column="age", low=-1.0, high=1.0),
)
COLUMNS = Columns(
    unit="user",
    arm="arm",
    cluster="market",
    outcomes=("orders", "visit"),
    covariates=("before", "age"),
)
# Cells of two clusters and three arms; the last cluster lacks an arm.
SIZES = ((40, 10, 5), (4, 30, 20), (6, 6, 0))
Unit = tuple[int, int, float, float]
ENDS: list[Unit] = list(itertools.product((0, 3), (0, 1), (0.0, 10.0), (-1.0, 1.0)))


def mechanism() -> cdp.Mechanism:
    """Rows, totals and covariates, which cost ε together."""
    made = cdp.optimal(epsilon=EPSILON, sums=cdp.SumShares(totals=0.2))
    moments = NoisyCovariates(
        epsilon=PRODUCTS, covariate_epsilon=OF_COVARIATES, covariates=COVARIATES
    )
    return msgspec.structs.replace(made, statistics=(*made.statistics, moments))


def table(unit: int, own: Unit, others: Unit) -> pl.DataFrame:
    """Units in the order of their cells, all with the same values but for one."""
    counts = np.array(SIZES).ravel()
    cells = np.repeat(np.arange(len(counts)), counts)
    public = pl.DataFrame(
        {"user": np.arange(len(cells)), "arm": cells % 3, "market": cells // 3},
    )
    is_unit = pl.col("user") == unit
    return public.with_columns(
        pl.when(is_unit).then(pl.lit(mine)).otherwise(pl.lit(theirs)).alias(name)
        for name, mine, theirs in zip(
            ("orders", "visit", "before", "age"), own, others, strict=True
        )
    )


def counted(rows: pl.DataFrame) -> tuple[CellTotals, Any]:
    """What the release counts of a table, and its cells."""
    prepared = prepare(rows, columns=COLUMNS, spaces=(SPACE,), control=0)
    encoder = prepared.table.encoder(prepared.encoder)
    tally = Tally(encoder, prepared.layout, [asked_of(mechanism(), prepared.layout)])
    tally.add(tally.encoder(rows, KEYS), KEYS)
    return tally.totals[0], prepared.layout


def centres(rows: pl.DataFrame) -> tuple[list[Centre], list[bytes]]:
    """What noise is added to: of all but rows; and what else is published of covariates."""
    found: list[Centre] = []

    def write_down(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        found.append(Centre(values.copy(), scale, widths))
        return np.zeros_like(values)  # noise that forgets what it was added to

    totals, layout = counted(rows)
    (drawn,) = draw_together([totals], layout, [SPACE], [mechanism()], write_down)
    left = [one.to_numpy().tobytes() for one in drawn[-1].to_columns() for one in [one.explode()]]
    return found, left


def units() -> list[int]:
    """The first unit of every cell that has some."""
    counts = np.array(SIZES).ravel()
    first = np.cumsum(counts) - counts
    return [int(one) for one in first[counts > 0]]


def losses(alike: Callable[[Unit, Unit], bool]) -> Iterator[tuple[float, float, float]]:
    """Of pairs of values of a unit: what totals, products, and the rest of covariates lose."""
    for others in (ENDS[0], ENDS[-1], (0, 1, 10.0, 0.0)):
        for unit in units():
            drawn = {own: centres(table(unit, own, others)) for own in ENDS}
            for old, new in itertools.permutations(ENDS, 2):
                if not alike(old, new):
                    continue
                (before, left), (after, other) = drawn[old], drawn[new]
                assert left == other, "something is published without noise"
                parts = [0.0, 0.0, 0.0]
                for one, two in zip(before, after, strict=True):
                    for shift in shifts([one], [two]):
                        total = sum if one.widths == ALONE else max
                        kind = 0 if one.widths != ALONE or one.values.ndim > 2 else _kind(one)
                        parts[kind] += total(shift.distances) / shift.scale
                yield tuple(parts)  # type: ignore[misc]  # three numbers


def _kind(one: Centre) -> int:
    """1 for products, 2 for imbalance and squares."""
    return 1 if one.values.ndim == 1 else 2


def same_covariates(old: Unit, new: Unit) -> bool:
    return old[2:] == new[2:]


def same_outcomes(old: Unit, new: Unit) -> bool:
    return old[:2] == new[:2]


def audit_outcomes() -> None:
    """Outcomes lose what is stated of products, which is nearly lost; and nothing else."""
    stated = mechanism().guarantee(SPACE).epsilon
    assert stated <= EPSILON + SLACK
    rows = mechanism().row_epsilon(SPACE)
    every = list(losses(same_covariates))
    assert max(one[2] for one in every) == 0, "imbalance or squares depend on an outcome"
    assert 0.9 * PRODUCTS <= max(one[1] for one in every) <= PRODUCTS + SLACK
    assert max(one[0] + one[1] for one in every) + rows <= stated + SLACK


def audit_covariates() -> None:
    """Covariates lose the ε of products and their own, with outcomes or alone."""
    alone = list(losses(same_outcomes))
    assert max(one[0] for one in alone) == 0, "totals depend on a covariate"
    assert max(one[1] for one in alone) <= PRODUCTS + SLACK
    assert 0.9 * OF_COVARIATES <= max(one[2] for one in alone) <= OF_COVARIATES + SLACK
    both = list(losses(lambda old, new: True))
    assert max(one[1] for one in both) <= PRODUCTS + SLACK
    assert max(one[2] for one in both) <= OF_COVARIATES + SLACK


def test_outcomes_lose_what_is_stated() -> None:
    audit_outcomes()


def test_covariates_lose_what_is_stated() -> None:
    audit_covariates()


def halve_the_noise(patch: pytest.MonkeyPatch) -> None:
    """Products have half of their noise."""
    honest = NoisyCovariates.products_scale
    patch.setattr(NoisyCovariates, "products_scale", lambda self, *given: honest(self, *given) / 2)


def one_for_all(patch: pytest.MonkeyPatch) -> None:
    """Each covariate takes all of what they may cost together."""
    honest = NoisyCovariates.squares_scale
    patch.setattr(NoisyCovariates, "squares_scale", lambda self: honest(self) / 2)


def mean_of_buyers(patch: pytest.MonkeyPatch) -> None:
    """The mean that imbalance is measured from is that of units with an outcome above zero."""
    honest = module.true_moments

    def of_buyers(sums: IntArray, layout: Any) -> IntArray:
        found = honest(sums, layout)
        found[0] -= (sums[:, :, 2].sum() // max(sums[:, :, 3].sum(), 1)) * layout.n_units
        return found

    patch.setattr(module, "true_moments", of_buyers)


def fit_slope_on_true_outcomes(patch: pytest.MonkeyPatch) -> None:
    """Products are published with noise in name only: a slope from true ones moves imbalance."""
    honest = NoisyCovariates.restore
    true = module.true_moments
    seen: list[IntArray] = []

    def keep(sums: IntArray, layout: Any) -> IntArray:
        seen.append(true(sums, layout))
        return seen[-1]

    def fitted(self: NoisyCovariates, arrays: Any, layout: Any, space: Any) -> Any:
        slope = seen[-1][2].sum() / max(seen[-1][1].sum(), 1)
        moved = {name: held + int(1000 * slope) for name, held in arrays.items()}
        return honest(self, moved, layout, space)

    patch.setattr(module, "true_moments", keep)
    patch.setattr(NoisyCovariates, "restore", fitted)


def forget_small_cells(patch: pytest.MonkeyPatch) -> None:
    """Noise on imbalance is as if all cells of a cluster had one size."""
    patch.setattr(
        NoisyCovariates,
        "imbalance_scale",
        lambda self, layout: 256 * 1024 * 4 * 2 / (0.875 * self.covariate_epsilon),
    )


@pytest.mark.parametrize(
    ("plant", "audit"),
    [
        (halve_the_noise, audit_outcomes),
        (mean_of_buyers, audit_outcomes),
        (fit_slope_on_true_outcomes, audit_outcomes),
        (one_for_all, audit_covariates),
        (forget_small_cells, audit_covariates),
    ],
)
def test_planted_bugs_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None],
    audit: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        audit()
