"""A safety net: does a column that is published as it is reveal the outcome? It only warns.

A safety net: the order of rows must not reveal outcomes if it is published.

A table sorted by its outcome would reveal every outcome, whatever noise is added. Rows are
published in the order of ids. The order of the table is visible in two cases: ids were assigned in
that order, or the owner declares it public and keeps it. The net warns the owner of tables whose
order clearly depends on outcomes. It never decides whether a release is published: such a decision
would depend on many true outcomes at once, and would itself need a privacy budget.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray, WordArray


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


def leak_notice(name: str, secret: tuple[str, ...], *, is_cluster: bool) -> str:
    """The warning to the owner about a column that reveals outcomes, or a private cluster."""
    what = "cluster, which is private" if is_cluster else "outcome"
    return (
        f"column {name!r} is kept and gives {', '.join(map(repr, secret))} away almost surely: "
        f"publishing it publishes the {what}. Do not share the folder"
    )


# Standard deviations by which a table in arbitrary order is never off: a false alarm every 1e8
# tables even for rare binary outcomes, whose pairs vary most.
_TOO_MANY = 8.0
# Of a large table, blocks of rows are looked at, as many as hold about this many rows; and of
# successive rows, those in the beginning of each batch, since sorting all of them costs too much.
_LOOKED_AT, _BLOCK_ROWS = 2**21, 2**18
_STRETCH = 2**11
# Ids follow the order of the table if this share of successive ids rises, or falls; and the order
# follows a column if this share of its successive values does.
_FOLLOWING = 0.9
# An odd number, by which the words of several columns are mixed.
_MIXING = np.uint64(0x9E3779B97F4A7C15)


class RowOrder:
    """Where the rows of each stratum and outcome stand in a table.

    Strata are cells, divided by public columns that the order of the table follows: what order
    tells by way of these, everybody knows. There are two statistics, both of order within strata:
    whether rows of one outcome stand earlier than others (as in a sorted table), and whether
    successive rows share their outcome (as in a table sorted in blocks).
    """

    def __init__(self, n_outcomes: int, n_rows: int) -> None:
        self._n_rows, self._n_outcomes = n_rows, n_outcomes
        self._one_in = -(-n_rows // _LOOKED_AT)
        # Strata and outcomes of rows, and the place of the first one.
        self._held: list[tuple[int, WordArray, CodeArray]] = []
        # Strata of successive rows.
        self._pairs: list[WordArray] = []
        self._n_equal = 0
        self._n_steps = self._n_rising = 0
        self._lock = threading.Lock()

    def add(self, first_row: int, ids: pl.Series, strata: WordArray, outcomes: CodeArray) -> None:
        """Take in successive rows, of which the first stands at `first_row`. Thread-safe."""
        if first_row // _BLOCK_ROWS % self._one_in:
            return
        order = np.argsort(strata[:_STRETCH], kind="stable")
        sorted_strata, sorted_outcomes = strata[order], outcomes[order]
        same = sorted_strata[1:] == sorted_strata[:-1]
        equal = sorted_outcomes[1:] == sorted_outcomes[:-1]
        some_ids = ids[:_STRETCH]
        n_rising = int((some_ids[:-1] < some_ids[1:]).sum())
        with self._lock:
            self._n_steps += max(len(some_ids) - 1, 0)
            self._n_rising += n_rising
            self._held.append((first_row, strata, outcomes))
            self._pairs.append(sorted_strata[1:][same])
            self._n_equal += int(equal[same].sum())

    def notices(self, *, keep_order: bool, cluster: str | None = None) -> tuple[str, ...]:
        """The warning to the owner if the order reveals outcomes beyond chance.

        Args:
            keep_order: Whether rows are published in the order of the table.
            cluster: The private cluster that was taken in as outcomes, by arm; None if outcomes
                were, by cell.
        """
        shown = keep_order or self._ids_follow()
        if not shown or not self._depends():
            return ()
        what = ("outcomes", "within cells, rows of one outcome")
        if cluster is not None:
            what = (f"{cluster!r}", "it is private, and rows of one cluster")
        why = (
            "that order is published. Do not share the folder; release without keep_order"
            if keep_order
            else "ids follow that order. Do not share the folder; give units other ids"
        )
        text = (
            f"the order of the table gives {what[0]} away: {what[1]} stand together or before "
            f"others far more than chance allows, and {why}"
        )
        return (text,)

    def _depends(self) -> bool:
        if not self._held:
            return False
        rows = _Rows.of(self._held, self._n_outcomes, (self._n_rows - 1) / 2)
        return rows.are_sorted() or rows.are_in_blocks(np.concatenate(self._pairs), self._n_equal)

    def _ids_follow(self) -> bool:
        return _rises_or_falls(self._n_rising, self._n_rising, self._n_steps)


class _Rows(NamedTuple):
    """Rows by stratum and outcome, of which those that no row has are left out.

    Attributes:
        strata: The strata, sorted; axes `[stratum]`.
        numbers: The stratum of each row, by its place among them; axes `[row]`.
        kinds: The pair of stratum and outcome of each row, by its place; axes `[row]`.
        kind_strata: The stratum of each pair; axes `[kind]`.
        places: Where rows stand, counted from the middle, so that sums stay small; axes `[row]`.
    """

    strata: WordArray
    numbers: IntArray
    kinds: IntArray
    kind_strata: IntArray
    places: FloatArray

    @classmethod
    def of(
        cls, held: list[tuple[int, WordArray, CodeArray]], n_outcomes: int, middle: float
    ) -> _Rows:
        """Rows that were taken in."""
        _, words, codes = zip(*held, strict=True)
        strata, numbers = np.unique(np.concatenate(words), return_inverse=True)
        pairs = numbers * n_outcomes + np.concatenate(codes)
        kinds, of_rows = np.unique(pairs, return_inverse=True)
        places = [np.arange(len(one), dtype=np.float64) + first for first, one, _ in held]
        return cls(strata, numbers, of_rows, kinds // n_outcomes, np.concatenate(places) - middle)

    def are_sorted(self) -> bool:
        """Kruskal–Wallis within strata: Σ n_y(mean place of y − mean place)²/variance of places."""
        sizes, counts = np.bincount(self.numbers), np.bincount(self.kinds)
        means = np.bincount(self.numbers, self.places) / sizes
        squares = np.bincount(self.numbers, self.places**2)
        spread = (squares - sizes * means**2) / np.maximum(sizes - 1, 1)
        shifts = np.bincount(self.kinds, self.places) / counts - means[self.kind_strata]
        between = np.bincount(self.kind_strata, counts * shifts**2)
        free = np.bincount(self.kind_strata) - 1
        is_usable = (free > 0) & (spread > 0)
        excess = float((between[is_usable] / spread[is_usable]).sum() - free.sum())
        return excess > _TOO_MANY * math.sqrt(2 * float(free.sum()) + 16)

    def are_in_blocks(self, pairs: WordArray, n_equal: int) -> bool:
        """Successive rows share outcomes with π = Σ N_y(N_y−1)/(n(n−1)) by chance."""
        sizes, counts = np.bincount(self.numbers), np.bincount(self.kinds)
        equal = np.bincount(self.kind_strata, counts * (counts - 1))
        equal_prob = equal / np.maximum(sizes * (sizes - 1), 1)
        probs = equal_prob[np.searchsorted(self.strata, pairs)]
        variance = float((probs * (1 - probs)).sum())
        return n_equal - float(probs.sum()) > _TOO_MANY * math.sqrt(variance + 1)


def strata_of(cells: IntArray, batch: pl.DataFrame, public: Iterable[str]) -> WordArray:
    """The stratum of each row: its cell, and its values of columns that the order follows.

    Args:
        cells: Codes of cells.
        batch: Successive rows.
        public: Columns that are published as they are.
    """
    strata = cells.astype(np.uint64)
    for name in public:
        values = plain_column(unnamed(batch[name]))
        if _is_followed(values[:_STRETCH]):
            strata = strata * _MIXING ^ values.hash().to_numpy()
    return strata


def _is_followed(values: pl.Series) -> bool:
    """Whether successive rows mostly share a value, or values rise or fall."""
    n_steps = len(values) - 1
    if n_steps < 1:
        return False
    before, after = values[:-1], values[1:]
    n_equal = int(before.eq_missing(after).sum())
    if n_equal > n_steps / 2 or values.dtype.is_nested():
        return n_equal > n_steps / 2
    n_rising = int((before < after).sum())
    return _rises_or_falls(n_rising, n_rising + n_equal, n_steps)


def _rises_or_falls(n_rising: int, n_not_falling: int, n_steps: int) -> bool:
    """Whether nearly all steps go one way; those that go nowhere count either way."""
    rises = n_not_falling >= _FOLLOWING * n_steps
    return n_steps > 0 and (rises or n_rising <= (1 - _FOLLOWING) * n_steps)
