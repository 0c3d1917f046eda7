"""One row per unit: the privacy promise is per row, so ids are checked to be unique."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from clusterdp._arrays import WordArray


class IdCollector:
    """Collects a given number of ids batch by batch, 8 bytes each, and counts those that repeat.

    Integers are kept as they are. Strings are kept as 64-bit hashes; where hashes repeat, the ids
    behind them are read again and compared in full, so the answer is exact.
    """

    def __init__(self, n_rows: int) -> None:
        self._words = np.empty(n_rows, dtype=np.uint64)
        self._n_added = 0
        self._hashed = False
        self._lock = threading.Lock()

    def add(self, ids: pl.Series) -> None:
        """Take in a batch. Safe to call from several threads."""
        import polars as pl

        if ids.null_count():
            return  # the engine refuses the table for that
        self._hashed = ids.dtype == pl.String
        words = ids.hash() if self._hashed else ids.cast(pl.Int64, wrap_numerical=True)
        with self._lock:
            start = self._n_added
            self._n_added += len(ids)
        # A table that grew meanwhile does not fit; the engine refuses it by its counts.
        room = self._words[start : start + len(ids)]
        room[:] = words.to_numpy().view(np.uint64)[: len(room)]

    def count_repeated(self, reread: Callable[[WordArray], pl.Series]) -> int:
        """How many rows repeat the id of another.

        Args:
            reread: Given hashes, returns the ids of all rows that have one of them.
        """
        words = self._words[: self._n_added]
        words.sort()
        again = words[1:] == words[:-1]
        if not again.any():
            return 0
        if not self._hashed:
            return int(again.sum())
        suspects = reread(np.unique(words[1:][again]))
        return len(suspects) - suspects.n_unique()
