"""One row per unit: the privacy promise is per row, so ids are checked to be unique."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from clusterdp.arrays import WordArray


class IdCollector:
    """Collects ids batch by batch, 8 bytes each, and tells how many rows repeat one.

    Integers are kept as they are. Strings are kept as 64-bit hashes; where hashes repeat, the ids
    behind them are read again and compared in full, so the answer is exact.
    """

    def __init__(self) -> None:
        self._parts: list[WordArray] = []
        self._hashed = False

    def add(self, ids: pl.Series) -> None:
        """Take in a batch. Safe to call from several threads."""
        import polars as pl

        if ids.null_count():
            return  # the engine refuses the table for that
        self._hashed = ids.dtype == pl.String
        words = ids.hash() if self._hashed else ids.cast(pl.Int64, wrap_numerical=True)
        self._parts.append(words.to_numpy().view(np.uint64))

    def count_repeated(self, reread: Callable[[WordArray], pl.Series]) -> int:
        """How many rows repeat the id of another.

        Args:
            reread: Given hashes, returns the ids of all rows that have one of them.
        """
        import polars as pl

        words = pl.Series(np.concatenate(self._parts)).sort().to_numpy()
        self._parts.clear()
        again = words[1:] == words[:-1]
        if not again.any():
            return 0
        if not self._hashed:
            return int(again.sum())
        suspects = reread(np.unique(words[1:][again]))
        return len(suspects) - suspects.n_unique()
