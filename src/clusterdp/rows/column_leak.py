"""A safety net: does a column that is published as it is reveal the outcome? It only warns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray

# A column reveals the outcome when, knowing its value, one would make less than this share of the
# wrong guesses that one makes without it.
_LEFT_TO_GUESS = 0.1
# A value that fewer rows share may go with one outcome by chance.
ROWS_PER_VALUE = 20
# Numbers with more different values than there are bins are put into bins.
_MOST_BINS = 2**14
_ROWS_PER_BIN = 32
# Counts that a counter holds before it adds them up.
_MOST_HELD = 2**22
_CODE, _VALUE, _ROWS = "code", "value", "rows"


def n_bins(n_rows: int) -> int:
    """How many bins the numbers of a column are put into."""
    return max(1, min(_MOST_BINS, n_rows // _ROWS_PER_BIN))


def has_order(kind: pl.DataType) -> bool:
    """Whether values of a type are numbers or times, which are put into bins."""
    return kind.is_numeric() or kind.is_temporal()


def some_numbers(values: pl.Series, rows: slice) -> FloatArray:
    """Some values that have an order, as numbers; NaN where they are missing. Axes `[row]`."""
    import polars as pl

    if values.dtype.is_temporal():
        values = values.to_physical()
    is_wide = values.dtype.is_decimal() or values.dtype in (pl.Int128, pl.UInt128)
    # NumPy has no such numbers. All others it takes as they are, and some of them at no cost.
    numbers = values.cast(pl.Float64) if is_wide else values
    return numbers.to_numpy()[rows].astype(np.float64)


def bin_ends(numbers: FloatArray) -> FloatArray:
    """Where bins end: at every value, or, of many values, so that bins are of similar size.

    Args:
        numbers: Some numbers, in any order; axes `[row]`.
    """
    in_order = np.sort(numbers[~np.isnan(numbers)])
    ends: FloatArray = in_order[np.diff(in_order, prepend=np.nan) != 0]
    many = n_bins(len(numbers))
    if len(ends) <= many:
        return ends
    places = np.arange(1, many) * (len(in_order) - 1) // many
    return np.unique(in_order[places])


def bins_of(numbers: FloatArray, ends: FloatArray) -> IntArray:
    """The bin of each number, below `2 * len(ends) + 2`.

    An end has a bin of its own, as many may share it, and so have missing numbers.
    """
    places = np.searchsorted(ends, numbers)
    bins: IntArray = 1 + 2 * places + (np.append(ends, np.nan)[places] == numbers)
    bins[np.isnan(numbers)] = 0
    return bins


def reveals_outcome(*, n_rows: int, n_shared: int, n_right: int, n_right_blindly: int) -> bool:
    """Whether some rows' values give their outcomes away.

    Args:
        n_rows: All rows.
        n_shared: Rows whose value at least `ROWS_PER_VALUE` rows share.
        n_right: Of these, how many outcomes are guessed right from the value: over values, the
            sum of the largest count of an outcome.
        n_right_blindly: Of all rows, how many are guessed right without it: the rows of the most
            common outcome.
    """
    if n_shared == 0 or n_shared < n_rows / 2 or n_right_blindly == n_rows:
        return False
    wrong, wrong_blindly = 1 - n_right / n_shared, 1 - n_right_blindly / n_rows
    return wrong < _LEFT_TO_GUESS * wrong_blindly


def column_reveals_outcome(shared: IntArray, rare: IntArray, n_right: int) -> bool:
    """Whether a column gives outcomes away: over all rows, or where its values are shared.

    Rare values are taken together as one value. Left out, they would hide where rare outcomes went:
    they may be all of them, as in a copy of the outcome, or hold them by chance.

    Args:
        shared: How many rows have each outcome, of those whose value at least `ROWS_PER_VALUE`
            rows share; axes `[outcome]`.
        rare: The same for the other rows.
        n_right: Over shared values, the sum of the largest count of an outcome.
    """
    both = shared + rare
    n_rows, n_shared = int(both.sum()), int(shared.sum())
    over_all = reveals_outcome(
        n_rows=n_rows,
        n_shared=n_rows,
        n_right=n_right + int(rare.max()),
        n_right_blindly=int(both.max()),
    )
    where_shared = n_shared >= n_rows / 2 and reveals_outcome(
        n_rows=n_shared, n_shared=n_shared, n_right=n_right, n_right_blindly=int(shared.max())
    )
    return over_all or where_shared


def counts_reveal_outcome(counts: IntArray) -> bool:
    """Whether a column gives outcomes away, from its counts; axes `[value, outcome]`."""
    return column_reveals_outcome(*shared_and_rare(counts))


def shared_and_rare(counts: IntArray) -> tuple[IntArray, IntArray, int]:
    """What `column_reveals_outcome` is told, from counts; axes `[value, outcome]`."""
    is_shared = counts.sum(axis=1) >= ROWS_PER_VALUE
    shared, rare = counts[is_shared], counts[~is_shared]
    n_right = int(shared.max(axis=1, initial=0).sum())
    return shared.sum(axis=0), rare.sum(axis=0), n_right


class ValueCounter:
    """How many rows have each value of a column, and each outcome."""

    def __init__(self, n_outcomes: int) -> None:
        self._n_outcomes, self._lock = n_outcomes, threading.Lock()
        self._held: list[pl.DataFrame] = []

    def add(self, values: pl.Series, codes: CodeArray) -> None:
        """Take in a batch. Safe to call from several threads."""
        import polars as pl

        pairs = pl.DataFrame({_VALUE: values, _CODE: pl.Series(codes)})
        counted = pairs.group_by(_VALUE, _CODE).agg(pl.len().cast(pl.Int64).alias(_ROWS))
        with self._lock:
            self._held.append(counted)
            if sum(map(len, self._held)) > _MOST_HELD:
                self._held = [self._together()]

    @property
    def n_held(self) -> int:
        """How many counts are held, in memory; some values may have several."""
        return sum(map(len, self._held))

    @property
    def n_values(self) -> int:
        """How many different values there are."""
        import polars as pl

        return pl.concat(one[_VALUE] for one in self._held).n_unique() if self._held else 0

    def keep_up_to(self, limit: int) -> None:
        """Forget all values above a limit."""
        import polars as pl

        with self._lock:
            if self._held:
                self._held = [self._together().filter(pl.col(_VALUE) <= limit)]

    def _together(self) -> pl.DataFrame:
        import polars as pl

        return pl.concat(self._held).group_by(_VALUE, _CODE).agg(pl.col(_ROWS).sum())

    def by_value(self) -> tuple[IntArray, IntArray]:
        """The values, sorted, and their counts; axes `[value]` and `[value, outcome]`."""
        if not self._held:
            return np.empty(0, np.int64), np.empty((0, self._n_outcomes), np.int64)
        counted = self._together()
        values, places = np.unique(counted[_VALUE].to_numpy(), return_inverse=True)
        counts = np.zeros((len(values), self._n_outcomes), dtype=np.int64)
        counts[places, counted[_CODE].to_numpy()] = counted[_ROWS].to_numpy()
        return values, counts

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        import polars as pl

        counted = self._together()
        is_shared = counted.select(pl.col(_ROWS).sum().over(_VALUE) >= ROWS_PER_VALUE).to_series()
        shared, rare = counted.filter(is_shared), counted.filter(~is_shared)
        n_right = int(shared.group_by(_VALUE).agg(pl.col(_ROWS).max())[_ROWS].sum())
        return column_reveals_outcome(self._by_outcome(shared), self._by_outcome(rare), n_right)

    def _by_outcome(self, counted: pl.DataFrame) -> IntArray:
        """How many rows have each outcome; axes `[outcome]`."""
        rows = np.bincount(counted[_CODE], counted[_ROWS], minlength=self._n_outcomes)
        return rows.astype(np.int64)


def leak_notice(name: str, outcomes: tuple[str, ...]) -> str:
    """The warning to the owner about such a column."""
    return (
        f"column {name!r} is kept and gives {', '.join(map(repr, outcomes))} away almost surely: "
        "publishing it publishes the outcome. Do not share the folder"
    )


def label_notice(name: str, cluster: str) -> str:
    """The warning to the owner about a column that reveals a private cluster."""
    return (
        f"column {name!r} is kept and gives {cluster!r} away almost surely: publishing it "
        "publishes the cluster, which is private. Do not share the folder"
    )
