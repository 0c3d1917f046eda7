"""Safety checks: do passthrough columns, or an analyst's labels, reveal outcomes? They only warn.

A column that is published as it is may be a copy of an outcome, or follow from one. Checks never
decide whether a release is published: such a decision would depend on many true outcomes at once,
and would itself need a privacy budget. `rows/row_order.py` checks the order of rows.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
        n_rows=n_rows,
        n_right=n_right + int(rare.max(initial=0)),
        n_right_blindly=int(both.max(initial=0)),
    )
    where_shared = n_shared >= n_rows / 2 and reveals_outcome(
        n_rows=n_shared, n_right=n_right, n_right_blindly=int(shared.max(initial=0))
    )
    return over_all or where_shared


def counts_reveal_outcome(counts: IntArray) -> bool:
    """Whether a column reveals outcomes, or follows from them; axes `[value, outcome]`.

    One that follows from them reveals a part: whether a unit spent at all, for example.
    """
    return any(column_reveals_outcome(*shared_and_rare(one)) for one in (counts, counts.T))


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
        alone: If it may reveal several outcomes: the level of each in every class.
    """

    secret: int
    name: str
    is_number: bool
    n_classes: int
    step: int
    alone: tuple[tuple[int, ...], ...] = ()

    def counter(self, most: int) -> NumberSample | ValueCounter:
        """What counts it; `most` is how many counts of values are held in the end."""
        if self.is_number:
            return NumberSample(self.n_classes, self.step)
        return ValueCounter(self.n_classes, most)

    def reveals(self, counts: IntArray) -> list[bool]:
        """Whether the column reveals the secret as a whole, and each outcome of several by itself.

        Args:
            counts: As a counter's `groups`; axes `[value, class]`.
        """
        found = [counts_reveal_outcome(counts)]
        for levels in self.alone:
            by_level = np.zeros((1 + max(levels), len(counts)), dtype=np.int64)
            np.add.at(by_level, list(levels), counts.T)
            found.append(counts_reveal_outcome(by_level.T))
        return found

    def notices(
        self, encoder: RowEncoder, reveals: Sequence[bool], *, is_label: bool = False
    ) -> list[str]:
        """The warnings to the owner if the column reveals outcomes, or a private cluster.

        Labels of a follow-up are not published. They show what the analyst has.

        Args:
            encoder: Rows as codes.
            reveals: As the method of this name says.
            is_label: Whether it is a label.
        """
        if not any(reveals):
            return []
        names = encoder.secret_columns[self.secret]
        if any(reveals[1:]):
            names = tuple(itertools.compress(names, reveals[1:]))
        if is_label:
            secret = ", ".join(map(repr, names))
            found = (
                f"labels by {self.name!r} almost certainly come from true outcomes of {secret}, "
                "which the analyst should not have. Find out where they come from before you share "
                "the answer"
            )
            return [found]
        is_cluster = self.secret >= len(encoder.questions)
        return [leak_notice(self.name, names, is_cluster=is_cluster)]


def pairs_of(
    encoder: RowEncoder,
    kinds: Mapping[str, pl.DataType],
    most_classes: int,
    step: Callable[[int], int],
) -> Iterator[Pair]:
    """Passthrough columns, or labels, and each of what they may reveal.

    Args:
        encoder: Rows as codes.
        kinds: The types of the columns.
        most_classes: Of more outcomes, several count as one.
        step: Of how many rows one is looked at, for numbers, by how many outcomes there are.
    """
    for secret, n_codes in enumerate(encoder.secret_sizes):
        n_classes = min(n_codes, most_classes)
        alone: tuple[tuple[int, ...], ...] = ()
        if secret < len(encoder.questions) and n_classes == n_codes:
            levels = encoder.questions[secret].space.levels
            alone = tuple(map(tuple, levels.tolist())) if len(levels) > 1 else ()
        for name, kind in kinds.items():
            yield Pair(secret, name, has_order(kind), n_classes, step(n_classes), alone)


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
