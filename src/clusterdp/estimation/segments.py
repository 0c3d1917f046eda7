"""Released rows reduced to counts: of all rows, and of segments by kept or joined columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.adjustment import check_covariates, with_covariates
from clusterdp.published.row_counts import (
    COUNT,
    collect_rows,
    count_released,
    count_together,
    scan_units,
    to_counts,
    to_whole_counts,
)
from clusterdp.rows.encoding import RESPONSE, plain_column
from clusterdp.rows.frames import read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.estimation.moments import CellMoments
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.release import Release

Segment = tuple[tuple[str, Any], ...]
# True for units that the analyst's table has; null for the others.
_MATCHED = "__clusterdp_matched"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The released rows, reduced in one pass to what an estimate needs.

    Attributes:
        whole: Counts of all rows; axes `[cluster, arm, response]`.
        segments: Every segment with the counts of its rows.
        n_unmatched: Released units that the analyst's table does not have.
        covariates: Rows whose covariates are all known; None if nothing is adjusted for.
    """

    whole: IntArray
    segments: tuple[tuple[Segment, IntArray], ...] = ()
    n_unmatched: int = 0
    covariates: pl.DataFrame | None = None


def read_rows(
    release: Release,
    table: Any,
    on: str | None,
    dimensions: list[tuple[str, ...]],
    covariates: tuple[str, ...],
) -> RowCounts:
    """Counts of the rows of a release. The rows are read once, however many segments there are.

    Args:
        release: A release of rows.
        table: The analyst's frame, of any library; None for kept columns alone.
        on: The column of ids in that frame; the release's own name by default.
        dimensions: The columns to cut by, see `parse_dimensions`.
        covariates: The columns to adjust for.

    Raises:
        DataError: If the analyst's table does not fit the release.
        ParameterError: If there is no such column to cut by or to adjust for.
    """
    if table is None and not dimensions and not covariates:
        return RowCounts(whole=count_released(release))
    rows = scan_units(release)
    flags: tuple[str, ...] = ()
    if table is not None:
        rows, flags = _join(rows, release, table, on), (_MATCHED,)
    _check_dimensions(rows, dimensions, release)
    if covariates:
        check_covariates(rows.collect_schema(), release, covariates)
        names = (*(name for dimension in dimensions for name in dimension), *flags, *covariates)
        public = (release.columns.cluster, release.columns.arm, RESPONSE)
        # A regression needs its rows in memory.
        rows = collect_rows(rows.select(dict.fromkeys((*public, *names)).keys())).lazy()
    # Counts by ("tier", "region") include those by ("tier",).
    finest = [one for one in dimensions if not any(set(one) < set(other) for other in dimensions)]
    tables = count_together(rows, release.columns, [(*one, *flags) for one in finest or [()]])
    n_matched = release.layout.n_units
    if table is not None:
        n_matched = int(tables[0].filter(_MATCHED)[COUNT].sum())
        if n_matched == 0:
            raise DataError(
                f"no id in column {on or release.columns.unit!r} of the segments table is in the "
                "release; check that both use the same ids"
            )
    segments: list[tuple[Segment, IntArray]] = []
    for dimension in dimensions:
        place = next(i for i, one in enumerate(finest) if set(dimension) <= set(one))
        segments += _counts(tables[place], release, dimension)
    return RowCounts(
        whole=to_whole_counts(tables[0], release),
        segments=tuple(segments),
        n_unmatched=release.layout.n_units - n_matched,
        covariates=with_covariates(rows, covariates) if covariates else None,
    )


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
    reserved = (columns.unit, columns.arm, RESPONSE, *columns.debiased, _MATCHED)
    offered = [name for name in rows.collect_schema().names() if name not in reserved]
    for name in (name for dimension in dimensions for name in dimension):
        if name not in offered:
            raise ParameterError(
                f"cannot cut by {name!r}; there are {', '.join(map(repr, offered))}"
            )


def _counts(
    groups: pl.DataFrame, release: Release, dimension: tuple[str, ...]
) -> Iterator[tuple[Segment, IntArray]]:
    """Each segment of a dimension, in sorted order, with its counts by cell and response.

    Rows without a value in the dimension belong to no segment.
    """
    parts = groups.drop_nulls(list(dimension)).partition_by(dimension, as_dict=True)
    for key, group in sorted(parts.items(), key=lambda item: _sort_key(item[0])):
        yield tuple(zip(dimension, key, strict=True)), to_counts(group, release)


def empty_arms(moments: CellMoments, layout: Layout) -> list[Any]:
    """The arms that have no unit in a segment."""
    return [layout.arms[arm] for arm in np.flatnonzero(moments.sizes.sum(axis=0) == 0)]


def _sort_key(key: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((type(part).__name__, part) for part in key)
