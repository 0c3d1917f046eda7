"""One pass over a local table: every batch is encoded once, and handed to all that need it.

A pass that counts, one that randomizes and one that does both differ in who takes the batches, and
in what becomes of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clusterdp._named import columns
from clusterdp.errors import TableChangedError
from clusterdp.rows.counting import Tally
from clusterdp.rows.duplicate_ids import IdCollector
from clusterdp.rows.fingerprint import Fingerprint
from clusterdp.rows.order_leak import RowOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from clusterdp.engines.base import Counted, Progress
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.batches import EncodedRows, RowEncoder
    from clusterdp.rows.counting import RowCounter
    from clusterdp.rows.noisy_labels import NoisyLabels
    from clusterdp.rows.publishing import BatchRandomizer

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
        self._orders = [
            RowOrder((*layout.sizes.shape, block.n_categories), layout.n_units)
            for block in counter.blocks
        ]
        noisy, cluster = counter.encoder.cells.noisy, counter.encoder.columns.cluster
        self._labels = None
        if noisy is not None and cluster is not None:
            self._labels = LabelOrder(noisy, cluster, len(layout.arms), layout.n_units)

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Count some successive rows."""
        self.ids.add(rows.units, rows.hashes)
        if rows.sound:
            for order, block in zip(self._orders, rows.blocks, strict=True):
                order.add(first_row, rows.units, rows.cells, block.categories)
            if self._labels is not None:
                self._labels.take(first_row, batch, rows)
        with self._lock:
            self.tally.add(rows)

    def notices(self, counted: Counted, *, keep_order: bool) -> tuple[str, ...]:
        """The warnings to the owner if the order of the table reveals outcomes, or clusters."""
        pairs = zip(self._orders, counted.counts, strict=True)
        found = [order.notices(counts, keep_order=keep_order) for order, counts in pairs]
        if self._labels is not None:
            found.append(self._labels.notices())
        return tuple(dict.fromkeys(notice for of_block in found for notice in of_block))


class LabelOrder:
    """Looks at where the rows of private clusters stand in a table."""

    def __init__(self, noisy: NoisyLabels, cluster: str, n_arms: int, n_rows: int) -> None:
        self._noisy, self._cluster, self._n_arms = noisy, cluster, n_arms
        self._order = RowOrder((1, n_arms, noisy.response.n_labels), n_rows)

    def take(self, first_row: int, batch: pl.DataFrame, rows: EncodedRows) -> None:
        """Take in successive rows that are sound."""
        own = self._noisy.own(batch[self._cluster]).codes
        self._order.add(first_row, rows.units, rows.cells % self._n_arms, own)

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
