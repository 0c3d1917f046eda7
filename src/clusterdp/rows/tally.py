"""Pass 1 of every engine: what is counted of a batch of rows, and how batches add up."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.outcomes.metric_values import MetricIntegers
from clusterdp.rows.keys import Fingerprint
from clusterdp.statistics.base import CellTotals, MetricSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import CodeArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.rows.encoding import EncodedQuestion, EncodedRows, QuestionEncoder, RowEncoder
    from clusterdp.rows.keys import ReleaseKey


class Asked(NamedTuple):
    """What pass 1 is to count of a question beside rows by category.

    Attributes:
        sums: Whether sums of numbers are needed, cell by cell.
        levels: The columns that weighted totals are needed by; none for everyone.
        weights: What a unit of each cell counts in them; axes `[cluster, arm]`.
        counts: Whether counts of the units that are asked are needed, category by category.
        count_key: The key of the release, where numbers are rounded for these; None where each is
            taken at the grid point below it.
    """

    sums: bool = False
    levels: tuple[tuple[str, ...], ...] = ()
    weights: IntArray | None = None
    counts: bool = False
    count_key: ReleaseKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionCounter:
    """What pass 1 counts of a question.

    Numbers add more than their category: sums are of the numbers themselves, and counts are of
    categories after a rounding of their own. Sums are of everyone, counts of units that are asked.

    Attributes:
        encoder: Its outcomes as codes.
        number: Its place among questions.
        metrics: The metrics of rows as integers, where totals are asked for.
        levels: The columns that totals are asked for by.
        sums: Whether sums of numbers are asked for, cell by cell.
        weights: What a unit of each cell counts in totals; axes `[cell]`.
        level_sizes: How many totals each level has that is added up row by row, by its columns.
        own_counts: Whether published counts are counted apart from everyone's categories: some are
            not asked, or numbers are rounded.
        count_keys: The keys that numbers are rounded with for counts; empty where none are.
    """

    encoder: QuestionEncoder
    number: int
    metrics: tuple[MetricIntegers, ...]
    levels: tuple[tuple[str, ...], ...]
    sums: bool
    weights: IntArray
    level_sizes: dict[tuple[str, ...], int]
    own_counts: bool
    count_keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, rows: RowEncoder, number: int, layout: Layout, asked: Asked) -> QuestionCounter:
        """The counter of a question, for what is asked of it and no more."""
        encoder = rows.questions[number]
        space = encoder.space
        sums = asked.sums and bool(space.declared.numbers)
        metrics = space.declared.metrics if sums or asked.levels else ()
        key = asked.count_key if asked.counts else None
        count_keys = () if key is None else encoder.rounding_keys(key, "counts")
        n_arms = len(layout.arms)
        # What everyone's outcomes add up to follows from the counts of cells.
        follows = () if space.declared.numbers or layout.folds > 1 else ((),)
        return cls(
            encoder=encoder,
            number=number,
            metrics=tuple(map(space.integers_of, metrics)),
            levels=asked.levels,
            sums=sums,
            weights=_ones(layout) if asked.weights is None else asked.weights.ravel(),
            level_sizes={
                level: layout.n_groups(level) * layout.folds * n_arms
                for level in asked.levels
                if level not in follows
            },
            own_counts=asked.counts and (rows.asking is not None or bool(count_keys)),
            count_keys=count_keys,
        )

    @property
    def n_outcomes(self) -> int:
        """How many outcomes the question has."""
        return len(self.encoder.space.declared.outcomes)

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

    def totals(self, tally: QuestionTally, layout: Layout) -> CellTotals:
        """What statistics are drawn from."""
        n_categories, space = self.n_categories, self.encoder.space
        table = tally.table.reshape(*layout.sizes.shape, -1)
        totals = CellTotals.of_counts(table[..., :n_categories], space)
        added = self._groups(tally.groups, layout)
        groups = {
            level: added[level] if level in added else self._everyone(table[..., :n_categories])
            for level in self.levels
        }
        totals = totals._replace(groups=groups)
        if self.sums:
            first, second = n_categories, n_categories + self.n_sums
            squares = table[..., second : second + self.n_sums]
            totals = totals._replace(sums=table[..., first:second], squares=squares)
        if self.own_counts:
            totals = totals._replace(counts=table[..., -n_categories:])
        return totals

    def _everyone(self, counts: IntArray) -> MetricSums:
        """Totals of everyone, from counts by category; axes `[cluster, arm, category]`."""
        weighted = (self.weights.reshape(*counts.shape[:2], 1) * counts).sum(axis=0)
        integers = [metric.categories for metric in self.metrics]
        squares = [metric.coarse_squares(metric.categories) for metric in self.metrics]
        both = (np.stack(of_categories, axis=1) for of_categories in (integers, squares))
        return MetricSums(*((weighted @ one)[np.newaxis, np.newaxis] for one in both))

    def _groups(self, groups: IntArray, layout: Layout) -> dict[tuple[str, ...], MetricSums]:
        """Totals by level, from those of all levels; axes `[place, 2 * metric]`."""
        ends = np.cumsum(list(self.level_sizes.values()))[:-1]
        parts = np.split(groups, ends) if self.level_sizes else []
        found = {}
        for level, part in zip(self.level_sizes, parts, strict=True):
            shaped = part.reshape(-1, layout.folds, len(layout.arms), part.shape[-1])
            found[level] = MetricSums(*np.split(shaped, 2, axis=-1))
        return found


class CountKeys(NamedTuple):
    """The keys of a counter.

    Attributes:
        rounding: Those that numbers are rounded with for counts, question by question.
        labels: That of private clusters; empty where they are public.
    """

    rounding: tuple[tuple[bytes, ...], ...]
    labels: bytes = b""

    def without(self) -> CountKeys:
        """As many keys, all of them empty."""
        return CountKeys(((),) * len(self.rounding))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounter:
    """What pass 1 counts of a batch.

    Attributes:
        encoder: Rows as codes.
        questions: What is counted of each question.
    """

    encoder: RowEncoder
    questions: tuple[QuestionCounter, ...]

    @classmethod
    def of(cls, encoder: RowEncoder, layout: Layout, asked: Sequence[Asked]) -> RowCounter:
        """The counter of a table, for what is asked of its questions and no more."""
        questions = tuple(
            QuestionCounter.of(encoder, number, layout, one) for number, one in enumerate(asked)
        )
        levels = dict.fromkeys(level for question in questions for level in question.level_sizes)
        return cls(encoder=replace(encoder, levels=tuple(levels)), questions=questions)

    @property
    def keys(self) -> CountKeys:
        """Its keys."""
        return CountKeys(
            rounding=tuple(question.count_keys for question in self.questions),
            labels=self.encoder.label_key,
        )

    def with_keys(self, keys: CountKeys) -> RowCounter:
        """The same with other keys; with empty ones it can be stored."""
        pairs = zip(self.questions, keys.rounding, strict=True)
        return replace(
            self,
            encoder=self.encoder.with_label_key(keys.labels),
            questions=tuple(replace(one, count_keys=key) for one, key in pairs),
        )

    def n_places(self, n_cells: int) -> int:
        """How many integers are counted."""
        return sum(n_cells * question.width + question.n_totals for question in self.questions)


def _ones(layout: Layout) -> IntArray:
    return np.ones(layout.sizes.size, dtype=np.int64)


@dataclass(slots=True, kw_only=True, eq=False)
class QuestionTally:
    """What pass 1 adds up of a question.

    Attributes:
        counter: What is counted.
        table: Integers by cell, in the order of `QuestionCounter.width`; axes `[cell, place]`.
        groups: Weighted sums of metrics, then of their squares, by the groups of every level; axes
            `[place, 2 * metric]`.
        n_missing: Rows without an outcome.
        n_outside: Rows with an outcome outside its space.
        n_broken: Other rows that break an implication.
        n_clipped: For each outcome, how many rows were clipped; axes `[outcome]`.
    """

    counter: QuestionCounter
    table: IntArray
    groups: IntArray
    n_clipped: tuple[int, ...]
    n_missing: int = 0
    n_outside: int = 0
    n_broken: int = 0

    @classmethod
    def empty(cls, counter: QuestionCounter, n_cells: int) -> QuestionTally:
        """Of no rows."""
        shape = (sum(counter.level_sizes.values()), 2 * len(counter.metrics))
        return cls(
            counter=counter,
            table=np.zeros((n_cells, counter.width), dtype=np.int64),
            groups=np.zeros(shape, dtype=np.int64),
            n_clipped=(0,) * counter.n_outcomes,
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything but the table and the groups."""
        return (self.n_missing, self.n_outside, self.n_broken, *self.n_clipped)

    @numbers.setter
    def numbers(self, numbers: Sequence[int]) -> None:
        self.n_missing, self.n_outside, self.n_broken, *n_clipped = numbers
        self.n_clipped = tuple(n_clipped)

    def look_at(self, question: EncodedQuestion) -> None:
        """Note what cannot be used of a batch, and what was clipped."""
        self.n_missing += question.outcomes.n_missing
        self.n_outside += question.outcomes.n_outside
        self.n_broken += question.outcomes.n_broken
        pairs = zip(self.n_clipped, question.outcomes.n_clipped, strict=True)
        self.n_clipped = tuple(before + more for before, more in pairs)

    def add(self, rows: EncodedRows) -> None:
        """Take in a sound batch."""
        counter, n_categories = self.counter, self.counter.n_categories
        question = rows.questions[counter.number]
        self._count(rows.cells, question.categories)
        by_row = counter.metrics if counter.sums or counter.level_sizes else ()
        for place, metric in enumerate(by_row):
            integers = metric.of_rows(question.outcomes)
            squares = metric.coarse_squares(integers)
            if counter.sums:
                np.add.at(self.table[:, n_categories + place], rows.cells, integers)
                np.add.at(self.table[:, n_categories + counter.n_sums + place], rows.cells, squares)
            self._add_groups(rows, place, integers, squares)
        if counter.own_counts:
            asked = rows.asked(counter.number)
            rounded = counter.encoder.round(asked, counter.count_keys)
            first = n_categories + 2 * counter.n_sums
            self._count(asked.cells, first + rounded.astype(np.int64))

    def _count(self, cells: IntArray, places: CodeArray) -> None:
        """Add one to a place of each row's cell."""
        # In one dimension: with two, NumPy takes ten times as long.
        np.add.at(self.table.reshape(-1), cells * self.counter.width + places, 1)

    def _add_groups(
        self, rows: EncodedRows, metric: int, integers: IntArray, squares: IntArray
    ) -> None:
        """Add a metric of some rows to the totals of every level."""
        counter, first = self.counter, 0
        if not counter.level_sizes:
            return
        weights = counter.weights[rows.cells]
        weighted = (weights * integers, weights * squares)
        for level, size in counter.level_sizes.items():
            for kind, terms in enumerate(weighted):
                column = self.groups[first : first + size, metric + kind * len(counter.metrics)]
                np.add.at(column, rows.places[level], terms)
            first += size


@dataclass(slots=True, kw_only=True, eq=False)
class Tally:
    """What pass 1 adds up over batches.

    Attributes:
        questions: What is counted of each question.
        n_without_id: Rows without an id.
        n_unplain_ids: Rows whose id is text that cannot be shown everywhere.
        n_unlabelled: Rows without a declared label, where clusters are private.
        seen: What was read; it and the tables leave batches out that are not sound.
    """

    questions: tuple[QuestionTally, ...]
    n_without_id: int = 0
    n_unplain_ids: int = 0
    n_unlabelled: int = 0
    seen: Fingerprint = field(default_factory=Fingerprint)

    @classmethod
    def empty(cls, counter: RowCounter, n_cells: int) -> Tally:
        """Of no rows."""
        return cls(
            questions=tuple(
                QuestionTally.empty(question, n_cells) for question in counter.questions
            )
        )

    @property
    def in_space(self) -> bool:
        """Whether every row has outcomes of the declared spaces."""
        return not any(question.n_missing or question.n_outside for question in self.questions)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything but tables and groups: rows that cannot be used, and what was read."""
        of_questions = (number for question in self.questions for number in question.numbers)
        seen = self.seen
        lacking = (self.n_without_id, self.n_unplain_ids, self.n_unlabelled)
        return (*lacking, *of_questions, seen.n_rows, seen.low, seen.high)

    @numbers.setter
    def numbers(self, numbers: Sequence[int]) -> None:
        self.n_without_id, self.n_unplain_ids, self.n_unlabelled, *of_rows = numbers
        *of_questions, n_rows, low, high = of_rows
        self.seen = Fingerprint(n_rows, low, high)
        left = iter(of_questions)
        for question in self.questions:
            question.numbers = tuple(itertools.islice(left, len(question.numbers)))

    def add(self, rows: EncodedRows) -> None:
        """Take in a batch."""
        self.n_without_id += rows.n_without_id
        self.n_unplain_ids += rows.n_unplain_ids
        self.n_unlabelled += rows.n_unlabelled
        for tally, question in zip(self.questions, rows.questions, strict=True):
            tally.look_at(question)
        if not rows.sound:
            return
        self.seen += Fingerprint.of(rows.words())
        for tally in self.questions:
            tally.add(rows)
