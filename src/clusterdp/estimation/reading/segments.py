"""What rows are cut by.

Released rows reduced to counts: of all rows, and of segments by kept or joined columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterdp._named import columns, unnamed
from clusterdp._text import counted
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.reading._leaks import ColumnCounts, check_columns
from clusterdp.estimation.reading.covariates import KnownRows, RowsBySegment, check_covariates
from clusterdp.estimation.reading.crossing import Crossed, known_exposures
from clusterdp.estimation.reading.cuts import Cuts, Segment, check_dimensions, columns_of, holding
from clusterdp.estimation.reading.profiles import PROFILE
from clusterdp.estimation.reading.rows import MATCHED, check_joinable, join_table, read_table
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

    from clusterdp._arrays import IntArray
    from clusterdp.estimation.effects.findings import Note
    from clusterdp.estimation.reading.profiles import Counted, Profiles, Profiling
    from clusterdp.estimation.reading.rows import TableSize
    from clusterdp.published.release import Release


# More than this, nobody reads.
MOST_SEGMENTS = 1000
# The number of a row; no column of a user has this name.
_ROW = "__clusterdp_row"


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
    whole: Counted
    segments: tuple[tuple[Segment, Counted], ...] = ()
    without: tuple[tuple[tuple[str, ...], Counted], ...] = ()
    joined: list[Note] | None = None
    covariates: RowsBySegment | None = None
    crossed: tuple[Crossed, ...] = ()

    @property
    def parts(self) -> list[tuple[Segment, Counted]]:
        """Everyone, then every segment."""
        return [((), self.whole), *self.segments]


def read_rows(release: Release, cuts: Cuts, profiling: Profiling) -> list[RowCounts]:
    """Counts of the rows of a release, question by question.

    The rows are read once, however many questions and segments there are.

    Args:
        release: A release of rows.
        cuts: What to cut by.
        profiling: What published sums distinguish.

    Raises:
        DataError: If the analyst's table does not fit the release.
        ParameterError: If there is no such column to cut by or to adjust for.
    """
    public = profiling.names
    if cuts.exposure is not None and cuts.exposure.place is None:
        public = (*public, cuts.exposure.name)
    tables, rows, size = _pass_rows(release, cuts, public)
    for question, counted_rows in zip(release.questions, tables, strict=True):
        check_whole(counted_rows[0], release, question)
    _check_number(tables[0], cuts.known)
    joined = None if size is None else _join_notes(tables[0], release, size, cuts)
    known = None if rows is None else KnownRows.of(rows, cuts, profiling)
    return [
        replace(_question_counts(place, held, profiling, cuts, known), joined=joined)
        for place, held in enumerate(tables)
    ]


def _pass_rows(
    release: Release, cuts: Cuts, public: tuple[str, ...]
) -> tuple[list[list[pl.DataFrame]], pl.DataFrame | None, TableSize | None]:
    """Count rows, joined to the analyst's table if there is one.

    Args:
        release: The release.
        cuts: What to cut by and to adjust for.
        public: The columns to count by, whatever is cut.

    Returns:
        Rows counted as each question reads them, by each of the finest dimensions; the rows
        themselves in their order, if anything is adjusted for; and what the analyst's table has.
    """
    if cuts.table is None and not cuts.names and not cuts.dimensions:
        if cuts.exposure is not None:
            cuts.exposure.check(release, ())
        return [[counts] for counts in count_released(release, public)], None, None
    flags = () if cuts.table is None else (MATCHED,)
    answers = answer_columns(release)
    several = [tuple(dict.fromkeys((*one, *flags, *public, *answers))) for one in cuts.finest]
    units = scan_units(release)
    table = None if cuts.table is None else read_table(release, cuts.table, cuts.on, cuts.used)
    _check(units.collect_schema(), release, cuts, table)
    if cuts.covariates:
        units = units.with_row_index(_ROW)
    parts, size, rows = [units], None, None
    if table is not None:
        parts, size = join_table(units, table, cuts.on or release.columns.unit)
    if cuts.covariates:
        # A regression reads rows several times. What they were joined to is let go.
        names = dict.fromkeys((*(name for one in several for name in one), *cuts.covariates))
        rows = _in_order(parts, [*names])
        parts = [rows.lazy()]
        del table
    counted = [by_question(one, release) for one in count_rows(parts, several)]
    return [list(tables) for tables in zip(*counted, strict=True)], rows, size


def _in_order(parts: list[pl.LazyFrame], names: list[str]) -> pl.DataFrame:
    """Some columns of rows, in the order of the release: sums of floats depend on it."""
    import polars as pl

    texts = pl.selectors.string().cast(pl.Categorical(pl.Categories.random()))
    held = [collect_rows(one.select(_ROW, columns(names)).with_columns(texts)) for one in parts]
    return pl.concat(held).sort(_ROW).drop(_ROW)


def _check(schema: pl.Schema, release: Release, cuts: Cuts, table: pl.DataFrame | None) -> None:
    """Check that rows and the analyst's table have what is asked for, and can be joined."""
    import polars as pl

    if cuts.exposure is not None:
        cuts.exposure.check(release, () if table is None else table.columns)
    if table is not None:
        check_joinable(schema, release, table)
        schema = pl.Schema({**table.schema, **schema, MATCHED: pl.Boolean()})
    check_dimensions(schema, cuts.known, release)
    check_covariates(schema, release, cuts.covariates)


def _question_counts(
    place: int,
    tables: list[pl.DataFrame],
    profiling: Profiling,
    cuts: Cuts,
    known: KnownRows | None,
) -> RowCounts:
    """Counts of rows as a question reads them.

    Args:
        place: The place of the question.
        tables: Rows counted by responses, and by what the finest dimensions cut by.
        profiling: What published sums distinguish, with the release.
        cuts: What to cut by.
        known: The rows with what is adjusted for; None if nothing is.
    """
    release, found = profiling.release, profiling.of(tables[0])
    question = release.questions[place]
    assert question.channel is not None  # noqa: S101 - there are rows
    groups = question.channel.groups.ravel()[found.profiles.cells]
    profiled = [found.table, *map(found.add_profiles, tables[1:])]
    checked = [
        _column_counts(held, name, unnamed(held[name]).rank("dense"), groups)
        for name in columns_of(cuts.known)
        for held in [holding(profiled, (name,))]
    ]
    segments: list[tuple[Segment, pl.DataFrame]] = []
    without = []
    for dimension in cuts.dimensions:
        segments += cuts.cut(profiled, dimension)
    for dimension in cuts.known:
        held = _without(holding(profiled, dimension), dimension)
        without.append((dimension, found.count(held)))
    covariates = None
    if known is not None:
        covariates = RowsBySegment.of(known, found, question)
        checked += covariates.class_counts(groups)
    crossed: tuple[Crossed, ...] = ()
    if cuts.exposure is not None and cuts.exposure.place is None:
        column = cuts.exposure.name
        exposures = known_exposures(found.table, column)
        checked.append(_column_counts(found.table, column, exposures, groups))
        every = [found.table, *(part for _, part in segments)]
        crossed = tuple(Crossed.of(part, column) for part in every)
    check_columns(
        checked, question.channel, len(question.space.declared.metrics), len(release.questions)
    )
    return RowCounts(
        profiles=found.profiles,
        whole=found.count(found.table),
        segments=tuple((segment, found.count(part)) for segment, part in segments),
        without=tuple(without),
        covariates=covariates,
        crossed=crossed,
    )


def _join_notes(
    tables: list[pl.DataFrame], release: Release, size: TableSize, cuts: Cuts
) -> list[Note]:
    """What rows and the analyst's table lack of each other, from counts of joined rows.

    Raises:
        DataError: If they have no id in common.
    """

    def n_matched(counts: pl.DataFrame) -> int:
        return int(counts.filter(MATCHED)[COUNT].sum())

    if n_matched(tables[0]) == 0:
        raise DataError(
            f"no id in column {cuts.on or release.columns.unit!r} of the segments table is in the "
            "release; check that both use the same ids"
        )
    n_nulls = {
        name: n_matched(_without(holding(tables, (name,)), (name,)))
        for name in columns_of(cuts.known)
    }
    return size.notes(release.layout.n_units, n_matched(tables[0]), n_nulls)


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
        f"{','.join(widest)} ({of_columns}); at most {MOST_SEGMENTS:,} are estimated at once: cut "
        "by fewer columns, or by ranges and groups of their values"
    )


def _column_counts(
    table: pl.DataFrame, name: str, values: pl.Series, groups: IntArray
) -> ColumnCounts:
    """Counts by the values of a column; the places of the values are given.

    The groups of cells that share a channel are given by profile.
    """
    places, of_channel = unnamed(values).fill_null(0), groups[table[PROFILE].to_numpy()]
    return ColumnCounts.of(name, places, of_channel, table[RESPONSE], table[COUNT])
