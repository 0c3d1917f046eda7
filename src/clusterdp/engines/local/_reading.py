"""One pass over a local table: every batch is encoded once, and handed to all that need it.

A pass that counts, one that randomizes and one that does both differ in who takes the batches, and
in what becomes of them.

Do kept columns reveal outcomes or private clusters? Looked at while published; it only warns.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clusterdp._named import columns, unnamed
from clusterdp.errors import TableChangedError
from clusterdp.rows.ids import IdCollector
from clusterdp.rows.keys import Fingerprint
from clusterdp.rows.leaks import (
    RowOrder,
    ValueCounter,
    bin_ends,
    bins_of,
    counts_reveal_outcome,
    has_order,
    label_notice,
    leak_notice,
    some_numbers,
    strata_of,
)
from clusterdp.rows.tally import Tally
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import Progress
    from clusterdp.rows.encoding import EncodedRows, RowEncoder
    from clusterdp.rows.randomizing import BatchRandomizer
    from clusterdp.rows.tally import RowCounter
    from clusterdp.rows.value_codes import NoisyLabels


# A name that no column of a user has.
_ROW = "__clusterdp_row"
# Just below what glibc lets decide how much memory it holds on to.
_LARGE_BYTES = 2**25 - 2**13


class Consumer(Protocol):
    """What takes the rows of a table, batch by batch and from several threads."""

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Take in successive rows, of which the first stands at `first_row`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """One pass.

    Attributes:
        encoder: Rows as codes.
        consumers: What takes them.
        columns: The columns that are read.
        publish: What becomes of a batch, given its codes.
        progress: Is called with rows done.
    """

    encoder: RowEncoder
    consumers: tuple[Consumer, ...]
    columns: tuple[str, ...]
    publish: Callable[[pl.DataFrame, EncodedRows], pl.DataFrame]
    progress: Progress

    def query(self, rows: pl.LazyFrame, schema: pl.Schema) -> pl.LazyFrame:
        """The pass as a query, to be evaluated once; it gives what is published, in order.

        Args:
            rows: The table.
            schema: The types of what is published.
        """
        _hold_on_to_memory()
        numbered = rows.select(columns(self.columns)).with_row_index(_ROW)
        return numbered.map_batches(self._read, streamable=True, schema=schema)

    def _read(self, batch: pl.DataFrame) -> pl.DataFrame:
        coded = self.encoder(batch)
        if len(batch):
            first_row = int(batch[_ROW][0])
            for consumer in self.consumers:
                consumer.take(first_row, batch, coded)
        self.progress(len(batch))
        return self.publish(batch, coded)


def _hold_on_to_memory() -> None:
    """Let the arrays of one batch have the memory of those before.

    Else glibc gives it back to the system, and gets it again page by page, which takes a tenth of
    the time of a pass. How much it keeps follows from the largest array that was let go.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)


def nothing(batch: pl.DataFrame, coded: EncodedRows) -> pl.DataFrame:  # noqa: ARG001 - as others
    """Publish nothing."""
    import polars as pl

    return pl.DataFrame()


@dataclass(frozen=True, slots=True, eq=False)
class SoundRows:
    """Randomizes batches in which every row can be used; for others, whoever counts refuses."""

    randomizer: BatchRandomizer
    schema: pl.Schema

    def __call__(self, batch: pl.DataFrame, coded: EncodedRows) -> pl.DataFrame:
        """The responses of a batch, see `BatchRandomizer.respond`."""
        if not coded.sound:
            return self.schema.to_frame()
        return self.randomizer.respond(batch, coded)


class Counting:
    """Counts rows, looks for repeated ids, and at the order of the table."""

    def __init__(self, counter: RowCounter, layout: Layout) -> None:
        self._lock = threading.Lock()
        self.tally = Tally.empty(counter, layout.sizes.size)
        self.ids = IdCollector(layout.n_units)
        self._public = counter.encoder.columns.ordering
        self._orders = [
            RowOrder(question.n_categories, layout.n_units) for question in counter.questions
        ]
        noisy, cluster = counter.encoder.cells.noisy, counter.encoder.columns.cluster
        self._labels = None
        if noisy is not None and cluster is not None:
            self._labels = LabelOrder(noisy, cluster, len(layout.arms), layout.n_units)

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Count some successive rows."""
        self.ids.add(rows.units, rows.hashes)
        if rows.sound:
            strata = strata_of(rows.cells, batch, self._public)
            for order, question in zip(self._orders, rows.questions, strict=True):
                order.add(first_row, rows.units, strata, question.categories)
            if self._labels is not None:
                self._labels.take(first_row, batch, rows)
        with self._lock:
            self.tally.add(rows)

    def notices(self, *, keep_order: bool) -> tuple[str, ...]:
        """The warnings to the owner if the order of the table reveals outcomes, or clusters."""
        found = [order.notices(keep_order=keep_order) for order in self._orders]
        if self._labels is not None:
            found.append(self._labels.notices())
        return tuple(dict.fromkeys(notice for of_question in found for notice in of_question))


class LabelOrder:
    """Looks at where the rows of private clusters stand in a table."""

    def __init__(self, noisy: NoisyLabels, cluster: str, n_arms: int, n_rows: int) -> None:
        self._noisy, self._cluster, self._n_arms = noisy, cluster, n_arms
        self._order = RowOrder(noisy.response.n_labels, n_rows)

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Take in successive rows that are sound."""
        own = self._noisy.own(batch[self._cluster]).codes
        arms = (rows.cells % self._n_arms).astype(np.uint64)
        self._order.add(first_row, rows.units, arms, own)

    def notices(self) -> tuple[str, ...]:
        """The warning to the owner if the order of the table reveals clusters."""
        return self._order.label_notices(self._cluster)


class SameRows:
    """Notes what is read, in a pass after the one that counted."""

    def __init__(self) -> None:
        self.seen = Fingerprint()
        self._lock = threading.Lock()

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:  # noqa: ARG002 - as others
        """Take in some rows.

        Raises:
            TableChangedError: If they are not as they were when they were counted.
        """
        if not rows.sound:
            raise TableChangedError
        more = Fingerprint.of(rows.words())
        with self._lock:
            self.seen += more


# Of numbers, about this many rows are looked at: more than enough for bins of some rows each.
_SAMPLED_NUMBERS = 2**19
# Values and outcomes that are counted of other columns.
_MOST_COUNTED = 2**21
# Bins times outcomes that an array may have.
_MOST_COUNTS = 2**24


class _Column(Protocol):
    """How the values of a column go with outcomes."""

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:
        """Take in successive rows. Safe to call from several threads."""
        ...

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        ...


class KeptColumns:
    """Looks at the kept columns of a table, batch by batch."""

    def __init__(self, encoder: RowEncoder, schema: pl.Schema, n_rows: int) -> None:
        self._encoder = encoder
        self._questions = [
            {
                name: _column(schema[name], n_rows, question.space.n_categories)
                for name in encoder.columns.kept
            }
            for question in encoder.questions
        ]
        noisy, kept = encoder.cells.noisy, encoder.columns.kept
        n_labels = 0 if noisy is None else noisy.response.n_labels
        # Of private clusters; there are none where they are public.
        self._labels = {name: _column(schema[name], n_rows, n_labels) for name in kept if n_labels}

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Take in successive rows."""
        if not rows.sound:
            return
        for question, kept in zip(rows.questions, self._questions, strict=True):
            for name, column in kept.items():
                column.add(first_row, unnamed(batch[name]), question.categories)
        noisy, cluster = self._encoder.cells.noisy, self._encoder.columns.cluster
        if noisy is None or cluster is None:
            return
        for name, column in self._labels.items():
            column.add(first_row, unnamed(batch[name]), noisy.own(batch[cluster]).codes)

    def notices(self) -> tuple[str, ...]:
        """Warnings to the owner about columns that reveal the outcomes of a question."""
        return tuple(self._found())

    def _found(self) -> Iterator[str]:
        for question, kept in zip(self._encoder.questions, self._questions, strict=True):
            for name, column in kept.items():
                if column.reveals_outcome():
                    yield leak_notice(name, question.space.declared.names)
        for name, column in self._labels.items():
            if column.reveals_outcome():
                yield label_notice(name, self._encoder.columns.cluster or "")


def _column(kind: pl.DataType, n_rows: int, n_outcomes: int) -> _Column:
    if has_order(kind):
        return _Numbers(n_rows, n_outcomes)
    return _Values(n_outcomes)


class _Numbers:
    """Numbers and times of every so many rows, to be put into bins in the end."""

    def __init__(self, n_rows: int, n_outcomes: int) -> None:
        # An odd step, so that tables that alternate are not looked at on one side alone.
        self._step = 1 if n_rows < 2 * _SAMPLED_NUMBERS else (n_rows // _SAMPLED_NUMBERS) | 1
        self._n_outcomes, self._lock = n_outcomes, threading.Lock()
        self._held: list[tuple[FloatArray, CodeArray]] = []

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:
        """Take in the rows whose numbers are multiples of the step."""
        some = slice(-first_row % self._step, None, self._step)
        taken = some_numbers(values, some), codes[some].copy()
        with self._lock:
            self._held.append(taken)

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        values, codes = map(np.concatenate, zip(*self._held, strict=True))
        return counts_reveal_outcome(_count_bins(values, codes, self._n_outcomes))


def _count_bins(values: FloatArray, codes: CodeArray, n_codes: int) -> IntArray:
    """How many rows have each outcome in each bin; axes `[bin, outcome]`."""
    ends = bin_ends(values)
    many = 2 * len(ends) + 2
    # Of very many outcomes, those beyond what an array can hold count as one.
    n_codes = min(n_codes, max(1, _MOST_COUNTS // many))
    kinds = bins_of(values, ends) * n_codes + np.minimum(codes, n_codes - 1)
    return np.bincount(kinds, minlength=many * n_codes).reshape(-1, n_codes)


class _Values:
    """Counts all rows of some values of a column: of all of them, or of as many as can be held.

    Which ones follows from their hashes. Some rows of every value would not do: a value that few
    rows share would then be one that hardly any do.
    """

    def __init__(self, n_outcomes: int) -> None:
        self._counter, self._lock = ValueCounter(n_outcomes), threading.Lock()
        self._limit = 2**64 - 1

    def add(self, first_row: int, values: pl.Series, codes: CodeArray) -> None:  # noqa: ARG002 - as numbers
        """Take in the rows of values whose hash is within the limit."""
        import polars as pl

        hashes, numbers = plain_column(values).hash(), pl.Series(codes)
        limit = self._limit
        if limit < 2**64 - 1:
            within = hashes <= limit
            hashes, numbers = hashes.filter(within), numbers.filter(within)
        self._counter.add(hashes, numbers.to_numpy())
        with self._lock:
            while self._counter.n_held > _MOST_COUNTED and self._limit:
                self._limit //= 2
                self._counter.keep_up_to(self._limit)

    def reveals_outcome(self) -> bool:
        """Whether the column gives outcomes away."""
        self._counter.keep_up_to(self._limit)  # what a slower thread added meanwhile
        return self._counter.reveals_outcome()
