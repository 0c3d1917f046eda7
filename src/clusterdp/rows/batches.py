"""What every engine does to a batch of rows: encode it, randomize it; `counting` counts it.

These are pure functions of a batch and can be sent to other processes; an engine only brings
batches to them and takes away what they return.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp.errors import DataError
from clusterdp.experiment.encoded_rows import OutcomeEncoder
from clusterdp.rows.debiased import debiased_columns
from clusterdp.rows.encoding import (
    FOLD,
    RESPONSE,
    TABLE_CHANGED,
    CellEncoder,
    Columns,
    outcome_array,
    plain_column,
    plain_type,
)
from clusterdp.rows.fingerprint import row_words
from clusterdp.rows.keys import fold_numbers, unit_words
from clusterdp.rows.randomizer import RowRandomizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.encoded_rows import EncodedRows as EncodedOutcomes
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.keys import ReleaseKey


class EncodedRows(NamedTuple):
    """A batch as codes; every array has axes `[row]`.

    Where ids or outcomes are missing or outside the space, their codes are arbitrary.

    Attributes:
        units: Ids.
        cells: Codes of cells.
        outcomes: Outcomes before numbers are rounded.
        categories: The category of each row, its numbers at the grid point below them.
        groups: The group of each row in every breakdown.
        places: The place of each row among the totals of every level that is counted.
        n_without_id: Rows without an id.
    """

    units: pl.Series
    cells: IntArray
    outcomes: EncodedOutcomes
    categories: CodeArray
    groups: tuple[IntArray, ...]
    places: tuple[IntArray, ...]
    n_without_id: int

    @property
    def sound(self) -> bool:
        """Whether every row has an id, and outcomes of the space that break no implication."""
        outcomes = self.outcomes
        unusable = outcomes.n_missing + outcomes.n_outside + outcomes.n_broken
        return not (self.n_without_id or unusable)

    def words(self) -> WordArray:
        """A checksum word per row, for fingerprints; never published."""
        steps = self.outcomes.steps
        return row_words(self.units, self.cells, self.categories, *self.groups, *steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowEncoder:
    """Rows of a table as codes.

    Attributes:
        columns: Which column plays which part.
        space: The categories.
        outcomes: How outcomes are encoded.
        cells: How rows are assigned to cells.
        levels: The columns of each breakdown that rows are assigned to groups of; none for totals.
    """

    columns: Columns
    space: Categories
    outcomes: OutcomeEncoder
    cells: CellEncoder
    levels: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(
        cls, columns: Columns, space: Categories, cells: CellEncoder, *, clip: bool
    ) -> RowEncoder:
        """The encoder of a table; `clip` moves outcomes beyond the ends of a space to them."""
        clipped = columns.outcomes if clip else ()
        return cls(
            columns=columns, space=space, outcomes=OutcomeEncoder.of(space, clipped), cells=cells
        )

    def __call__(self, batch: pl.DataFrame) -> EncodedRows:
        """Encode a batch."""
        cells = self.cells.encode(batch, self.columns.cluster, self.columns.arm)
        outcomes, categories = self.encode_outcomes(batch)
        units = plain_column(batch[self.columns.unit])
        groups = {by: self.cells.groups(batch, by) for by in self.columns.breakdowns}
        return EncodedRows(
            units=units,
            cells=cells,
            outcomes=outcomes,
            categories=categories,
            groups=tuple(groups.values()),
            places=self._places(units, cells, groups) if self.levels else (),
            n_without_id=units.null_count(),
        )

    def _places(
        self, units: pl.Series, cells: IntArray, groups: Mapping[tuple[str, ...], IntArray]
    ) -> tuple[IntArray, ...]:
        """The place of each row in flat `[group, fold, arm]` arrays, level by level."""
        n_folds, n_arms = self.columns.folds, len(self.cells.arms.values)
        place = cells % n_arms
        if n_folds > 1 and not units.null_count():
            place += n_arms * fold_numbers(units, n_folds)
        return tuple(
            place + n_folds * n_arms * groups[level] if level else place for level in self.levels
        )

    def encode_outcomes(self, batch: pl.DataFrame) -> tuple[EncodedOutcomes, CodeArray]:
        """The outcomes of a batch, and their categories before numbers are rounded."""
        read = {name: outcome_array(batch[name]) for name in self.columns.outcomes}
        encoded = self.outcomes.encode(read)
        return encoded, self.outcomes.table[encoded.positions]

    def round(self, rows: EncodedRows, keys: tuple[bytes, ...]) -> CodeArray:
        """The categories of sound rows, their numbers rounded at random; one key per number."""
        if not keys:
            return rows.categories
        words = np.stack([unit_words(rows.units, key)[:, 0] for key in keys], axis=1)
        return self.outcomes.round(rows.outcomes, words)

    def rounding_keys(
        self, key: ReleaseKey, purpose: Literal["rows", "counts"]
    ) -> tuple[bytes, ...]:
        """The key of each number, for rows or for counts."""
        return tuple(key.for_rounding(name, purpose) for name in self.space.declared.numbers)


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
        rounding_keys: The keys that numbers are rounded with.
        pooled: The cluster labels by code, where pooling gave clusters new ones.
        n_units: How many rows there are to be, which is public.
    """

    encoder: RowEncoder
    row_randomizer: RowRandomizer
    rounding_keys: tuple[bytes, ...] = field(repr=False)
    pooled: pl.Series | None
    n_units: int

    @classmethod
    def of(
        cls, encoder: RowEncoder, channel: Channel, layout: Layout, key: ReleaseKey
    ) -> BatchRandomizer:
        """The randomizer of a release: every kind of release has its rows made here."""
        import polars as pl

        pooled = None
        if encoder.cells.pooled is not None and encoder.columns.cluster is not None:
            pooled = pl.Series(encoder.columns.cluster, layout.clusters)
        aes_key = key.for_response(encoder.columns.outcomes)
        debiased = debiased_columns(channel.decode, encoder.space.declared)
        return cls(
            encoder=encoder,
            row_randomizer=RowRandomizer.of(channel, debiased, aes_key),
            rounding_keys=encoder.rounding_keys(key, "rows"),
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
        categories = self.encoder.round(coded, self.rounding_keys)
        rows = self.row_randomizer(coded.units, coded.cells, categories)
        published = [_only_visible(plain_column(batch[name])) for name in columns.public]
        if self.pooled is not None:
            published[2] = self.pooled.gather(coded.cells // len(self.encoder.cells.arms.values))
        if columns.folds > 1:
            published.append(pl.Series(FOLD, fold_numbers(coded.units, columns.folds)))
        debiased = map(pl.Series, columns.debiased, rows.debiased)
        table = pl.DataFrame([*published, pl.Series(RESPONSE, rows.responses), *debiased])
        return RandomizedBatch(rows=table, words=coded.words())

    def schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what is published, from those of the table."""
        import polars as pl

        columns = self.encoder.columns
        published = {name: plain_type(given[name]) for name in columns.public}
        if self.pooled is not None and columns.cluster is not None:
            published[columns.cluster] = pl.String()
        if columns.folds > 1:
            published[FOLD] = pl.Int32()
        published[RESPONSE] = pl.Int32()
        return pl.Schema({**published, **dict.fromkeys(columns.debiased, pl.Float64())})


def _only_visible(column: pl.Series) -> pl.Series:
    """A column without the values that some libraries leave in memory under missing ones."""
    import polars as pl

    if not column.null_count():
        return column
    return pl.select(pl.when(column.is_not_null()).then(column).alias(column.name)).to_series()
