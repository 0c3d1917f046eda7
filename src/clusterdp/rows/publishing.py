"""What every engine does to a batch of encoded rows in the end: randomize it.

As encoding, a pure function of a batch that can be sent to other processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.errors import TableChangedError
from clusterdp.experiment.published_names import debiased_names
from clusterdp.rows.column_types import plain_type
from clusterdp.rows.columns import FOLD
from clusterdp.rows.debiased import debiased_columns
from clusterdp.rows.keys import fold_numbers
from clusterdp.rows.labels import plain_column
from clusterdp.rows.randomizer import RowRandomizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.batches import BlockEncoder, EncodedBlock, EncodedRows, RowEncoder
    from clusterdp.rows.keys import ReleaseKey


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

    def __call__(self, encoder: BlockEncoder, coded: EncodedRows, block: EncodedBlock) -> CodeArray:
        """The place of each row's response among those of all groups."""
        categories = encoder.round(coded.ids, block, self.rounding_keys)
        return self.row_randomizer(coded.ids, coded.cells, categories)


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
            TableChangedError: If it is not as pass 1 found it.
        """
        coded = self.encoder(batch)
        if not coded.sound:
            raise TableChangedError
        return RandomizedBatch(rows=self.publish(batch, coded), words=coded.words())

    def publish(self, batch: pl.DataFrame, coded: EncodedRows) -> pl.DataFrame:
        """A sound batch as it is published, from its codes."""
        return self.complete(self.respond(batch, coded))

    def respond(self, batch: pl.DataFrame, coded: EncodedRows) -> pl.DataFrame:
        """A sound batch as it is published, in few bytes: `complete` adds what follows from it.

        Each block has one number, the place of a row's response among those of all groups.
        """
        import polars as pl

        columns = self.encoder.columns
        together = zip(self.blocks, self.encoder.blocks, coded.blocks, strict=True)
        places = [randomize(encoder, coded, block) for randomize, encoder, block in together]
        published = [self._published(name, batch, coded.cells) for name in columns.public]
        if columns.folds > 1:
            folds = coded.folds
            if folds is None:
                folds = fold_numbers(coded.ids, columns.folds)
            published.append(pl.Series(FOLD, folds.astype(_smallest(columns.folds))))
        return pl.DataFrame([*published, *map(pl.Series, columns.responses, places)])

    def complete(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as they are published, from what `respond` returned for them, in any order."""
        import polars as pl

        columns = self.encoder.columns
        folds = [pl.col(FOLD).cast(pl.Int32)] if columns.folds > 1 else []
        responses: list[pl.Expr] = []
        debiased: dict[str, pl.Expr] = {}
        for response, encoder, block in self._named_blocks():
            declared = encoder.space.declared
            names = debiased_names(declared.names, declared.missing)
            own, *others = block.row_randomizer.published(response, names)
            responses.append(own)
            debiased |= zip(names, others, strict=True)
        made = rows.select(*folds, *responses, *(debiased[name] for name in columns.debiased))
        return pl.DataFrame([*(rows[name] for name in columns.public), *made.get_columns()])

    def _named_blocks(self) -> Iterator[tuple[str, BlockEncoder, BlockRandomizer]]:
        """The column of responses of each block, its encoder and its randomizer."""
        names = self.encoder.columns.responses
        return zip(names, self.encoder.blocks, self.blocks, strict=True)

    def _published(self, name: str, batch: pl.DataFrame, cells: IntArray) -> pl.Series:
        """A public column of a batch, or the labels that its rows are given."""
        if self.relabelled is not None and name == self.encoder.columns.cluster:
            return self.relabelled[cells // len(self.encoder.cells.arms.values)]
        return _only_visible(plain_column(batch[name]))

    def schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what is published, from those of the table."""
        import polars as pl

        columns = self.encoder.columns
        published = dict(self.response_schema(given))
        if columns.folds > 1:
            published[FOLD] = pl.Int32()
        published |= dict.fromkeys(columns.responses, pl.Int32())
        return pl.Schema({**published, **dict.fromkeys(columns.debiased, pl.Float64())})

    def response_schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what `respond` returns, from those of the table."""
        import polars as pl

        columns = self.encoder.columns
        types = {name: plain_type(given[name]) for name in columns.public}
        if self.relabelled is not None and columns.cluster is not None:
            types[columns.cluster] = pl.String()
        sizes = {FOLD: columns.folds} if columns.folds > 1 else {}
        sizes |= {name: one.row_randomizer.n_places for name, _, one in self._named_blocks()}
        types |= {
            name: pl.Series(np.empty(0, _smallest(size))).dtype for name, size in sizes.items()
        }
        return pl.Schema(types)


def _only_visible(column: pl.Series) -> pl.Series:
    """A column without the values that some libraries leave in memory under missing ones."""
    import polars as pl

    if not column.null_count():
        return column
    values = unnamed(column)
    visible = pl.when(values.is_not_null()).then(values)
    return pl.select(visible.alias(column.name)).to_series()


def _smallest(n_numbers: int) -> np.dtype[np.unsignedinteger]:
    """The type of fewest bytes that holds the numbers below some number."""
    return np.min_scalar_type(n_numbers - 1)
