"""What every engine does to a batch of encoded rows in the end: randomize it.

Every row goes through its cell's channel, and is published with its response and with what that
counts as in each metric. As encoding, it is a pure function of a batch, and of the words that its
keys give, which can be sent to other processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import unnamed
from clusterdp.errors import TableChangedError
from clusterdp.rows.column_types import plain_type
from clusterdp.rows.keys import fold_numbers, response_key, unit_words
from clusterdp.rows.value_codes import plain_column
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE, debiased_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray, WordArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.channels.sampling import RedrawSampler, TableSampler
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.rows.encoding import AskedRows, QuestionEncoder, RowCodes, RowEncoder
    from clusterdp.rows.keys import UnitIds


# Rows worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_ROWS = 2**15


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
    """Pass 2 of a question: every row through its cell's channel.

    It holds everything a worker needs, and nothing of the table, so batches may be run in any
    order, anywhere, and again: the same rows and keys give the same result.

    Attributes:
        encoder: How the outcomes of the question are encoded.
        sampler: The channel as look-up tables.
        groups: The group of each cell, axes `[cell]`; None where every cell is its own group.
        n_outputs: How many different outputs a group has.
        decodings: What each output of each group counts as, for every published column; axes
            `[group * output]`.
    """

    encoder: QuestionEncoder
    sampler: RedrawSampler | TableSampler
    groups: IntArray | None
    n_outputs: int
    decodings: tuple[pl.Series, ...]

    @classmethod
    def from_channel(cls, encoder: QuestionEncoder, channel: Channel) -> QuestionRandomizer:
        """The randomizer of a question whose rows go through a channel."""
        import polars as pl

        debiased = debiased_columns(channel.decode, encoder.space.declared)
        groups = channel.groups.ravel()
        every_cell = np.array_equal(groups, np.arange(len(groups)))
        return cls(
            encoder=encoder,
            sampler=channel.sampler(),
            groups=None if every_cell else groups,
            n_outputs=debiased[0].shape[-1],
            decodings=tuple(pl.Series(each.ravel()) for each in debiased),
        )

    @property
    def response_key(self) -> str:
        """The name of the key that the channel draws with: it follows from the outcomes' names."""
        return response_key(self.encoder.space.declared.names)

    @property
    def n_places(self) -> int:
        """How many responses all groups have together."""
        return len(self.decodings[0])

    def __call__(self, rows: AskedRows, keys: Mapping[str, bytes]) -> CodeArray:
        """The place of each row's response among those of all groups; axes `[row]`."""
        categories = self.encoder.round(rows, self.encoder.rounding_keys("rows"), keys)
        return self.draw(rows.ids, rows.cells, categories, keys[self.response_key])

    def draw(
        self, units: UnitIds, cells: IntArray, categories: CodeArray, aes_key: bytes
    ) -> CodeArray:
        """Randomize a batch, given as ids, cell codes and category codes; axes `[row]`.

        Returns:
            The place of each row's response among those of all groups, `group * output`, in the
            type of fewest bytes; axes `[row]`.
        """
        n_rows = len(units)
        places = np.empty(n_rows, dtype=_smallest(self.n_places))
        for start in range(0, n_rows, _CACHED_ROWS):
            part = slice(start, start + _CACHED_ROWS)
            groups = cells[part] if self.groups is None else self.groups[cells[part]]
            words = unit_words(units.part(part), aes_key)
            codes = self.sampler.draw(words, groups, categories[part])
            codes += groups * self.n_outputs
            places[part] = codes
        return places

    def counts_as(self, place: pl.Expr) -> list[pl.Expr]:
        """What responses count as in each published column, from their places."""
        import polars as pl

        return [pl.lit(decoding).gather(place) for decoding in self.decodings]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchRandomizer:
    """Pass 2 of every engine: a batch of the table in, a batch to publish out.

    It holds neither keys nor rows of the table, and gives the same rows for the same batch and keys
    wherever and however often it is called.

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
    def from_channels(
        cls, encoder: RowEncoder, channels: Sequence[Channel], layout: Layout
    ) -> BatchRandomizer:
        """The randomizer of a release: every kind of release has its rows made here."""
        import polars as pl

        if (encoder.asking is None) != (len(channels) == 1):
            raise ValueError("several questions need a rule by which each unit is asked one")
        relabelled, cells = None, encoder.cells
        has_others = cells.pooled is not None or cells.response is not None
        if has_others and encoder.columns.cluster is not None:
            relabelled = pl.Series(encoder.columns.as_published().cluster, layout.clusters)
        pairs = zip(encoder.questions, channels, strict=True)
        return cls(
            encoder=encoder,
            questions=tuple(QuestionRandomizer.from_channel(*pair) for pair in pairs),
            relabelled=relabelled,
            n_units=layout.n_units,
        )

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys that rows are encoded and randomized with."""
        of_rows = (
            name
            for one in self.questions
            for name in (one.response_key, *one.encoder.rounding_keys("rows"))
        )
        return (*self.encoder.key_names, *of_rows)

    def __call__(
        self, batch: pl.DataFrame, keys: Mapping[str, bytes]
    ) -> tuple[pl.DataFrame, WordArray]:
        """A batch as it is published, and a checksum word per row, which is never published.

        Raises:
            TableChangedError: If it is not as pass 1 found it.
        """
        coded = self.encoder(batch, keys)
        if not coded.sound:
            raise TableChangedError
        return self.complete(self.respond(batch, coded, keys)), coded.words()

    def respond(
        self, batch: pl.DataFrame, coded: RowCodes, keys: Mapping[str, bytes]
    ) -> pl.DataFrame:
        """A sound batch as it is published, in few bytes: `complete` adds what follows from it.

        A row has one number, the place of its response among those of all questions and groups.
        """
        import polars as pl

        columns = self.encoder.columns
        firsts = self._firsts
        places = np.empty(len(coded.cells), dtype=_smallest(firsts[-1]))
        for number, question in enumerate(self.questions):
            asked = coded.asked(number)
            places[asked.places] = question(asked, keys).astype(places.dtype) + firsts[number]
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
        for at, question in enumerate(self.questions):
            declared = question.encoder.space.declared
            names = debiased_names(declared.names, declared.missing)
            own = place if is_only else pl.when(number == at).then(place).otherwise(0)
            counts_as = question.counts_as(own)
            if not is_only:
                counts_as = [pl.when(number == at).then(one) for one in counts_as]
            debiased |= zip(names, counts_as, strict=True)
        sizes = pl.Series([one.n_outputs for one in self.questions], dtype=pl.Int32)
        n_outputs = pl.lit(sizes[0]) if is_only else pl.lit(sizes).gather(number)
        named = (debiased[name].alias(name) for name in self.encoder.columns.debiased)
        return [place.cast(pl.Int32) % n_outputs, *named]

    @property
    def _firsts(self) -> list[int]:
        """The first place of each question's responses, and how many places there are."""
        return [*accumulate((one.n_places for one in self.questions), initial=0)]

    def _published(self, name: str, batch: pl.DataFrame, cells: IntArray) -> pl.Series:
        """What is published of a column of a batch: itself, or the labels that rows are given."""
        if self.relabelled is not None and name == self.encoder.columns.cluster:
            return self.relabelled[cells // len(self.encoder.cells.arms.values)]
        return _only_visible(plain_column(batch[name]))

    def schema(self, given: Mapping[str, pl.DataType]) -> pl.Schema:
        """The types of what is published, from those of the table."""
        return self.complete(self.response_schema(given).to_frame()).schema

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
