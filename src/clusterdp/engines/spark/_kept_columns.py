"""Do passthrough columns reveal the outcome? Counted by Spark's workers in pass 1; it only warns.

Values are public; what is sent of each are the counts of all outcomes, zeros too, so that how much
is sent depends on public columns alone. Of numbers and times, every so many rows are counted, to be
put into bins; of other columns all rows of some values, which follow from their hashes. The driver
gets, for each column, how many rows of each outcome have shared values and rare ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.engines.spark._parcels import PARCEL_BYTES
from clusterdp.rows.leaks import (
    ALL_WORDS,
    NumberSample,
    ValueCounter,
    bin_ends,
    bins_of,
    column_reveals_outcome,
    has_order,
    sampling_step,
    shared_and_rare,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from clusterdp._arrays import IntArray, WordArray
    from clusterdp.rows.encoding import RowCodes, RowEncoder


# Of numbers, so many rows are looked at, and so many counts are sent by all workers together.
_MOST_NUMBERS, _MOST_COUNTS = 2**17, 2**22
# Of other values, a worker sends so many counts at most, and adds up so many of what others sent.
_MOST_SENT, _MOST_ADDED = 2**18, 2**22
# Of many outcomes, several count as one.
_MOST_CLASSES = 64
_WORD_BYTES = 8


class Pair(NamedTuple):
    """A passthrough column, and what it may reveal.

    Attributes:
        secret: Which of `RowEncoder.secret_columns` it may reveal.
        name: The column.
        is_number: Whether its values are put into bins.
        n_classes: How many outcomes are distinguished.
        step: Of numbers, every so many rows are looked at.
    """

    secret: int
    name: str
    is_number: bool
    n_classes: int
    step: int

    @property
    def length(self) -> int:
        """How many numbers there are in the end: see `KeptSums.numbers`."""
        return 1 + 2 * self.n_classes

    def reveals(self, numbers: IntArray) -> bool:
        """Whether the column gives outcomes away; axes `[number]`."""
        shared, rare = numbers[1:].reshape(2, -1)
        return column_reveals_outcome(shared, rare, int(numbers[0]))


def all_pairs(
    kinds: Mapping[str, pl.DataType], encoder: RowEncoder, n_rows: int
) -> tuple[Pair, ...]:
    """What is counted of passthrough columns of these types, from what is public of a table."""
    pairs = []
    for secret, many in enumerate(encoder.secret_sizes):
        n_classes = min(many, _MOST_CLASSES)
        n_looked_at = min(_MOST_NUMBERS, _MOST_COUNTS // n_classes)
        step = sampling_step(n_rows, n_looked_at)
        pairs += [Pair(secret, name, has_order(kinds[name]), n_classes, step) for name in kinds]
    return tuple(pairs)


class ValueCounts(NamedTuple):
    """How many rows have each value and each class of outcomes.

    Attributes:
        limit: Only values up to it were counted, and those in all rows.
        values: Hashes, or the bits of numbers; axes `[value]`.
        counts: Axes `[value, class]`.
    """

    limit: int
    values: WordArray
    counts: IntArray

    def parcels(self) -> Iterator[bytes]:
        """The same as bytes."""
        limit = np.array([self.limit], dtype=np.uint64)
        step = max(1, PARCEL_BYTES // (_WORD_BYTES * (1 + self.counts.shape[1])))
        for first in range(0, len(self.values), step):
            part = slice(first, first + step)
            counts = self.counts[part].astype(np.uint64)
            yield np.concatenate([limit, self.values[part], counts.ravel()]).tobytes()

    @classmethod
    def opened(cls, held: bytes, n_classes: int) -> ValueCounts:
        """What a parcel holds."""
        words = np.frombuffer(held, dtype=np.uint64)
        end = 1 + (len(words) - 1) // (1 + n_classes)
        counts = words[end:].astype(np.int64).reshape(-1, n_classes)
        return cls(int(words[0]), words[1:end], counts)


class KeptCounts:
    """Counts the passthrough columns of a partition, batch by batch."""

    def __init__(self, pairs: tuple[Pair, ...], encoder: RowEncoder) -> None:
        self._encoder = encoder
        self._counters = {
            pair: NumberSample(pair.n_classes, pair.step)
            if pair.is_number
            else ValueCounter(pair.n_classes, _MOST_SENT)
            for pair in pairs
        }
        self._n_rows = 0

    def add(self, batch: pl.DataFrame, rows: RowCodes) -> None:
        """Take in a batch, unless it has rows that cannot be used: the table is then refused."""
        if not rows.sound or not self._counters:
            return
        codes = self._encoder.secrets(batch, rows)
        for pair, counter in self._counters.items():
            counter.add(self._n_rows, unnamed(batch[pair.name]), codes[pair.secret])
        self._n_rows += len(batch)

    def parcels(self) -> Iterator[tuple[int, bytes]]:
        """What was counted, by the places of pairs."""
        for place, counter in enumerate(self._counters.values()):
            for held in ValueCounts(*counter.counted()).parcels():
                yield place, held


class KeptSums:
    """Adds up what all partitions counted of a pair."""

    def __init__(self, pair: Pair) -> None:
        self._pair, self._limit = pair, ALL_WORDS
        self._held: list[ValueCounts] = []
        self._n_held = 0

    def add(self, held: bytes) -> None:
        """Take in a parcel."""
        more = ValueCounts.opened(held, self._pair.n_classes)
        self._limit = min(self._limit, more.limit)
        self._held.append(more)
        self._n_held += more.counts.size
        if self._n_held > 2 * _MOST_ADDED and not self._pair.is_number:
            self._add_up()

    def _add_up(self) -> IntArray:
        """Every value once, and no more of them than can be held; axes `[value, class]`."""
        together = np.concatenate([one.values for one in self._held])
        values, places = np.unique(together, return_inverse=True)
        counts = np.zeros((len(values), self._pair.n_classes), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([one.counts for one in self._held]))
        while self._n_within(values) * self._pair.n_classes > _MOST_ADDED and self._limit:
            self._limit //= 2
        n_within = self._n_within(values)
        self._held = [ValueCounts(self._limit, values[:n_within], counts[:n_within])]
        self._n_held = n_within * self._pair.n_classes
        return counts[:n_within]

    def _n_within(self, values: WordArray) -> int:
        return int(np.searchsorted(values, np.uint64(self._limit), side="right"))

    def _in_bins(self) -> IntArray:
        """The counts of bins; axes `[bin, class]`."""
        numbers = np.concatenate([one.values for one in self._held]).view(np.float64)
        counts = np.concatenate([one.counts for one in self._held])
        ends = bin_ends(np.repeat(numbers, counts.sum(axis=1)))
        bins = np.zeros((2 * len(ends) + 2, self._pair.n_classes), dtype=np.int64)
        np.add.at(bins, bins_of(numbers, ends), counts)
        return bins

    def numbers(self) -> IntArray:
        """Right guesses, and the rows of each class with shared values, then with rare ones."""
        counts = self._in_bins() if self._pair.is_number else self._add_up()
        shared, rare, n_right = shared_and_rare(counts)
        return np.array([n_right, *shared, *rare])
