"""What every engine does to a batch of rows: encode it, count it, randomize it.

These are pure functions of a batch and can be sent to other processes; an engine only brings
batches to them and takes away what they return.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp.errors import DataError
from clusterdp.experiment.encoded_rows import OutcomeEncoder
from clusterdp.experiment.metric_integers import MetricIntegers
from clusterdp.experiment.weights import stratified_weights
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
from clusterdp.rows.fingerprint import Fingerprint, row_words
from clusterdp.rows.keys import fold_numbers, unit_words
from clusterdp.rows.randomizer import RowRandomizer
from clusterdp.statistics.base import CellTotals, MetricSums

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


class Asked(NamedTuple):
    """What pass 1 is to count beside rows by category.

    Attributes:
        sums: Whether sums of numbers are needed, cell by cell.
        levels: The columns that weighted totals are needed by; none for everyone.
        count_key: The key of the release, where counts of rounded numbers are published.
    """

    sums: bool = False
    levels: tuple[tuple[str, ...], ...] = ()
    count_key: ReleaseKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounter:
    """What pass 1 counts of a batch.

    Numbers add more than their category: sums are of the numbers themselves, and counts are of
    categories after a rounding of their own.

    Attributes:
        encoder: Rows as codes.
        metrics: The metrics of rows as integers, where totals are asked for.
        sums: Whether sums of numbers are asked for, cell by cell.
        weights: What a unit of each cell counts in totals; axes `[cell]`.
        level_sizes: How many totals each level has.
        count_keys: The keys that numbers are rounded with for counts; empty where no counts are
            published.
    """

    encoder: RowEncoder
    metrics: tuple[MetricIntegers, ...]
    sums: bool
    weights: IntArray
    level_sizes: tuple[int, ...]
    count_keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, encoder: RowEncoder, layout: Layout, asked: Asked) -> RowCounter:
        """The counter of a table, for what is asked of it and no more."""
        space = encoder.space
        sums = asked.sums and bool(space.declared.numbers)
        metrics = space.declared.metrics if sums or asked.levels else ()
        key = asked.count_key
        n_arms = len(layout.arms)
        return cls(
            encoder=replace(encoder, levels=asked.levels),
            metrics=tuple(MetricIntegers.of(metric, space) for metric in metrics),
            sums=sums,
            weights=stratified_weights(layout).ravel(),
            level_sizes=tuple(
                layout.n_groups(level) * layout.folds * n_arms for level in asked.levels
            ),
            count_keys=() if key is None else encoder.rounding_keys(key, "counts"),
        )

    @property
    def n_sums(self) -> int:
        """How many metrics have sums in every cell."""
        return len(self.metrics) if self.sums else 0

    @property
    def width(self) -> int:
        """How many integers a cell has: rows by category, sums, squares, rows by rounded one."""
        n_categories = self.encoder.space.n_categories
        return n_categories + 2 * self.n_sums + (n_categories if self.count_keys else 0)

    def totals(self, tally: Tally, layout: Layout) -> CellTotals:
        """What statistics are drawn from."""
        n_categories, space = self.encoder.space.n_categories, self.encoder.space
        table = tally.table.reshape(*layout.sizes.shape, -1)
        totals = CellTotals.of_counts(table[..., :n_categories], space, layout)
        totals = totals._replace(groups=self._groups(tally.groups, layout))
        if self.sums:
            first, second = n_categories, n_categories + self.n_sums
            squares = table[..., second : second + self.n_sums]
            totals = totals._replace(sums=table[..., first:second], squares=squares)
        if self.count_keys:
            totals = totals._replace(counts=table[..., -n_categories:])
        return totals

    def _groups(self, groups: IntArray, layout: Layout) -> dict[tuple[str, ...], MetricSums]:
        """Totals by level, from those of all levels; axes `[place, 2 * metric]`."""
        ends = np.cumsum(self.level_sizes)[:-1]
        parts = np.split(groups, ends) if self.level_sizes else []
        found = {}
        for level, part in zip(self.encoder.levels, parts, strict=True):
            shaped = part.reshape(-1, layout.folds, len(layout.arms), part.shape[-1])
            found[level] = MetricSums(*np.split(shaped, 2, axis=-1))
        return found


@dataclass(slots=True, kw_only=True, eq=False)
class Tally:
    """What pass 1 adds up over batches.

    Attributes:
        counter: What is counted of a batch.
        table: Integers by cell, in the order of `RowCounter.width`; axes `[cell, place]`.
        groups: Weighted sums of metrics, then of their squares, by the groups of every level; axes
            `[place, 2 * metric]`.
        n_without_id: Rows without an id.
        n_missing: Rows without an outcome.
        n_outside: Rows with an outcome outside its space.
        n_broken: Other rows that break an implication.
        n_clipped: Outcomes that were clipped.
        seen: What was read; it and the table leave batches out that are not sound.
    """

    counter: RowCounter
    table: IntArray
    groups: IntArray
    n_without_id: int = 0
    n_missing: int = 0
    n_outside: int = 0
    n_broken: int = 0
    n_clipped: int = 0
    seen: Fingerprint = field(default_factory=Fingerprint)

    @classmethod
    def empty(cls, counter: RowCounter, n_cells: int) -> Tally:
        """Of no rows."""
        return cls(
            counter=counter,
            table=np.zeros((n_cells, counter.width), dtype=np.int64),
            groups=np.zeros((sum(counter.level_sizes), 2 * len(counter.metrics)), dtype=np.int64),
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything but the table: the five numbers of rows, and what was read."""
        rows = (self.n_without_id, self.n_missing, self.n_outside, self.n_broken, self.n_clipped)
        return (*rows, self.seen.n_rows, self.seen.low, self.seen.high)

    def add(self, rows: EncodedRows) -> None:
        """Take in a batch."""
        self.n_without_id += rows.n_without_id
        self.n_missing += rows.outcomes.n_missing
        self.n_outside += rows.outcomes.n_outside
        self.n_broken += rows.outcomes.n_broken
        self.n_clipped += sum(rows.outcomes.n_clipped)
        if not rows.sound:
            return
        self.seen += Fingerprint.of(rows.words())
        counter, n_categories = self.counter, self.counter.encoder.space.n_categories
        np.add.at(self.table, (rows.cells, rows.categories), 1)
        for place, metric in enumerate(counter.metrics):
            integers = metric.of_rows(rows.outcomes)
            squares = metric.coarse_squares(integers)
            if counter.sums:
                np.add.at(self.table[:, n_categories + place], rows.cells, integers)
                np.add.at(self.table[:, n_categories + counter.n_sums + place], rows.cells, squares)
            self._add_groups(rows, place, integers, squares)
        if counter.count_keys:
            rounded = counter.encoder.round(rows, counter.count_keys)
            first = n_categories + 2 * counter.n_sums
            np.add.at(self.table, (rows.cells, first + rounded.astype(np.int64)), 1)

    def _add_groups(
        self, rows: EncodedRows, metric: int, integers: IntArray, squares: IntArray
    ) -> None:
        """Add a metric of some rows to the totals of every level."""
        if not rows.places:
            return
        counter, first = self.counter, 0
        weights = counter.weights[rows.cells]
        weighted = (weights * integers, weights * squares)
        for level, size in zip(rows.places, counter.level_sizes, strict=True):
            for kind, terms in enumerate(weighted):
                column = self.groups[first : first + size, metric + kind * len(counter.metrics)]
                np.add.at(column, level, terms)
            first += size


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
        outcomes = encoder.columns.outcomes
        aes_key = key.for_response(outcomes)
        return cls(
            encoder=encoder,
            row_randomizer=RowRandomizer.of(channel, len(outcomes), aes_key),
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
