"""The pass over released rows: counted by everything that is asked for, and held if need be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.coded_rows import CodedRows, RowColumns
from clusterdp.estimation.covariates import check_covariates, is_number
from clusterdp.estimation.cuts import check_dimensions
from clusterdp.estimation.joining import (
    MATCHED,
    check_joinable,
    join_table,
    joined_rows,
    read_table,
)
from clusterdp.published.row_counts import Grouping, count_together, scan_units

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from clusterdp.estimation.cuts import Cuts
    from clusterdp.estimation.joining import JoinedTable, TableSize
    from clusterdp.published.release import Release


class Passed(NamedTuple):
    """What the pass gave.

    Attributes:
        tables: Rows counted by the responses of each block, and by each of the finest dimensions.
        columns: What the codes of rows stand for.
        rows: The rows themselves, if anything is adjusted for.
        size: What the analyst's table has; None without one.
    """

    tables: list[list[pl.DataFrame]]
    columns: RowColumns
    rows: CodedRows | None
    size: TableSize | None


def pass_rows(release: Release, cuts: Cuts, public: tuple[str, ...]) -> Passed:
    """Count rows, joined to the analyst's table if there is one.

    Args:
        release: The release.
        cuts: What to cut by and to adjust for.
        public: The columns to count by, whatever is cut.

    Raises:
        DataError: If the analyst's table does not fit the release.
        ParameterError: If there is no such column to cut by or to adjust for.
    """
    flags = () if cuts.table is None else (MATCHED,)
    several = [(*one, *flags, *public) for one in cuts.finest]
    groupings = [Grouping(one, of) for of in release.columns.responses for one in several]
    source = _open(release, cuts, groupings)
    batches: Iterable[CodedRows] = joined_rows(source.units, source.joined, source.wanted)
    size = None if source.joined is None else source.joined.size
    wanted, rows = source.wanted, None
    if cuts.covariates:
        # A regression reads rows several times. What they were joined to is let go.
        rows = CodedRows.concat(list(batches))
        batches = [rows]
        del source
    codes = (part for batch in batches for part in batch.parts())
    tables = iter(count_together(codes, wanted.codes, groupings))
    by_block = [[next(tables) for _ in several] for _ in release.blocks]
    return Passed(by_block, wanted, rows, size)


class _Source(NamedTuple):
    """Rows, the analyst's table joined to them if there is one, and the columns to read."""

    units: pl.LazyFrame
    joined: JoinedTable | None
    wanted: RowColumns


def _open(release: Release, cuts: Cuts, groupings: list[Grouping]) -> _Source:
    """Rows and the analyst's table, which is read and checked. Its frame is let go."""
    units = scan_units(release)
    table = None if cuts.table is None else read_table(release, cuts.table, cuts.on, cuts.used)
    schema = _check(units.collect_schema(), release, cuts, table)
    wanted = _wanted_columns(schema, cuts, groupings)
    if table is None:
        return _Source(units, None, wanted)
    return _Source(units, join_table(units, table, cuts.on or release.columns.unit, wanted), wanted)


def _check(
    schema: pl.Schema, release: Release, cuts: Cuts, table: pl.DataFrame | None
) -> pl.Schema:
    """The columns of rows with those of the analyst's table, which can be what is asked for."""
    import polars as pl

    if cuts.exposure is not None:
        cuts.exposure.check(release, () if table is None else table.columns)
    if table is not None:
        check_joinable(schema, release, table)
        schema = pl.Schema({**table.schema, **schema, MATCHED: pl.Boolean()})
    check_dimensions(schema, cuts.known, release)
    check_covariates(schema, release, cuts.covariates)
    return schema


def _wanted_columns(schema: pl.Schema, cuts: Cuts, groupings: list[Grouping]) -> RowColumns:
    """What is read of rows: codes of what they are counted by and of categories, and numbers."""
    numbers = [name for name in cuts.covariates if is_number(schema[name])]
    categories = [name for name in cuts.covariates if name not in numbers]
    counted = [name for one in groupings for name in (*one.names, one.response)]
    return RowColumns.of(schema, dict.fromkeys((*counted, *categories)), numbers)
