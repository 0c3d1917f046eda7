"""Pass 1 of every engine: what is counted of a batch of rows, and how batches add up."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.outcomes.metric import Metric
from clusterdp.rows.keys import Fingerprint
from clusterdp.statistics.base import CellTotals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._arrays import CodeArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.rows.encoding import RowCodes, RowEncoder
    from clusterdp.statistics.base import SumPair
    from clusterdp.statistics.covariates import Covariate


# The powers of a covariate and of its outcome whose sums are counted: of x, x², xy and y.
_PRODUCTS = ((1, 0), (2, 0), (1, 1), (0, 1))


class CountRequest(NamedTuple):
    """What pass 1 counts for a question, next to rows by category.

    Attributes:
        sums: Whether sums of numbers are needed, cell by cell.
        levels: The columns that weighted totals are needed by; none for everyone.
        weights: What a unit of each cell counts in them; axes `[cluster, arm]`.
        counts: Whether counts of the units that are asked are needed, category by category.
        rounded: Whether numbers are rounded at random for these, or each is taken at the grid point
            below it.
        covariates: The owner's covariates, of this question or of others.
    """

    sums: bool = False
    levels: tuple[tuple[str, ...], ...] = ()
    weights: IntArray | None = None
    counts: bool = False
    rounded: bool = False
    covariates: tuple[Covariate, ...] = ()


class QuestionTally:
    """What pass 1 adds up of a question: what is asked of it, and no more.

    Numbers add more than their category: sums use the numbers themselves, and counts use
    categories after a rounding of their own. Sums cover all units, counts the units that are asked.

    Attributes:
        encoder: Its outcomes as codes.
        number: Its place among questions.
        layout: The cells.
        n_categories: How many categories it has.
        metrics: The metrics of rows as integers, where sums or totals are asked for.
        n_sums: How many of them have sums in every cell.
        levels: The columns that totals are asked for by.
        level_sizes: How many totals each level has that is added up row by row, by its columns.
        weights: What a unit of each cell counts in totals; axes `[cell]`.
        covariates: The owner's covariates, each with its outcome as integers.
        rounding_keys: The names of the keys that numbers are rounded with for counts; none where
            they are not.
        own_counts: Whether published counts are counted apart from everyone's categories: some are
            not asked, or numbers are rounded.
        table: Rows by category, sums, squares, sums of covariates and counts of their own; axes
            `[cell, place]`.
        groups: Weighted sums of metrics, then of their squares, by the groups of every level; axes
            `[place, 2 * metric]`.
        flaws: Rows without an outcome, rows with one outside its space, other rows that break a
            constraint; then, for each outcome, rows that were clipped. Axes `[3 + outcome]`.
    """

    def __init__(self, rows: RowEncoder, number: int, layout: Layout, asked: CountRequest) -> None:
        self.encoder, self.number, self.layout = rows.questions[number], number, layout
        space = self.encoder.space
        numbers = space.declared.numbers
        has_sums = asked.sums and bool(numbers)
        metrics = space.declared.metrics if has_sums or asked.levels else ()
        self.metrics = tuple(map(space.integers_of, metrics))
        self.n_categories, self.n_sums = space.n_categories, len(metrics) if has_sums else 0
        # What everyone's outcomes add up to follows from the counts of cells.
        follows = () if numbers or layout.folds > 1 else ((),)
        n_places, self.levels = layout.folds * len(layout.arms), asked.levels
        self.level_sizes = {
            level: layout.n_groups(level) * n_places
            for level in asked.levels
            if level not in follows
        }
        weights = np.ones_like(layout.sizes) if asked.weights is None else asked.weights
        self.weights = weights.ravel()
        is_rounded = asked.counts and asked.rounded
        self.rounding_keys = self.encoder.rounding_keys("counts") if is_rounded else ()
        self.own_counts = asked.counts and (rows.asking is not None or bool(self.rounding_keys))
        self.covariates = tuple(
            (one, space.integers_of(Metric.mean_of(one.outcome)))
            for one in asked.covariates
            if one.outcome in space.outcome_names
        )
        n_sums = 2 * self.n_sums + len(_PRODUCTS) * len(self.covariates)
        width = self.n_categories * (1 + self.own_counts) + n_sums
        n_groups = sum(self.level_sizes.values())
        self.table = np.zeros((layout.sizes.size, width), dtype=np.int64)
        self.groups = np.zeros((n_groups, 2 * len(metrics)), dtype=np.int64)
        self.flaws = np.zeros(3 + len(space.declared.outcomes), dtype=np.int64)

    @property
    def counts(self) -> IntArray:
        """Rows by category, numbers at the grid point below; axes `[cluster, arm, category]`."""
        counts = self.table[:, : self.n_categories]
        return counts.reshape(*self.layout.sizes.shape, -1)

    @property
    def totals(self) -> CellTotals:
        """What statistics are drawn from."""
        counts = self.counts
        totals = CellTotals.from_counts(counts, self.encoder.space)
        added = self._totals_by_level()
        groups = {
            level: added[level] if level in added else self._everyone() for level in self.levels
        }
        totals = totals._replace(groups=groups)
        table, first = self.table.reshape(*counts.shape[:2], -1), self.n_categories
        if self.n_sums:
            sums, squares = np.split(table[..., first : first + 2 * self.n_sums], 2, axis=-1)
            totals = totals._replace(sums=sums, squares=squares)
        if self.covariates:
            first += 2 * self.n_sums
            shape = (*table.shape[:-1], len(self.covariates), len(_PRODUCTS))
            last = first + len(_PRODUCTS) * len(self.covariates)
            totals = totals._replace(covariates=table[..., first:last].reshape(shape))
        if self.own_counts:
            totals = totals._replace(counts=table[..., -self.n_categories :])
        return totals

    def _everyone(self) -> SumPair:
        """Totals of everyone, from counts by category."""
        metrics, counts = self.metrics, self.counts
        weighted = (self.weights.reshape(*counts.shape[:2], 1) * counts).sum(axis=0)
        integers = [metric.categories for metric in metrics]
        squares = [metric.coarse_squares(metric.categories) for metric in metrics]
        sums, of_squares = (
            (weighted @ np.stack(of_categories, axis=1))[np.newaxis, np.newaxis]
            for of_categories in (integers, squares)
        )
        return sums, of_squares

    def _totals_by_level(self) -> dict[tuple[str, ...], SumPair]:
        """Totals of the levels that are added up row by row."""
        layout, first, found = self.layout, 0, {}
        for level, size in self.level_sizes.items():
            part = self.groups[first : first + size]
            shaped = part.reshape(-1, layout.folds, len(layout.arms), part.shape[-1])
            sums, squares = np.split(shaped, 2, axis=-1)
            found[level] = sums, squares
            first += size
        return found

    def add(self, rows: RowCodes, keys: Mapping[str, bytes]) -> None:
        """Take in a sound batch."""
        question, n_categories, n_sums = rows.questions[self.number], self.n_categories, self.n_sums
        self._count(rows.cells, question.categories)
        by_row = self.metrics if n_sums or self.level_sizes else ()
        for place, metric in enumerate(by_row):
            integers = metric.of_rows(question)
            squares = metric.coarse_squares(integers)
            if n_sums:
                np.add.at(self.table[:, n_categories + place], rows.cells, integers)
                np.add.at(self.table[:, n_categories + n_sums + place], rows.cells, squares)
            self._add_groups(rows, place, integers, squares)
        self._add_covariates(rows, n_categories + 2 * n_sums)
        if self.own_counts:
            asked = rows.asked(self.number)
            rounded = self.encoder.round(asked, self.rounding_keys, keys)
            first = self.table.shape[1] - n_categories
            self._count(asked.cells, first + rounded.astype(np.int64))

    def _add_covariates(self, rows: RowCodes, first: int) -> None:
        """Add the sums of covariates, in the order of `_PRODUCTS`, to the cells of some rows."""
        for number, (one, outcome) in enumerate(self.covariates):
            values = (rows.covariates[one], outcome.of_rows(rows.questions[self.number]))
            for place, (of_covariate, of_outcome) in enumerate(_PRODUCTS):
                column = self.table[:, first + len(_PRODUCTS) * number + place]
                np.add.at(column, rows.cells, values[0] ** of_covariate * values[1] ** of_outcome)

    def _count(self, cells: IntArray, places: CodeArray) -> None:
        """Add one to a place of each row's cell."""
        # In one dimension: with two, NumPy takes ten times as long.
        np.add.at(self.table.reshape(-1), cells * self.table.shape[1] + places, 1)

    def _add_groups(
        self, rows: RowCodes, metric: int, integers: IntArray, squares: IntArray
    ) -> None:
        """Add a metric of some rows to the totals of every level."""
        if not self.level_sizes:
            return
        first, weights = 0, self.weights[rows.cells]
        weighted = (weights * integers, weights * squares)
        for level, size in self.level_sizes.items():
            for kind, terms in enumerate(weighted):
                column = self.groups[first : first + size, metric + kind * len(self.metrics)]
                np.add.at(column, rows.places[level], terms)
            first += size


class Tally:
    """What pass 1 adds up over batches.

    Args:
        encoder: Rows as codes.
        layout: The cells.
        asked: What is counted of each question.

    Attributes:
        questions: What was counted of each question.
        encoder: What encodes the rows that are counted.
        lacking: Rows that cannot be used, as in `RowCodes`.
        seen: What was read; it and the tables leave batches out that are not sound.
    """

    def __init__(self, encoder: RowEncoder, layout: Layout, asked: Sequence[CountRequest]) -> None:
        self.questions = tuple(
            QuestionTally(encoder, number, layout, one) for number, one in enumerate(asked)
        )
        levels = dict.fromkeys(level for one in self.questions for level in one.level_sizes)
        covariates = dict.fromkeys(one for counts in asked for one in counts.covariates)
        self.encoder = replace(encoder, levels=tuple(levels), covariates=tuple(covariates))
        self.lacking = np.zeros(4, dtype=np.int64)
        self.seen = Fingerprint()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys that rows are encoded with, and that numbers are rounded with for counts."""
        rounding = (name for question in self.questions for name in question.rounding_keys)
        return (*self.encoder.key_names, *rounding)

    @property
    def totals(self) -> tuple[CellTotals, ...]:
        """Of each question, what statistics are drawn from."""
        return tuple(question.totals for question in self.questions)

    @property
    def sizes(self) -> list[IntArray]:
        """Of each question, the rows of cells; axes `[cluster, arm]`."""
        return [question.counts.sum(axis=-1) for question in self.questions]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything but tables and groups: rows that cannot be used, and what was read."""
        flaws = np.concatenate([self.lacking, *(question.flaws for question in self.questions)])
        return (*flaws.tolist(), self.seen.n_rows, self.seen.low, self.seen.high)

    @numbers.setter
    def numbers(self, numbers: Sequence[int]) -> None:
        left = iter(numbers)
        for flaws in (self.lacking, *(question.flaws for question in self.questions)):
            flaws[:] = list(itertools.islice(left, len(flaws)))
        self.seen = Fingerprint(*left)

    def add(self, rows: RowCodes, keys: Mapping[str, bytes]) -> None:
        """Take in a batch."""
        self.lacking += np.array(rows.lacking)
        for tally, codes in zip(self.questions, rows.questions, strict=True):
            flaws = (codes.n_missing, codes.n_outside, codes.n_broken, *codes.n_clipped)
            tally.flaws += np.array(flaws)
        if not rows.sound:
            return
        self.seen += Fingerprint.from_words(rows.words())
        for tally in self.questions:
            tally.add(rows, keys)
