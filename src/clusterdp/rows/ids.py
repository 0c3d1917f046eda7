"""One row per unit: the privacy promise is per row, so ids are checked to be unique.

Databases number people one after another, so most integer ids lie close together: a byte for each
that there could be tells which were seen. To mark one takes a tenth of the time that it takes to
find its hash among others, and as much memory at most. Of other ids, hashes are compared.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.rows.keys import id_hashes
from clusterdp.rows.value_codes import minus

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import IntArray, WordArray


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


# Hashes are put into parts by their first bits: at most 2^8 parts, of at least 2^14 hashes each.
_MOST_PART_BITS, _PART_HASHES = 8, 2**14
# Hashes worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_HASHES = 2**15
# Slots for each hash: about two hashes in five then share theirs with another.
_SLOTS_PER_HASH = 2
# Hashes that are sorted at once, without slots.
_FEW = 2**10
# Odd numbers that spread hashes over slots, one for each round; no two rounds group them alike.
_SPREADS = tuple(
    np.uint64(number)
    for number in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD)
)
_HALF = np.uint64(32)


class IdCollector:
    """Collects ids, batch by batch, and counts those that repeat.

    Integers that lie close together are marked. Of others, 64-bit hashes are collected; where
    hashes repeat, the ids behind them are read again and compared in full, so the answer is exact.
    """

    def __init__(self, n_rows: int) -> None:
        self._narrow: NarrowIds | None = NarrowIds(n_rows)
        self._part_bits = min(_MOST_PART_BITS, max(0, n_rows // _PART_HASHES).bit_length())
        self._runs: list[list[WordArray]] = []
        self._lock = threading.Lock()

    def add(self, ids: pl.Series, hashes: WordArray) -> None:
        """Take in a batch of ids and their hashes. Safe to call from several threads."""
        with self._lock:
            if self._narrow is not None and self._narrow.mark(ids):
                return
            narrow, self._narrow = self._narrow, None
        if narrow is not None and narrow.n_marked:
            self._collect(_again(narrow))
        self._collect(hashes)

    def _collect(self, hashes: WordArray) -> None:
        runs = [
            _in_parts(hashes[start : start + _CACHED_HASHES], self._part_bits)
            for start in range(0, len(hashes), _CACHED_HASHES)
        ]
        with self._lock:
            self._runs += runs

    def count_repeated(self, reread: Callable[[WordArray], pl.Series]) -> int:
        """How many rows repeat the id of another.

        Args:
            reread: Given hashes, returns the ids of all rows that have one of them.
        """
        import polars as pl

        if self._narrow is not None:
            return self._narrow.n_marked - self._narrow.count()
        with ThreadPoolExecutor(pl.thread_pool_size()) as threads:
            repeated = np.concatenate(list(threads.map(self._repeated, range(2**self._part_bits))))
        if not len(repeated):
            return 0
        reread_ids = reread(repeated)
        return len(reread_ids) - reread_ids.n_unique()

    def _repeated(self, part: int) -> WordArray:
        """The hashes of a part that occur more than once."""
        own = [run[part] for run in self._runs]
        return repeated_hashes(np.concatenate([np.empty(0, np.uint64), *own]))


def _again(narrow: NarrowIds) -> WordArray:
    """The hashes of ids that were marked before others were found too far from them."""
    ids = narrow.ids()
    hashes = id_hashes(ids)
    # Which of them came twice was not noted: all of them are then read again.
    return hashes if len(ids) == narrow.n_marked else np.repeat(hashes, 2)


def _in_parts(hashes: WordArray, part_bits: int) -> list[WordArray]:
    """Hashes by their first bits: those of the first part, of the next, and so on."""
    if not part_bits:
        return [hashes]
    parts: npt.NDArray[np.uint8] = (hashes >> np.uint64(64 - part_bits)).astype(np.uint8)
    # NumPy sorts bytes by counting them.
    in_parts = hashes[np.argsort(parts, kind="stable")]
    sizes = np.bincount(parts, minlength=2**part_bits)
    return np.split(in_parts, np.cumsum(sizes)[:-1])


def repeated_hashes(hashes: WordArray) -> WordArray:
    """The hashes that occur more than once, each of them once.

    Sorting all of them would take several times as long. They are put into slots, and those that
    are alone in theirs are left out: they cannot repeat. A few rounds, each with other slots, leave
    hardly any to sort.
    """
    for spread in _SPREADS:
        if len(hashes) <= _FEW:
            break
        slots = _slots_of(hashes, spread, _SLOTS_PER_HASH * len(hashes))
        hashes = hashes[np.bincount(slots)[slots] > 1]
    hashes = np.sort(hashes)
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _slots_of(hashes: WordArray, spread: np.uint64, n_slots: int) -> IntArray:
    """The slot of each hash: in proportion to the upper half of a product."""
    places = hashes * spread
    places >>= _HALF
    places *= np.uint64(n_slots)
    places >>= _HALF
    return places.view(np.int64)
