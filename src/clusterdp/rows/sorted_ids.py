"""Rows in the order of their ids, in memory.

Polars sorts rows by numbers several times as fast as by text. So text is sorted by numbers, too.
"""

from __future__ import annotations

from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.id_text import IdText
from clusterdp.rows.labels import minus

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import WordArray

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
    following = IdText.of(ids).bytes_from(n_common, _KEY_BYTES)[:, 0]
    return following.astype("<u8").byteswap()
