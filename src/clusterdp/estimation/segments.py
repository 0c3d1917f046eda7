"""Released rows reduced to counts: of all rows, and of segments by kept or joined columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.adjustment import check_covariates, with_covariates
from clusterdp.published.row_counts import (
    COUNT,
    Grouping,
    check_whole,
    collect_rows,
    count_released,
    count_together,
    scan_units,
)
from clusterdp.rows.encoding import RESPONSE, plain_column
from clusterdp.rows.frames import read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp.estimation.profiles import Counted, Profiles
    from clusterdp.estimation.profiling import ProfiledRows, Profiling
    from clusterdp.published.release import Release

Segment = tuple[tuple[str, Any], ...]
# True for units that the analyst's table has; null for the others.
_MATCHED = "__clusterdp_matched"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The released rows, reduced in one pass to what an estimate in one block needs.

    Attributes:
        profiles: What published sums distinguish.
        whole: Counts of all rows; of one fold alone if it is held out.
        segments: Every segment with the counts of its rows.
        n_unmatched: Released units that the analyst's table does not have.
        covariates: Rows whose covariates are all known, with columns `PROFILE` and `RESPONSE`;
            None if nothing is adjusted for.
    """

    profiles: Profiles
    whole: Counted
    segments: tuple[tuple[Segment, Counted], ...] = ()
    n_unmatched: int = 0
    covariates: pl.DataFrame | None = None


class Cuts(NamedTuple):
    """What rows are cut by, and what is known of them.

    Attributes:
        table: The analyst's frame, of any library; None for kept columns alone.
        on: The column of ids in that frame; the release's own name by default.
        dimensions: The columns to cut by, see `parse_dimensions`.
        covariates: The columns to adjust for.
    """

    table: Any
    on: str | None
    dimensions: list[tuple[str, ...]]
    covariates: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every column to cut by or to adjust for."""
        return (*(name for dimension in self.dimensions for name in dimension), *self.covariates)


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
    if cuts.table is None and not cuts.names:
        counted = count_released(release, profiling.names)
        return [
            RowCounts(profiles=found.profiles, whole=found.count(found.table))
            for found in map(profiling.of, counted)
        ]
    rows, public = scan_units(release), profiling.names
    flags: tuple[str, ...] = ()
    if cuts.table is not None:
        rows, flags = _join(rows, release, cuts.table, cuts.on), (_MATCHED,)
    _check_dimensions(rows, cuts.dimensions, release)
    if cuts.covariates:
        check_covariates(rows.collect_schema(), release, cuts.covariates)
        # A regression needs its rows in memory.
        names = dict.fromkeys((*public, *release.columns.responses, *cuts.names, *flags))
        rows = collect_rows(rows.select(names.keys())).lazy()
    # Counts by ("tier", "region") include those by ("tier",).
    every = cuts.dimensions
    finest = [one for one in every if not any(set(one) < set(other) for other in every)]
    several = [(*one, *flags, *public) for one in finest or [()]]
    groupings = [Grouping(one, of) for of in release.columns.responses for one in several]
    tables = iter(count_together(rows, groupings))
    by_block = [[next(tables) for _ in several] for _ in release.blocks]
    for block, counted in zip(release.blocks, by_block, strict=True):
        check_whole(counted[0], release, block)
    n_matched = release.layout.n_units
    if cuts.table is not None:
        n_matched = int(by_block[0][0].filter(_MATCHED)[COUNT].sum())
        if n_matched == 0:
            raise DataError(
                f"no id in column {cuts.on or release.columns.unit!r} of the segments table is in "
                "the release; check that both use the same ids"
            )
    known = with_covariates(rows, cuts.covariates) if cuts.covariates else None
    counts = []
    for counted, response in zip(by_block, release.columns.responses, strict=True):
        found = profiling.of(counted[0])
        profiled = [found.table, *map(found.add_profiles, counted[1:])]
        segments: list[tuple[Segment, Counted]] = []
        for dimension in every:
            place = next(i for i, one in enumerate(finest) if set(dimension) <= set(one))
            segments += _cut(profiled[place], found, dimension)
        covariates = None
        if known is not None:
            covariates = found.add_profiles(known.rename({response: RESPONSE}))
        made = RowCounts(
            profiles=found.profiles,
            whole=found.count(found.table),
            segments=tuple(segments),
            n_unmatched=release.layout.n_units - n_matched,
            covariates=covariates,
        )
        counts.append(made)
    return counts


def _join(units: pl.LazyFrame, release: Release, segments: Any, on: str | None) -> pl.LazyFrame:
    """Released rows joined to the analyst's table by unit id, with a column `_MATCHED`."""
    import polars as pl

    unit, key = release.columns.unit, on or release.columns.unit
    table = read_frame(segments, "segments").to_polars()
    if key not in table.columns:
        raise DataError(f"the segments table has no column {key!r} to join units on")
    if table[key].n_unique() < len(table):
        raise DataError(f"column {key!r} of the segments table repeats an id")
    if key != unit and unit in table.columns:
        raise DataError(
            f"the segments table has both {key!r} and {unit!r}; drop the one that is not the id"
        )
    table = table.rename({key: unit}).with_columns(plain_column(table[key]).alias(unit))
    clash = sorted((set(table.columns) & set(units.collect_schema().names())) - {unit})
    if clash:
        raise DataError(
            f"the segments table and the release both have a column {clash[0]!r}; rename or drop it"
        )
    ours, theirs = units.collect_schema()[unit], table.schema[unit]
    if not (theirs == pl.String or theirs.is_integer()) or (ours == pl.String) != (
        theirs == pl.String
    ):
        raise DataError(
            f"ids are {ours} in the release and {theirs} in the segments table; convert one"
        )
    matched = pl.lit(value=True).alias(_MATCHED)
    return units.join(
        # An id that does not fit the release's type becomes null, and no unit has it.
        table.lazy().with_columns(pl.col(unit).cast(ours, strict=False), matched).drop_nulls(unit),
        on=unit,
        how="left",
        maintain_order="left",
    )


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
    reserved = (columns.unit, columns.arm, *columns.responses, *columns.debiased, _MATCHED)
    offered = [name for name in rows.collect_schema().names() if name not in reserved]
    for name in (name for dimension in dimensions for name in dimension):
        if name not in offered:
            raise ParameterError(
                f"cannot cut by {name!r}; there are {', '.join(map(repr, offered))}"
            )


def _cut(
    table: pl.DataFrame, found: ProfiledRows, dimension: tuple[str, ...]
) -> Iterator[tuple[Segment, Counted]]:
    """Each segment of a dimension, in sorted order, with its counts by profile and response.

    Rows without a value in the dimension belong to no segment.
    """
    parts = table.drop_nulls(list(dimension)).partition_by(dimension, as_dict=True)
    for key, group in sorted(parts.items(), key=lambda item: _sort_key(item[0])):
        yield tuple(zip(dimension, key, strict=True)), found.count(group)


def _sort_key(key: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((type(part).__name__, part) for part in key)
