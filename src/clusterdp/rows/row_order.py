"""A safety check: does the order of rows reveal outcomes? It only warns.

Rows in the order of outcomes would reveal every outcome, with any noise. Rows are published in the
order of ids, or in that of the table if the owner declares it public and keeps it.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.rows.ids import sorted_rows
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.rows.encoding import RowCodes


# Standard deviations by which a table in arbitrary order is never off: a false positive every 1e8
# tables even for rare binary outcomes, whose pairs vary most.
_TOO_MANY = 8.0
# Of a large table, about this many rows are looked at: blocks of it where its own order is
# published, and rows by the hashes of their ids where it is not. Blocks are short, so that some are
# of a rare outcome wherever its rows stand.
_LOOKED_AT, _BLOCK_ROWS = 2**20, 2**10
# The order follows a column if this share of its successive values rises, or falls.
_FOLLOWING = 0.9
# An odd number, by which the words of several columns are mixed.
_MIXING = np.uint64(0x9E3779B97F4A7C15)
_ID, _CELL = "id", "cell"


class RowOrder:
    """Whether the order in which rows are published reveals outcomes, or private clusters.

    Rows are sorted by id, or in the order of the table if the owner keeps it. They are compared
    within strata: cells, divided by public columns that this order follows, since what the order
    reveals by way of these is public. Private clusters are compared within arms.

    Which rows of a large table are looked at follows from the order that is published, and from
    nothing else. Blocks of a table that was sorted by its outcomes would hold some ids of one
    outcome and other ids of the next, even where ids show nothing.

    Args:
        secrets: The columns of each secret: outcomes by question, then a private cluster.
        n_questions: How many of these are outcomes.
        n_arms: Cells are pairs of cluster and arm.
        n_rows: The rows of the table.
        keep_order: Whether rows are published in the order of the table.
    """

    def __init__(
        self,
        secrets: Sequence[tuple[str, ...]],
        *,
        n_questions: int,
        n_arms: int,
        n_rows: int,
        keep_order: bool,
    ) -> None:
        self._secrets, self._n_questions, self._n_arms = secrets, n_questions, n_arms
        self._one_in, self._keep_order = -(-n_rows // _LOOKED_AT), keep_order
        # Rows with their public columns and secrets, by the place of the first one.
        self._held: dict[int, pl.DataFrame] = {}
        self._lock = threading.Lock()

    def add(
        self,
        first_row: int,
        coded: RowCodes,
        public: Iterable[pl.Series],
        secrets: Iterable[CodeArray],
    ) -> None:
        """Take in successive rows, of which the first stands at `first_row`. Thread-safe."""
        import polars as pl

        shown = {f"public {place}": plain_column(one) for place, one in enumerate(public)}
        hidden = {f"secret {place}": pl.Series(one) for place, one in enumerate(secrets)}
        rows = pl.DataFrame({_ID: coded.units, _CELL: pl.Series(coded.cells), **shown, **hidden})
        if self._one_in > 1:
            places = np.arange(first_row, first_row + len(rows), dtype=np.uint64)
            drawn = places // np.uint64(_BLOCK_ROWS) if self._keep_order else coded.hashes
            rows = rows.filter(pl.Series(drawn % np.uint64(self._one_in) == 0))
        with self._lock:
            self._held[first_row] = rows

    def notices(self) -> tuple[str, ...]:
        """The warnings to the owner if the order reveals secrets beyond chance."""
        import polars as pl

        if not self._held:
            return ()
        rows = pl.concat(self._held[first] for first in sorted(self._held))
        rows = rows if self._keep_order else sorted_rows(rows, _ID)
        cells, found = rows[_CELL].to_numpy(), dict[str, None]()
        strata = _strata(cells, (one for one in rows if one.name.startswith("public")))
        for place, names in enumerate(self._secrets):
            is_cluster = place >= self._n_questions
            within = (cells % self._n_arms).astype(np.uint64) if is_cluster else strata
            if _follows_order(within, rows[f"secret {place}"].to_numpy()):
                cluster = names[0] if is_cluster else None
                found[_order_notice(cluster, keep_order=self._keep_order)] = None
        return tuple(found)


def _order_notice(cluster: str | None, *, keep_order: bool) -> str:
    """The warning about an order that reveals outcomes, or a private cluster."""
    secret, rows = "outcomes", "within a cluster and arm, rows with the same outcome"
    if cluster is not None:
        secret, rows = f"{cluster!r}", "rows of the same private cluster"
    order, remedy = (
        ("published row order", "release without keep_order")
        if keep_order
        else ("order of ids", "give units other ids")
    )
    return (
        f"the {order} reveals {secret}: {rows} are grouped far more than by chance. Do not "
        f"share the folder; {remedy}"
    )


def _follows_order(strata: WordArray, outcomes: CodeArray) -> bool:
    """Whether outcomes follow the order of rows within strata, far beyond chance.

    There are two statistics: whether rows of one outcome stand earlier than others (as in a sorted
    table), and whether successive rows share their outcome (as in a table sorted in blocks).
    """
    _, numbers = np.unique(strata, return_inverse=True)
    # Kinds are pairs of stratum and outcome, of those that some row has.
    pairs = numbers * (int(outcomes.max()) + 1) + outcomes
    _, firsts, of_rows = np.unique(pairs, return_index=True, return_inverse=True)
    kind_strata = numbers[firsts]
    # Counted from the middle, so that sums stay small.
    place = np.arange(len(strata)) - (len(strata) - 1) / 2
    sizes, counts = np.bincount(numbers), np.bincount(of_rows)
    # Kruskal–Wallis within strata: Σ n_y(mean place of y − mean place)²/variance of places.
    means = np.bincount(numbers, place) / sizes
    spread = (np.bincount(numbers, place**2) - sizes * means**2) / np.maximum(sizes - 1, 1)
    shifts = np.bincount(of_rows, place) / counts - means[kind_strata]
    between = np.bincount(kind_strata, counts * shifts**2)
    free = np.bincount(kind_strata) - 1
    is_usable = (free > 0) & (spread > 0)
    excess = float((between[is_usable] / spread[is_usable]).sum() - free.sum())
    if excess > _TOO_MANY * math.sqrt(2 * float(free.sum()) + 16):
        return True
    # Successive rows share outcomes with π = Σ N_y(N_y−1)/(n(n−1)) by chance.
    equal = np.bincount(kind_strata, counts * (counts - 1))
    order = np.argsort(numbers, kind="stable")
    same = np.diff(numbers[order]) == 0
    probs = (equal / np.maximum(sizes * (sizes - 1), 1))[numbers[order][1:][same]]
    n_equal = int((np.diff(of_rows[order]) == 0).sum())
    variance = float((probs * (1 - probs)).sum())
    return n_equal - float(probs.sum()) > _TOO_MANY * math.sqrt(variance + 1)


def _strata(cells: IntArray, public: Iterable[pl.Series]) -> WordArray:
    """The stratum of each row: its cell, and its values of columns that the order follows."""
    strata = cells.astype(np.uint64)
    for values in public:
        if _is_followed(values):
            strata = strata * _MIXING ^ values.hash().to_numpy()
    return strata


def _is_followed(values: pl.Series) -> bool:
    """Whether successive rows mostly share a value, or values rise or fall."""
    n_steps = len(values) - 1
    before, after = values[:-1], values[1:]
    n_equal, n_rising = int(before.eq_missing(after).sum()), int((before < after).sum())
    rises = n_rising + n_equal >= _FOLLOWING * n_steps
    return n_equal > n_steps / 2 or rises or n_rising <= (1 - _FOLLOWING) * n_steps
