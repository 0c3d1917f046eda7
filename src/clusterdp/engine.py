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
        import polars as pl

        columns = self.columns
        query = self.rows.group_by(columns.cluster, columns.arm).agg(size=pl.len())
        with read_errors():
            sizes = query.collect(engine="streaming")
        if len(sizes) == 0:
            raise DataError("the table has no rows")
        for name, part in ((columns.cluster, "cluster"), (columns.arm, "arm")):
            gap = sizes[name].is_null()
            if sizes[name].dtype.is_float():
                gap = gap | sizes[name].is_nan()
            _refuse_missing(name, part, int(sizes["size"].filter(gap).sum()))
        clusters, arms = Labels.of(sizes[columns.cluster]), Labels.of(sizes[columns.arm])
        encoder = CellEncoder(clusters=clusters, arms=arms)
        table = np.zeros((len(clusters.values), len(arms.values)), dtype=np.int64)
        cells = encoder.encode(sizes[columns.cluster], sizes[columns.arm])
        np.add.at(table.reshape(-1), cells, sizes["size"].to_numpy())
        labels = tuple(arms.values)
        layout = Layout(
            clusters=tuple(clusters.values),
            arms=labels,
            control=default_control(labels) if control is None else find_arm(labels, control),
            sizes=table,
            space=self.space,
        )
        return layout, encoder

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
        columns, lock = self.columns, threading.Lock()
        counts = np.zeros((*layout.sizes.shape, self.space.n_outcomes), dtype=np.int64)
        flat = counts.reshape(-1)
        ids = IdCollector(layout.n_units)
        order = RowOrder(counts.shape, layout.n_units)
        seen = Fingerprint()
        n_missing = n_outside = n_clipped = n_without_id = 0

        def count_batch(batch: pl.DataFrame) -> pl.DataFrame:
            nonlocal n_missing, n_outside, n_clipped, n_without_id
            if len(batch) == 0:
                return batch
            cells = encoder.encode(batch[columns.cluster], batch[columns.arm])
            encoded = encode_outcomes(batch[columns.outcome], self.space, clip=self.clip)
            units = plain_column(batch[columns.unit])
            ids.add(units)
            if not (encoded.n_missing or encoded.n_outside):
                order.add(int(batch[_ROW].first()), cells, encoded.codes)  # type: ignore[arg-type]
                seen.add(units, cells, encoded.codes)
            with lock:
                n_without_id += units.null_count()
                n_missing += encoded.n_missing
                n_outside += encoded.n_outside
                n_clipped += encoded.n_clipped
                if not (encoded.n_missing or encoded.n_outside):
                    np.add.at(flat, cells * counts.shape[2] + encoded.codes, 1)
                progress(len(batch))
            return batch.clear()

        read = [columns.unit, columns.cluster, columns.arm, columns.outcome]
        numbered = self.rows.select(read).with_row_index(_ROW)
        query = numbered.map_batches(count_batch, streamable=True)
        with read_errors():
            query.collect(engine="streaming")
        _refuse_missing(columns.unit, "unit", n_without_id)
        _refuse_missing(columns.outcome, "outcome", n_missing)
        self._refuse_outside(n_outside)
        self._refuse_repeated(ids.count_repeated(self._ids_with_hashes))
        if not np.array_equal(counts.sum(axis=-1), layout.sizes):
            raise DataError(TABLE_CHANGED)
        order.check(counts)
        self._check_kept()
        return Counted(counts=counts, n_clipped=n_clipped, seen=seen)

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
        released = pl.Series(self.space.as_released()).dtype
        published |= {RELEASED: released, DEBIASED: pl.Float64()}
        read = self.rows.select(*columns.public, columns.outcome)
        return read.map_batches(randomize_batch, streamable=True, schema=pl.Schema(published))

    def _check_kept(self) -> None:
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

    def _refuse_outside(self, n_outside: int) -> None:
        if n_outside:
            remedy = "declare a space that holds them" + (
                "" if self.clip else ", or clip (clip=True, --clip)"
            )
            raise DataError(
                f"column {self.columns.outcome!r} (outcome) has {n_outside} rows outside the "
                f"outcome space of {self.space.n_outcomes} values; {remedy}"
            )

    def _refuse_repeated(self, n_repeated: int) -> None:
        if n_repeated:
            raise DataError(
                f"column {self.columns.unit!r} (unit) repeats an id in {n_repeated} rows; privacy "
                "is promised per row, so each unit must have exactly one"
            )


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
