"""Released rows reduced to counts: of all rows, and of segments by kept or joined columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterdp._named import columns, unnamed
from clusterdp._words import counted
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.covariate_rows import KnownRows, RowsBySegment
from clusterdp.estimation.crossing import Crossed, known_exposures
from clusterdp.estimation.cuts import columns_of, holding
from clusterdp.estimation.joining import MATCHED, Joined
from clusterdp.estimation.profiling import PROFILE
from clusterdp.estimation.response_leak import ColumnCounts, check_columns
from clusterdp.estimation.row_pass import pass_rows
from clusterdp.published.row_counts import COUNT, check_whole, count_released
from clusterdp.rows.columns import RESPONSE

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.estimation.cuts import Cuts, Segment
    from clusterdp.estimation.joining import TableSize
    from clusterdp.estimation.profiles import Counted, Profiles
    from clusterdp.estimation.profiling import Profiling
    from clusterdp.published.release import Release

# More than this, nobody reads.
MOST_SEGMENTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The released rows, reduced in one pass to what an estimate in one block needs.

    Attributes:
        profiles: What published sums distinguish.
        whole: Counts of all rows; of one fold alone if it is held out.
        segments: Every segment with the counts of its rows.
        without: Every dimension with the counts of rows that are in none of its segments.
        joined: How the analyst's table was joined; None if there is none.
        covariates: Rows with their covariates; None if nothing is adjusted for.
        crossed: Counts by exposure, too, of all rows and then of every segment; none if exposure is
            not asked for, or told by the same responses.
    """

    profiles: Profiles
    whole: Counted
    segments: tuple[tuple[Segment, Counted], ...] = ()
    without: tuple[tuple[tuple[str, ...], Counted], ...] = ()
    joined: Joined | None = None
    covariates: RowsBySegment | None = None
    crossed: tuple[Crossed, ...] = ()

    @property
    def parts(self) -> list[tuple[Segment, Counted]]:
        """Everyone, then every segment."""
        return [((), self.whole), *self.segments]


def read_rows(release: Release, cuts: Cuts, profiling: Profiling) -> list[RowCounts]:
    """Counts of the rows of a release, block by block.

    The rows are read once, however many blocks and segments there are.

    Args:
        release: A release of rows.
        cuts: What to cut by.
        profiling: What published sums distinguish.

    Raises:
        DataError: If the analyst's table does not fit the release.
        ParameterError: If there is no such column to cut by or to adjust for.
    """
    public = profiling.names
    if cuts.exposure is not None:
        public = (*public, cuts.exposure.column(release))
    if cuts.table is None and not cuts.names and not cuts.dimensions:
        if cuts.exposure is not None:
            cuts.exposure.check(release, ())
        return [
            _block_counts(place, [counts], profiling, cuts, None)
            for place, counts in enumerate(count_released(release, public))
        ]
    passed = pass_rows(release, cuts, public)
    for block, counted_rows in zip(release.blocks, passed.tables, strict=True):
        check_whole(counted_rows[0], release, block)
    _check_number(passed.tables[0], cuts.known)
    joined = None
    if passed.size is not None:
        joined = _joined(passed.tables[0], release, passed.size, cuts.known)
        if joined.n_matched == 0:
            raise DataError(
                f"no id in column {cuts.on or release.columns.unit!r} of the segments table is in "
                "the release; check that both use the same ids"
            )
    known = None
    if passed.rows is not None:
        known = KnownRows.of(passed.rows, passed.columns, cuts, profiling)
    return [
        replace(_block_counts(place, held, profiling, cuts, known), joined=joined)
        for place, held in enumerate(passed.tables)
    ]


def _block_counts(
    place: int,
    tables: list[pl.DataFrame],
    profiling: Profiling,
    cuts: Cuts,
    known: KnownRows | None,
) -> RowCounts:
    """Counts of rows by the responses of a block.

    Args:
        place: The place of the block.
        tables: Rows counted by its responses, and by what the finest dimensions cut by.
        profiling: What published sums distinguish, with the release.
        cuts: What to cut by.
        known: The rows with what is adjusted for; None if nothing is.
    """
    release, found = profiling.release, profiling.of(tables[0])
    block = release.blocks[place]
    assert block.channel is not None  # noqa: S101 - there are rows
    groups = block.channel.groups.ravel()[found.profiles.cells]
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
        response, n_responses = release.columns.responses[place], block.channel.possible().shape[-1]
        covariates = RowsBySegment.of(known, found, response, n_responses)
        checked += covariates.class_counts(groups)
    crossed: tuple[Crossed, ...] = ()
    if cuts.exposure is not None and cuts.exposure.place != place:
        column = cuts.exposure.column(release)
        if cuts.exposure.place is None:
            exposures = known_exposures(found.table, column)
            checked.append(_column_counts(found.table, column, exposures, groups))
        every = [found.table, *(part for _, part in segments)]
        crossed = tuple(Crossed.of(part, column) for part in every)
    check_columns(checked, block.channel, len(block.space.declared.metrics), len(release.blocks))
    return RowCounts(
        profiles=found.profiles,
        whole=found.count(found.table),
        segments=tuple((segment, found.count(part)) for segment, part in segments),
        without=tuple(without),
        covariates=covariates,
        crossed=crossed,
    )


def _joined(
    tables: list[pl.DataFrame],
    release: Release,
    size: TableSize,
    dimensions: list[tuple[str, ...]],
) -> Joined:
    """What is in the rows and in the analyst's table, from counts of joined rows."""

    def n_matched(counts: pl.DataFrame) -> int:
        return int(counts.filter(MATCHED)[COUNT].sum())

    return Joined(
        n_units=release.layout.n_units,
        size=size,
        n_matched=n_matched(tables[0]),
        n_nulls={
            name: n_matched(_without(holding(tables, (name,)), (name,)))
            for name in columns_of(dimensions)
        },
    )


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
    import polars as pl

    keys = {"values": unnamed(values).fill_null(0), "groups": groups[table[PROFILE].to_numpy()]}
    counted_rows = pl.DataFrame({**keys, "responses": table[RESPONSE], "counts": table[COUNT]})
    found = counted_rows.group_by("values", "groups", "responses").agg(pl.col("counts").sum())
    return ColumnCounts(name=name, **{one.name: one.to_numpy() for one in found})
