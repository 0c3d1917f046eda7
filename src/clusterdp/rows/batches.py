"""What every engine does to a batch of rows: encode it, randomize it; `counting` counts it.

These are pure functions of a batch and can be sent to other processes; an engine only brings
batches to them and takes away what they return.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp.errors import DataError
from clusterdp.experiment.encoded_rows import OutcomeEncoder
from clusterdp.experiment.published_names import debiased_names
from clusterdp.rows.column_types import outcome_array, plain_type
from clusterdp.rows.columns import FOLD, Columns
from clusterdp.rows.debiased import debiased_columns
from clusterdp.rows.fingerprint import id_hashes, row_words
from clusterdp.rows.keys import fold_numbers, unit_words
from clusterdp.rows.labels import TABLE_CHANGED, CellEncoder, plain_column
from clusterdp.rows.randomizer import RowRandomizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.encoded_rows import EncodedRows as EncodedOutcomes
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.rows.randomizer import RandomizedRows


class EncodedRows(NamedTuple):
    """A batch as codes; every array has axes `[row]`.

    Where ids or outcomes are missing or outside the space, their codes are arbitrary.

    Attributes:
        units: Ids.
        hashes: Hashes of ids.
        cells: Codes of cells.
        blocks: The outcomes of each block.
        groups: The group of each row in every breakdown.
        places: The place of each row among the totals of every level that is counted.
        folds: The fold of each row, if its place depends on it; else None.
        n_without_id: Rows without an id.
        n_unlabelled: Rows without a declared label, where clusters are private.
    """

    units: pl.Series
    hashes: WordArray
    cells: IntArray
    blocks: tuple[EncodedBlock, ...]
    groups: tuple[IntArray, ...]
    places: Mapping[tuple[str, ...], IntArray]
    folds: CodeArray | None
    n_without_id: int
    n_unlabelled: int = 0

    @property
    def sound(self) -> bool:
        """Whether every row has an id, a cluster, and outcomes that break no implication."""
        lacking = self.n_without_id or self.n_unlabelled
        return not lacking and all(block.sound for block in self.blocks)

    def words(self) -> WordArray:
        """A checksum word per row, for fingerprints; never published."""
        categories = (block.categories for block in self.blocks)
        steps = (number for block in self.blocks for number in block.outcomes.steps)
        return row_words(self.hashes, self.cells, *categories, *self.groups, *steps)


class EncodedBlock(NamedTuple):
    """The outcomes of a block as codes.

    Attributes:
        outcomes: Outcomes before numbers are rounded.
        categories: The category of each row, its numbers at the grid point below them.
    """

    outcomes: EncodedOutcomes
    categories: CodeArray

    @property
    def sound(self) -> bool:
        """Whether every row has outcomes of the space that break no implication."""
        outcomes = self.outcomes
        return not (outcomes.n_missing or outcomes.n_outside or outcomes.n_broken)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockEncoder:
    """The outcomes of a block as codes.

    Attributes:
        space: The categories.
        outcomes: How outcomes are encoded.
    """

    space: Categories
    outcomes: OutcomeEncoder

    @classmethod
    def of(cls, space: Categories, *, clip: bool) -> BlockEncoder:
        """The encoder of a block; `clip` moves outcomes beyond the ends of a space to them."""
        clipped = space.declared.names if clip else ()
        return cls(space=space, outcomes=OutcomeEncoder.of(space, clipped))

    def __call__(self, batch: pl.DataFrame) -> EncodedBlock:
        """The outcomes of a batch, and their categories before numbers are rounded."""
        read = {name: outcome_array(batch[name]) for name in self.space.declared.names}
        encoded = self.outcomes.encode(read)
        return EncodedBlock(encoded, self.outcomes.table[encoded.positions])

    def round(self, units: pl.Series, block: EncodedBlock, keys: tuple[bytes, ...]) -> CodeArray:
        """The categories of sound rows, their numbers rounded at random; one key per number."""
        if not keys:
            return block.categories
        words = np.stack([unit_words(units, key)[:, 0] for key in keys], axis=1)
        return self.outcomes.round(block.outcomes, words)

    def rounding_keys(
        self, key: ReleaseKey, purpose: Literal["rows", "counts"]
    ) -> tuple[bytes, ...]:
        """The key of each number, for rows or for counts."""
        return tuple(key.for_rounding(name, purpose) for name in self.space.declared.numbers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowEncoder:
    """Rows of a table as codes.

    Attributes:
        columns: Which column plays which part.
        blocks: How the outcomes of each block are encoded.
        cells: How rows are assigned to cells.
        levels: The columns of each breakdown that rows are assigned to groups of; none for totals.
    """

    columns: Columns
    blocks: tuple[BlockEncoder, ...]
    cells: CellEncoder
    levels: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(
        cls, columns: Columns, spaces: tuple[Categories, ...], cells: CellEncoder, *, clip: bool
    ) -> RowEncoder:
        """The encoder of a table; `clip` moves outcomes beyond the ends of a space to them."""
        blocks = tuple(BlockEncoder.of(space, clip=clip) for space in spaces)
        return cls(columns=columns, blocks=blocks, cells=cells)

    def __call__(self, batch: pl.DataFrame) -> EncodedRows:
        """Encode a batch."""
        units = plain_column(batch[self.columns.unit])
        cells, n_unlabelled = self.cells.encode_rows(batch, self.columns, units)
        groups = {by: self.cells.groups(batch, by) for by in self.columns.breakdowns}
        folds = self._folds(units) if self.levels else None
        return EncodedRows(
            units=units,
            hashes=id_hashes(units),
            cells=cells,
            blocks=tuple(block(batch) for block in self.blocks),
            groups=tuple(groups.values()),
            places=self._places(cells, folds, groups) if self.levels else {},
            folds=folds,
            n_without_id=units.null_count(),
            n_unlabelled=n_unlabelled,
        )

    def _folds(self, units: pl.Series) -> CodeArray | None:
        """The fold of each unit, where there are folds, and every unit has an id."""
        if self.columns.folds == 1 or units.null_count():
            return None
        return fold_numbers(units, self.columns.folds)

    @property
    def label_key(self) -> bytes:
        """The key of private clusters; empty where they are public."""
        return b"" if self.cells.noisy is None else self.cells.noisy.aes_key

    def with_label_key(self, aes_key: bytes) -> RowEncoder:
        """The same with another key of private clusters; with an empty one it can be stored."""
        if self.cells.noisy is None:
            return self
        return replace(self, cells=replace(self.cells, noisy=self.cells.noisy.with_key(aes_key)))

    def _places(
        self,
        cells: IntArray,
        folds: CodeArray | None,
        groups: Mapping[tuple[str, ...], IntArray],
    ) -> dict[tuple[str, ...], IntArray]:
        """The place of each row in flat `[group, fold, arm]` arrays, by level."""
        n_folds, n_arms = self.columns.folds, len(self.cells.arms.values)
        place = cells % n_arms
        if folds is not None:
            place += n_arms * folds
        return {
            level: place + n_folds * n_arms * groups[level] if level else place
            for level in self.levels
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockRandomizer:
    """Pass 2 of a block.

    Attributes:
        row_randomizer: Codes through their cells' channels.
        rounding_keys: The keys that numbers are rounded with.
    """

    row_randomizer: RowRandomizer
    rounding_keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, encoder: BlockEncoder, channel: Channel, key: ReleaseKey) -> BlockRandomizer:
        """The randomizer of a block. Its keys follow from the names of its outcomes."""
        declared = encoder.space.declared
        debiased = debiased_columns(channel.decode, declared)
        aes_key = key.for_response(declared.names)
        return cls(
            row_randomizer=RowRandomizer.of(channel, debiased, aes_key),
            rounding_keys=encoder.rounding_keys(key, "rows"),
        )

    def __call__(
        self, encoder: BlockEncoder, coded: EncodedRows, block: EncodedBlock
    ) -> RandomizedRows:
        """Randomize the outcomes of a block."""
        categories = encoder.round(coded.units, block, self.rounding_keys)
        return self.row_randomizer(coded.units, coded.cells, categories)


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
        blocks: What randomizes each block.
        relabelled: The cluster labels by code, where clusters have others than in the table: they
            were pooled, or are private.
        n_units: How many rows there are to be, which is public.
    """

    encoder: RowEncoder
    blocks: tuple[BlockRandomizer, ...]
    relabelled: pl.Series | None
    n_units: int

    @classmethod
    def of(
        cls, encoder: RowEncoder, channels: Sequence[Channel], layout: Layout, key: ReleaseKey
    ) -> BatchRandomizer:
        """The randomizer of a release: every kind of release has its rows made here."""
        import polars as pl

        relabelled = None
        if encoder.cells.relabels and encoder.columns.cluster is not None:
            relabelled = pl.Series(encoder.columns.cluster, layout.clusters)
        pairs = zip(encoder.blocks, channels, strict=True)
        return cls(
            encoder=encoder,
            blocks=tuple(BlockRandomizer.of(block, channel, key) for block, channel in pairs),
            relabelled=relabelled,
            n_units=layout.n_units,
        )

    def __call__(self, batch: pl.DataFrame) -> RandomizedBatch:
        """Encode a batch and randomize it.

        Raises:
            DataError: If it is not as pass 1 found it.
        """
        coded = self.encoder(batch)
        if not coded.sound:
            raise DataError(TABLE_CHANGED)
        return RandomizedBatch(rows=self.publish(batch, coded), words=coded.words())

    def publish(self, batch: pl.DataFrame, coded: EncodedRows) -> pl.DataFrame:
        """A sound batch as it is published, from its codes."""
        import polars as pl

        columns = self.encoder.columns
        together = zip(self.blocks, self.encoder.blocks, coded.blocks, strict=True)
        rows = [randomize(encoder, coded, block) for randomize, encoder, block in together]
        published = [self._published(name, batch, coded.cells) for name in columns.public]
        if columns.folds > 1:
            folds = coded.folds
            if folds is None:
                folds = fold_numbers(coded.units, columns.folds)
            published.append(pl.Series(FOLD, folds))
        responses = map(pl.Series, columns.responses, (block.responses for block in rows))
        debiased: dict[str, pl.Series] = {}
        for encoder, block in zip(self.encoder.blocks, rows, strict=True):
            declared = encoder.space.declared
            names = debiased_names(declared.names, declared.missing)
            debiased |= zip(names, map(pl.Series, names, block.debiased), strict=True)
        in_order = (debiased[name] for name in columns.debiased)
        return pl.DataFrame([*published, *responses, *in_order])

    def _published(self, name: str, batch: pl.DataFrame, cells: IntArray) -> pl.Series:
        """A public column of a batch, or the labels that its rows are given."""
        if self.relabelled is not None and name == self.encoder.columns.cluster:
            return self.relabelled.gather(cells // len(self.encoder.cells.arms.values))
        return _only_visible(plain_column(batch[name]))

    def schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what is published, from those of the table."""
        import polars as pl

        columns = self.encoder.columns
        published = {name: plain_type(given[name]) for name in columns.public}
        if self.relabelled is not None and columns.cluster is not None:
            published[columns.cluster] = pl.String()
        if columns.folds > 1:
            published[FOLD] = pl.Int32()
        published |= dict.fromkeys(columns.responses, pl.Int32())
        return pl.Schema({**published, **dict.fromkeys(columns.debiased, pl.Float64())})


def _only_visible(column: pl.Series) -> pl.Series:
    """A column without the values that some libraries leave in memory under missing ones."""
    import polars as pl

    if not column.null_count():
        return column
    return pl.select(pl.when(column.is_not_null()).then(column).alias(column.name)).to_series()
