"""What every engine does to a batch of rows: encode it, count it, randomize it.

These are pure functions of a batch and can be sent to other processes; an engine only brings
batches to them and takes away what they return.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.errors import DataError
from clusterdp.rows.encoding import (
    DEBIASED,
    RELEASED,
    TABLE_CHANGED,
    CellEncoder,
    Columns,
    encode_outcomes,
    plain_column,
    plain_type,
)
from clusterdp.rows.fingerprint import Fingerprint, row_words
from clusterdp.rows.randomizer import RowRandomizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.rows.keys import ReleaseKey


class EncodedRows(NamedTuple):
    """A batch as codes; every array has axes `[row]`.

    Where ids or outcomes are missing or outside the space, their codes are arbitrary.
    """

    units: pl.Series
    cells: IntArray
    outcomes: CodeArray
    n_without_id: int
    n_missing: int
    n_outside: int
    n_clipped: int

    @property
    def sound(self) -> bool:
        """Whether every row has an id and an outcome of the space."""
        return not (self.n_without_id or self.n_missing or self.n_outside)

    def words(self) -> WordArray:
        """A checksum word per row, for fingerprints; never published."""
        return row_words(self.units, self.cells, self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowEncoder:
    """Rows of a table as codes.

    Attributes:
        columns: Which column plays which part.
        space: The declared outcome space.
        clip: Whether outcomes beyond the ends of the space count as the nearest end.
        cells: How rows are assigned to cells.
    """

    columns: Columns
    space: OutcomeSpace
    clip: bool
    cells: CellEncoder

    def __call__(self, batch: pl.DataFrame) -> EncodedRows:
        """Encode a batch."""
        columns = self.columns
        cells = self.cells.encode(batch[columns.cluster], batch[columns.arm])
        encoded = encode_outcomes(batch[columns.outcome], self.space, clip=self.clip)
        units = plain_column(batch[columns.unit])
        return EncodedRows(units, cells, encoded.codes, units.null_count(), *encoded[1:])


@dataclass(slots=True, kw_only=True, eq=False)
class Tally:
    """What pass 1 adds up over batches.

    Attributes:
        counts: N[cell, outcome], flat.
        n_outcomes: K.
        n_without_id: Rows without an id.
        n_missing: Rows without an outcome.
        n_outside: Rows with an outcome outside the space.
        n_clipped: Outcomes that were clipped.
        seen: What was read; it and the counts leave batches out that are not sound.
    """

    counts: IntArray
    n_outcomes: int
    n_without_id: int = 0
    n_missing: int = 0
    n_outside: int = 0
    n_clipped: int = 0
    seen: Fingerprint = field(default_factory=Fingerprint)

    @classmethod
    def empty(cls, n_cells: int, n_outcomes: int) -> Tally:
        """Of no rows."""
        return cls(counts=np.zeros(n_cells * n_outcomes, dtype=np.int64), n_outcomes=n_outcomes)

    @property
    def totals(self) -> tuple[int, ...]:
        """Everything but the counts: the four numbers of rows, and what was read."""
        read = (self.seen.n_rows, self.seen.low, self.seen.high)
        return (self.n_without_id, self.n_missing, self.n_outside, self.n_clipped, *read)

    def add(self, rows: EncodedRows) -> None:
        """Take in a batch."""
        self.n_without_id += rows.n_without_id
        self.n_missing += rows.n_missing
        self.n_outside += rows.n_outside
        self.n_clipped += rows.n_clipped
        if rows.sound:
            self.seen += Fingerprint.of(rows.words())
            np.add.at(self.counts, rows.cells * self.n_outcomes + rows.outcomes, 1)


class RandomizedBatch(NamedTuple):
    """A batch as it is published, and a checksum word per row, which is never published."""

    rows: pl.DataFrame
    words: WordArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchRandomizer:
    """Pass 2 of every engine: a batch of the table in, a batch to publish out.

    It holds the key of the rows, so it is never stored. It holds no rows of the table, and gives
    the same rows for the same batch wherever and however often it is called.

    Attributes:
        encoder: Rows as codes.
        row_randomizer: Codes through their cells' channels.
        pooled: The cluster labels by code, where pooling gave clusters new ones.
        n_units: How many rows there are to be, which is public.
    """

    encoder: RowEncoder
    row_randomizer: RowRandomizer
    pooled: pl.Series | None
    n_units: int

    @classmethod
    def of(
        cls, encoder: RowEncoder, channel: Channel, layout: Layout, key: ReleaseKey
    ) -> BatchRandomizer:
        """The randomizer of a release: every kind of release has its rows made here."""
        import polars as pl

        pooled = None
        if encoder.cells.pooled is not None:
            pooled = pl.Series(encoder.columns.cluster, layout.clusters)
        aes_key = key.for_outcome(encoder.columns.outcome)
        return cls(
            encoder=encoder,
            row_randomizer=RowRandomizer.of(channel, aes_key),
            pooled=pooled,
            n_units=layout.n_units,
        )

    def __call__(self, batch: pl.DataFrame) -> RandomizedBatch:
        """Randomize a batch.

        Raises:
            DataError: If it is not as pass 1 found it.
        """
        import polars as pl

        columns = self.encoder.columns
        coded = self.encoder(batch)
        if not coded.sound:
            raise DataError(TABLE_CHANGED)
        rows = self.row_randomizer(coded.units, coded.cells, coded.outcomes)
        published = [_only_visible(plain_column(batch[name])) for name in columns.public]
        if self.pooled is not None:
            published[2] = self.pooled.gather(coded.cells // len(self.encoder.cells.arms.values))
        table = pl.DataFrame(
            [
                *published,
                pl.Series(RELEASED, rows.released),
                pl.Series(DEBIASED, rows.debiased),
            ]
        )
        return RandomizedBatch(rows=table, words=coded.words())

    def schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what is published, from those of the table."""
        import polars as pl

        columns = self.encoder.columns
        published = {name: plain_type(given[name]) for name in columns.public}
        if self.pooled is not None:
            published[columns.cluster] = pl.String()
        released = released_type(self.row_randomizer.values)
        return pl.Schema(published | {RELEASED: released, DEBIASED: pl.Float64()})


def released_type(values: npt.NDArray[Any] | None) -> pl.DataType:
    """The type of the released outcomes, from the values they can take; None for numbers."""
    import polars as pl

    return pl.Float64() if values is None else pl.Series(values).dtype


def _only_visible(column: pl.Series) -> pl.Series:
    """A column without the values that some libraries leave in memory under missing ones."""
    import polars as pl

    if not column.null_count():
        return column
    return pl.select(pl.when(column.is_not_null()).then(column).alias(column.name)).to_series()
