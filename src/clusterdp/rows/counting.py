"""Pass 1 of every engine: what is counted of a batch of rows, and how batches add up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.experiment.metric_integers import MetricIntegers
from clusterdp.rows.fingerprint import Fingerprint
from clusterdp.statistics.base import CellTotals, MetricSums

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.batches import EncodedRows, RowEncoder
    from clusterdp.rows.keys import ReleaseKey


class Asked(NamedTuple):
    """What pass 1 is to count beside rows by category.

    Attributes:
        sums: Whether sums of numbers are needed, cell by cell.
        levels: The columns that weighted totals are needed by; none for everyone.
        weights: What a unit of each cell counts in them; axes `[cluster, arm]`.
        count_key: The key of the release, where counts of rounded numbers are published.
    """

    sums: bool = False
    levels: tuple[tuple[str, ...], ...] = ()
    weights: IntArray | None = None
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
            weights=_ones(layout) if asked.weights is None else asked.weights.ravel(),
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
        totals = CellTotals.of_counts(table[..., :n_categories], space)
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


def _ones(layout: Layout) -> IntArray:
    return np.ones(layout.sizes.size, dtype=np.int64)


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
