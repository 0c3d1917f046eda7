"""Released rows reduced to counts: of all rows, and of segments by kept or joined columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterdp._arrays import IntArray
from clusterdp._named import columns, unnamed
from clusterdp._text import counted
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.effects.effect import Segment
from clusterdp.estimation.effects.notes import Note
from clusterdp.estimation.reading._leaks import ColumnCounts, check_leaks
from clusterdp.estimation.reading.covariates import (
    Regressors,
    RowsBySegment,
    check_covariates,
    is_number,
    read_regressors,
)
from clusterdp.estimation.reading.profiles import (
    PROFILE,
    ProfiledRows,
    Profiles,
    Profiling,
    ResponseCounts,
)
from clusterdp.estimation.reading.request import (
    EstimateRequest,
    check_dimensions,
    dimension_columns,
    holding,
)
from clusterdp.estimation.reading.rows import (
    MATCHED,
    TableNumbers,
    check_joinable,
    join_notes,
    join_table,
    read_table,
)
from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.published.release import Release
from clusterdp.published.rows import (
    COUNT,
    answer_columns,
    by_question,
    check_whole,
    collect_rows,
    count_released,
    count_rows,
    scan_units,
)
from clusterdp.spec.columns import RESPONSE

if TYPE_CHECKING:
    import polars as pl


# More than this, nobody reads.
MOST_SEGMENTS = 1000
# The number of a row; no column of a user has this name.
_ROW = "__clusterdp_row"


# Rows counted by profile, response and exposure, 0 or 1: as responses, and as exposures. Entries of
# both are the same.
CrossedCounts = tuple[ResponseCounts, ResponseCounts]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The released rows, reduced in one pass to what an estimate in one question needs.

    Attributes:
        profiles: What published sums distinguish.
        whole: Counts of all rows; of one fold alone if it is held out.
        segments: Every segment with the counts of its rows.
        without: Every dimension with the counts of rows that are in none of its segments.
        joined: What the analyst's table and the rows lack of each other; None without a table.
        covariates: Rows with their covariates; None if nothing is adjusted for.
        crossed: Counts by exposure, too, of all rows and then of every segment; none if exposure is
            not asked for, or an outcome.
    """

    profiles: Profiles
    whole: ResponseCounts
    segments: tuple[tuple[Segment, ResponseCounts], ...] = ()
    without: tuple[tuple[tuple[str, ...], ResponseCounts], ...] = ()
    joined: list[Note] | None = None
    covariates: RowsBySegment | None = None
    crossed: tuple[CrossedCounts, ...] = ()

    @property
    def parts(self) -> list[tuple[Segment, ResponseCounts]]:
        """Everyone, then every segment."""
        return [((), self.whole), *self.segments]


def read_rows(
    releases: Sequence[Release], requests: Sequence[EstimateRequest]
) -> list[list[RowCounts]]:
    """Counts of the rows of releases, each question by question.

    The rows are read once, however many questions and segments there are.

    Args:
        releases: Releases of rows.
        requests: What to segment by, and which published sums are used, for each release.

    Raises:
        DataError: If the analyst's table does not fit a release.
        ParameterError: If there is no such column to segment by or to adjust for.
    """
    pairs = list(zip(releases, requests, strict=True))
    every = [FolderRows(*pair) for pair in pairs]
    joined = _joined_notes(every)
    regressors = [one.rows for one in every if one.rows is not None]
    known = (
        read_regressors(regressors, requests[0].covariates) if regressors else [None] * len(every)
    )
    return [one.counts(joined, adjusted) for one, adjusted in zip(every, known, strict=True)]


class FolderRows:
    """The rows of a release, counted once, as its questions are going to read them.

    Attributes:
        release: The release.
        request: What to segment by.
        tables: Rows counted as each question reads them, by each of the finest dimensions.
        rows: The rows themselves in their order, if anything is adjusted for.
        size: What the analyst's table has; None without a table.
    """

    def __init__(self, release: Release, request: EstimateRequest) -> None:
        self.release, self.request = release, request
        self._profiling = Profiling(release, request)
        public = self._profiling.names
        if request.exposure is not None and request.exposure.place is None:
            public = (*public, request.exposure.name)
        self.tables, rows, self.size = _pass_rows(release, request, public)
        for question, counted_rows in zip(release.questions, self.tables, strict=True):
            check_whole(counted_rows[0], release, question)
        _check_number(self.tables[0], request.known)
        self.rows = None if rows is None else self._profiling.held_out(rows)

    def counts(self, joined: list[Note] | None, known: Regressors | None) -> list[RowCounts]:
        """The rows as each question reads them.

        Args:
            joined: What the analyst's table and the rows lack of each other.
            known: The columns of a regression; None if nothing is adjusted for.
        """
        release, request = self.release, self.request
        every = [ProfiledRows(self._profiling, held[0]) for held in self.tables]
        covariates: Sequence[RowsBySegment | None] = [None] * len(every)
        if self.rows is not None and known is not None:
            covariates = RowsBySegment.from_rows(self.rows, known, request, self._profiling, every)
        of_questions = zip(release.questions, self.tables, every, covariates, strict=True)
        return [
            replace(_question_counts(release, request, *one), joined=joined) for one in of_questions
        ]


def _pass_rows(
    release: Release, request: EstimateRequest, public: tuple[str, ...]
) -> tuple[list[list[pl.DataFrame]], pl.DataFrame | None, TableNumbers | None]:
    """Count rows, joined to the analyst's table if there is one.

    Args:
        release: The release.
        request: What to segment by and to adjust for.
        public: The columns to count by, for any segments.

    Returns:
        Rows counted as each question reads them, by each of the finest dimensions; the rows
        themselves in their order, if anything is adjusted for; and what the analyst's table has.
    """
    import polars as pl

    table = None
    if request.table is not None:
        table = read_table(release, request.table, request.on, request.used)
    if request.exposure is not None:
        request.exposure.check(release, () if table is None else table.columns)
    if table is None and not request.names and not request.dimensions:
        return [[counts] for counts in count_released(release, public)], None, None
    flags = () if table is None else (MATCHED,)
    answers = answer_columns(release)
    several = [tuple(dict.fromkeys((*one, *flags, *public, *answers))) for one in request.finest]
    units = scan_units(release)
    schema = units.collect_schema()
    if table is not None:
        check_joinable(schema, release, table)
        schema = pl.Schema({**table.schema, **schema, MATCHED: pl.Boolean()})
    check_dimensions(schema, request.known, release)
    check_covariates(schema, release, request.covariates)
    if request.covariates:
        units = units.with_row_index(_ROW)
    parts, size, rows = [units], None, None
    if table is not None:
        parts, size = join_table(units, table, request.on or release.columns.unit)
    if request.covariates:
        # A regression reads rows several times, in the order of the release, as sums of floats
        # depend on it. What they were joined to is let go.
        names = dict.fromkeys((*(name for one in several for name in one), *request.covariates))
        texts = pl.selectors.string().cast(pl.Categorical(pl.Categories.random()))
        held = [one.select(_ROW, columns(names)).with_columns(texts) for one in parts]
        rows = pl.concat(map(collect_rows, held)).sort(_ROW).drop(_ROW)
        parts = [rows.lazy()]
        del table
    counted = [by_question(one, release) for one in count_rows(parts, several)]
    return [list(tables) for tables in zip(*counted, strict=True)], rows, size


def _question_counts(  # noqa: PLR0913, PLR0917 - a release, and what is read of a question
    release: Release,
    request: EstimateRequest,
    question: ReleasedQuestion,
    tables: list[pl.DataFrame],
    found: ProfiledRows,
    covariates: RowsBySegment | None,
) -> RowCounts:
    """Counts of rows as a question reads them.

    Args:
        release: The release.
        request: What to segment by.
        question: The question.
        tables: Rows counted by responses, and by the columns of the finest dimensions.
        found: The first of these with profiles.
        covariates: The rows with what is adjusted for; None if nothing is.
    """
    assert question.channel is not None  # noqa: S101 - there are rows
    groups = question.channel.groups
    groups = groups.ravel()[found.profiles.released_cells(groups.shape[-1])]
    profiled = [found.table, *map(found.add_profiles, tables[1:])]
    checked = [
        _column_counts(held, name, unnamed(held[name]).rank("dense"), groups)
        for name in dimension_columns(request.known)
        for held in [holding(profiled, (name,))]
    ]
    if covariates is not None:
        checked += covariates.class_counts(groups)
    segments = [part for one in request.dimensions for part in request.cut(profiled, one)]
    crossed: tuple[CrossedCounts, ...] = ()
    if request.exposure is not None and request.exposure.place is None:
        column = request.exposure.name
        exposures = known_exposures(found.table, column)
        checked.append(_column_counts(found.table, column, exposures, groups))
        every = [found.table, *(part for _, part in segments)]
        crossed = tuple(_cross(part, column) for part in every)
    check_leaks(
        checked, question.channel, len(question.space.declared.metrics), len(release.questions)
    )
    return RowCounts(
        profiles=found.profiles,
        whole=found.count(found.table),
        segments=tuple((segment, found.count(part)) for segment, part in segments),
        without=tuple(
            (one, found.count(_without(holding(profiled, one), one))) for one in request.known
        ),
        covariates=covariates,
        crossed=crossed,
    )


def _joined_notes(every: Sequence[FolderRows]) -> list[Note] | None:
    """What rows and the analyst's table lack of each other, from counts of joined rows.

    None without a table.

    Raises:
        DataError: If they have no id in common.
    """
    first, sizes = every[0], [one.size for one in every if one.size is not None]
    if not sizes:
        return None

    def n_matched(counts: pl.DataFrame) -> int:
        return int(counts.filter(MATCHED)[COUNT].sum())

    matched = sum(n_matched(one.tables[0][0]) for one in every)
    if matched == 0:
        raise DataError(
            f"Column {first.request.on or first.release.columns.unit!r} of the segments table and "
            "the release have no id in common. Fix: use the same ids in both."
        )
    n_nulls = {
        name: sum(n_matched(_without(holding(one.tables[0], (name,)), (name,))) for one in every)
        for name in dimension_columns(first.request.known)
    }
    n_ids, n_without, n_repeated = map(sum, zip(*sizes, strict=True))
    n_units = sum(one.release.layout.n_units for one in every)
    table = "the labels of the follow-up" if first.request.groups else "the segments table"
    return join_notes(table, (n_ids, n_without, n_repeated), n_units, matched, n_nulls)


def _without(table: pl.DataFrame, dimension: tuple[str, ...]) -> pl.DataFrame:
    """The counts of rows without a value in a dimension."""
    import polars as pl

    return table.filter(pl.any_horizontal(columns(dimension).is_null()))


def _check_number(tables: list[pl.DataFrame], dimensions: list[tuple[str, ...]]) -> None:
    """Raise a ParameterError if there are more segments than anyone reads."""
    numbers = {
        dimension: holding(tables, dimension).select(columns(dimension)).drop_nulls().n_unique()
        for dimension in dimensions
    }
    if sum(numbers.values()) <= MOST_SEGMENTS:
        return
    widest = max(numbers, key=lambda dimension: numbers[dimension])
    of_columns = ", ".join(
        f"{name} has {counted(holding(tables, widest)[name].n_unique(), 'value')}"
        for name in widest
    )
    raise ParameterError(
        f"by makes {sum(numbers.values()):,} segments, {numbers[widest]:,} of them by "
        f"{','.join(widest)} ({of_columns}). The limit is {MOST_SEGMENTS:,}. Fix: segment by fewer "
        "columns, or group their values."
    )


def _column_counts(
    table: pl.DataFrame, name: str, values: pl.Series, groups: IntArray
) -> ColumnCounts:
    """Counts by the values of a column; the places of the values are given.

    The groups of cells that share a channel are given by profile.
    """
    places, of_channel = unnamed(values).fill_null(0), groups[table[PROFILE].to_numpy()]
    return ColumnCounts.from_entries(name, places, of_channel, table[RESPONSE], table[COUNT])


def _cross(table: pl.DataFrame, column: str) -> CrossedCounts:
    """Counts by profile, response and exposure, in their order, from those by others, too."""
    import polars as pl

    by = columns((PROFILE, RESPONSE, column))
    found = table.group_by(by).agg(pl.col(COUNT).sum()).sort(by).cast(pl.Int64)
    profiles, responses, exposures, counts = (one.to_numpy() for one in found)
    return ResponseCounts(profiles, responses, counts), ResponseCounts(profiles, exposures, counts)


def known_exposures(table: pl.DataFrame, column: str) -> pl.Series:
    """Whether units were exposed, 0 or 1, from rows counted by a column of that and others.

    Raises:
        DataError: If it is not known of every unit.
    """
    import polars as pl

    exposures = unnamed(table[column])
    rule = f"exposure {column!r} must be 0 or 1 for every released unit"
    if not is_number(exposures.dtype):
        raise DataError(f"{rule}, and its type is {exposures.dtype}. Fix: convert it to numbers.")
    n_missing = int(table[COUNT].filter(exposures.is_null()).sum())
    if n_missing:
        raise DataError(
            f"{rule}, and is missing for {n_missing:,}. Fix: set it to 0 for unexposed units."
        )
    if not exposures.cast(pl.Float64).is_in([0.0, 1.0]).all():
        raise DataError(f"{rule}, and has other values. Fix: set it to 1 for exposed units.")
    return exposures.cast(pl.Int64).alias(column)
