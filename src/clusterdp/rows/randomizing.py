"""What every engine does to a batch of encoded rows in the end: randomize it.

As encoding, a pure function of a batch that can be sent to other processes.

Stage 4: every row through its cell's channel. A stateless function of codes and random words.

Published columns of debiased outcomes, from what responses count as in each metric.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.errors import TableChangedError
from clusterdp.outcomes.published_names import QUESTION, debiased_names
from clusterdp.rows.column_types import plain_type
from clusterdp.rows.keys import fold_numbers, unit_words
from clusterdp.rows.value_codes import plain_column
from clusterdp.spec.columns import FOLD, RESPONSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray, WordArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.channels.sampling import RedrawSampler, TableSampler
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.rows.encoding import AskedRows, EncodedRows, QuestionEncoder, RowEncoder
    from clusterdp.rows.keys import ReleaseKey, UnitIds


# Rows worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_ROWS = 2**15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowRandomizer:
    """Pass 2 of every engine: a stateless function of a batch of rows.

    It holds everything a worker needs and nothing of the table, so batches may be run in any order,
    anywhere, and again: the same rows give the same result.

    Attributes:
        sampler: The channel as look-up tables.
        groups: The group of each cell, axes `[cell]`; None where every cell is its own group.
        n_outputs: How many different outputs a group has.
        decodings: What each output of each group counts as, for every published column; axes
            `[group * output]`.
        aes_key: The key of the outcomes, from `ReleaseKey.for_response`.
    """

    sampler: RedrawSampler | TableSampler
    groups: IntArray | None
    n_outputs: int
    decodings: tuple[pl.Series, ...]
    aes_key: bytes = field(repr=False)

    @classmethod
    def of(cls, channel: Channel, debiased: list[FloatArray], aes_key: bytes) -> RowRandomizer:
        """The randomizer of a channel; `debiased` is what its outputs count as, by column."""
        import polars as pl

        groups = channel.groups.ravel()
        every_cell = np.array_equal(groups, np.arange(len(groups)))
        return cls(
            sampler=channel.sampler(),
            groups=None if every_cell else groups,
            n_outputs=debiased[0].shape[-1],
            decodings=tuple(pl.Series(each.ravel()) for each in debiased),
            aes_key=aes_key,
        )

    @property
    def n_places(self) -> int:
        """How many responses all groups have together."""
        return len(self.decodings[0])

    def __call__(self, units: UnitIds, cells: IntArray, categories: CodeArray) -> CodeArray:
        """Randomize a batch, given as ids, cell codes and category codes; axes `[row]`.

        Returns:
            The place of each row's response among those of all groups, `group * output`, in the
            type of fewest bytes; axes `[row]`.
        """
        n_rows = len(units)
        places = np.empty(n_rows, dtype=np.min_scalar_type(self.n_places - 1))
        for start in range(0, n_rows, _CACHED_ROWS):
            part = slice(start, start + _CACHED_ROWS)
            groups = cells[part] if self.groups is None else self.groups[cells[part]]
            words = unit_words(units.part(part), self.aes_key)
            codes = self.sampler.draw(words, groups, categories[part])
            codes += groups * self.n_outputs
            places[part] = codes
        return places

    def counts_as(self, place: pl.Expr) -> list[pl.Expr]:
        """What responses count as in each published column, from their places."""
        import polars as pl

        return [pl.lit(decoding).gather(place) for decoding in self.decodings]


def debiased_columns(
    decode: Callable[[int], FloatArray], declared: DeclaredOutcomes
) -> list[FloatArray]:
    """What responses count as in each published column, in the order of `Columns.debiased`.

    An outcome that may be missing is measured as R·(y − middle) and R. Its columns are R·y, which
    is the first plus middle·R, and R.

    Args:
        decode: What responses count as in a metric, by its place.
        declared: The declared outcomes.
    """
    n_outcomes = len(declared.outcomes)
    observed = {name: decode(n_outcomes + place) for place, name in enumerate(declared.missing)}
    values = [
        decode(place) + outcome.middle * observed[outcome.name]
        if outcome.may_be_missing
        else decode(place)
        for place, outcome in enumerate(declared.outcomes)
    ]
    return [*values, *observed.values()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionRandomizer:
    """Pass 2 of a question.

    Attributes:
        row_randomizer: Codes through their cells' channels.
        rounding_keys: The keys that numbers are rounded with.
    """

    row_randomizer: RowRandomizer
    rounding_keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, encoder: QuestionEncoder, channel: Channel, key: ReleaseKey) -> QuestionRandomizer:
        """The randomizer of a question. Its keys follow from the names of its outcomes."""
        declared = encoder.space.declared
        debiased = debiased_columns(channel.decode, declared)
        aes_key = key.for_response(declared.names)
        return cls(
            row_randomizer=RowRandomizer.of(channel, debiased, aes_key),
            rounding_keys=encoder.rounding_keys(key, "rows"),
        )

    def __call__(self, encoder: QuestionEncoder, rows: AskedRows) -> CodeArray:
        """The place of each row's response among those of all groups."""
        categories = encoder.round(rows, self.rounding_keys)
        return self.row_randomizer(rows.ids, rows.cells, categories)


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
        questions: What randomizes each question.
        relabelled: The cluster labels by code, where clusters have others than in the table: they
            were pooled, or are private.
        n_units: How many rows there are to be, which is public.
    """

    encoder: RowEncoder
    questions: tuple[QuestionRandomizer, ...]
    relabelled: pl.Series | None
    n_units: int

    @classmethod
    def of(
        cls, encoder: RowEncoder, channels: Sequence[Channel], layout: Layout, key: ReleaseKey
    ) -> BatchRandomizer:
        """The randomizer of a release: every kind of release has its rows made here."""
        import polars as pl

        if (encoder.asking is None) != (len(channels) == 1):
            raise ValueError("several questions need a rule by which each unit is asked one")
        relabelled = None
        if encoder.cells.relabels and encoder.columns.cluster is not None:
            relabelled = pl.Series(encoder.columns.as_published().cluster, layout.clusters)
        pairs = zip(encoder.questions, channels, strict=True)
        return cls(
            encoder=encoder,
            questions=tuple(
                QuestionRandomizer.of(question, channel, key) for question, channel in pairs
            ),
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

        A row has one number, the place of its response among those of all questions and groups.
        """
        import polars as pl

        columns = self.encoder.columns
        firsts = self._firsts
        places = np.empty(len(coded.cells), dtype=_smallest(firsts[-1]))
        for number, (encoder, randomize) in enumerate(self._pairs()):
            asked = coded.asked(number)
            found = randomize(encoder, asked).astype(places.dtype)
            places[asked.places] = found + firsts[number]
        published = [self._published(name, batch, coded.cells) for name in columns.public]
        if columns.folds > 1:
            folds = coded.folds
            if folds is None:
                folds = fold_numbers(coded.ids, columns.folds)
            published.append(pl.Series(FOLD, folds.astype(_smallest(columns.folds))))
        return pl.DataFrame([*published, pl.Series(RESPONSE, places)])

    def complete(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as they are published, from what `respond` returned for them, in any order."""
        import polars as pl

        columns = self.encoder.columns.as_published()
        published = [rows[name] for name in columns.public]
        if columns.folds > 1:
            published.append(rows[FOLD].cast(pl.Int32))
        codes = rows.select(RESPONSE)
        if columns.question_names:
            codes = self._own_places(rows[RESPONSE].to_numpy())
            names = pl.Series(QUESTION, columns.question_names)
            published.append(names.gather(codes[QUESTION]))
        return pl.DataFrame([*published, *codes.select(self._decoded()).get_columns()])

    def _own_places(self, places: CodeArray) -> pl.DataFrame:
        """Numbers of questions, and places among the responses of each one's own question."""
        import polars as pl

        firsts = np.array(self._firsts[:-1])
        numbers = np.zeros(len(places), dtype=np.uint32)
        for first in firsts[1:]:
            numbers += places >= first
        return pl.DataFrame({QUESTION: numbers, RESPONSE: places - firsts[numbers]})

    def _decoded(self) -> list[pl.Expr]:
        """Responses, and what they count as in each column, from what `_own_places` returns.

        They count as null in the columns of other questions.
        """
        import polars as pl

        place, number, is_only = pl.col(RESPONSE), pl.col(QUESTION), len(self.questions) == 1
        debiased: dict[str, pl.Expr] = {}
        for at, (encoder, question) in enumerate(self._pairs()):
            declared = encoder.space.declared
            names = debiased_names(declared.names, declared.missing)
            own = place if is_only else pl.when(number == at).then(place).otherwise(0)
            counts_as = question.row_randomizer.counts_as(own)
            if not is_only:
                counts_as = [pl.when(number == at).then(one) for one in counts_as]
            debiased |= zip(names, counts_as, strict=True)
        n_each = [one.row_randomizer.n_outputs for one in self.questions]
        sizes = pl.Series(n_each, dtype=pl.Int32)
        n_outputs = pl.lit(sizes[0]) if is_only else pl.lit(sizes).gather(number)
        named = (debiased[name].alias(name) for name in self.encoder.columns.debiased)
        return [place.cast(pl.Int32) % n_outputs, *named]

    def _pairs(self) -> Iterator[tuple[QuestionEncoder, QuestionRandomizer]]:
        return zip(self.encoder.questions, self.questions, strict=True)

    @property
    def _firsts(self) -> list[int]:
        """The first place of each question's responses, and how many places there are."""
        sizes = (one.row_randomizer.n_places for one in self.questions)
        return [*accumulate(sizes, initial=0)]

    def _published(self, name: str, batch: pl.DataFrame, cells: IntArray) -> pl.Series:
        """What is published of a column of a batch: itself, or the labels that rows are given."""
        if self.relabelled is not None and name == self.encoder.columns.cluster:
            return self.relabelled[cells // len(self.encoder.cells.arms.values)]
        return _only_visible(plain_column(batch[name]))

    def schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what is published, from those of the table."""
        import polars as pl

        columns = self.encoder.columns.as_published()
        published = dict(self.response_schema(given))
        if columns.folds > 1:
            published[FOLD] = pl.Int32()
        published |= {QUESTION: pl.String(), RESPONSE: pl.Int32()}
        published |= dict.fromkeys(columns.debiased, pl.Float64())
        return pl.Schema({name: published[name] for name in columns.published})

    def response_schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what `respond` returns, from those of the table."""
        import polars as pl

        columns = self.encoder.columns
        types = {name: plain_type(given[name]) for name in columns.public}
        if self.relabelled is not None and columns.cluster is not None:
            types[columns.cluster] = pl.String()
        types = dict(zip(columns.as_published().public, types.values(), strict=True))
        sizes = {FOLD: columns.folds} if columns.folds > 1 else {}
        sizes[RESPONSE] = self._firsts[-1]
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
