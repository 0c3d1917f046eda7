"""Covariates as columns of a regression: numbers, categories, and what is missing of them.

Rows with their covariates, by segments and arms.

Of a row, a regression reads covariates and its **entry**: the profile and the response that it was
counted by. All else it needs is the same for all rows of an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from clusterdp._arrays import BoolArray, CodeArray, FloatArray, IntArray
from clusterdp._named import column, columns, unnamed
from clusterdp._text import counted
from clusterdp.errors import DataError, ParameterError, did_you_mean
from clusterdp.estimation.effects.effect import Segment
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.reading._leaks import ColumnCounts
from clusterdp.estimation.reading.profiles import (
    PROFILE,
    ProfiledRows,
    Profiles,
    Profiling,
    ResponseCounts,
)
from clusterdp.estimation.reading.request import EstimateRequest, dimension_columns
from clusterdp.published.release import Release
from clusterdp.published.rows import answer_columns, with_text
from clusterdp.spec.columns import QUESTION, RESPONSE

if TYPE_CHECKING:
    import polars as pl


# A category more than this needs a slope in every arm, which few tables can pay for.
MOST_CATEGORIES = 50
# How many classes of numbers a covariate is checked in.
_CLASSES = 20
# How many rows decide where to divide.
_ROWS_OF_CLASSES = 100_000
# The class of rows that lack a covariate.
MISSING = 0
# Rows that are worked on at once: what is computed for them stays small.
_ROWS_TOGETHER = 2**18
# The columns of a regression, and the values of each covariate as a few classes.
Regressors = tuple[tuple[FloatArray | BoolArray, ...], dict[str, CodeArray]]
# No column of a user has this name.
_GROUP = "__clusterdp_group"


def group_rows(rows: pl.DataFrame, names: tuple[str, ...]) -> tuple[pl.DataFrame, CodeArray]:
    """Rows by their values in some columns; all in one group without any.

    Returns:
        The combinations that occur, in their order, null first; and the group of each row.
    """
    import polars as pl

    if not names:
        return pl.DataFrame(), np.zeros(len(rows), np.uint8)
    keys = [column(name) for name in names]
    chosen = rows.select(keys)
    values = chosen.lazy().unique().collect(engine="streaming").sort(columns(names))
    narrow = np.min_scalar_type(len(values))
    places = values.with_columns(pl.Series(_GROUP, np.arange(len(values), dtype=narrow)))
    groups = [
        part.join(places, on=keys, how="left", nulls_equal=True, maintain_order="left")[_GROUP]
        for part in chosen.iter_slices(_ROWS_TOGETHER)
    ]
    return with_text(values), pl.concat(groups).to_numpy()


def check_covariates(schema: pl.Schema, release: Release, covariates: tuple[str, ...]) -> None:
    """Raise a ParameterError unless covariates are columns of the rows that can be adjusted for."""
    import polars as pl

    if len(set(covariates)) < len(covariates):
        raise ParameterError(f"A covariate is listed twice: {', '.join(covariates)}.")
    own, texts = release.columns, (pl.String, pl.Categorical, pl.Enum)
    reserved = (own.unit, *own.cell, *answer_columns(release), *own.debiased)
    for name in covariates:
        if name in reserved:
            raise ParameterError(
                f"Cannot adjust for {name!r}: it is part of the design, not a covariate."
            )
        if name not in schema:
            raise ParameterError(
                f"Cannot adjust for {name!r}: no such column.{did_you_mean(name, schema)}"
            )
        if not (is_number(schema[name]) or isinstance(schema[name], texts)):
            raise ParameterError(
                f"Cannot adjust for {name!r}: its type is {schema[name]}. Fix: convert it to "
                "numbers or text."
            )


def read_covariates(rows: pl.DataFrame, covariates: tuple[str, ...]) -> Regressors:
    """The columns of a regression, and the values of each covariate as a few classes.

    A number is one column. A category is an indicator of each value but the most frequent. Where
    values are missing, a number is its mean, and one more column says that it is missing.

    Args:
        rows: All rows, in their order: sums of floats depend on it.
        covariates: The columns to adjust for; what is no number is a category.

    Raises:
        DataError: If nothing is known of a covariate.
        ParameterError: If a covariate has too many categories.
    """
    import polars as pl

    regressors: list[FloatArray | BoolArray] = []
    classes = {}
    for name in covariates:
        if is_number(rows.schema[name]):
            values = unnamed(rows[name]).cast(pl.Float64).fill_null(np.nan).to_numpy()
            classes[name], terms = _classes(values), _of_number(values)
        else:
            labels, groups = group_rows(rows, (name,))
            classes[name] = groups + (labels.null_count().item() == 0)
            terms = _of_category(name, classes[name])
        if not classes[name].any():
            raise DataError(
                f"Cannot adjust for {name!r}: every released unit lacks it. Fix: remove it."
            )
        regressors += terms
    return tuple(regressors), classes


def read_regressors(every: Sequence[pl.DataFrame], covariates: tuple[str, ...]) -> list[Regressors]:
    """The columns of a regression over the rows of several folders, folder by folder."""
    import polars as pl

    if len(every) == 1:
        return [read_covariates(every[0], covariates)]
    parts = [with_text(one.select(columns(covariates))) for one in every]
    rows = pl.concat(parts, how="vertical_relaxed")
    ends = np.cumsum([len(one) for one in every])[:-1]
    regressors, classes = read_covariates(rows, covariates)
    split: list[Any] = [np.split(one, ends) for one in regressors]
    grouped = {name: np.split(one, ends) for name, one in classes.items()}
    return [
        (tuple(one[place] for one in split), {name: one[place] for name, one in grouped.items()})
        for place in range(len(every))
    ]


def is_number(kind: pl.DataType) -> bool:
    """Whether a column of a type is adjusted for as a number."""
    import polars as pl

    return kind.is_numeric() or kind == pl.Boolean


def _classes(numbers: FloatArray) -> CodeArray:
    """Numbers as a few classes in their order; `MISSING` where they are not finite.

    Some rows, far apart, decide where to divide: how large classes are need not be exact.
    """
    known = np.isfinite(numbers)
    some = numbers if known.all() else numbers[known]
    some = np.sort(some[:: max(1, len(some) // _ROWS_OF_CLASSES)])
    bounds = np.unique(some[:: max(1, len(some) // _CLASSES)])
    narrow = np.min_scalar_type(len(bounds) + 1)
    parts = np.array_split(numbers, len(numbers) // _ROWS_TOGETHER + 1)
    below = [np.searchsorted(bounds, part, side="right").astype(narrow) for part in parts]
    return np.where(known, np.concatenate(below) + 1, MISSING)


def _of_number(numbers: FloatArray) -> Iterator[FloatArray | BoolArray]:
    """A number in standard deviations from its mean, and whether it is missing."""
    known = np.isfinite(numbers)
    is_complete = bool(known.all())
    some = numbers if is_complete else numbers[known]
    centred = numbers - some.mean()
    spread = float(some.std(ddof=1)) if len(some) > 1 else 0.0
    centred /= spread or 1.0
    if not is_complete:
        centred[~known] = 0.0
    yield centred
    if not is_complete:
        yield ~known


def _of_category(name: str, classes: CodeArray) -> Iterator[BoolArray]:
    """Indicators of all values but the most frequent; what is missing is a value, too."""
    counts = np.bincount(classes)
    n_values = np.count_nonzero(counts)
    if n_values > MOST_CATEGORIES:
        raise ParameterError(
            f"Cannot adjust for {name!r}: it has {n_values:,} categories, and the limit is "
            f"{MOST_CATEGORIES}. Fix: group them, or segment by them (by, --by)."
        )
    for code in np.argsort(-counts, kind="stable")[1:n_values]:
        yield classes == code


# Rows that are put in order at once.
_ROWS_IN_ORDER = 2**20
# Rows that are worked on at once. They stay in the processor's cache, and are few enough for NumPy
# to multiply them in one thread: several would wait longer than they work.
_ROWS_OF_PIECE = 2**13


# Some rows of one arm: the entry of each row, its place among those of the segment, axes `[row]`;
# and the columns of the regression, axes `[covariate, row]`.
Piece = tuple[CodeArray, FloatArray]


class SegmentOrder:
    """Rows in the order of segments and arms, stretch by stretch.

    Args:
        values: The values of segments, see `group_rows`.
        groups: The segment of each row, its place among these.
        arms: The arm of each row; axes `[row]`.
        n_arms: How many arms there are.
    """

    def __init__(
        self, values: pl.DataFrame, groups: CodeArray, arms: CodeArray, n_arms: int
    ) -> None:
        # The key of a segment and an arm is the place of the segment, times the number of arms,
        # plus the arm. `_order` has their rows; `_bounds`, where those of each key begin and end
        # among these, by stretch.
        n_rows, n_keys = len(arms), n_arms * max(len(values), 1)
        self._n_arms = n_arms
        self._order = np.empty(n_rows, np.min_scalar_type(n_rows))
        bounds = []
        for start in range(0, n_rows, _ROWS_IN_ORDER):
            rows = slice(start, start + _ROWS_IN_ORDER)
            keys = groups[rows].astype(np.min_scalar_type(n_keys)) * n_arms + arms[rows]
            self._order[rows] = start + np.argsort(keys, kind="stable")  # narrow ones: by counting
            sizes = np.bincount(keys, minlength=n_keys)
            bounds.append(start + np.concatenate([[0], np.cumsum(sizes)]))
        self._bounds = np.stack(bounds)
        every = {_alike(row): place for place, row in enumerate(values.iter_rows())}
        self._segments = every or {(): 0}

    def rows(self, segment: Segment, arm: int) -> Iterator[CodeArray]:
        """The places of the rows of a segment and an arm, a few at a time."""
        place = self._segments[_alike(tuple(value for _, value in segment))]
        key = place * self._n_arms + arm
        for begin, end in self._bounds[:, key : key + 2].tolist():
            for start in range(begin, end, _ROWS_OF_PIECE):
                yield self._order[start : min(start + _ROWS_OF_PIECE, end)]


def _alike(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values that can be looked up: what is not a number is not even equal to itself."""
    return tuple(math.nan if value != value else value for value in values)  # noqa: PLR0124


@dataclass(slots=True, kw_only=True, eq=False)
class RowsBySegment:
    """Rows of a question with the columns of a regression, by one dimension at a time.

    Segments of a dimension are asked for one after another, so its cut is kept until the next.

    Attributes:
        regressors: The columns that have a slope: numbers, and indicators as truth values; axes
            `[row]` of each.
        classes: The values of each covariate as a few classes, from 1 on; `MISSING` where it is.
        numbers: Which are numbers; the others are categories.
        rows: Responses, and the columns of dimensions; axes `[row]`.
        profiles: How profiles are made.
        n_responses: How many responses there can be.
        entries: The entry of each row, among all that there can be: its profile times the number of
            responses, plus its response; axes `[row]`.
    """

    regressors: tuple[FloatArray | BoolArray, ...]
    classes: dict[str, CodeArray]
    numbers: frozenset[str]
    rows: pl.DataFrame
    profiles: Profiles
    n_responses: int
    entries: CodeArray
    _cuts: dict[tuple[str, ...], SegmentOrder] = field(default_factory=dict)

    @classmethod
    def from_rows(
        cls,
        rows: pl.DataFrame,
        known: Regressors,
        request: EstimateRequest,
        profiling: Profiling,
        every: list[ProfiledRows],
    ) -> list[Self]:
        """The rows as each question reads them, see `by_question`.

        Args:
            rows: All rows, in their order; of one fold if it is held out.
            known: The columns of the regression.
            request: What to segment by and to adjust for.
            profiling: What profiles follow from.
            every: Counted rows, question by question.
        """
        release, (regressors, classes) = profiling.release, known
        numbers = frozenset(name for name in request.covariates if is_number(rows.schema[name]))
        names = (*profiling.names, *answer_columns(release))
        values, groups = group_rows(rows, names)  # rows by what decides their entry
        rows = rows.select(columns((*dimension_columns(request.known), RESPONSE)))
        found = []
        for question, held in zip(release.questions, every, strict=True):
            n_responses, read = question.answers.possible().shape[-1], values[RESPONSE].to_numpy()
            if QUESTION in values.columns:
                asked = values[QUESTION].cast(str) == question.name
                read = np.where(asked.to_numpy(), read, n_responses - 1)
            narrow = np.min_scalar_type(len(held.profiles.cells) * n_responses)
            entries = held.add_profiles(values)[PROFILE].to_numpy() * n_responses + read
            found.append(
                cls(
                    regressors=regressors,
                    classes=classes,
                    numbers=numbers,
                    rows=rows,
                    profiles=held.profiles,
                    n_responses=n_responses,
                    entries=entries.astype(narrow)[groups],
                )
            )
        return found

    def notes(self) -> list[Note]:
        """What is missing."""
        return [
            Note(
                f"{counted(int((classes == MISSING).sum()), 'id')} have no {name}. They get its "
                "mean, and a covariate that marks them.",
                Weight.SCOPE,
            )
            for name, classes in self.classes.items()
            if (classes == MISSING).any()
        ]

    def pieces(self, segment: Segment, counted: ResponseCounts) -> Callable[[int], Iterator[Piece]]:
        """What gives the rows of a segment and an arm, piece by piece.

        Args:
            segment: The segment; nothing for all rows.
            counted: Its entries.
        """
        cut = self._cut_by(tuple(name for name, _ in segment))
        found = np.zeros(len(self.profiles.cells) * self.n_responses, np.int32)
        found[counted.profiles * self.n_responses + counted.responses] = range(len(counted.counts))

        def of_arm(arm: int) -> Iterator[Piece]:
            for rows in cut.rows(segment, arm):
                columns = np.stack([one[rows] for one in self.regressors])
                yield found[self.entries[rows]], columns.astype(np.float64, copy=False)

        return of_arm

    def _cut_by(self, dimension: tuple[str, ...]) -> SegmentOrder:
        if dimension not in self._cuts:
            self._cuts.clear()
            n_arms = self.profiles.shape[1]
            of_entries = np.repeat(self.profiles.arms, self.n_responses)
            arms = of_entries.astype(np.min_scalar_type(n_arms))[self.entries]
            grouped = group_rows(self.rows, dimension)
            self._cuts[dimension] = SegmentOrder(*grouped, arms, n_arms)
        return self._cuts[dimension]

    def class_counts(self, groups: IntArray) -> list[ColumnCounts]:
        """Rows counted by the classes of each covariate.

        Args:
            groups: The group of cells, which share a channel, of each profile.
        """
        import polars as pl

        found = []
        for name, classes in self.classes.items():
            rows = pl.LazyFrame({"values": classes, "entries": self.entries})
            counted = rows.group_by(pl.all()).len().collect(engine="streaming")
            entries = counted["entries"].to_numpy().astype(np.int64)
            profiles, responses = np.divmod(entries, self.n_responses)
            found.append(
                ColumnCounts.from_entries(
                    name, counted["values"], groups[profiles], responses, counted["len"]
                )
            )
        return found
