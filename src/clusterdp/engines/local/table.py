"""The local engine: streaming passes over a Polars query, larger than memory, order kept.

A pass counts cells, randomizes rows, or both. Batches go to pure functions on several threads: each
is encoded once, and handed to all that need it. Safety checks look at the order of rows while they
are counted, and at passthrough columns while they are published; they only warn.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from clusterdp._named import column, columns, unnamed
from clusterdp._progress import no_progress
from clusterdp.engines.base import EngineTable, PassResult, refuse_repeated
from clusterdp.engines.cells import refuse_missing, to_layout, unplain
from clusterdp.errors import DataError, TableChangedError, raise_alone
from clusterdp.rows.column_types import (
    PLAIN,
    check_types,
    count_text_kinds,
    may_be_grouped,
    plain_type,
    text_columns,
)
from clusterdp.rows.earlier_ids import BatchIds
from clusterdp.rows.ids import IdCollector, in_order_of_ids, one_by_one, sorted_rows
from clusterdp.rows.keys import Fingerprint, id_hashes
from clusterdp.rows.leaks import KeptColumns, pairs_of, sampling_step
from clusterdp.rows.row_order import RowOrder
from clusterdp.rows.tally import Tally
from clusterdp.rows.value_codes import CellEncoder, look_for_unplain, plain_column
from clusterdp.spec.columns import COMMON
from clusterdp.storage.folder import UNITS, FileSum, SummedFile, private_file
from clusterdp.storage.parquet import HiddenFile, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl

    from clusterdp._arrays import WordArray
    from clusterdp._progress import RowsDone
    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import Pass
    from clusterdp.engines.cells import CellOptions
    from clusterdp.rows.earlier_ids import EarlierIds
    from clusterdp.rows.encoding import RowCodes
    from clusterdp.rows.randomizing import BatchRandomizer

# Where rows are sorted, within the private folder of a run.
_SORTING = ".sorting"
# Where they are until it is known of which table they are.
_HIDDEN = ".hidden"
# Rows whose ids are compared before a release does.
_SMALL_TABLE = 2**22
# Rows whose text is looked at for points between thousands.
_FIRST_ROWS = 2**16


# A name that no column of a user has.
_ROW = "__clusterdp_row"
# Just below what glibc lets decide how much memory it holds on to.
_LARGE_BYTES = 2**25 - 2**13
# Of numbers, about this many rows are looked at: more than enough for bins of some rows each.
_SAMPLED_NUMBERS = 2**19
# Values times classes of outcomes that are counted of other columns.
_MOST_COUNTED = 2**21
# Of many outcomes, several count as one: so many bins of each can be held.
_MOST_CLASSES = 2**9


class TablePass:
    """One pass over a local table.

    Attributes:
        asked: What is done with rows.
        tally: Counts them; None if nothing is counted.
        ids: The ids of all rows that are counted.
        batch_ids: The same, to be compared with those of earlier batches; None without any.
    """

    def __init__(
        self,
        asked: Pass,
        schema: pl.Schema,
        *,
        keep_order: bool,
        is_batch: bool = False,
        labels: tuple[str, ...] = (),
    ) -> None:
        import polars as pl

        self.asked, self._labels, self._read_later = asked, labels, Fingerprint()
        self._encoder, randomizer, n_rows = asked.encoder, asked.randomizer, asked.layout.n_units
        self.tally: Tally | None = None
        if asked.counts is not None:
            self.tally = Tally(asked.encoder, asked.layout, asked.counts)
            self._encoder = self.tally.encoder
        self.ids = IdCollector(n_rows)
        self.batch_ids = BatchIds() if is_batch else None
        self._order: RowOrder | None = None
        if not labels:  # an answer has no rows
            self._order = RowOrder(
                self._encoder.secret_columns,
                n_questions=len(self._encoder.questions),
                n_arms=len(asked.layout.arms),
                n_rows=n_rows,
                keep_order=keep_order,
            )
        step = sampling_step(n_rows, _SAMPLED_NUMBERS)
        looked_at = labels if randomizer is None else self._encoder.columns.kept
        kinds = {name: schema[name] for name in looked_at}
        pairs = pairs_of(self._encoder, kinds, _MOST_CLASSES, lambda _: step)
        self._kept = KeptColumns(pairs, self._encoder, _MOST_COUNTED)
        self._schema = pl.Schema() if randomizer is None else randomizer.response_schema(schema)
        self._lock = threading.Lock()

    @property
    def seen(self) -> Fingerprint:
        """What was read."""
        return self._read_later if self.tally is None else self.tally.seen

    def query(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The pass as a query, to be evaluated once; it gives randomized rows, in order.

        Rows are keyed by their ids, so another pass gives the same rows. Those of batches that
        cannot be used are left out: the pass that counts rejects the table.
        """
        import polars as pl

        _hold_on_to_memory()
        # Polars loads NumPy at the first array that it is given. Of two threads that do so at once,
        # one can fail.
        pl.Series(np.empty(0))
        read = self._encoder.columns
        names = (*read.counted, *read.ordering)
        if self.asked.randomizer is not None:
            counted = [one.column for one in self._encoder.covariates]
            names = (*read.public, *read.outcomes, *counted)
        numbered = rows.select(columns(dict.fromkeys(names))).with_row_index(_ROW)
        return numbered.map_batches(self._read, streamable=True, schema=self._schema)

    def _read(self, batch: pl.DataFrame) -> pl.DataFrame:
        coded, randomizer = self._encoder(batch, self.asked.keys), self.asked.randomizer
        first_row = int(batch[_ROW][0]) if len(batch) else 0
        if self.tally is not None:
            self._count(self.tally, first_row, batch, coded)
        else:
            self._note(coded)
        self._kept.add(first_row, batch, coded)
        self.asked.progress(len(batch))
        if randomizer is None or not coded.sound:
            return self._schema.to_frame()
        return randomizer.respond(batch, coded, self.asked.keys)

    def _count(self, tally: Tally, first_row: int, batch: pl.DataFrame, rows: RowCodes) -> None:
        """Count successive rows, and look at their ids and at their order."""
        self.ids.add(rows.units, rows.hashes)
        if self.batch_ids is not None:
            self.batch_ids.add(rows.units)
        if rows.sound and self._order is not None:
            public = [unnamed(batch[name]) for name in self._encoder.columns.ordering]
            secrets = self._encoder.secrets(batch, rows)
            self._order.add(first_row, rows, public, secrets)
        with self._lock:
            tally.add(rows, self.asked.keys)

    def _note(self, rows: RowCodes) -> None:
        """Note what is read, in a pass after the one that counted.

        Raises:
            TableChangedError: If it is not as it was when it was counted.
        """
        if not rows.sound:
            raise TableChangedError
        more = Fingerprint.from_words(rows.words())
        with self._lock:
            self._read_later += more

    def notices(self) -> tuple[str, ...]:
        """The warnings to the owner if what is published reveals outcomes, or private clusters."""
        revealing = (
            notice
            for pair, counter in self._kept.counters.items()
            for notice in pair.notices(
                self._encoder,
                pair.reveals(counter.groups()),
                is_label=pair.name in self._labels,
            )
        )
        of_order = () if self._order is None else self._order.notices()
        return (*of_order, *revealing)


def _hold_on_to_memory() -> None:
    """Let the arrays of one batch have the memory of those before.

    Else glibc gives it back to the system, and gets it again page by page, which takes a tenth of
    the time of a pass. How much it keeps follows from the largest array that was let go.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalTable(EngineTable):
    """A table on this machine that can be read twice.

    Attributes:
        rows: A query over files or a frame in memory; it must give the same rows each time.
        as_given: Turns what is published into a frame of the library that the table came from.
        texts: The same rows as they came, before text was read as numbers.
        stored: Removes the rows of a query, which are stored meanwhile.
        earlier: The ids of the batches that it continues.
    """

    writes_privately: ClassVar[bool] = True

    rows: pl.LazyFrame
    as_given: Callable[[pl.DataFrame], Any] = lambda published: published
    texts: pl.LazyFrame | None = None
    stored: ExitStack = field(default_factory=ExitStack)
    earlier: tuple[EarlierIds, ...] = ()

    def __post_init__(self) -> None:
        check_types(dict(self.rows.collect_schema()), self.columns)

    def read_cells(self, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of the table, and how to encode its rows: no other column is read."""
        return local_layout(self.rows, asked)

    def unplain_columns(self) -> list[str]:
        """Which passthrough columns are texts that cannot be shown everywhere; no other is read."""
        with source_errors():
            found = look_for_unplain(self.rows, self.columns.kept).collect(engine="streaming")
        return [column.name for column in found if column.any()]

    def close(self) -> None:
        """Remove what was stored of the table: true outcomes."""
        self.stored.close()

    def run(self, asked: Pass) -> PassResult:
        """Read every row once, batch by batch, on several threads."""
        reading = TablePass(
            asked,
            self.rows.collect_schema(),
            keep_order=self.keep_order,
            is_batch=bool(self.earlier),
            labels=self.labelled,
        )
        query, rows, files = reading.query(self.rows), None, {}
        if asked.randomizer is not None and asked.folder is not None:
            files[UNITS] = self._write(query, reading, asked.randomizer, Path(asked.folder))
        else:
            with source_errors():
                rows = query.collect(engine="streaming")
        clipped: tuple[str, ...] = ()
        if reading.tally is not None:
            if reading.batch_ids is not None:
                reading.batch_ids.refuse_repeated(self.earlier, self.columns.unit)
            count_repeated = partial(reading.ids.count_repeated, self._ids_with_hashes)
            clipped = self.check(asked, reading.tally, count_repeated) + self._grouped()
        return PassResult(
            seen=reading.seen,
            tally=reading.tally,
            rows=None if rows is None else self._published(rows, asked.randomizer),
            files=files,
            notices=(*clipped, *reading.notices()),
        )

    def apart_from(
        self, earlier: Sequence[EarlierIds], progress: RowsDone = no_progress
    ) -> LocalTable:
        """The same table, which is rejected now and whenever it is counted if it has earlier ids.

        A table can change between two passes: so each that counts compares what it reads itself.
        """
        own, ids = BatchIds(), self.rows.select(column(self.columns.unit))
        with source_errors():
            for batch in ids.collect_batches():
                own.add(batch.to_series())
        own.refuse_repeated(earlier, self.columns.unit, progress)
        return replace(self, earlier=tuple(earlier))

    def text_shapes(self) -> dict[str, list[int]]:
        """Of each outcome that is text, how many rows have each kind of text that is no number."""
        names = [] if self.texts is None else text_columns(self.texts, self.numeric)
        if self.texts is None or not names:
            return {}
        query = self.texts.select(count_text_kinds(names, self.notation))
        with source_errors():
            return {one.name: one[0].to_list() for one in query.collect(engine="streaming")}

    def _grouped(self) -> tuple[str, ...]:
        """The warnings to the owner that points may separate thousands; from the first rows."""
        names = [] if self.texts is None else text_columns(self.texts, self.numeric)
        if self.texts is None or not names or self.notation != PLAIN:
            return ()
        with source_errors():
            found = self.texts.head(_FIRST_ROWS).select(may_be_grouped(names)).collect()
        return tuple(
            f"points in {one.name!r} are read as decimals, and look like those between thousands, "
            "as in 1.000; if they are, publish with thousands='.', decimal=',' (--thousands . "
            "--decimal ,) instead"
            for one in found
            if one[0]
        )

    def _published(self, rows: pl.DataFrame, randomizer: BatchRandomizer | None) -> Any:
        """Randomized rows as a frame, in one chunk: chunks of the table can follow outcomes."""
        if randomizer is None:
            return None
        rows = rows.rechunk()
        if not self.keep_order:
            rows = sorted_rows(rows, self.columns.unit)
        return self.like(randomizer.complete(rows).rechunk())

    def _hidden(self, rows: pl.LazyFrame, path: Path, is_same: Callable[[], bool]) -> pl.LazyFrame:
        """The same rows, once all of them are there; nobody can read them before."""
        import polars as pl

        with HiddenFile(path) as file, source_errors():
            rows.sink_ipc(cast("IO[bytes]", file), compression="uncompressed")
            if not is_same():
                raise TableChangedError
            return pl.scan_ipc(file.reveal())

    def _write(
        self, rows: pl.LazyFrame, reading: TablePass, randomizer: BatchRandomizer, folder: Path
    ) -> FileSum:
        """What a pass gives into a file `units.parquet`, by ids unless its order is kept."""
        sorting, hidden, unit = folder / _SORTING, folder / _HIDDEN, self.columns.unit
        only = reading.asked.only
        if only is not None:
            rows = self._hidden(rows, hidden, lambda: reading.seen == only)
        schema = randomizer.schema(self.rows.collect_schema())
        if self.keep_order:
            rows = rows.map_batches(randomizer.complete, streamable=True, schema=schema)
        else:
            ids = self.rows.select(column(unit).cast(schema[unit]))
            with source_errors():
                in_order = in_order_of_ids(rows, ids, randomizer.n_units, sorting)
            rows = one_by_one(map(randomizer.complete, in_order), schema)
        written = write_parquet(rows, folder / UNITS)
        shutil.rmtree(sorting, ignore_errors=True)
        hidden.unlink(missing_ok=True)
        return written

    def like(self, published: pl.DataFrame) -> Any:
        """Another published table as a frame of the same library."""
        return self.as_given(published)

    def _ids_with_hashes(self, hashes: WordArray) -> pl.Series:
        import polars as pl

        wanted = pl.Series(hashes)

        def matching(batch: pl.DataFrame) -> pl.DataFrame:
            ids = plain_column(batch.to_series())
            return ids.filter(pl.Series(id_hashes(ids)).is_in(wanted.implode())).to_frame()

        query = self.rows.select(column(self.columns.unit))
        kind = plain_type(query.collect_schema()[self.columns.unit])
        schema = pl.Schema({self.columns.unit: kind})
        found = query.map_batches(matching, streamable=True, schema=schema)
        return found.collect(engine="streaming").to_series()


def local_layout(rows: pl.LazyFrame, asked: CellOptions) -> tuple[Layout, CellEncoder]:
    """What is public of a table: no other column is read."""
    import polars as pl

    # By position: a column may be called as the numbers are.
    short = {name: f"c{place}" for place, name in enumerate(asked.parts)}
    read = rows.select(column(name).alias(to) for name, to in short.items())
    if asked.several_rows:
        read = read.unique()
    size = pl.len() if asked.size is None else pl.col(short[asked.size]).sum()
    groups = read.group_by([short[name] for name in asked.groups])
    query = groups.agg(size=size.cast(pl.Int64), n_rows=pl.len())
    with source_errors():
        sizes = query.collect(engine="streaming")
    return to_layout(sizes, asked)


def check_public(rows: pl.LazyFrame, asked: CellOptions) -> None:
    """Raise a DataError unless what is kept can be shown, and each row has an id of its own.

    Rows that a unit has several of count once, if they are equal. Whether ids are repeated is found
    out of small tables alone.
    """
    unit = asked.columns.unit
    with source_errors():
        unseen = look_for_unplain(rows, asked.checked).collect(engine="streaming")
    for found in unseen:
        if found.any():
            raise unplain(found.name, "unit" if found.name == unit else "passthrough")
    if unit not in asked.checked:
        return
    several = asked.several_rows
    read = rows.select(columns(asked.parts | asked.checked if several else [unit]))
    read = read.unique() if several else read
    with source_errors():
        ids = unnamed(read.head(_SMALL_TABLE + 1).collect()[unit])
    refuse_missing(unit, "unit", ids.null_count())
    if len(ids) <= _SMALL_TABLE:
        refuse_repeated(len(ids) - ids.n_unique(), unit, {unit: COMMON} if several else {})


def write_parquet(rows: pl.LazyFrame, path: Path) -> FileSum:
    """Write a query to a new file that its owner alone can read."""
    with SummedFile(private_file(path)) as file, source_errors(file):
        write_table(rows, file)
    return file.sum()


@contextmanager
def source_errors(file: SummedFile | None = None) -> Iterator[None]:
    """Errors of reading a table, without the values that Polars quotes in them.

    Errors of writing are distinguished from them: of a file that is written, and of a full disk,
    where randomized rows are stored to be sorted.
    """
    import polars as pl

    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = str(error)
        if file is not None and file.error is not None:
            raise file.error from None
        if "No space left" in said or "os error 28" in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        column = re.search(r"at column '([^']*)'", said)
        where = f"column {column[1]!r}" if column else "the table"
        raise_alone(
            DataError(
                f"{where} has rows that differ in type from its first ones; the file may be "
                "damaged, or hold values of different types in one column"
            )
        )
