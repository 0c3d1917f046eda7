"""One row per unit: the privacy promise is per row, so ids are checked to be unique."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.rows.fingerprint import id_hashes
from clusterdp.rows.narrow_ids import NarrowIds

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import IntArray, WordArray

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
        self._runs: list[_Run] = []
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
            _Run.of(hashes[start : start + _CACHED_HASHES], self._part_bits)
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
        suspects = reread(repeated)
        return len(suspects) - suspects.n_unique()

    def _repeated(self, part: int) -> WordArray:
        """The hashes of a part that occur more than once."""
        own = [run.hashes[run.ends[part] : run.ends[part + 1]] for run in self._runs]
        return repeated_hashes(np.concatenate([np.empty(0, np.uint64), *own]))


def _again(narrow: NarrowIds) -> WordArray:
    """The hashes of ids that were marked before others were found too far from them."""
    ids = narrow.ids()
    hashes = id_hashes(ids)
    # Which of them came twice was not noted: all of them are then read again.
    return hashes if len(ids) == narrow.n_marked else np.repeat(hashes, 2)


class _Run(NamedTuple):
    """Some hashes, part by part, and where each part begins and ends; axes `[hash]`, `[part]`."""

    hashes: WordArray
    ends: IntArray

    @classmethod
    def of(cls, hashes: WordArray, part_bits: int) -> _Run:
        """Hashes in the order of their first bits."""
        if not part_bits:
            return cls(hashes, np.array([0, len(hashes)]))
        parts: npt.NDArray[np.uint8] = (hashes >> np.uint64(64 - part_bits)).astype(np.uint8)
        # NumPy sorts bytes by counting them.
        in_parts = hashes[np.argsort(parts, kind="stable")]
        sizes = np.bincount(parts, minlength=2**part_bits)
        return cls(in_parts, np.concatenate([[0], np.cumsum(sizes)]))


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
