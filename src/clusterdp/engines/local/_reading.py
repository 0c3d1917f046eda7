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
    KeptColumns,
    Pair,
    RowOrder,
    counts_reveal_outcome,
    has_order,
    sampling_step,
)
from clusterdp.rows.tally import Tally

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.engines.base import Pass
    from clusterdp.rows.encoding import RowCodes


# A name that no column of a user has.
_ROW = "__clusterdp_row"
# Just below what glibc lets decide how much memory it holds on to.
_LARGE_BYTES = 2**25 - 2**13
# Of numbers, about this many rows are looked at: more than enough for bins of some rows each.
_SAMPLED_NUMBERS = 2**19
# Values times classes of outcomes that are counted of other columns.
_MOST_COUNTED = 2**21
# Of many outcomes, several count as one: so many bins of each can be held.
_MOST_CLASSES = 2**9


class TablePass:
    """One pass over a local table.

    Attributes:
        asked: What is done with rows.
        tally: Counts them; None if nothing is counted.
        ids: The ids of all rows that are counted.
    """

    def __init__(self, asked: Pass, schema: pl.Schema) -> None:
        import polars as pl

        self.asked, self._read_later = asked, Fingerprint()
        self._encoder, randomizer, n_rows = asked.encoder, asked.randomizer, asked.layout.n_units
        self.tally: Tally | None = None
        if asked.counts is not None:
            self.tally = Tally(asked.encoder, asked.layout, asked.counts)
            self._encoder = self.tally.encoder
        self.ids = IdCollector(n_rows)
        self._order = RowOrder(
            self._encoder.secret_columns,
            n_questions=len(self._encoder.questions),
            n_arms=len(asked.layout.arms),
            n_rows=n_rows,
        )
        step = sampling_step(n_rows, _SAMPLED_NUMBERS)
        pairs = [
            Pair(secret, name, has_order(schema[name]), min(n_codes, _MOST_CLASSES), step)
            for secret, n_codes in enumerate(self._encoder.secret_sizes)
            for name in (() if randomizer is None else self._encoder.columns.kept)
        ]
        self._kept = KeptColumns(pairs, self._encoder, _MOST_COUNTED)
        self._schema = pl.Schema() if randomizer is None else randomizer.response_schema(schema)
        self._lock = threading.Lock()

    @property
    def seen(self) -> Fingerprint:
        """What was read."""
        return self._read_later if self.tally is None else self.tally.seen

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
            self._count(self.tally, first_row, batch, coded)
        else:
            self._note(coded)
        self._kept.add(first_row, batch, coded)
        self.asked.progress(len(batch))
        if randomizer is None or not coded.sound:
            return self._schema.to_frame()
        return randomizer.respond(batch, coded, self.asked.keys)

    def _count(self, tally: Tally, first_row: int, batch: pl.DataFrame, rows: RowCodes) -> None:
        """Count successive rows, and look at their ids and at their order."""
        self.ids.add(rows.units, rows.hashes)
        if rows.sound:
            public = [unnamed(batch[name]) for name in self._encoder.columns.ordering]
            secrets = self._encoder.secrets(batch, rows)
            self._order.add(first_row, rows.units, rows.cells, public, secrets)
        with self._lock:
            tally.add(rows, self.asked.keys)

    def _note(self, rows: RowCodes) -> None:
        """Note what is read, in a pass after the one that counted.

        Raises:
            TableChangedError: If it is not as it was when it was counted.
        """
        if not rows.sound:
            raise TableChangedError
        more = Fingerprint.from_words(rows.words())
        with self._lock:
            self._read_later += more

    def notices(self, *, keep_order: bool) -> tuple[str, ...]:
        """The warnings to the owner if what is published reveals outcomes, or private clusters."""
        revealing = (
            pair.notice(self._encoder)
            for pair, counter in self._kept.counters.items()
            if counts_reveal_outcome(counter.groups())
        )
        return (*self._order.notices(keep_order=keep_order), *revealing)


def _hold_on_to_memory() -> None:
    """Let the arrays of one batch have the memory of those before.

    Else glibc gives it back to the system, and gets it again page by page, which takes a tenth of
    the time of a pass. How much it keeps follows from the largest array that was let go.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)
