"""Released rows reduced to counts: of all rows, and of segments by kept or joined columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._words import counted
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.adjustment import RowsBySegment
from clusterdp.estimation.covariates import Covariates, check_covariates, read_covariates
from clusterdp.estimation.crossing import Crossed, known_exposures
from clusterdp.estimation.joining import MATCHED, Joined, join_units, read_table
from clusterdp.estimation.profiling import PROFILE
from clusterdp.estimation.response_leak import ColumnCounts, check_columns
from clusterdp.published.row_counts import (
    COUNT,
    Grouping,
    check_whole,
    collect_rows,
    count_released,
    count_together,
    scan_units,
)
from clusterdp.rows.columns import RESPONSE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.estimation.crossing import AskedExposure
    from clusterdp.estimation.label_weights import LabelWeights
    from clusterdp.estimation.profiles import Counted, Profiles
    from clusterdp.estimation.profiling import Profiling
    from clusterdp.published.release import Release

Segment = tuple[tuple[str, Any], ...]
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
        covariates: Rows with their covariates and columns `PROFILE` and `RESPONSE`; None if nothing
            is adjusted for.
        covariate_rows: The same, cut by segments.
        crossed: Counts by exposure, too, of all rows and then of every segment; none if exposure is
            not asked for, or told by the same responses.
    """

    profiles: Profiles
    whole: Counted
    segments: tuple[tuple[Segment, Counted], ...] = ()
    without: tuple[tuple[tuple[str, ...], Counted], ...] = ()
    joined: Joined | None = None
    covariates: Covariates | None = None
    covariate_rows: RowsBySegment | None = None
    crossed: tuple[Crossed, ...] = ()

    @property
    def parts(self) -> list[tuple[Segment, Counted]]:
        """Everyone, then every segment."""
        return [((), self.whole), *self.segments]


class Cuts(NamedTuple):
    """What rows are cut by, and what is known of them.

    Attributes:
        table: The analyst's frame, of any library; None for kept columns alone.
        on: The column of ids in that frame; the release's own name by default.
        dimensions: The columns to cut by, see `parse_dimensions`.
        covariates: The columns to adjust for.
        exposure: The exposure; None if there is none.
        labels: What units count by noisy labels, where clusters are private; else None.
    """

    table: Any
    on: str | None
    dimensions: list[tuple[str, ...]]
    covariates: tuple[str, ...]
    exposure: AskedExposure | None = None
    labels: LabelWeights | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every column to cut by or to adjust for."""
        return (*_columns_of(self.known), *self.covariates)

    @property
    def known(self) -> list[tuple[str, ...]]:
        """The columns of dimensions that are known of units: true clusters are not."""
        return [one for one in dict.fromkeys(map(self.known_of, self.dimensions)) if one]

    def known_of(self, dimension: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a dimension that are known of units."""
        private = None if self.labels is None else self.labels.column
        return tuple(name for name in dimension if name != private)

    def cut(
        self, tables: list[pl.DataFrame], dimension: tuple[str, ...]
    ) -> Iterator[tuple[Segment, pl.DataFrame]]:
        """Each segment of a dimension with counts of rows; a true cluster has those of all."""
        known = self.known_of(dimension)
        parts = _cut(_holding(tables, known), known) if known else [((), tables[0])]
        for segment, part in parts:
            if len(known) == len(dimension) or self.labels is None:
                yield segment, part
                continue
            for group in self.labels.groups:
                values = {**dict(segment), self.labels.column: group}
                yield tuple((name, values[name]) for name in dimension), part

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that decides anything, and the name of an exposure."""
        return (*self.names, *([] if self.exposure is None else [self.exposure.name]))


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
    import polars as pl

    table = None if cuts.table is None else read_table(release, cuts.table, cuts.on, cuts.used)
    public = profiling.names
    if cuts.exposure is not None:
        cuts.exposure.check(release, () if table is None else table.columns)
        public = (*public, cuts.exposure.column(release))
    if table is None and not cuts.names and not cuts.dimensions:
        return [
            _block_counts(place, [counts], profiling, cuts, None)
            for place, counts in enumerate(count_released(release, public))
        ]
    parts, flags = [scan_units(release)], tuple[str, ...]()
    if table is not None:
        parts, flags = join_units(parts[0], release, table), (MATCHED,)
    _check_dimensions(parts[0], cuts.known, release)
    if cuts.covariates:
        check_covariates(parts[0].collect_schema(), release, cuts.covariates)
        # A regression needs its rows in memory, in an order: sums of floats depend on it.
        names = dict.fromkeys((*public, *release.columns.responses, *cuts.names, *flags))
        ordered = pl.concat(parts).sort(release.columns.unit)
        parts = [collect_rows(ordered.select(names.keys())).lazy()]
    # Counts by ("tier", "region") include those by ("tier",).
    every = cuts.known
    finest = [one for one in every if not any(set(one) < set(other) for other in every)]
    several = [(*one, *flags, *public) for one in finest or [()]]
    groupings = [Grouping(one, of) for of in release.columns.responses for one in several]
    tables = iter(count_together(parts, groupings))
    by_block = [[next(tables) for _ in several] for _ in release.blocks]
    for block, counted_rows in zip(release.blocks, by_block, strict=True):
        check_whole(counted_rows[0], release, block)
    _check_number(by_block[0], every)
    joined = None
    if table is not None:
        joined = _joined(by_block[0], release, table, every)
        if joined.n_matched == 0:
            raise DataError(
                f"no id in column {cuts.on or release.columns.unit!r} of the segments table is in "
                "the release; check that both use the same ids"
            )
    given = read_covariates(parts[0].collect(), cuts.covariates) if cuts.covariates else None
    return [
        replace(_block_counts(place, held, profiling, cuts, given), joined=joined)
        for place, held in enumerate(by_block)
    ]


def _block_counts(
    place: int,
    tables: list[pl.DataFrame],
    profiling: Profiling,
    cuts: Cuts,
    given: Covariates | None,
) -> RowCounts:
    """Counts of rows by the responses of a block.

    Args:
        place: The place of the block.
        tables: Rows counted by its responses, and by what the finest dimensions cut by.
        profiling: What published sums distinguish, with the release.
        cuts: What to cut by.
        given: What is adjusted for; None if nothing is.
    """
    release, found = profiling.release, profiling.of(tables[0])
    block = release.blocks[place]
    assert block.channel is not None  # noqa: S101 - there are rows
    groups = block.channel.groups.ravel()[found.profiles.cells]
    profiled = [found.table, *map(found.add_profiles, tables[1:])]
    checked = [
        _column_counts(held, name, held[name].rank("dense"), groups)
        for name in _columns_of(cuts.known)
        for held in [_holding(profiled, (name,))]
    ]
    segments: list[tuple[Segment, pl.DataFrame]] = []
    without = []
    for dimension in cuts.dimensions:
        segments += cuts.cut(profiled, dimension)
    for dimension in cuts.known:
        held = _without(_holding(profiled, dimension), dimension)
        without.append((dimension, found.count(held)))
    covariates = None
    if given is not None:
        rows = given.rows.rename({release.columns.responses[place]: RESPONSE})
        covariates = given._replace(rows=found.add_profiles(rows))
        checked += [
            _column_counts(covariates.rows, name, covariates.classes(name), groups)
            for name in cuts.covariates
        ]
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
        covariate_rows=None if covariates is None else RowsBySegment(covariates),
        crossed=crossed,
    )


def _joined(
    tables: list[pl.DataFrame],
    release: Release,
    table: pl.DataFrame,
    dimensions: list[tuple[str, ...]],
) -> Joined:
    """What is in the rows and in the analyst's table, from counts of joined rows."""

    def n_matched(counts: pl.DataFrame) -> int:
        return int(counts.filter(MATCHED)[COUNT].sum())

    return Joined(
        n_units=release.layout.n_units,
        n_ids=len(table),
        n_matched=n_matched(tables[0]),
        n_nulls={
            name: n_matched(_without(_holding(tables, (name,)), (name,)))
            for name in _columns_of(dimensions)
        },
    )


def _columns_of(dimensions: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for dimension in dimensions for name in dimension))


def _holding(tables: list[pl.DataFrame], dimension: tuple[str, ...]) -> pl.DataFrame:
    """The counts that have every column of a dimension."""
    return next(table for table in tables if set(dimension) <= set(table.columns))


def _without(table: pl.DataFrame, dimension: tuple[str, ...]) -> pl.DataFrame:
    """The counts of rows without a value in a dimension."""
    import polars as pl

    return table.filter(pl.any_horizontal(pl.col(dimension).is_null()))


def _check_number(tables: list[pl.DataFrame], dimensions: list[tuple[str, ...]]) -> None:
    """Raise a ParameterError if there are more segments than anyone reads."""
    numbers = {
        dimension: _holding(tables, dimension).select(dimension).drop_nulls().n_unique()
        for dimension in dimensions
    }
    if sum(numbers.values()) <= MOST_SEGMENTS:
        return
    widest = max(numbers, key=lambda dimension: numbers[dimension])
    columns = ", ".join(
        f"{name} has {counted(_holding(tables, widest)[name].n_unique(), 'value')}"
        for name in widest
    )
    raise ParameterError(
        f"by makes {sum(numbers.values()):,} segments, {numbers[widest]:,} of them by "
        f"{','.join(widest)} ({columns}); at most {MOST_SEGMENTS:,} are estimated at once: cut by "
        "fewer columns, or by ranges and groups of their values"
    )


def _column_counts(
    table: pl.DataFrame, name: str, values: pl.Series, groups: IntArray
) -> ColumnCounts:
    """Counts, or rows, by the values of a column; the places of the values are given.

    The groups of cells that share a channel are given by profile.
    """
    import polars as pl

    keys = {"values": values.fill_null(0), "groups": groups[table[PROFILE].to_numpy()]}
    counts = table[COUNT] if COUNT in table.columns else np.ones(len(table), np.int64)
    counted_rows = pl.DataFrame({**keys, "responses": table[RESPONSE], "counts": counts})
    found = counted_rows.group_by("values", "groups", "responses").agg(pl.col("counts").sum())
    return ColumnCounts(name=name, **{one.name: one.to_numpy() for one in found})


def parse_dimensions(by: Any, release: Release) -> list[tuple[str, ...]]:
    """What to cut by: each entry a column, or several that are crossed (`"tier,region"`).

    A name that the release has itself is never split. Repeated entries count once.
    """
    if by is None:
        return []
    entries = [by] if isinstance(by, str) else by
    if not isinstance(entries, list | tuple):
        raise ParameterError(f"by must be a column or a list of columns, got {by!r}")
    found: dict[tuple[str, ...], None] = {}
    for entry in entries:
        names = entry
        if isinstance(entry, str):
            whole = entry in release.columns.public
            names = [entry] if whole else [name.strip() for name in entry.split(",")]
        found[tuple(dict.fromkeys(parse_names("by", names)))] = None
    return list(found)


def parse_names(parameter: str, names: Any) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    listed = (names,) if isinstance(names, str) else names
    if isinstance(listed, list | tuple) and all(isinstance(name, str) for name in listed):
        return tuple(listed)
    raise ParameterError(f"{parameter} must be a column or a list of columns, got {names!r}")


def _check_dimensions(
    rows: pl.LazyFrame, dimensions: list[tuple[str, ...]], release: Release
) -> None:
    """Raise a ParameterError unless segments can be cut by every column."""
    columns = release.columns
    reserved = (columns.unit, columns.arm, *columns.responses, *columns.debiased, MATCHED)
    offered = [name for name in rows.collect_schema().names() if name not in reserved]
    for name in (name for dimension in dimensions for name in dimension):
        if name not in offered:
            raise ParameterError(
                f"cannot cut by {name!r}; there are {', '.join(map(repr, offered))}"
            )


def _cut(table: pl.DataFrame, dimension: tuple[str, ...]) -> Iterator[tuple[Segment, pl.DataFrame]]:
    """Each segment of a dimension, in the order of its values, with the counts of its rows.

    Rows without a value in the dimension belong to no segment.
    """
    there = table.drop_nulls(list(dimension)).sort(dimension)
    parts = there.partition_by(dimension, as_dict=True, maintain_order=True)
    for key, group in parts.items():
        yield tuple(zip(dimension, key, strict=True)), group
