"""Ids: one row per unit, and rows in the order of ids.

The privacy promise is per row, so ids are checked to be unique.

Databases number people one after another, so most integer ids lie close together: a byte for each
that there could be shows which were seen. To mark one takes a tenth of the time that it takes to
find its hash among others, and as much memory at most. Of ids that are far from these, and of text,
hashes are compared.

The order of a table can depend on outcomes; the order of ids cannot. Small tables are sorted in
memory. A larger one is first split into ranges of ids, in files of a private folder, and then each
range is sorted. Only randomized rows are ever stored there. Polars sorts rows by numbers several
times as fast as by text, so text is sorted by numbers, too.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.keys import IdText
from clusterdp.rows.value_codes import minus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
# Odd numbers that spread hashes over slots, one for each round; no two rounds group them the same
# way.
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


# The bytes of text that a number holds.
_KEY_BYTES = 8
# Integers have slots if there are at most so many for each: fewer where slots take much memory.
_SLOTS_PER_ID, _SLOTS_PER_ID_OF_MANY, _MANY_SLOTS = 16, 4, 2**25
_KEY, _PLACE = "key", "place"


def sorted_rows(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Rows in the order of a column: of their ids, or of their numbers.

    They are integers or text, and none is missing. Where some repeat, rows may be lost: such tables
    are refused.
    """
    import polars as pl

    if rows.is_empty():
        return rows
    # In one chunk: Polars gathers from many several times as slowly.
    rows = rows.rechunk()
    in_order = _texts_in_order if rows[by].dtype == pl.String else _numbers_in_order
    return rows.select(pl.all().gather(in_order(unnamed(rows[by]))))


def _numbers_in_order(ids: pl.Series) -> pl.Series:
    """Where the least number stands, then the next, and so on."""
    import polars as pl

    numbers = ids.to_numpy()
    low, high = int(numbers.min()), int(numbers.max())
    n_values = high - low + 1
    most = _SLOTS_PER_ID if n_values <= _MANY_SLOTS else _SLOTS_PER_ID_OF_MANY
    if n_values > most * len(numbers):
        return ids.arg_sort()
    # Each number has a slot of its own, which takes a quarter of the time of sorting them.
    slots = np.full(n_values, len(numbers), dtype=np.uint32)
    slots[minus(numbers, low)] = np.arange(len(numbers), dtype=np.uint32)
    return pl.Series(slots[slots < len(numbers)])


def _texts_in_order(ids: pl.Series) -> pl.Series:
    """Where the first text stands, in the order of bytes, then the second, and so on."""
    import polars as pl

    pairs = pl.DataFrame({_KEY: _keys(ids), _PLACE: np.arange(len(ids), dtype=np.uint32)})
    in_order = pairs.lazy().sort(_KEY).collect(engine="streaming")
    keys, places = in_order[_KEY].to_numpy(), in_order[_PLACE].to_numpy().copy()
    as_next = np.zeros(len(keys) + 1, dtype=np.bool_)
    as_next[1:-1] = keys[1:] == keys[:-1]
    tied = as_next[1:] | as_next[:-1]
    if tied.any():
        # They share these places among them, and go by all of their bytes.
        among = pl.Series(places[tied])
        places[tied] = among.gather(ids.gather(among).arg_sort()).to_numpy()
    return pl.Series(places)


def _keys(ids: pl.Series) -> WordArray:
    """Numbers in the order of ids: the bytes that follow what all ids begin with, some eight."""
    # What the first and the last of them begin with, all others do.
    first, last = (str(end or "").encode() for end in (ids.min(), ids.max()))
    n_common = sum(1 for _ in takewhile(bool, map(eq, first, last)))
    following = IdText.from_ids(ids).bytes_from(n_common, _KEY_BYTES)[:, 0]
    return following.astype("<u8").byteswap()


# Rows that are sorted in memory at once.
_ROWS_IN_MEMORY = 2**21
# Ids that the ranges are chosen from, per range. Ranges only have to be of similar size: the sorted
# rows do not depend on them.
_IDS_PER_RANGE = 2**12
_FEW_ENDS = 64
# A name that no column of a user has.
_RANGE = "__clusterdp_range"


def in_order_of_ids(
    rows: pl.LazyFrame, ids: pl.LazyFrame, n_rows: int, scratch: Path
) -> Iterator[pl.DataFrame]:
    """The same rows, sorted by their first column, a part at a time.

    Args:
        rows: Randomized rows, ids first. This query is evaluated once, before anything is returned.
        ids: The same ids as a query of their own.
        n_rows: How many rows there are.
        scratch: A folder that does not exist yet, within a private one. The caller removes it.
    """
    n_ranges = -(-n_rows // _ROWS_IN_MEMORY)
    unit = rows.collect_schema().names()[0]
    if n_ranges == 1:
        return iter((sorted_rows(rows.collect(engine="streaming"), unit),))
    _split(rows, unit, _range_ends(ids, n_rows, n_ranges), scratch)
    return _sorted_ranges(scratch, unit, n_ranges)


def one_by_one(parts: Iterator[pl.DataFrame], schema: pl.Schema) -> pl.LazyFrame:
    """A query, to be evaluated once and as a whole, that takes one part of its rows at a time."""
    from polars.io.plugins import register_io_source

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        assert columns is None and predicate is None and most is None  # noqa: S101, PT018
        yield from parts

    return register_io_source(read, schema=schema)


def _range_ends(ids: pl.LazyFrame, n_rows: int, n_ranges: int) -> pl.Series:
    """Ids that cut the sorted ids into ranges of similar size."""
    step = max(1, n_rows // (n_ranges * _IDS_PER_RANGE))
    some = ids.gather_every(step).collect(engine="streaming").to_series()
    sample = unnamed(some).unique().sort()
    places = [len(sample) * number // n_ranges for number in range(1, n_ranges)]
    return sample.gather(places).unique(maintain_order=True)


def _split(rows: pl.LazyFrame, unit: str, ends: pl.Series, folder: Path) -> None:
    """Write every range of ids into files of its own."""
    import polars as pl

    def number_ranges(batch: pl.DataFrame) -> pl.DataFrame:
        numbers = _range_numbers(unnamed(batch[unit]), ends)
        return batch.with_columns(numbers.cast(pl.Int32).alias(_RANGE))

    schema = pl.Schema({**rows.collect_schema(), _RANGE: pl.Int32()})
    folder.mkdir(mode=0o700)
    rows.map_batches(number_ranges, streamable=True, schema=schema).sink_ipc(
        pl.PartitionBy(folder, key=_RANGE, include_key=False), compression="uncompressed"
    )


def _range_numbers(ids: pl.Series, ends: pl.Series) -> pl.Series:
    """How many ends lie below each id."""
    import polars as pl

    if not ids.dtype.is_integer() or len(ends) > _FEW_ENDS:
        return ends.search_sorted(ids, side="left")
    # To compare every id with every end takes less than to search for each id's place.
    numbers, below = ids.to_numpy(), np.zeros(len(ids), dtype=np.uint8)
    for end in ends.to_numpy():
        below += numbers > end
    return pl.Series(below)


def _sorted_ranges(folder: Path, unit: str, n_ranges: int) -> Iterator[pl.DataFrame]:
    """One range after another, each sorted, so that one at a time is in memory."""
    import polars as pl

    def sort(number: int) -> pl.DataFrame | None:
        files = sorted((folder / f"{_RANGE}={number}").glob("*"))
        if not files:
            return None
        return sorted_rows(pl.scan_ipc(files).collect(engine="streaming"), unit)

    # While one is written, the next is sorted.
    with ThreadPoolExecutor(1) as ahead:
        following = ahead.submit(sort, 0)
        for number in range(1, n_ranges + 1):
            current, following = following.result(), ahead.submit(sort, number)
            if current is not None:
                yield current
