"""Safety checks: do passthrough columns, or the order of rows, reveal outcomes? They only warn.

A column that is published as it is may be a copy of the outcome. Rows in the order of outcomes
would reveal every outcome, with any noise. Rows are published in the order of ids, or in
that of the table if the owner declares it public and keeps it. Nets never decide whether a release
is published: such a decision would depend on many true outcomes at once, and would itself need a
privacy budget.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.ids import sorted_rows
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray, WordArray
    from clusterdp.rows.encoding import RowCodes, RowEncoder


# A column reveals the outcome when, knowing its value, one would make less than this share of the
# wrong guesses that one makes without it.
_LEFT_TO_GUESS = 0.1
# A value that fewer rows share may go with one outcome by chance.
ROWS_PER_VALUE = 20
# Numbers with more different values than there are bins are put into bins.
_MOST_BINS = 2**14
_ROWS_PER_BIN = 32
ALL_WORDS = 2**64 - 1
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


def reveals_outcome(*, n_rows: int, n_right: int, n_right_blindly: int) -> bool:
    """Whether some rows' values give their outcomes away.

    Args:
        n_rows: The rows.
        n_right: How many outcomes are guessed right from the value: over values, the sum of the
            largest count of an outcome.
        n_right_blindly: How many are guessed right without it: the rows of the most common outcome.
    """
    if n_right_blindly == n_rows:
        return False
    return 1 - n_right / n_rows < _LEFT_TO_GUESS * (1 - n_right_blindly / n_rows)


def column_reveals_outcome(shared: IntArray, rare: IntArray, n_right: int) -> bool:
    """Whether a column reveals outcomes: over all rows, or where its values are shared.

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
        n_rows=n_rows, n_right=n_right + int(rare.max()), n_right_blindly=int(both.max())
    )
    where_shared = n_shared >= n_rows / 2 and reveals_outcome(
        n_rows=n_shared, n_right=n_right, n_right_blindly=int(shared.max())
    )
    return over_all or where_shared


def counts_reveal_outcome(counts: IntArray) -> bool:
    """Whether a column reveals outcomes, from its counts; axes `[value, outcome]`."""
    return column_reveals_outcome(*shared_and_rare(counts))


def shared_and_rare(counts: IntArray) -> tuple[IntArray, IntArray, int]:
    """The input of `column_reveals_outcome`, from counts; axes `[value, outcome]`."""
    is_shared = counts.sum(axis=1) >= ROWS_PER_VALUE
    shared, rare = counts[is_shared], counts[~is_shared]
    n_right = int(shared.max(axis=1, initial=0).sum())
    return shared.sum(axis=0), rare.sum(axis=0), n_right


def sampling_step(n_rows: int, n_wanted: int) -> int:
    """Of how many successive rows one is looked at, so that about so many are.

    An odd step, so that tables that alternate are not looked at on one side alone.
    """
    return 1 if n_rows < 2 * n_wanted else (n_rows // n_wanted) | 1


class NumberSample:
    """Numbers and times of every so many rows, with their outcomes, to be put into bins.

    Of many outcomes, several count as one class, here and in `ValueCounter`.
    """

    def __init__(self, n_classes: int, step: int) -> None:
        self._n_classes, self._step, self._lock = n_classes, step, threading.Lock()
        self._held: list[tuple[FloatArray, IntArray]] = []

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:
        """Take in the rows whose numbers are multiples of the step. Thread-safe."""
        some = slice(-first_row % self._step, None, self._step)
        taken = some_numbers(values, some), codes[some].astype(np.int64) % self._n_classes
        with self._lock:
            self._held.append(taken)

    def _rows(self) -> tuple[FloatArray, IntArray]:
        numbers, classes = zip((np.empty(0), np.empty(0, np.int64)), *self._held, strict=True)
        return np.concatenate(numbers), np.concatenate(classes)

    def counted(self) -> tuple[int, WordArray, IntArray]:
        """As `ValueCounter.counted`; values are the bits of numbers, and none is left out."""
        numbers, classes = self._rows()
        values, places = np.unique(numbers, return_inverse=True)
        counts = np.zeros((len(values), self._n_classes), dtype=np.int64)
        np.add.at(counts, (places, classes), 1)
        return ALL_WORDS, values.view(np.uint64), counts

    def take(self, limit: int, values: WordArray, counts: IntArray) -> None:  # noqa: ARG002 - as values
        """Take in what another process counted."""
        places, classes = np.nonzero(counts)
        n_rows, numbers = counts[places, classes], values.view(np.float64)
        self._held.append((np.repeat(numbers[places], n_rows), np.repeat(classes, n_rows)))

    def groups(self) -> IntArray:
        """How many rows each bin has of each class; axes `[bin, class]`."""
        numbers, classes = self._rows()
        ends = bin_ends(numbers)
        kinds = bins_of(numbers, ends) * self._n_classes + classes
        n_kinds = (2 * len(ends) + 2) * self._n_classes
        return np.bincount(kinds, minlength=n_kinds).reshape(-1, self._n_classes)


class ValueCounter:
    """Counts all rows of some values of a column: of all of them, or of as many as can be held.

    Which ones follows from their hashes, and how many from how many values there are, which is
    public. Some rows of every value would not do: a value that few rows share would then be one
    that hardly any do.
    """

    def __init__(self, n_classes: int, most: int) -> None:
        """Without rows yet; `most` is how many counts are held in the end, zeros too."""
        self._n_classes, self._most, self._limit = n_classes, most, ALL_WORDS
        self._lock = threading.Lock()
        self._held: list[pl.DataFrame] = []

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:  # noqa: ARG002 - as numbers
        """Take in the rows of values whose hash is within the limit. Thread-safe."""
        import polars as pl

        classes = pl.Series(codes.astype(np.int64) % self._n_classes)
        pairs = pl.DataFrame({_VALUE: plain_column(values).hash(), _CODE: classes})
        some = pairs.lazy().filter(pl.col(_VALUE) <= self._limit).group_by(_VALUE, _CODE)
        self._hold(some.agg(pl.len().cast(pl.Int64).alias(_ROWS)).collect())

    def take(self, limit: int, values: WordArray, counts: IntArray) -> None:
        """Take in what another process counted."""
        import polars as pl

        self._limit = min(self._limit, limit)
        places, classes = np.nonzero(counts)
        held = {_VALUE: values[places], _CODE: classes, _ROWS: counts[places, classes]}
        self._hold(pl.DataFrame(held))

    def _hold(self, counted: pl.DataFrame) -> None:
        with self._lock:
            self._held.append(counted)
            if sum(map(len, self._held)) > 2 * self._most:
                self._held = [self._together()]

    def _together(self) -> pl.DataFrame:
        """Every value and class once, and no more values than can be held."""
        import polars as pl

        empty = pl.DataFrame(schema={_VALUE: pl.UInt64, _CODE: pl.Int64, _ROWS: pl.Int64})
        added = pl.concat([empty, *self._held]).group_by(_VALUE, _CODE).agg(pl.col(_ROWS).sum())
        # What a slower thread added meanwhile may be beyond the limit.
        added = added.filter(pl.col(_VALUE) <= self._limit)
        while added[_VALUE].n_unique() * self._n_classes > self._most and self._limit:
            self._limit //= 2
            added = added.filter(pl.col(_VALUE) <= self._limit)
        return added

    def counted(self) -> tuple[int, WordArray, IntArray]:
        """The limit; hashes up to it, sorted, axes `[value]`; and counts, `[value, class]`."""
        added = self._together()
        values, places = np.unique(added[_VALUE].to_numpy(), return_inverse=True)
        counts = np.zeros((len(values), self._n_classes), dtype=np.int64)
        counts[places, added[_CODE].to_numpy()] = added[_ROWS].to_numpy()
        return self._limit, values, counts

    def groups(self) -> IntArray:
        """How many rows each value has of each class; axes `[value, class]`."""
        return self.counted()[2]


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

    def counter(self, most: int) -> NumberSample | ValueCounter:
        """What counts it; `most` is how many counts of values are held in the end."""
        if self.is_number:
            return NumberSample(self.n_classes, self.step)
        return ValueCounter(self.n_classes, most)

    def notice(self, encoder: RowEncoder, *, is_label: bool = False) -> str:
        """The warning to the owner if the column reveals outcomes, or a private cluster.

        Labels of a follow-up are not published. They show what the analyst has.
        """
        is_cluster = self.secret >= len(encoder.questions)
        if is_label:
            secret = ", ".join(map(repr, encoder.secret_columns[self.secret]))
            return (
                f"labels by {self.name!r} almost certainly come from true outcomes of {secret}, "
                "which the analyst should not have. Find out where they come from before you share "
                "the answer"
            )
        return leak_notice(self.name, encoder.secret_columns[self.secret], is_cluster=is_cluster)


class KeptColumns:
    """Counts the passthrough columns of rows, batch by batch.

    Args:
        pairs: What is looked at.
        encoder: Rows as codes.
        most: How many counts of values are held in the end.

    Attributes:
        counters: What was counted of each pair.
    """

    def __init__(self, pairs: Iterable[Pair], encoder: RowEncoder, most: int) -> None:
        self.counters = {pair: pair.counter(most) for pair in pairs}
        self._encoder = encoder

    def add(self, first_row: int, batch: pl.DataFrame, rows: RowCodes) -> None:
        """Take in successive rows, unless some cannot be used: the table is then refused."""
        if not rows.sound or not self.counters:
            return
        codes = self._encoder.secrets(batch, rows)
        for pair, counter in self.counters.items():
            counter.add(first_row, unnamed(batch[pair.name]), codes[pair.secret])


def leak_notice(name: str, secret: tuple[str, ...], *, is_cluster: bool) -> str:
    """The warning to the owner about a column that reveals outcomes, or a private cluster."""
    what = "cluster" if is_cluster else "outcome"
    return (
        f"passthrough column {name!r} almost certainly reveals {', '.join(map(repr, secret))}, a "
        f"private {what}. Do not share the folder: remove the column, and publish again, which "
        "spends the budget again"
    )


# Standard deviations by which a table in arbitrary order is never off: a false positive every 1e8
# tables even for rare binary outcomes, whose pairs vary most.
_TOO_MANY = 8.0
# Of a large table, about this many rows are looked at: blocks of it where its own order is
# published, and rows by the hashes of their ids where it is not.
_LOOKED_AT, _BLOCK_ROWS = 2**20, 2**18
# The order follows a column if this share of its successive values rises, or falls.
_FOLLOWING = 0.9
# An odd number, by which the words of several columns are mixed.
_MIXING = np.uint64(0x9E3779B97F4A7C15)
_ID, _CELL = "id", "cell"


class RowOrder:
    """Whether the order in which rows are published reveals outcomes, or private clusters.

    Rows are sorted by id, or in the order of the table if the owner keeps it. They are compared
    within strata: cells, divided by public columns that this order follows, since what the order
    reveals by way of these is public. Private clusters are compared within arms.

    Which rows of a large table are looked at follows from the order that is published, and from
    nothing else. Blocks of a table that was sorted by its outcomes would hold some ids of one
    outcome and other ids of the next, even where ids show nothing.

    Args:
        secrets: The columns of each secret: outcomes by question, then a private cluster.
        n_questions: How many of these are outcomes.
        n_arms: Cells are pairs of cluster and arm.
        n_rows: The rows of the table.
        keep_order: Whether rows are published in the order of the table.
    """

    def __init__(
        self,
        secrets: Sequence[tuple[str, ...]],
        *,
        n_questions: int,
        n_arms: int,
        n_rows: int,
        keep_order: bool,
    ) -> None:
        self._secrets, self._n_questions, self._n_arms = secrets, n_questions, n_arms
        self._one_in, self._keep_order = -(-n_rows // _LOOKED_AT), keep_order
        # Rows with their public columns and secrets, by the place of the first one.
        self._held: dict[int, pl.DataFrame] = {}
        self._lock = threading.Lock()

    def add(
        self,
        first_row: int,
        coded: RowCodes,
        public: Iterable[pl.Series],
        secrets: Iterable[CodeArray],
    ) -> None:
        """Take in successive rows, of which the first stands at `first_row`. Thread-safe."""
        import polars as pl

        if self._keep_order and first_row // _BLOCK_ROWS % self._one_in:
            return
        shown = {f"public {place}": plain_column(one) for place, one in enumerate(public)}
        hidden = {f"secret {place}": pl.Series(one) for place, one in enumerate(secrets)}
        rows = pl.DataFrame({_ID: coded.units, _CELL: pl.Series(coded.cells), **shown, **hidden})
        if self._one_in > 1 and not self._keep_order:
            rows = rows.filter(pl.Series(coded.hashes % np.uint64(self._one_in) == 0))
        with self._lock:
            self._held[first_row] = rows

    def notices(self) -> tuple[str, ...]:
        """The warnings to the owner if the order reveals secrets beyond chance."""
        import polars as pl

        if not self._held:
            return ()
        rows = pl.concat(self._held[first] for first in sorted(self._held))
        rows = rows if self._keep_order else sorted_rows(rows, _ID)
        cells, found = rows[_CELL].to_numpy(), dict[str, None]()
        strata = _strata(cells, (one for one in rows if one.name.startswith("public")))
        for place, names in enumerate(self._secrets):
            is_cluster = place >= self._n_questions
            within = (cells % self._n_arms).astype(np.uint64) if is_cluster else strata
            if _follows_order(within, rows[f"secret {place}"].to_numpy()):
                cluster = names[0] if is_cluster else None
                found[_order_notice(cluster, keep_order=self._keep_order)] = None
        return tuple(found)


def _order_notice(cluster: str | None, *, keep_order: bool) -> str:
    """The warning about an order that reveals outcomes, or a private cluster."""
    secret, rows = "outcomes", "within a cluster and arm, rows with the same outcome"
    if cluster is not None:
        secret, rows = f"{cluster!r}", "rows of the same private cluster"
    order, remedy = (
        ("published row order", "release without keep_order")
        if keep_order
        else ("order of ids", "give units other ids")
    )
    return (
        f"the {order} reveals {secret}: {rows} are grouped far more than by chance. Do not "
        f"share the folder; {remedy}"
    )


def _follows_order(strata: WordArray, outcomes: CodeArray) -> bool:
    """Whether outcomes follow the order of rows within strata, far beyond chance.

    There are two statistics: whether rows of one outcome stand earlier than others (as in a sorted
    table), and whether successive rows share their outcome (as in a table sorted in blocks).
    """
    _, numbers = np.unique(strata, return_inverse=True)
    # Kinds are pairs of stratum and outcome, of those that some row has.
    pairs = numbers * (int(outcomes.max()) + 1) + outcomes
    _, firsts, of_rows = np.unique(pairs, return_index=True, return_inverse=True)
    kind_strata = numbers[firsts]
    # Counted from the middle, so that sums stay small.
    place = np.arange(len(strata)) - (len(strata) - 1) / 2
    sizes, counts = np.bincount(numbers), np.bincount(of_rows)
    # Kruskal–Wallis within strata: Σ n_y(mean place of y − mean place)²/variance of places.
    means = np.bincount(numbers, place) / sizes
    spread = (np.bincount(numbers, place**2) - sizes * means**2) / np.maximum(sizes - 1, 1)
    shifts = np.bincount(of_rows, place) / counts - means[kind_strata]
    between = np.bincount(kind_strata, counts * shifts**2)
    free = np.bincount(kind_strata) - 1
    is_usable = (free > 0) & (spread > 0)
    excess = float((between[is_usable] / spread[is_usable]).sum() - free.sum())
    if excess > _TOO_MANY * math.sqrt(2 * float(free.sum()) + 16):
        return True
    # Successive rows share outcomes with π = Σ N_y(N_y−1)/(n(n−1)) by chance.
    equal = np.bincount(kind_strata, counts * (counts - 1))
    order = np.argsort(numbers, kind="stable")
    same = np.diff(numbers[order]) == 0
    probs = (equal / np.maximum(sizes * (sizes - 1), 1))[numbers[order][1:][same]]
    n_equal = int((np.diff(of_rows[order]) == 0).sum())
    variance = float((probs * (1 - probs)).sum())
    return n_equal - float(probs.sum()) > _TOO_MANY * math.sqrt(variance + 1)


def _strata(cells: IntArray, public: Iterable[pl.Series]) -> WordArray:
    """The stratum of each row: its cell, and its values of columns that the order follows."""
    strata = cells.astype(np.uint64)
    for values in public:
        if _is_followed(values):
            strata = strata * _MIXING ^ values.hash().to_numpy()
    return strata


def _is_followed(values: pl.Series) -> bool:
    """Whether successive rows mostly share a value, or values rise or fall."""
    n_steps = len(values) - 1
    before, after = values[:-1], values[1:]
    n_equal, n_rising = int(before.eq_missing(after).sum()), int((before < after).sum())
    rises = n_rising + n_equal >= _FOLLOWING * n_steps
    return n_equal > n_steps / 2 or rises or n_rising <= (1 - _FOLLOWING) * n_steps
