"""A safety net: the order of rows must not reveal outcomes if it is published.

A table sorted by its outcome would reveal every outcome, whatever noise is added. Rows are
published in the order of ids. The order of the table is visible in two cases: ids were assigned in
that order, or the owner declares it public and keeps it. The net warns the owner of tables whose
order clearly depends on outcomes. It never decides whether a release is published: such a decision
would depend on many true outcomes at once, and would itself need a privacy budget.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray

# Standard deviations by which a table in arbitrary order is never off: a false alarm every 1e8
# tables even for rare binary outcomes, whose pairs vary most.
_TOO_MANY = 8.0
# Of a large table, blocks of rows are looked at, as many as hold about this many rows; and of
# successive rows, those in the beginning of each batch, since sorting all of them costs too much.
_LOOKED_AT, _BLOCK_ROWS = 2**21, 2**18
_STRETCH = 2**11
# Ids follow the order of the table if this share of successive ids rises, or falls.
_FOLLOWING = 0.9


class RowOrder:
    """Where the rows of each cell and outcome stand in a table.

    Two statistics, both of order within cells, so that differences between clusters do not matter:
    whether rows of one outcome stand earlier than others (as in a sorted table), and whether
    successive rows share their outcome (as in a table sorted in blocks).
    """

    def __init__(self, shape: tuple[int, int, int], n_rows: int) -> None:
        n_cells, n_outcomes = shape[0] * shape[1], shape[2]
        self._n_rows, self._n_outcomes = n_rows, n_outcomes
        self._one_in = -(-n_rows // _LOOKED_AT)
        self._counts = np.zeros(n_cells * n_outcomes, dtype=np.int64)
        self._sums = np.zeros(n_cells * n_outcomes)
        self._squares = np.zeros(n_cells)
        self._pairs = np.zeros(n_cells, dtype=np.int64)
        self._n_equal = 0
        self._n_steps = self._n_rising = 0
        self._lock = threading.Lock()

    def add(self, first_row: int, ids: pl.Series, cells: IntArray, outcomes: CodeArray) -> None:
        """Take in successive rows, of which the first stands at `first_row`. Thread-safe."""
        if first_row // _BLOCK_ROWS % self._one_in:
            return
        # Counted from the middle, so that sums stay small.
        place = np.arange(first_row, first_row + len(cells)) - (self._n_rows - 1) / 2
        kinds = cells * self._n_outcomes + outcomes
        by_cell = np.argsort(cells[:_STRETCH], kind="stable")
        sorted_cells, sorted_outcomes = cells[by_cell], outcomes[by_cell]
        same_cell = sorted_cells[1:] == sorted_cells[:-1]
        equal = sorted_outcomes[1:] == sorted_outcomes[:-1]
        some_ids = ids[:_STRETCH]
        n_rising = int((some_ids[:-1] < some_ids[1:]).sum())
        with self._lock:
            self._n_steps += max(len(some_ids) - 1, 0)
            self._n_rising += n_rising
            np.add.at(self._counts, kinds, 1)
            np.add.at(self._sums, kinds, place)
            np.add.at(self._squares, cells, place**2)
            np.add.at(self._pairs, sorted_cells[1:][same_cell], 1)
            self._n_equal += int(equal[same_cell].sum())

    def notices(self, counts: IntArray, *, keep_order: bool) -> tuple[str, ...]:
        """The warning to the owner if the order reveals outcomes beyond chance.

        Args:
            counts: Counts of the whole table; axes `[cluster, arm, outcome]`.
            keep_order: Whether rows are published in the order of the table.
        """
        shown = keep_order or self._ids_follow()
        if not shown or not self._depends(counts.reshape(-1, self._n_outcomes)):
            return ()
        why = (
            "that order is published. Do not share the folder; release without keep_order"
            if keep_order
            else "ids follow that order. Do not share the folder; give units other ids"
        )
        text = (
            "the order of the table gives outcomes away: within cells, rows of one outcome stand "
            f"together or before others far more than chance allows, and {why}"
        )
        return (text,)

    def label_notices(self, cluster: str) -> tuple[str, ...]:
        """The same where private clusters were taken in as outcomes, and arms as cells."""
        if not self._ids_follow() or not self._depends(self._counts.reshape(-1, self._n_outcomes)):
            return ()
        text = (
            f"the order of the table gives {cluster!r} away, which is private: rows of one cluster "
            "stand together or before others far more than chance allows, and ids follow that "
            "order. Do not share the folder; give units other ids"
        )
        return (text,)

    def _depends(self, counts: IntArray) -> bool:
        return self._sorted() or self._in_blocks(counts)

    def _ids_follow(self) -> bool:
        rising = self._n_rising / max(self._n_steps, 1)
        return self._n_steps > 0 and not 1 - _FOLLOWING < rising < _FOLLOWING

    def _sorted(self) -> bool:
        """Kruskal–Wallis within cells: Σ n_y(mean place of y − mean place)²/variance of places."""
        counts = self._counts.reshape(-1, self._n_outcomes)
        sizes = counts.sum(axis=1)
        sums = self._sums.reshape(counts.shape)
        means = sums.sum(axis=1) / np.maximum(sizes, 1)
        spread = (self._squares - sizes * means**2) / np.maximum(sizes - 1, 1)
        shifts = sums / np.maximum(counts, 1) - means[:, np.newaxis]
        between = (counts * shifts**2).sum(axis=1)
        free = np.maximum((counts > 0).sum(axis=1) - 1, 0)
        is_usable = (free > 0) & (spread > 0)
        statistics = np.where(is_usable, between / np.where(spread > 0, spread, 1), 0.0)
        excess = float(statistics.sum() - free.sum())
        return excess > _TOO_MANY * math.sqrt(2 * float(free.sum()) + 16)

    def _in_blocks(self, counts: IntArray) -> bool:
        """Successive rows of a cell share outcomes with π = Σ N_y(N_y−1)/(n(n−1)) by chance."""
        sizes = counts.sum(axis=1)
        equal_prob = (counts * (counts - 1)).sum(axis=1) / np.maximum(sizes * (sizes - 1), 1)
        excess = self._n_equal - float(self._pairs @ equal_prob)
        variance = float(self._pairs @ (equal_prob * (1 - equal_prob)))
        return excess > _TOO_MANY * math.sqrt(variance + 1)
