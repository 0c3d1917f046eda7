"""The engine of this process: files, queries and frames; this machine's disks and object stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp._named import columns
from clusterdp.engines.cells import check_size_column
from clusterdp.engines.local.aggregation import one_row_per_unit
from clusterdp.engines.local.crossing import cross_columns
from clusterdp.engines.local.sources.opening import open_source, open_unstored
from clusterdp.engines.local.table import LocalTable, read_layout
from clusterdp.engines.named_source import NamedSource
from clusterdp.engines.source_names import check_named, possible_parts
from clusterdp.errors import ParameterError
from clusterdp.rows.column_types import plain_type
from clusterdp.rows.frames import check_given_back, column_names, frame_like, read_frame, to_polars
from clusterdp.rows.labelled import with_numbers
from clusterdp.rows.written_numbers import texts_as_numbers
from clusterdp.storage.access import is_store
from clusterdp.storage.folder import LocalFolder, scratch_folder
from clusterdp.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    from contextlib import ExitStack

    import polars as pl

    from clusterdp.engines.base import TableOptions
    from clusterdp.engines.cells import CellOptions
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.labels import CellEncoder


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
        if "://" in out:
            raise ParameterError(
                f"{out} is on a store that Spark reaches: give engine='spark' (--engine spark)"
            )
        return LocalFolder(Path(out))

    def table(self, source: Any, asked: TableOptions, out: str | None) -> LocalTable:
        """A source as a table."""
        if isinstance(source, NamedSource):
            rows = self._open(source, asked, out)
            asked = asked.with_parts(rows.collect_schema().names())
            return LocalTable(rows=_one_each(rows, asked), texts=rows, **asked.by_name())
        asked = asked.with_parts(column_names(source))
        columns = asked.columns
        check_named(column_names(source), columns.parts, columns.secret)
        read = read_frame(source)
        frame = to_polars(read, columns.parts, asked.notation.decimal)
        public = {name: plain_type(frame.schema[name]) for name in columns.public if name in frame}
        check_given_back(read, source, public)
        return LocalTable(
            rows=_one_each(frame.lazy(), asked),
            as_given=partial(frame_like, read, source),
            texts=frame.lazy(),
            **asked.by_name(),
        )

    def _open(self, source: NamedSource, asked: TableOptions, out: str | None) -> pl.LazyFrame:
        columns = asked.columns
        if out is not None:
            scratch = scratch_folder(self.place(out).working)
            return open_source(source, asked.wanted, lambda: self.stack.enter_context(scratch))
        # What will not be published is not stored either, and outcomes are not even read.
        read = {*columns.counted, *possible_parts(columns.cluster)}
        hidden = (*columns.secret, *(name for name in columns.kept if name not in read))
        return open_unstored(source, asked.wanted, columns.secrets if asked.aggregates else hidden)

    def read_cells(self, source: Any, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of a source: no other column is read."""
        needed = dict.fromkeys([*asked.parts, *possible_parts(asked.cluster)], "cell")
        if isinstance(source, NamedSource):
            rows = open_unstored(source, asked.wanted)
            check_named(rows.collect_schema().names(), asked.parts, asked.secret)
        else:
            check_named(column_names(source), asked.parts, asked.secret)
            rows = to_polars(read_frame(source, names=needed), needed).lazy()
        rows = cross_columns(rows, asked.cluster, asked.secret)
        check_size_column(rows.collect_schema(), asked)
        return read_layout(rows.select(columns(asked.parts)), asked)


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
