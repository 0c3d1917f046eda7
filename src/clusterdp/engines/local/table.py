"""The local engine: two streaming passes over a Polars query, larger than memory, order kept.

Pass 1 counts cells; pass 2 randomizes rows. Both hand batches to pure functions on several threads.
"""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.engines.base import FirstPass, Table, WrittenRows, no_progress
from clusterdp.engines.cells import to_layout
from clusterdp.engines.local.kept_columns import revealing_columns
from clusterdp.errors import DataError, raise_alone
from clusterdp.rows.column_leak import leak_notice
from clusterdp.rows.column_types import check_types
from clusterdp.rows.counting import Tally
from clusterdp.rows.duplicate_ids import IdCollector
from clusterdp.rows.fingerprint import Fingerprint, SharedFingerprint
from clusterdp.rows.id_order import in_order_of_ids
from clusterdp.rows.labels import CellEncoder, plain_column
from clusterdp.rows.order_leak import RowOrder
from clusterdp.storage.files import UNITS, FileSum
from clusterdp.storage.folder import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from clusterdp._arrays import WordArray
    from clusterdp.engines.base import Counted, Progress
    from clusterdp.engines.cells import CellOptions
    from clusterdp.experiment.layout import Layout
    from clusterdp.rows.batches import BatchRandomizer, RowEncoder
    from clusterdp.rows.counting import RowCounter

# A name that no column of a user has.
_ROW = "__clusterdp_row"
# Half the time of the default level, for files a tenth larger.
_COMPRESSION_LEVEL = 1
# Row groups have a size of their own. Left to Polars, they would follow the batches of the input,
# and those can follow how many characters true outcomes are written with.
_ROWS_PER_GROUP = 2**18
# Where rows are sorted, within the private folder of a run.
_SORTING = ".sorting"


def _as_it_is(published: pl.DataFrame) -> pl.DataFrame:
    return published


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalTable(Table):
    """A table on this machine that can be read twice.

    Attributes:
        rows: A query over files or a frame in memory; it must give the same rows each time.
        as_given: Turns what is published into a frame of the library that the table came from.
    """

    rows: pl.LazyFrame
    as_given: Callable[[pl.DataFrame], Any] = _as_it_is

    def __post_init__(self) -> None:
        check_types(dict(self.rows.collect_schema()), self.columns)

    def read_cells(self, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of the table, and how to encode its rows: no other column is read."""
        return read_layout(self.rows, asked)

    @contextmanager
    def first_pass(
        self, counter: RowCounter, layout: Layout, progress: Progress
    ) -> Iterator[FirstPass]:
        """Read every row once, batch by batch, on several threads."""
        columns = self.columns
        first = _FirstPass(counter, layout)

        def count_batch(batch: pl.DataFrame) -> pl.DataFrame:
            if len(batch):
                first.add(batch)
            progress(len(batch))
            return batch.clear()

        def notices(counted: Counted) -> tuple[str, ...]:
            order = (
                one.notices(counts, keep_order=self.keep_order)
                for one, counts in zip(first.orders, counted.counts, strict=True)
            )
            said = dict.fromkeys(notice for of_block in order for notice in of_block)
            return (*said, *self._leak_notices(counter.encoder, layout))

        numbered = self.rows.select(columns.counted).with_row_index(_ROW)
        with read_errors():
            numbered.map_batches(count_batch, streamable=True).collect(engine="streaming")
        yield FirstPass(
            first.tally, lambda: first.ids.count_repeated(self._ids_with_hashes), notices
        )

    def randomize(
        self,
        randomizer: BatchRandomizer,
        seen: SharedFingerprint,
        progress: Progress = no_progress,
    ) -> pl.LazyFrame:
        """Pass 2: a query for the randomized rows, in the order of the table.

        Rows are keyed by their ids, so running the query again gives the same rows. What it read is
        added to `seen`, to be compared with what pass 1 saw.
        """
        columns = self.columns

        def randomize_batch(batch: pl.DataFrame) -> pl.DataFrame:
            randomized = randomizer(batch)
            seen.add(Fingerprint.of(randomized.words))
            progress(len(batch))
            return randomized.rows

        schema = randomizer.schema(self.rows.collect_schema())
        read = self.rows.select(*columns.public, *columns.outcomes)
        return read.map_batches(randomize_batch, streamable=True, schema=schema)

    def write_rows(
        self, randomizer: BatchRandomizer, folder: str, progress: Progress = no_progress
    ) -> WrittenRows:
        """Pass 2 into a file `units.parquet`, in the order of ids unless the table's is kept."""
        import polars as pl

        seen, path, sorting = SharedFingerprint(), Path(folder) / UNITS, Path(folder) / _SORTING
        rows = self.randomize(randomizer, seen, progress)
        if not self.keep_order:
            unit = self.columns.unit
            kind = rows.collect_schema()[unit]
            ids = self.rows.select(pl.col(unit).cast(kind))
            rows = in_order_of_ids(rows, ids, randomizer.n_units, sorting)
        write_parquet(rows, path)
        shutil.rmtree(sorting, ignore_errors=True)
        return WrittenRows(seen=seen.total, files={UNITS: FileSum.of(path)})

    def collect_rows(self, randomizer: BatchRandomizer) -> tuple[Any, Fingerprint]:
        """Pass 2 into memory, in one chunk: chunks of the table can follow true outcomes."""
        seen = SharedFingerprint()
        rows = self.randomize(randomizer, seen)
        if not self.keep_order:
            rows = rows.sort(self.columns.unit)
        return self.like(rows.collect(engine="streaming").rechunk()), seen.total

    def like(self, published: pl.DataFrame) -> Any:
        """Another published table as a frame of the same library."""
        return self.as_given(published)

    def _leak_notices(self, encoder: RowEncoder, layout: Layout) -> tuple[str, ...]:
        """Warnings to the owner about kept columns that reveal the outcomes."""
        with read_errors():
            found = revealing_columns(self.rows, encoder, layout.n_units)
        return tuple(leak_notice(name, outcomes) for name, outcomes in found)

    def _ids_with_hashes(self, hashes: WordArray) -> pl.Series:
        import polars as pl

        wanted = pl.Series(hashes)

        def matching(batch: pl.DataFrame) -> pl.DataFrame:
            ids = plain_column(batch.to_series())
            return ids.filter(ids.hash().is_in(wanted.implode())).to_frame()

        query = self.rows.select(pl.col(self.columns.unit).cast(pl.String))
        return query.map_batches(matching, streamable=True).collect(engine="streaming").to_series()


class _FirstPass:
    """What pass 1 gathers, batch by batch and from several threads."""

    def __init__(self, counter: RowCounter, layout: Layout) -> None:
        self._encode, self._lock = counter.encoder, threading.Lock()
        self.tally = Tally.empty(counter, layout.sizes.size)
        self.ids = IdCollector(layout.n_units)
        self.orders = [
            RowOrder((*layout.sizes.shape, block.n_categories), layout.n_units)
            for block in counter.blocks
        ]

    def add(self, batch: pl.DataFrame) -> None:
        """Take in some successive rows."""
        rows = self._encode(batch)
        self.ids.add(rows.units)
        if rows.sound:
            first_row = batch[_ROW].to_numpy()[0]
            for order, block in zip(self.orders, rows.blocks, strict=True):
                order.add(first_row, rows.units, rows.cells, block.categories)
        with self._lock:
            self.tally.add(rows)


def read_layout(rows: pl.LazyFrame, asked: CellOptions) -> tuple[Layout, CellEncoder]:
    """What is public of a table: no other column is read."""
    import polars as pl

    # By position: a column may be called as the numbers are.
    short = {name: f"c{place}" for place, name in enumerate(asked.parts)}
    read = rows.select(pl.col(name).alias(to) for name, to in short.items())
    if asked.unit is not None:
        read = read.unique()
    size = pl.len() if asked.size is None else pl.col(short[asked.size]).sum()
    groups = read.group_by([short[name] for name in asked.groups])
    query = groups.agg(size=size.cast(pl.Int64), n_rows=pl.len())
    with read_errors():
        sizes = query.collect(engine="streaming")
    return to_layout(sizes, asked)


def write_parquet(rows: pl.LazyFrame, path: Path) -> None:
    """Write a query to a new file that its owner alone can read."""
    rows.sink_parquet(
        private_file(path),
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        row_group_size=_ROWS_PER_GROUP,
        statistics=False,
    )


@contextmanager
def read_errors() -> Iterator[None]:
    """Errors of reading a table, without the values that Polars quotes in them."""
    import polars as pl

    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise_alone(unreadable(error))


def unreadable(error: BaseException) -> DataError:
    """The error for a table that Polars could not read."""
    column = re.search(r"at column '([^']*)'", str(error))
    where = f"column {column[1]!r}" if column else "the table"
    return DataError(
        f"{where} cannot be read as what its first rows are; the file may be damaged, or hold "
        "values of different types in one column"
    )
