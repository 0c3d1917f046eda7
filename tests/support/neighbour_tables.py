"""What one unit's outcomes move in all sums of a release, as the machine itself counts them.

Tables differ in one unit's outcomes. Both are counted and drawn by the code of the release; of the
noise, its centre and its scale are written down instead. So whatever is wrong with weights, groups,
folds or scales shows in the distance between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from clusterdp.cells.layout import stratified_weights
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.rows.keys import KeyRing, ReleaseKey
from clusterdp.rows.tally import Tally
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import ALONE

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.releasing.prepare import OpenTable

# The true outcomes of one unit, in the order in which they are declared; None is missing.
Row = tuple[float | None, ...]

KEY = ReleaseKey(bytes(32))
# What caps the weights of units in totals.
NOISE_IN_ROWS = 50.0
# Cells whose units have other weights in totals.
SIZES = np.array([[200, 60], [20, 180], [40, 40]])
REGION, REGION_AND_TIER = ("region",), ("region", "tier")


class Centre(NamedTuple):
    """Numbers that noise of one scale is added to, as many together as there are widths."""

    values: IntArray
    scale: float
    widths: tuple[int, ...]


@dataclass(frozen=True)
class NeighbourTables:
    """Tables of the same units, with two breakdowns of which one refines the other.

    Attributes:
        space: The categories.
        others: The outcomes of all units but one.
        folds: How many folds units are in.
    """

    space: Categories
    others: Row
    folds: int = 1

    @cached_property
    def public(self) -> pl.DataFrame:
        """The public columns: units in the order of their cells."""
        n_arms, n_units = SIZES.shape[1], int(SIZES.sum())
        cells = np.repeat(np.arange(SIZES.size), SIZES.ravel())
        user = np.arange(n_units)
        return pl.DataFrame(
            {
                "user": user,
                "treated": cells % n_arms,
                "market": cells // n_arms,
                "region": user % 3,
                "tier": (user // 3) % 2 == 0,
            }
        )

    @cached_property
    def prepared(self) -> OpenTable:
        """The table as a release prepares it."""
        return self.with_unit(0, self.others)

    def with_unit(self, unit: int, row: Row) -> OpenTable:
        """The same where one unit has some outcomes."""
        columns = Columns(
            unit="user",
            arm="treated",
            cluster="market",
            outcomes=self.space.declared.names,
            missing=self.space.declared.missing,
            breakdowns=(REGION, REGION_AND_TIER),
            folds=self.folds,
        )
        table = self._with_outcomes(unit, row)
        return prepare(table, columns=columns, spaces=(self.space,))

    @cached_property
    def units(self) -> dict[int, int]:
        """A unit of each cell, with its weight in totals, the heaviest first."""
        weights = stratified_weights(self.prepared.layout, NOISE_IN_ROWS).ravel().tolist()
        first = (np.cumsum(SIZES) - SIZES.ravel()).tolist()
        return dict(sorted(zip(first, weights, strict=True), key=lambda one: -one[1]))

    def centres(self, mechanism: Mechanism, unit: int, row: Row) -> list[Centre]:
        """What noise is added to where a unit has these outcomes, but for counts of categories."""
        layout = self.prepared.layout
        encoder, keys = self.prepared.table.encoder(self.prepared.encoder), KeyRing(KEY)
        tally = Tally(encoder, layout, [asked_of(mechanism, layout)])
        tally.add(tally.encoder(self._with_outcomes(unit, row), keys), keys)
        (totals,) = tally.totals
        found = []

        def write_down(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
            found.append(Centre(values.copy(), scale, widths))
            return values

        for statistic in mechanism.statistics:
            if not statistic.of_categories:
                statistic.draw(totals, layout, self.space, write_down)
        return found

    def _with_outcomes(self, unit: int, row: Row) -> pl.DataFrame:
        """The table where one unit has some outcomes, and all others have theirs."""
        is_unit = pl.col("user") == unit
        outcomes = zip(self.space.declared.names, row, self.others, strict=True)
        return self.public.with_columns(
            pl.when(is_unit).then(pl.lit(own)).otherwise(pl.lit(other)).alias(name)
            for name, own, other in outcomes
        )


class Shift(NamedTuple):
    """By how much noisy numbers are moved, each in steps of its width, and their noise."""

    distances: tuple[int, ...]
    scale: float


def shifts(one: list[Centre], other: list[Centre]) -> list[Shift]:
    """Every vector of noisy numbers that two tables differ in; their noise must not."""
    found = []
    for before, after in zip(one, other, strict=True):
        assert before[1:] == after[1:], "the noise depends on outcomes"
        vectors = (after.values - before.values).reshape(-1, len(before.widths))
        moved = -(-np.abs(vectors) // np.array(before.widths))  # rounded up
        found += [Shift(tuple(each.tolist()), before.scale) for each in moved if each.any()]
    return found
