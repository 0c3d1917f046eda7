"""The local engine: two streaming passes over a Polars query, larger than memory, order kept.

Pass 1 counts cells; pass 2 randomizes rows. Both hand batches to pure functions on several threads.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.cells import Layout, default_control, find_arm
from clusterdp.encoding import (
    DEBIASED,
    RELEASED,
    TABLE_CHANGED,
    CellEncoder,
    Columns,
    Labels,
    check_types,
    encode_outcomes,
    plain_column,
)
from clusterdp.errors import DataError
from clusterdp.fingerprint import Fingerprint
from clusterdp.row_order import RowOrder
from clusterdp.telling import SAMPLE_ROWS, refuse_telling, tells
from clusterdp.unique_ids import IdCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from clusterdp.arrays import IntArray, WordArray
    from clusterdp.outcomes import OutcomeSpace
    from clusterdp.randomize import RowRandomizer


# A name that no column of a user has.
_ROW = "__clusterdp_row"


class Counted(NamedTuple):
    """What pass 1 found, for the owner's side of the pipeline alone.

    Attributes:
        counts: N[cluster, arm, outcome].
        n_clipped: How many outcomes were clipped.
        seen: What was read.
    """

    counts: IntArray
    n_clipped: int
    seen: Fingerprint


def no_progress(n_rows: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalTable:
    """A table that can be read twice, and the parts its columns play.

    Attributes:
        rows: A query over files or a frame in memory; it must give the same rows each time.
        columns: Which column plays which part.
        space: The declared outcome space.
        clip: Whether outcomes beyond the ends of the space count as the nearest end.
    """

    rows: pl.LazyFrame
    columns: Columns
    space: OutcomeSpace
    clip: bool

    def __post_init__(self) -> None:
        check_types(dict(self.rows.collect_schema()), self.columns)

    def read_layout(self, control: Any) -> tuple[Layout, CellEncoder]:
        """Clusters, arms and sizes, from these two columns alone; and how to encode them."""
        columns = self.columns
        return read_layout(self.rows, columns.cluster, columns.arm, self.space, control)

    def count(
        self,
        layout: Layout,
        encoder: CellEncoder,
        progress: Callable[[int], None] = no_progress,
    ) -> Counted:
        """Pass 1: check every row and count outcomes.

        Raises:
            DataError: If a value is missing or outside the space, an id comes twice, or the order
                of rows tells outcomes. The message counts rows and shows no value.
        """
        first = _FirstPass(self, layout, encoder)

        def count_batch(batch: pl.DataFrame) -> pl.DataFrame:
            if len(batch):
                first.add(batch)
            progress(len(batch))
            return batch.clear()

        columns = self.columns
        read = [columns.unit, columns.cluster, columns.arm, columns.outcome]
        numbered = self.rows.select(read).with_row_index(_ROW)
        with read_errors():
            numbered.map_batches(count_batch, streamable=True).collect(engine="streaming")
        return first.finish()

    def randomize(
        self,
        layout: Layout,
        encoder: CellEncoder,
        randomizer: RowRandomizer,
        seen: Fingerprint,
        progress: Callable[[int], None] = no_progress,
    ) -> pl.LazyFrame:
        """Pass 2: a query for the published rows, in the order of the table.

        Rows are keyed by their ids, so running the query again gives the same rows. What it read is
        added to `seen`, to be compared with what pass 1 saw.
        """
        import polars as pl

        columns = self.columns
        labels = pl.Series(columns.cluster, layout.clusters)

        def randomize_batch(batch: pl.DataFrame) -> pl.DataFrame:
            cells = encoder.encode(batch[columns.cluster], batch[columns.arm])
            encoded = encode_outcomes(batch[columns.outcome], self.space, clip=self.clip)
            units = plain_column(batch[columns.unit])
            if encoded.n_missing or encoded.n_outside or units.null_count():
                raise DataError(TABLE_CHANGED)
            seen.add(units, cells, encoded.codes)
            rows = randomizer(units, cells, encoded.codes)
            published = [plain_column(batch[name]) for name in columns.public]
            if encoder.pooled is not None:
                published[2] = labels.gather(cells // len(layout.arms))
            progress(len(batch))
            return pl.DataFrame(
                [
                    *published,
                    pl.Series(RELEASED, rows.released),
                    pl.Series(DEBIASED, rows.debiased),
                ]
            )

        empty = self.rows.select(columns.public).head(0).collect()
        published = {name: plain_column(empty[name]).dtype for name in columns.public}
        if encoder.pooled is not None:
            published[columns.cluster] = pl.String()
        whole = randomizer.values
        released = pl.Float64() if whole is None else pl.Series(whole).dtype
        published |= {RELEASED: released, DEBIASED: pl.Float64()}
        read = self.rows.select(*columns.public, columns.outcome)
        return read.map_batches(randomize_batch, streamable=True, schema=pl.Schema(published))

    def check_kept(self) -> None:
        """Raise a DataError if a kept column gives the outcome away."""
        columns = self.columns
        if not columns.kept:
            return
        with read_errors():
            sample = self.rows.select(*columns.kept, columns.outcome).head(SAMPLE_ROWS).collect()
        codes = encode_outcomes(sample[columns.outcome], self.space, clip=self.clip).codes
        for name in columns.kept:
            if tells(plain_column(sample[name]), codes):
                refuse_telling(name, columns.outcome)

    def _ids_with_hashes(self, hashes: WordArray) -> pl.Series:
        import polars as pl

        wanted = pl.Series(hashes)

        def matching(batch: pl.DataFrame) -> pl.DataFrame:
            ids = plain_column(batch.to_series())
            return ids.filter(ids.hash().is_in(wanted.implode())).to_frame()

        query = self.rows.select(pl.col(self.columns.unit).cast(pl.String))
        return query.map_batches(matching, streamable=True).collect(engine="streaming").to_series()

    def refuse_outside(self, n_outside: int) -> None:
        """Raise a DataError if outcomes lie outside the space."""
        if n_outside:
            remedy = "declare a space that holds them" + (
                "" if self.clip else ", or clip (clip=True, --clip)"
            )
            raise DataError(
                f"column {self.columns.outcome!r} (outcome) has {n_outside} rows outside the "
                f"outcome space of {self.space.n_outcomes} values; {remedy}"
            )

    def refuse_repeated(self, ids: IdCollector) -> None:
        """Raise a DataError if a unit has more than one row."""
        n_repeated = ids.count_repeated(self._ids_with_hashes)
        if n_repeated:
            raise DataError(
                f"column {self.columns.unit!r} (unit) repeats an id in {n_repeated} rows; privacy "
                "is promised per row, so each unit must have exactly one"
            )


class _FirstPass:
    """What pass 1 gathers, batch by batch and from several threads, and what it refuses."""

    def __init__(self, table: LocalTable, layout: Layout, encoder: CellEncoder) -> None:
        self._table, self._layout, self._encoder = table, layout, encoder
        shape = (*layout.sizes.shape, table.space.n_outcomes)
        self._counts = np.zeros(shape, dtype=np.int64)
        self._ids, self._seen = IdCollector(layout.n_units), Fingerprint()
        self._order = RowOrder(shape, layout.n_units)
        self._lock = threading.Lock()
        self._n_without_id = self._n_missing = self._n_outside = self._n_clipped = 0

    def add(self, batch: pl.DataFrame) -> None:
        """Take in some successive rows."""
        columns, space = self._table.columns, self._table.space
        cells = self._encoder.encode(batch[columns.cluster], batch[columns.arm])
        encoded = encode_outcomes(batch[columns.outcome], space, clip=self._table.clip)
        units = plain_column(batch[columns.unit])
        self._ids.add(units)
        with self._lock:
            self._n_without_id += units.null_count()
            self._n_missing += encoded.n_missing
            self._n_outside += encoded.n_outside
            self._n_clipped += encoded.n_clipped
        if encoded.n_missing or encoded.n_outside:
            return
        self._order.add(batch[_ROW].to_numpy()[0], cells, encoded.codes)
        self._seen.add(units, cells, encoded.codes)
        places = cells * space.n_outcomes + encoded.codes
        with self._lock:
            np.add.at(self._counts.reshape(-1), places, 1)

    def finish(self) -> Counted:
        """What was found, or a DataError that counts rows and shows no value."""
        table, columns = self._table, self._table.columns
        _refuse_missing(columns.unit, "unit", self._n_without_id)
        _refuse_missing(columns.outcome, "outcome", self._n_missing)
        table.refuse_outside(self._n_outside)
        table.refuse_repeated(self._ids)
        if not np.array_equal(self._counts.sum(axis=-1), self._layout.sizes):
            raise DataError(TABLE_CHANGED)
        self._order.check(self._counts)
        table.check_kept()
        return Counted(counts=self._counts, n_clipped=self._n_clipped, seen=self._seen)


def read_layout(  # noqa: PLR0913, PLR0917 - the parts of a layout
    rows: pl.LazyFrame,
    cluster: str,
    arm: str,
    space: OutcomeSpace,
    control: Any,
    size: str | None = None,
) -> tuple[Layout, CellEncoder]:
    """What is public of a table: no other column is read.

    Args:
        rows: The table, one row per unit; or one per cell, if `size` is given.
        cluster: The column of clusters.
        arm: The column of arms.
        space: The declared outcome space.
        control: The control arm; None for the default.
        size: The column that says how many units a row stands for.
    """
    import polars as pl

    counted = pl.len() if size is None else pl.col(size).sum()
    query = rows.group_by(cluster, arm).agg(size=counted.cast(pl.Int64), n_rows=pl.len())
    with read_errors():
        sizes = query.collect(engine="streaming")
    if size is not None and (sizes["n_rows"] > 1).any():
        raise DataError(
            f"with column {size!r} (size) the table must have one row per cluster and arm; "
            f"{int((sizes['n_rows'] > 1).sum())} cells have several"
        )
    if len(sizes) == 0:
        raise DataError("the table has no rows")
    for name, part in ((cluster, "cluster"), (arm, "arm")):
        gap = sizes[name].is_null()
        if sizes[name].dtype.is_float():
            gap = gap | sizes[name].is_nan()
        _refuse_missing(name, part, int(sizes["size"].filter(gap).sum()))
    clusters, arms = Labels.of(sizes[cluster]), Labels.of(sizes[arm])
    encoder = CellEncoder(clusters=clusters, arms=arms)
    table = np.zeros((len(clusters.values), len(arms.values)), dtype=np.int64)
    cells = encoder.encode(sizes[cluster], sizes[arm])
    np.add.at(table.reshape(-1), cells, sizes["size"].to_numpy())
    labels = tuple(arms.values)
    layout = Layout(
        clusters=tuple(clusters.values),
        arms=labels,
        control=default_control(labels) if control is None else find_arm(labels, control),
        sizes=table,
        space=space,
    )
    return layout, encoder


@contextmanager
def read_errors() -> Iterator[None]:
    """Errors of reading a table, without the values that Polars quotes in them."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> DataError:
    """What to say of a table that Polars could not read."""
    column = re.search(r"at column '([^']*)'", str(error))
    where = f"column {column[1]!r}" if column else "the table"
    return DataError(
        f"{where} cannot be read as what its first rows are; the file may be damaged, or hold "
        "values of different types in one column"
    )


def _refuse_missing(name: str, part: str, n_missing: int) -> None:
    if n_missing:
        raise DataError(
            f"column {name!r} ({part}) has {n_missing} missing values; every unit needs one"
        )
