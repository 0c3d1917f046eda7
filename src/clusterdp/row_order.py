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
# A sample of blocks tells a sorted table from a shuffled one; large tables need not be read whole.
_BLOCK_ROWS, _BLOCKS = 2**14, 16


def check_row_order(
    clusters: CodeArray, arms: CodeArray, outcomes: CodeArray, counts: IntArray
) -> None:
    """Refuse a table in which successive rows of a cell share outcomes more than chance allows.

    They do so with probability π = Σ N_y(N_y−1)/(n(n−1)) when order is arbitrary within cells,
    however outcomes differ between cells. A sorted table exceeds that by far.

    Args:
        clusters: Cluster codes in the order of the table.
        arms: Arm codes.
        outcomes: True outcome codes.
        counts: Their counts; axes `[cluster, arm, outcome]`.

    Raises:
        DataError: If the order tells outcomes. Only the owner sees it, and nothing is released.
    """
    sizes = counts.sum(axis=-1)
    equal_prob = (counts * (counts - 1)).sum(axis=-1) / np.maximum(sizes * (sizes - 1), 1)
    excess = variance = 0.0
    for block in _sampled_blocks(len(outcomes)):
        cells = clusters[block].astype(np.int64) * counts.shape[1] + arms[block]
        by_cell = np.argsort(cells, kind="stable")
        cells, values = cells[by_cell], outcomes[block][by_cell]
        same_cell = cells[1:] == cells[:-1]
        prob = equal_prob.ravel()[cells[1:][same_cell]]
        excess += float((values[1:] == values[:-1])[same_cell].sum() - prob.sum())
        variance += float((prob * (1 - prob)).sum())
    if excess > _TOO_MANY * math.sqrt(variance + 1):
        raise DataError(
            "the order of the rows tells outcomes: successive rows of a cell share their outcome "
            "far more often than chance allows. Row order is published: shuffle the table first"
        )


def _sampled_blocks(n_rows: int) -> list[slice]:
    """The whole table in blocks, or evenly spaced blocks of a large one."""
    starts = range(0, n_rows, _BLOCK_ROWS)
    step = max(1, len(starts) // _BLOCKS)
    return [slice(start, start + _BLOCK_ROWS) for start in starts[::step]]
