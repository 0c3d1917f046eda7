"""One pass over a local table: every batch is encoded once, and handed to all that need it.

A pass that counts, one that randomizes and one that does both differ in who takes the batches, and
in what becomes of them. Safety checks look at the order of rows while they are counted, and at
passthrough columns while they are published; they only warn.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import columns, unnamed
from clusterdp.errors import TableChangedError
from clusterdp.rows.ids import IdCollector
from clusterdp.rows.keys import Fingerprint
from clusterdp.rows.leaks import (
    NumberSample,
    RowOrder,
    ValueCounter,
    has_order,
    leak_notice,
    sampling_step,
)
from clusterdp.rows.tally import CountPlan, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp.engines.base import Pass
    from clusterdp.rows.encoding import RowCodes
    from clusterdp.rows.tally import CountRequest


# A name that no column of a user has.
_ROW = "__clusterdp_row"
# Just below what glibc lets decide how much memory it holds on to.
_LARGE_BYTES = 2**25 - 2**13


class TablePass:
    """One pass over a local table.

    Attributes:
        asked: What is done with rows.
        tally: Counts them; None if nothing is counted.
        seen: What was read.
    """

    def __init__(self, asked: Pass, schema: pl.Schema) -> None:
        import polars as pl

        self.asked, self.seen = asked, Fingerprint()
        self.tally = None if asked.counts is None else TallyConsumer(asked, asked.counts)
        self._encoder = asked.encoder if self.tally is None else self.tally.encoder
        self._kept, self._schema = KeptColumns(asked, schema), pl.Schema()
        if asked.randomizer is not None:
            self._schema = asked.randomizer.response_schema(schema)
        self._lock = threading.Lock()

    def query(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The pass as a query, to be evaluated once; it gives randomized rows, in order.

        Rows are keyed by their ids, so another pass gives the same rows. Those of batches that
        cannot be used are left out: the pass that counts rejects the table.
        """
        _hold_on_to_memory()
        read = self._encoder.columns
        names = (*read.counted, *read.ordering)
        if self.asked.randomizer is not None:
            names = (*read.public, *read.outcomes)
        numbered = rows.select(columns(dict.fromkeys(names))).with_row_index(_ROW)
        return numbered.map_batches(self._read, streamable=True, schema=self._schema)

    def _read(self, batch: pl.DataFrame) -> pl.DataFrame:
        coded, randomizer = self._encoder(batch, self.asked.keys), self.asked.randomizer
        first_row = int(batch[_ROW][0]) if len(batch) else 0
        if self.tally is not None:
            self.tally.take(first_row, batch, coded)
        else:
            self._note(coded)
        if coded.sound:
            self._kept.take(first_row, batch, coded)
        self.asked.progress(len(batch))
        if randomizer is None or not coded.sound:
            return self._schema.to_frame()
        return randomizer.respond(batch, coded, self.asked.keys)

    def _note(self, rows: RowCodes) -> None:
        """Note what is read, in a pass after the one that counted.

        Raises:
            TableChangedError: If it is not as it was when it was counted.
        """
        if not rows.sound:
            raise TableChangedError
        more = Fingerprint.from_words(rows.words())
        with self._lock:
            self.seen += more

    def notices(self, *, keep_order: bool) -> tuple[str, ...]:
        """The warnings to the owner if what is published reveals outcomes, or private clusters."""
        of_order = () if self.tally is None else self.tally.notices(keep_order=keep_order)
        return (*of_order, *self._kept.notices())


def _hold_on_to_memory() -> None:
    """Let the arrays of one batch have the memory of those before.

    Else glibc gives it back to the system, and gets it again page by page, which takes a tenth of
    the time of a pass. How much it keeps follows from the largest array that was let go.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)


class TallyConsumer:
    """Counts rows, looks for repeated ids, and at the order of rows.

    Attributes:
        tally: What was counted.
        encoder: What encodes the rows that it takes.
        ids: The ids of all rows.
    """

    def __init__(self, asked: Pass, counts: Sequence[CountRequest]) -> None:
        plan = CountPlan.from_requests(asked.encoder, asked.layout, counts)
        self.tally, self.encoder = Tally(plan), plan.encoder
        self.ids = IdCollector(asked.layout.n_units)
        self._keys = asked.keys
        self._order = RowOrder(
            self.encoder.secret_columns,
            n_questions=len(self.encoder.questions),
            n_arms=len(asked.layout.arms),
            n_rows=asked.layout.n_units,
        )
        self._lock = threading.Lock()

    def take(self, first_row: int, batch: pl.DataFrame, rows: RowCodes) -> None:
        """Count successive rows, of which the first stands at `first_row`."""
        self.ids.add(rows.units, rows.hashes)
        if rows.sound:
            public = [unnamed(batch[name]) for name in self.encoder.columns.ordering]
            secrets = self.encoder.secrets(batch, rows)
            self._order.add(first_row, rows.units, rows.cells, public, secrets)
        with self._lock:
            self.tally.add(rows, self._keys)

    def notices(self, *, keep_order: bool) -> tuple[str, ...]:
        """The warnings to the owner if the order of rows reveals outcomes, or clusters."""
        return self._order.notices(keep_order=keep_order)


# Of numbers, about this many rows are looked at: more than enough for bins of some rows each.
_SAMPLED_NUMBERS = 2**19
# Values times classes of outcomes that are counted of other columns.
_MOST_COUNTED = 2**21
# Of many outcomes, several count as one: so many bins of each can be held.
_MOST_CLASSES = 2**9


class KeptColumns:
    """Looks at the passthrough columns of rows that are randomized, batch by batch."""

    def __init__(self, asked: Pass, schema: pl.Schema) -> None:
        self._encoder = asked.encoder
        kept = () if asked.randomizer is None else asked.encoder.columns.kept
        n_rows = asked.layout.n_units
        # By secrets, then by names.
        self._columns = [
            {name: _column(schema[name], n_rows, n_codes) for name in kept}
            for n_codes in asked.encoder.secret_sizes
            if kept
        ]

    def take(self, first_row: int, batch: pl.DataFrame, rows: RowCodes) -> None:
        """Take in successive rows that are sound."""
        if not self._columns:
            return
        secrets = self._encoder.secrets(batch, rows)
        for codes, kept in zip(secrets, self._columns, strict=True):
            for name, column in kept.items():
                column.add(first_row, unnamed(batch[name]), codes)

    def notices(self) -> list[str]:
        """Warnings to the owner about columns that reveal a secret."""
        n_questions, secrets = len(self._encoder.questions), self._encoder.secret_columns
        return [
            leak_notice(name, secrets[place], is_cluster=place >= n_questions)
            for place, kept in enumerate(self._columns)
            for name, column in kept.items()
            if column.reveals_outcome()
        ]


def _column(kind: pl.DataType, n_rows: int, n_outcomes: int) -> NumberSample | ValueCounter:
    n_classes = min(n_outcomes, _MOST_CLASSES)
    if has_order(kind):
        return NumberSample(n_classes, sampling_step(n_rows, _SAMPLED_NUMBERS))
    return ValueCounter(n_classes, _MOST_COUNTED)
