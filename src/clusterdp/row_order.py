"""A safety net: the order of rows is published, so it must not tell outcomes.

A table sorted by its outcome would give every outcome away, whatever noise is added. Under the
neighbour relation row order is public; this check notices tables for which it plainly is not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import DataError

if TYPE_CHECKING:
    from clusterdp.arrays import CodeArray, IntArray

# Standard deviations by which a table in arbitrary order is never off: a false alarm every 1e8
# tables even for rare binary outcomes, whose pairs vary most.
_TOO_MANY = 8.0
# A sample tells a sorted table from a shuffled one: the first rows of each batch, up to a limit.
_ROWS_PER_BATCH, _MOST_ROWS = 2**12, 2**19


class RowOrderSample:
    """Stretches of successive rows, to see whether their order tells outcomes."""

    def __init__(self) -> None:
        self._stretches: list[tuple[IntArray, CodeArray]] = []

    def add(self, cells: IntArray, outcomes: CodeArray) -> None:
        """Take in successive rows as cell and outcome codes. Safe to call from several threads."""
        if len(self._stretches) * _ROWS_PER_BATCH < _MOST_ROWS:
            self._stretches.append((cells[:_ROWS_PER_BATCH], outcomes[:_ROWS_PER_BATCH]))

    def check(self, counts: IntArray) -> None:
        """Refuse a table in which successive rows of a cell share outcomes beyond chance.

        They do so with probability π = Σ N_y(N_y−1)/(n(n−1)) when order is arbitrary within cells,
        however outcomes differ between cells. A sorted table exceeds that by far.

        Args:
            counts: Counts of the whole table; axes `[cluster, arm, outcome]`.

        Raises:
            DataError: If the order tells outcomes. Only the owner sees it; nothing is released.
        """
        sizes = counts.sum(axis=-1)
        equal_prob = (counts * (counts - 1)).sum(axis=-1) / np.maximum(sizes * (sizes - 1), 1)
        excess = variance = 0.0
        for cells, outcomes in self._stretches:
            by_cell = np.argsort(cells, kind="stable")
            same_cell = np.diff(cells[by_cell]) == 0
            prob = equal_prob.ravel()[cells[by_cell][1:][same_cell]]
            equal = np.diff(outcomes[by_cell].astype(np.int64)) == 0
            excess += float(equal[same_cell].sum() - prob.sum())
            variance += float((prob * (1 - prob)).sum())
        if excess > _TOO_MANY * math.sqrt(variance + 1):
            raise DataError(
                "the order of the rows tells outcomes: successive rows of a cell share their "
                "outcome far more often than chance allows. Row order is published: shuffle the "
                "table first"
            )
