"""Did both passes read the same table? A checksum of rows that does not depend on their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import unnamed

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray

# 2^64 over the golden ratio, odd: spreads small numbers over all bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def id_hashes(ids: pl.Series) -> WordArray:
    """A 64-bit hash of each id, the same in every process; axes `[row]`."""
    return unnamed(ids).hash().to_numpy()


def row_words(
    hashes: WordArray, cells: IntArray, outcomes: CodeArray, *more: CodeArray
) -> WordArray:
    """One word for each row, of its id's hash, cell and outcomes.

    The id's hash is multiplied by an odd number that stands for cell and outcome. Another outcome
    moves the word by an amount that depends on the id: were it the same for all, sums would not
    notice two people's outcomes exchanged.
    """
    words = cells.astype(np.uint64) << np.uint64(16)
    words |= outcomes.astype(np.uint64)
    words *= _SPREAD
    for codes in more:
        words ^= codes.astype(np.uint64)
        words *= _SPREAD
    words |= np.uint64(1)
    words *= hashes
    return words


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The sum of the checksum words of some rows.

    It distinguishes tables that differ by accident, as when a file is replaced between two passes.
    It does not protect against somebody who chooses ids to get the same sum.

    Attributes:
        n_rows: How many rows.
        low: The lower halves of their words, added up.
        high: The upper halves.
    """

    n_rows: int = 0
    low: int = 0
    high: int = 0

    @classmethod
    def of(cls, words: WordArray) -> Fingerprint:
        """The fingerprint of some rows."""
        halves = words.astype("<u8", copy=False).view("<u4")
        low, high = (halves[part::2].sum(dtype=np.uint64) for part in (0, 1))
        return cls(len(words), int(low), int(high))

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.n_rows + other.n_rows, self.low + other.low, self.high + other.high)

    def __bytes__(self) -> bytes:
        return f"{self.n_rows},{self.low},{self.high}".encode()
