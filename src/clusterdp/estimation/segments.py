"""Segments: the analyst's own table, joined to released rows and cut by any of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation import moments as estimators
from clusterdp.published.row_counts import collect_rows, group_released, scan_units, to_counts
from clusterdp.rows.encoding import DEBIASED, RELEASED, plain_column
from clusterdp.rows.frames import read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from clusterdp.estimation.moments import CellMoments
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.release import Release

Segment = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedUnits:
    """Released rows with the analyst's columns beside them.

    Attributes:
        rows: The rows, as a Polars query.
        n_unmatched: Released units that the analyst's table does not have.
    """

    rows: pl.LazyFrame
    n_unmatched: int


def join_segments(release: Release, segments: Any, on: str | None) -> JoinedUnits:
    """Released rows joined to the analyst's table by unit id. The table stays with its owner.

    Args:
        release: The release.
        segments: The analyst's frame, of any library; None for kept columns alone.
        on: The column of ids in that frame; the release's own name by default.

    Raises:
        DataError: If the columns do not fit.
    """
    import polars as pl

    units = scan_units(release)
    if segments is None:
        return JoinedUnits(rows=units, n_unmatched=0)
    unit, key = release.columns.unit, on or release.columns.unit
    table = read_frame(segments).to_polars()
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
    rows = units.join(
        # An id too large for the release's type is nobody's there.
        table.lazy().with_columns(pl.col(unit).cast(ours, strict=False), matched).drop_nulls(unit),
        on=unit,
        how="left",
        maintain_order="left",
    )
    n_matched = collect_rows(rows.select(pl.col(_MATCHED).sum())).item()
    if n_matched == 0:
        raise DataError(f"no id of the segments table's {key!r} is in the release")
    return JoinedUnits(rows=rows, n_unmatched=release.layout.n_units - n_matched)


_MATCHED = "__clusterdp_matched"


def parse_dimensions(
    by: Sequence[str | Sequence[str]] | str | None, release: Release
) -> list[tuple[str, ...]]:
    """What to cut by: each entry a column, or several that are crossed (`"tier,region"`).

    A name that the release has itself is never split. Repeated entries count once.
    """
    if by is None:
        return []
    found: dict[tuple[str, ...], None] = {}
    for entry in [by] if isinstance(by, str) else by:
        if isinstance(entry, str):
            whole = entry in release.columns.public
            names = [entry] if whole else [name.strip() for name in entry.split(",")]
        elif isinstance(entry, list | tuple) and all(isinstance(name, str) for name in entry):
            names = list(entry)
        else:
            raise ParameterError(f"by takes names of columns, got {entry!r}")
        found[tuple(dict.fromkeys(names))] = None
    return list(found)


def check_dimensions(
    rows: pl.LazyFrame, dimensions: list[tuple[str, ...]], release: Release
) -> None:
    """Raise a ParameterError unless every dimension is a usable column."""
    names = rows.collect_schema().names()
    columns = release.columns
    reserved = (columns.unit, columns.arm, RELEASED, DEBIASED, _MATCHED)
    offered = [name for name in names if name not in reserved]
    for name in {name for dimension in dimensions for name in dimension}:
        if name not in offered:
            raise ParameterError(
                f"cannot cut by {name!r}; there are {', '.join(map(repr, offered))}"
            )


def segment_moments(
    joined: JoinedUnits, release: Release, dimension: tuple[str, ...]
) -> Iterator[tuple[Segment, CellMoments]]:
    """Each segment of a dimension, in sorted order, with its moments by cell.

    Rows without a value in the dimension belong to no segment.
    """
    assert release.channel is not None  # noqa: S101 - the caller has rows
    groups = group_released(joined.rows, release.columns, dimension).drop_nulls(list(dimension))
    for key, group in sorted(
        groups.partition_by(dimension, as_dict=True).items(), key=lambda item: _sort_key(item[0])
    ):
        counts = to_counts(group, release)
        yield (
            tuple(zip(dimension, key, strict=True)),
            estimators.row_moments(counts, release.channel),
        )


def empty_arms(moments: CellMoments, layout: Layout) -> list[Any]:
    """The arms that have no unit in a segment."""
    return [layout.arms[arm] for arm in np.flatnonzero(moments.sizes.sum(axis=0) == 0)]


def _sort_key(key: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((type(part).__name__, part) for part in key)
