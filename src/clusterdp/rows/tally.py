"""Pass 1 of every engine: what is counted of a batch of rows, and how batches add up."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.outcomes.metric_values import MetricIntegers
from clusterdp.rows.keys import Fingerprint
from clusterdp.statistics.base import CellTotals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._arrays import CodeArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.encoding import OutcomeCodes
    from clusterdp.rows.encoding import QuestionEncoder, RowCodes, RowEncoder
    from clusterdp.statistics.base import SumPair


class CountRequest(NamedTuple):
    """What pass 1 is to count of a question beside rows by category.

    Attributes:
        sums: Whether sums of numbers are needed, cell by cell.
        levels: The columns that weighted totals are needed by; none for everyone.
        weights: What a unit of each cell counts in them; axes `[cluster, arm]`.
        counts: Whether counts of the units that are asked are needed, category by category.
        rounded: Whether numbers are rounded at random for these, or each is taken at the grid point
            below it.
    """

    sums: bool = False
    levels: tuple[tuple[str, ...], ...] = ()
    weights: IntArray | None = None
    counts: bool = False
    rounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionCountPlan:
    """What pass 1 counts of a question.

    Numbers add more than their category: sums are of the numbers themselves, and counts are of
    categories after a rounding of their own. Sums are of everyone, counts of units that are asked.

    Attributes:
        encoder: Its outcomes as codes.
        number: Its place among questions.
        layout: The cells.
        metrics: The metrics of rows as integers, where totals are asked for.
        levels: The columns that totals are asked for by.
        sums: Whether sums of numbers are asked for, cell by cell.
        weights: What a unit of each cell counts in totals; axes `[cell]`.
        level_sizes: How many totals each level has that is added up row by row, by its columns.
        own_counts: Whether published counts are counted apart from everyone's categories: some are
            not asked, or numbers are rounded.
        rounding_keys: The names of the keys that numbers are rounded with for counts; none where
            they are not.
    """

    encoder: QuestionEncoder
    number: int
    layout: Layout
    metrics: tuple[MetricIntegers, ...]
    levels: tuple[tuple[str, ...], ...]
    sums: bool
    weights: IntArray
    level_sizes: dict[tuple[str, ...], int]
    own_counts: bool
    rounding_keys: tuple[str, ...]

    @classmethod
    def from_request(
        cls, rows: RowEncoder, number: int, layout: Layout, asked: CountRequest
    ) -> QuestionCountPlan:
        """The plan of a question, for what is asked of it and no more."""
        encoder = rows.questions[number]
        space = encoder.space
        sums = asked.sums and bool(space.declared.numbers)
        metrics = space.declared.metrics if sums or asked.levels else ()
        is_rounded = asked.counts and asked.rounded
        rounding_keys = encoder.rounding_keys("counts") if is_rounded else ()
        n_arms = len(layout.arms)
        # What everyone's outcomes add up to follows from the counts of cells.
        follows = () if space.declared.numbers or layout.folds > 1 else ((),)
        return cls(
            encoder=encoder,
            number=number,
            layout=layout,
            metrics=tuple(map(space.integers_of, metrics)),
            levels=asked.levels,
            sums=sums,
            weights=(
                np.ones_like(layout.sizes) if asked.weights is None else asked.weights
            ).ravel(),
            level_sizes={
                level: layout.n_groups(level) * layout.folds * n_arms
                for level in asked.levels
                if level not in follows
            },
            own_counts=asked.counts and (rows.asking is not None or bool(rounding_keys)),
            rounding_keys=rounding_keys,
        )

    @property
    def n_categories(self) -> int:
        """How many categories the question has."""
        return self.encoder.space.n_categories

    @property
    def n_sums(self) -> int:
        """How many metrics have sums in every cell."""
        return len(self.metrics) if self.sums else 0

    @property
    def width(self) -> int:
        """How many integers a cell has: rows by category, sums, squares, counts of their own."""
        return self.n_categories + 2 * self.n_sums + (self.n_categories if self.own_counts else 0)

    @property
    def n_totals(self) -> int:
        """How many integers the totals of all levels are."""
        return sum(self.level_sizes.values()) * 2 * len(self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountPlan:
    """What pass 1 counts of a batch.

    Attributes:
        encoder: Rows as codes.
        questions: What is counted of each question.
    """

    encoder: RowEncoder
    questions: tuple[QuestionCountPlan, ...]

    @classmethod
    def from_requests(
        cls, encoder: RowEncoder, layout: Layout, asked: Sequence[CountRequest]
    ) -> CountPlan:
        """The plan of a table, for what is asked of its questions and no more."""
        questions = tuple(
            QuestionCountPlan.from_request(encoder, number, layout, one)
            for number, one in enumerate(asked)
        )
        levels = dict.fromkeys(level for question in questions for level in question.level_sizes)
        return cls(encoder=replace(encoder, levels=tuple(levels)), questions=questions)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys that rows are encoded with, and that numbers are rounded with for counts."""
        rounding = (name for question in self.questions for name in question.rounding_keys)
        return (*self.encoder.key_names, *rounding)

    @property
    def n_places(self) -> int:
        """How many integers are counted."""
        return sum(
            question.layout.sizes.size * question.width + question.n_totals
            for question in self.questions
        )


class QuestionTally:
    """What pass 1 adds up of a question.

    Attributes:
        plan: What is counted.
        table: Integers by cell, in the order of `QuestionCountPlan.width`; axes `[cell, place]`.
        groups: Weighted sums of metrics, then of their squares, by the groups of every level; axes
            `[place, 2 * metric]`.
        flaws: Rows without an outcome, rows with one outside its space, other rows that break an
            constraint; then, for each outcome, rows that were clipped. Axes `[3 + outcome]`.
    """

    def __init__(self, plan: QuestionCountPlan) -> None:
        shape = (sum(plan.level_sizes.values()), 2 * len(plan.metrics))
        n_outcomes = len(plan.encoder.space.declared.outcomes)
        self.plan = plan
        self.table = np.zeros((plan.layout.sizes.size, plan.width), dtype=np.int64)
        self.groups = np.zeros(shape, dtype=np.int64)
        self.flaws = np.zeros(3 + n_outcomes, dtype=np.int64)

    @property
    def counts(self) -> IntArray:
        """Rows by category, numbers at the grid point below; axes `[cluster, arm, category]`."""
        counts = self.table[:, : self.plan.n_categories]
        return counts.reshape(*self.plan.layout.sizes.shape, -1)

    @property
    def totals(self) -> CellTotals:
        """What statistics are drawn from."""
        plan, counts = self.plan, self.counts
        totals = CellTotals.from_counts(counts, plan.encoder.space)
        added = self._totals_by_level()
        groups = {
            level: added[level] if level in added else self._everyone() for level in plan.levels
        }
        totals = totals._replace(groups=groups)
        table, first = self.table.reshape(*counts.shape[:2], -1), plan.n_categories
        if plan.sums:
            sums, squares = np.split(table[..., first : first + 2 * plan.n_sums], 2, axis=-1)
            totals = totals._replace(sums=sums, squares=squares)
        if plan.own_counts:
            totals = totals._replace(counts=table[..., -first:])
        return totals

    def _everyone(self) -> SumPair:
        """Totals of everyone, from counts by category."""
        metrics, counts = self.plan.metrics, self.counts
        weighted = (self.plan.weights.reshape(*counts.shape[:2], 1) * counts).sum(axis=0)
        integers = [metric.categories for metric in metrics]
        squares = [metric.coarse_squares(metric.categories) for metric in metrics]
        sums, of_squares = (
            (weighted @ np.stack(of_categories, axis=1))[np.newaxis, np.newaxis]
            for of_categories in (integers, squares)
        )
        return sums, of_squares

    def _totals_by_level(self) -> dict[tuple[str, ...], SumPair]:
        """Totals of the levels that are added up row by row."""
        layout, first, found = self.plan.layout, 0, {}
        for level, size in self.plan.level_sizes.items():
            part = self.groups[first : first + size]
            shaped = part.reshape(-1, layout.folds, len(layout.arms), part.shape[-1])
            sums, squares = np.split(shaped, 2, axis=-1)
            found[level] = sums, squares
            first += size
        return found

    def look_at(self, codes: OutcomeCodes) -> None:
        """Note what cannot be used of a batch, and what was clipped."""
        self.flaws += np.array([codes.n_missing, codes.n_outside, codes.n_broken, *codes.n_clipped])

    def add(self, rows: RowCodes, keys: Mapping[str, bytes]) -> None:
        """Take in a sound batch."""
        plan, n_categories = self.plan, self.plan.n_categories
        question = rows.questions[plan.number]
        self._count(rows.cells, question.categories)
        by_row = plan.metrics if plan.sums or plan.level_sizes else ()
        for place, metric in enumerate(by_row):
            integers = metric.of_rows(question)
            squares = metric.coarse_squares(integers)
            if plan.sums:
                np.add.at(self.table[:, n_categories + place], rows.cells, integers)
                np.add.at(self.table[:, n_categories + plan.n_sums + place], rows.cells, squares)
            self._add_groups(rows, place, integers, squares)
        if plan.own_counts:
            asked = rows.asked(plan.number)
            rounded = plan.encoder.round(asked, plan.rounding_keys, keys)
            first = n_categories + 2 * plan.n_sums
            self._count(asked.cells, first + rounded.astype(np.int64))

    def _count(self, cells: IntArray, places: CodeArray) -> None:
        """Add one to a place of each row's cell."""
        # In one dimension: with two, NumPy takes ten times as long.
        np.add.at(self.table.reshape(-1), cells * self.plan.width + places, 1)

    def _add_groups(
        self, rows: RowCodes, metric: int, integers: IntArray, squares: IntArray
    ) -> None:
        """Add a metric of some rows to the totals of every level."""
        plan, first = self.plan, 0
        if not plan.level_sizes:
            return
        weights = plan.weights[rows.cells]
        weighted = (weights * integers, weights * squares)
        for level, size in plan.level_sizes.items():
            for kind, terms in enumerate(weighted):
                column = self.groups[first : first + size, metric + kind * len(plan.metrics)]
                np.add.at(column, rows.places[level], terms)
            first += size


class Tally:
    """What pass 1 adds up over batches.

    Attributes:
        questions: What is counted of each question.
        n_without_id: Rows without an id.
        n_unplain_ids: Rows whose id is text that cannot be shown everywhere.
        n_unlabelled: Rows without a declared label, where clusters are private.
        seen: What was read; it and the tables leave batches out that are not sound.
    """

    def __init__(self, plan: CountPlan) -> None:
        self.questions = tuple(map(QuestionTally, plan.questions))
        self.n_without_id = self.n_unplain_ids = self.n_unlabelled = 0
        self.seen = Fingerprint()

    @property
    def totals(self) -> tuple[CellTotals, ...]:
        """Of each question, what statistics are drawn from."""
        return tuple(question.totals for question in self.questions)

    @property
    def sizes(self) -> list[IntArray]:
        """Of each question, the rows of cells; axes `[cluster, arm]`."""
        return [question.counts.sum(axis=-1) for question in self.questions]

    @property
    def in_space(self) -> bool:
        """Whether every row has outcomes of the declared spaces."""
        return not any(question.flaws[:2].any() for question in self.questions)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything but tables and groups: rows that cannot be used, and what was read."""
        flaws = (int(number) for question in self.questions for number in question.flaws)
        seen = self.seen
        lacking = (self.n_without_id, self.n_unplain_ids, self.n_unlabelled)
        return (*lacking, *flaws, seen.n_rows, seen.low, seen.high)

    @numbers.setter
    def numbers(self, numbers: Sequence[int]) -> None:
        self.n_without_id, self.n_unplain_ids, self.n_unlabelled, *flaws = numbers
        *flaws, n_rows, low, high = flaws
        self.seen = Fingerprint(n_rows, low, high)
        left = iter(flaws)
        for question in self.questions:
            question.flaws[:] = list(itertools.islice(left, len(question.flaws)))

    def add(self, rows: RowCodes, keys: Mapping[str, bytes]) -> None:
        """Take in a batch."""
        self.n_without_id += rows.n_without_id
        self.n_unplain_ids += rows.n_unplain_ids
        self.n_unlabelled += rows.n_unlabelled
        for tally, question in zip(self.questions, rows.questions, strict=True):
            tally.look_at(question)
        if not rows.sound:
            return
        self.seen += Fingerprint.from_words(rows.words())
        for tally in self.questions:
            tally.add(rows, keys)
