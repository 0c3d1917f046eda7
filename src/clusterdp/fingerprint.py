"""Did both passes read the same table? A checksum of rows that does not depend on their order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.arrays import CodeArray, IntArray

# 2^64 over the golden ratio, odd: spreads small numbers over all bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Fingerprint:
    """Sums up (id, cell, outcome) of every row. Thread-safe.

    It tells tables apart that differ by accident, as when a file is replaced between two passes; it
    is no defence against someone who chooses ids to deceive it.
    """

    def __init__(self) -> None:
        self._n_rows = 0
        self._sum = np.uint64(0)
        self._xor = np.uint64(0)
        self._lock = threading.Lock()

    def add(self, ids: pl.Series, cells: IntArray, outcomes: CodeArray) -> None:
        """Take in some rows."""
        rows = cells.astype(np.uint64) << np.uint64(16)
        rows |= outcomes
        rows ^= ids.hash().to_numpy()
        rows *= _SPREAD
        total, mixed = np.add.reduce(rows), np.bitwise_xor.reduce(rows)
        with self._lock, np.errstate(over="ignore"):  # sums wrap around
            self._n_rows += len(ids)
            self._sum = np.uint64(self._sum + total)
            self._xor = np.uint64(self._xor ^ mixed)

    def matches(self, other: Fingerprint) -> bool:
        """Whether both are of the same rows."""
        return (self._n_rows, self._sum, self._xor) == (other._n_rows, other._sum, other._xor)
