"""The pass over released rows: counted by everything that is asked for, and held if need be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.coded_rows import CodedRows, RowColumns
from clusterdp.estimation.covariates import check_covariates, is_number
from clusterdp.estimation.cuts import check_dimensions
from clusterdp.estimation.joining import MATCHED, check_joinable, join_table, joined_rows
from clusterdp.published.row_counts import Grouping, count_together, scan_units

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from clusterdp.estimation.cuts import Cuts
    from clusterdp.published.release import Release


class Passed(NamedTuple):
    """What the pass gave.

    Attributes:
        tables: Rows counted by the responses of each block, and by each of the finest dimensions.
        columns: What the codes of rows stand for.
        rows: The rows themselves, if anything is adjusted for.
        n_ids: How many ids the analyst's table has; None without one.
    """

    tables: list[list[pl.DataFrame]]
    columns: RowColumns
    rows: CodedRows | None
    n_ids: int | None


def pass_rows(
    release: Release, cuts: Cuts, public: tuple[str, ...], table: pl.DataFrame | None
) -> Passed:
    """Count rows, joined to the analyst's table if there is one.

    Args:
        release: The release.
        cuts: What to cut by and to adjust for.
        public: The columns to count by, whatever is cut.
        table: The analyst's table; see `read_table`.

    Raises:
        DataError: If the table does not fit the release.
        ParameterError: If there is no such column to cut by or to adjust for.
    """
    units = scan_units(release)
    schema = _check(units, release, cuts, table)
    flags = () if table is None else (MATCHED,)
    several = [(*one, *flags, *public) for one in cuts.finest]
    groupings = [Grouping(one, of) for of in release.columns.responses for one in several]
    wanted = _wanted_columns(schema, cuts, groupings)
    key = cuts.on or release.columns.unit
    joined = None if table is None else join_table(units, table, key, wanted)
    n_ids = None if joined is None else joined.n_ids
    batches: Iterable[CodedRows] = joined_rows(units, joined, wanted)
    rows = None
    if cuts.covariates:
        rows = CodedRows.concat(list(batches))
        batches = [rows]
    codes = (part for batch in batches for part in batch.parts())
    tables = iter(count_together(codes, wanted.codes, groupings))
    by_block = [[next(tables) for _ in several] for _ in release.blocks]
    return Passed(by_block, wanted, rows, n_ids)


def _check(
    units: pl.LazyFrame, release: Release, cuts: Cuts, table: pl.DataFrame | None
) -> pl.Schema:
    """The columns of rows with those of the analyst's table, which can be what is asked for."""
    import polars as pl

    schema = units.collect_schema()
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
