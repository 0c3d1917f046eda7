"""Integer ids that lie close together: a byte for each that there could be tells which were seen.

Databases number people one after another, so that most integer ids are of this kind. To mark one
takes a tenth of the time that it takes to find its hash among others, and as much memory at most.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.rows.labels import minus

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

# Bytes for each row of the table. The system gives memory for those that are written to.
_BYTES_PER_ROW = 8


class NarrowIds:
    """Which ids were seen, of those within some distance of the first ones.

    Attributes:
        n_marked: How many ids were marked, each as often as it came.
    """

    def __init__(self, n_rows: int) -> None:
        self.n_marked = 0
        self._n_places = max(1, _BYTES_PER_ROW * n_rows)
        self._seen: npt.NDArray[np.bool_] | None = None
        self._low = self._first = self._last = 0
        self._kind: pl.DataType | None = None

    def mark(self, ids: pl.Series) -> bool:
        """Mark some ids, or none if they are text or too far apart; those missing are left out."""
        if not ids.dtype.is_integer():
            return False
        if ids.null_count():
            ids = ids.drop_nulls()
        if not len(ids):
            return True
        numbers = ids.to_numpy()
        first, last = int(numbers.min()), int(numbers.max())
        if self._seen is None:
            self._begin(ids.dtype, (first + last) // 2, np.iinfo(numbers.dtype))
        if self._seen is None or first < self._low or last >= self._low + self._n_places:
            return False
        self._seen[minus(numbers, self._low)] = True
        self._first, self._last = min(self._first, first), max(self._last, last)
        self.n_marked += len(ids)
        return True

    def _begin(self, kind: pl.DataType, middle: int, ends: np.iinfo) -> None:
        with suppress(MemoryError):
            self._seen = np.zeros(self._n_places, dtype=np.bool_)
        self._low, self._kind = max(int(ends.min), middle - self._n_places // 2), kind
        self._first = self._last = middle

    def count(self) -> int:
        """How many different ids were marked."""
        return int(np.count_nonzero(self._between()))

    def ids(self) -> pl.Series:
        """The different ids that were marked."""
        import polars as pl

        places = np.flatnonzero(self._between()).astype(np.uint64)
        numbers = places + np.uint64(self._first % 2**64)
        kind = self._kind or pl.Int64()
        signed = numbers.view(np.int64) if kind.is_signed_integer() else numbers
        return pl.Series(signed, dtype=kind)

    def _between(self) -> npt.NDArray[np.bool_]:
        """From the first id to the last: what lies beyond was never written to."""
        if self._seen is None:
            return np.zeros(0, dtype=np.bool_)
        return self._seen[self._first - self._low : self._last - self._low + 1]
