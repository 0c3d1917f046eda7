"""The engine of this process: files, queries and frames; this machine's disks and object stores.

Polars crosses clusters from several columns, and makes one row of each unit's.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp._named import column, columns
from clusterdp.engines.cells import check_cell_columns, check_named, crossed_parts, possible_parts
from clusterdp.engines.local.table import LocalTable, check_public, local_layout
from clusterdp.errors import DataError, ParameterError
from clusterdp.rows.column_types import holds_outcomes, plain_type, texts_as_numbers, with_numbers
from clusterdp.rows.frames import check_given_back, column_names, frame_like, read_frame, to_polars
from clusterdp.sources.opening import open_source, open_unstored
from clusterdp.sources.source import NamedSource
from clusterdp.spec.answers import NOT_ASKED
from clusterdp.spec.columns import COMMON
from clusterdp.storage.folder import LocalFolder, has_scheme, scratch_folder
from clusterdp.storage.store import is_store
from clusterdp.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import TableOptions
    from clusterdp.engines.cells import CellOptions
    from clusterdp.rows.value_codes import CellEncoder
    from clusterdp.spec.columns import Aggregates


# The column of a join; no column of a user has such a name.
_ID = "__clusterdp_id"


def cross_columns(rows: pl.LazyFrame, name: str | None, secret: tuple[str, ...]) -> pl.LazyFrame:
    """Rows with a column `"a,b,c"` that crosses these columns, if no column has that name.

    Raises:
        DataError: If one of them is missing, or is among `secret`: ids and outcomes.
    """
    import polars as pl

    parts = crossed_parts(rows.collect_schema().names(), name, secret)
    if not parts or name is None:
        return rows
    return rows.with_columns(pl.concat_str(map(column, parts), separator=" | ").alias(name))


def join_labels(rows: pl.LazyFrame, labels: pl.DataFrame | None, unit: str) -> pl.LazyFrame:
    """Rows with labels by id, in place of columns of their names; units without are a group.

    Raises:
        DataError: If ids of the table and of the labels are of different kinds.
    """
    import polars as pl

    if labels is None or unit not in (schema := rows.collect_schema()):
        return rows  # that there are no ids is found later
    ids, *names = labels.columns
    kind = plain_type(schema[unit])
    if (kind == pl.String) != (labels.schema[ids] == pl.String):
        raise DataError(
            f"column {unit!r} (unit) is {kind}, and ids of the labels are {labels.schema[ids]}; "
            "give the table that was released"
        )
    own = [name for name in names if name in schema]
    kept = rows.drop(columns(own)) if own else rows
    theirs = labels.lazy().select(column(ids).cast(kind, strict=False).alias(_ID), columns(names))
    keyed = kept.with_columns(column(unit).cast(kind).alias(_ID))
    joined = keyed.join(theirs, on=_ID, how="left", maintain_order="left").drop(_ID)
    return joined.with_columns(columns(names).fill_null(NOT_ASKED))


def one_row_per_unit(
    rows: pl.LazyFrame, public: tuple[str, ...], aggregates: Aggregates
) -> pl.LazyFrame:
    """One row per combination of public columns, ids among them.

    A unit whose public columns differ from row to row has several, and is refused as a repeated id.

    Args:
        rows: The table.
        public: Ids and all other public columns that are read.
        aggregates: The rule of each outcome, and of a private cluster.
    """
    kinds = rows.collect_schema()
    made = [_one_value(column(name), rule, kinds[name]) for name, rule in aggregates.items()]
    return rows.group_by(columns(public)).agg(made)


def _one_value(values: pl.Expr, rule: str, kind: pl.DataType) -> pl.Expr:
    """What becomes of a unit's values."""
    import polars as pl

    if rule == COMMON:
        return pl.when(values.n_unique() == 1).then(values.first()).name.keep()
    # What holds no numbers is left as it is, to be refused as in every table.
    return _aggregated(values, rule) if holds_outcomes(kind) else values.first()


def _aggregated(values: pl.Expr, rule: str) -> pl.Expr:
    """A unit's outcome: missing if all its values are.

    Numbers are added in order of size, one after the other: a run that is resumed, and another
    engine, add up to the same bits.
    """
    import polars as pl

    there = values.cast(pl.Float64).fill_nan(None).drop_nulls()
    total = there.sort().cum_sum().last()
    made = {
        "sum": total,
        "mean": total / there.len(),
        "max": there.max(),
        # What is in no space stays so: a label that is neither of the two, say.
        "any": pl.when((there == math.inf).any())
        .then(math.inf)
        .otherwise((there != 0).any().cast(pl.Float64)),
    }[rule]
    return pl.when(there.len() > 0).then(made).name.keep()


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """This process, this machine's disks, and object stores.

    Attributes:
        stack: Closes the scratch folders when the release is done.
    """

    stack: ExitStack

    def place(self, out: str) -> LocalFolder | StoreFolder:
        """A folder to publish: a path is on this machine's disks, an address in its store."""
        if is_store(out):
            return StoreFolder.at(out)
        if has_scheme(out):
            raise ParameterError(
                f"{out} is in object storage that Spark reaches: give engine='spark' "
                "(--engine spark)"
            )
        return LocalFolder(Path(out))

    def table(self, source: Any, asked: TableOptions, out: str | None) -> LocalTable:
        """A source as a table."""
        if isinstance(source, NamedSource):
            stored = self.stack.enter_context(ExitStack())
            rows = self._open(source, asked, out, stored)
            rows = join_labels(rows, asked.joined, asked.columns.unit)
            asked = asked.with_parts(rows.collect_schema().names())
            one_each = _one_each(rows, asked)
            return LocalTable(rows=one_each, texts=rows, stored=stored, **asked.by_name())
        asked = asked.with_parts(column_names(source))
        columns = asked.columns
        parts = {name: part for name, part in columns.parts.items() if name not in asked.labelled}
        check_named(column_names(source), parts, columns.secret)
        read = read_frame(source)
        frame = to_polars(read, parts, asked.notation.decimal)
        public = {name: plain_type(frame.schema[name]) for name in columns.public if name in frame}
        check_given_back(read, source, public)
        rows = join_labels(frame.lazy(), asked.joined, columns.unit)
        return LocalTable(
            rows=_one_each(rows, asked),
            as_given=partial(frame_like, read, source),
            texts=rows,
            **asked.by_name(),
        )

    def _open(
        self, source: NamedSource, asked: TableOptions, out: str | None, stored: ExitStack
    ) -> pl.LazyFrame:
        columns = asked.columns
        if out is not None:
            scratch = scratch_folder(self.place(out).working)
            return open_source(source, asked.wanted, lambda: stored.enter_context(scratch))
        # What will not be published is not stored either, and outcomes are not even read.
        read = {*columns.counted, *possible_parts(columns.cluster)}
        hidden = (*columns.secret, *(name for name in columns.kept if name not in read))
        return open_unstored(source, asked.wanted, columns.secrets if asked.aggregates else hidden)

    def read_cells(self, source: Any, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of a source; other columns that are public are checked."""
        if isinstance(source, NamedSource):
            rows = open_unstored(source, asked.wanted)
            check_named(rows.collect_schema().names(), asked.needed, asked.columns.secret)
        else:
            names = column_names(source)
            check_named(names, asked.needed, asked.columns.secret)
            read = [*asked.parts, *asked.checked, *possible_parts(asked.cluster)]
            needed = dict.fromkeys((name for name in read if name in names), "cell")
            rows = to_polars(read_frame(source, names=needed), needed).lazy()
        rows = cross_columns(rows, asked.cluster, asked.columns.secret)
        check_cell_columns(rows.collect_schema(), asked)
        check_public(rows, asked)
        return local_layout(rows.select(columns(asked.parts)), asked)


def _one_each(rows: pl.LazyFrame, asked: TableOptions) -> pl.LazyFrame:
    """One row per unit, with crossed columns."""
    columns = asked.columns
    rows = texts_as_numbers(with_numbers(rows, asked.labels), asked.numeric, asked.notation)
    if asked.aggregates:
        names = rows.collect_schema().names()
        check_named(names, columns.parts, columns.secret)
        public = tuple(name for name in columns.shown if name in names)
        rows = one_row_per_unit(rows, public, asked.rules)
    return cross_columns(rows, columns.cluster, columns.secret)
