"""One row per unit: the privacy promise is per row, so ids are checked to be unique.

Databases number people one after another, so most integer ids lie close together: a byte for each
that there could be tells which were seen. To mark one takes a tenth of the time that it takes to
find its hash among others, and as much memory at most. Of ids that are far from these, and of text,
hashes are compared.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.rows.value_codes import minus

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import BoolArray, IntArray, WordArray


# Bytes for each row of the table. The system gives memory for those that are written to.
_BYTES_PER_ROW = 8


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

    Integers that lie close to the first ones are marked. Of all others, 64-bit hashes are
    collected; where hashes repeat, the ids behind them are read again and compared in full, so the
    answer is exact.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_places = max(1, _BYTES_PER_ROW * n_rows)
        # Which ids were seen, from the lowest one that is close; and how many were marked, each as
        # often as it came.
        self._seen: BoolArray | None = None
        self._low = self._first = self._last = self._n_marked = 0
        self._part_bits = min(_MOST_PART_BITS, max(0, n_rows // _PART_HASHES).bit_length())
        self._runs: list[list[WordArray]] = []
        self._lock = threading.Lock()

    def add(self, ids: pl.Series, hashes: WordArray) -> None:
        """Take in a batch of ids and their hashes. Safe to call from several threads."""
        if ids.null_count():
            is_there = ids.is_not_null()
            ids, hashes = ids.filter(is_there), hashes[is_there.to_numpy()]
        if ids.dtype.is_integer() and len(ids):
            with self._lock:
                is_far = self._mark(ids.to_numpy())
            hashes = hashes[:0] if is_far is None else hashes[is_far]
        self._collect(hashes)

    def _mark(self, numbers: IntArray) -> BoolArray | None:
        """Mark the ids that are close; which ones are not, None if all are. Axes `[row]`."""
        first, last = int(numbers.min()), int(numbers.max())
        if self._seen is None:
            middle, least = (first + last) // 2, int(np.iinfo(numbers.dtype).min)
            self._low = max(least, middle - self._n_places // 2)
            self._first = self._last = middle
            self._seen = np.empty(0, np.bool_)
            with suppress(MemoryError):  # then none is close
                self._seen = np.zeros(self._n_places, dtype=np.bool_)
        end, is_far = self._low + len(self._seen), None
        if first < self._low or last >= end:
            is_far = (numbers < self._low) | (numbers >= end)
            numbers = numbers[~is_far]
            if not len(numbers):
                return is_far
            first, last = int(numbers.min()), int(numbers.max())
        self._seen[minus(numbers, self._low)] = True
        self._first, self._last = min(self._first, first), max(self._last, last)
        self._n_marked += len(numbers)
        return is_far

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

        n_repeated = 0
        if self._seen is not None:
            # What lies beyond the first and the last id was never written to.
            between = self._seen[self._first - self._low : self._last - self._low + 1]
            n_repeated = self._n_marked - int(np.count_nonzero(between))
        if not self._runs:
            return n_repeated
        with ThreadPoolExecutor(pl.thread_pool_size()) as threads:
            repeated = np.concatenate(list(threads.map(self._repeated, range(2**self._part_bits))))
        if len(repeated):
            reread_ids = reread(repeated)
            n_repeated += len(reread_ids) - reread_ids.n_unique()
        return n_repeated

    def _repeated(self, part: int) -> WordArray:
        """The hashes of a part that occur more than once."""
        own = [run[part] for run in self._runs]
        return repeated_hashes(np.concatenate([np.empty(0, np.uint64), *own]))


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
