"""Released rows as counts by cell and response: all that estimators read of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._named import columns
from clusterdp.errors import DataError, FormatError
from clusterdp.published.column_codes import ColumnCodes
from clusterdp.published.grouped_counts import GroupedCounts
from clusterdp.rows.columns import RESPONSE
from clusterdp.rows.frames import is_spark
from clusterdp.rows.labels import CellEncoder, Labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.release import Block, Release
    from clusterdp.rows.columns import Columns


# A name that no column of a user has.
COUNT = "__clusterdp_count"
_BATCH_ROWS = 2**18


def scan_units(release: Release) -> pl.LazyFrame:
    """The released rows as a Polars query, whatever library they came in."""
    import narwhals as nw
    import polars as pl

    if isinstance(release.units, pl.LazyFrame):
        return release.units
    if is_spark(release.units):
        raise DataError(
            "the rows of this release are in Spark; to cut, join or adjust them, publish a folder "
            "(clusterdp release --engine spark) and read it with read_release"
        )
    units = nw.from_native(release.units).lazy().collect("polars")
    native: pl.DataFrame = units.to_native()
    return native.lazy()


class Grouping(NamedTuple):
    """What rows are counted by.

    Attributes:
        names: Some columns.
        response: The column of a block's responses.
    """

    names: tuple[str, ...]
    response: str


def count_released(release: Release, more: tuple[str, ...] = ()) -> list[pl.DataFrame]:
    """Rows counted by cell, response and more columns, block by block; see `count_together`.

    Raises:
        DataError: If the rows do not fill the cells.
    """
    names = tuple(dict.fromkeys((*release.columns.cell, *more)))
    several = [Grouping(names, response) for response in release.columns.responses]
    if is_spark(release.units):
        from clusterdp.engines.spark.frame import count_groups  # only Spark can count its rows

        counts = [
            count_groups(release.units, [*dict.fromkeys((*names, one.response))], COUNT).rename(
                {one.response: RESPONSE}
            )
            for one in several
        ]
    else:
        counts = _count_units(scan_units(release), several)
    for block, groups in zip(release.blocks, counts, strict=True):
        check_whole(groups, release, block)
    return counts


def _count_units(units: pl.LazyFrame, several: list[Grouping]) -> list[pl.DataFrame]:
    """Rows counted by their own columns."""
    names = dict.fromkeys(name for one in several for name in (*one.names, one.response))
    kinds = units.select(columns(names)).collect_schema()
    codes = {name: ColumnCodes(kind) for name, kind in kinds.items()}
    typed = units.select(one.typed(name) for name, one in codes.items())
    batches = (
        {name: one.encode(batch[name]) for name, one in codes.items()}
        for batch in read_batches(typed)
    )
    return count_together(batches, codes, several)


def count_together(
    batches: Iterable[Mapping[str, CodeArray]],
    columns: Mapping[str, ColumnCodes],
    several: list[Grouping],
) -> list[pl.DataFrame]:
    """Rows counted in each of some ways, in one pass, with responses in a column `RESPONSE`.

    Counts are in a column `COUNT`. Memory holds a batch of rows and the counts.

    Args:
        batches: The codes of rows, column by column; as `ColumnCodes` gives them.
        columns: What codes stand for.
        several: What to count by.

    Raises:
        FormatError: If the files of rows cannot be read.
    """
    lists = [tuple(dict.fromkeys((*one.names, one.response))) for one in several]
    tallies = [GroupedCounts(one, columns, COUNT) for one in lists]
    for codes in batches:
        for tally in tallies:
            tally.add(codes)
    pairs = zip(tallies, several, strict=True)
    return [tally.table().rename({one.response: RESPONSE}) for tally, one in pairs]


def read_batches(query: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Run a query over released rows, batch by batch and in their order.

    Raises:
        FormatError: If their files cannot be read.
    """
    with read_errors():
        yield from query.collect_batches(
            chunk_size=_BATCH_ROWS, engine="streaming", maintain_order=True
        )


def collect_rows(query: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over released rows.

    Raises:
        FormatError: If their files cannot be read.
    """
    with read_errors():
        return query.collect(engine="streaming")


@contextmanager
def read_errors() -> Iterator[None]:
    """Errors of reading released rows, as a FormatError."""
    import polars as pl

    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise FormatError(
            f"the files of rows cannot be read ({type(error).__name__}); they are damaged"
        ) from None


def check_whole(groups: pl.DataFrame, release: Release, block: Block) -> None:
    """Check counts of all rows by the responses of a block.

    Raises:
        DataError: If the rows do not fill the cells, or hold responses that they cannot have.
    """
    assert block.channel is not None  # noqa: S101 - there are rows
    layout, channel = release.layout, block.channel
    cells = released_cells(groups, release.columns, layout)
    possible = channel.possible()
    responses = groups[RESPONSE].to_numpy()
    inside = (responses >= 0) & (responses < possible.shape[-1])
    if not (inside.all() and possible[channel.groups.ravel()[cells], responses].all()):
        raise DataError("the rows hold responses that their channels do not have")
    counts = np.zeros(layout.sizes.size, dtype=np.int64)
    np.add.at(counts, cells, groups[COUNT].to_numpy())
    if not np.array_equal(counts, layout.sizes.ravel()):
        raise DataError("the rows are not as many as the cells of the release say")


def released_groups(rows: pl.DataFrame, by: tuple[str, ...], layout: Layout) -> IntArray:
    """The group of each row in a breakdown, in the order of `Breakdown.groups`.

    Raises:
        DataError: If a row has a value that no group has.
    """
    import polars as pl

    (breakdown,) = (one for one in layout.breakdowns if one.columns == by)
    codes = np.zeros(len(rows), dtype=np.int64)
    for name, texts in zip(by, breakdown.labels, strict=True):
        codes *= len(texts)
        labels = Labels.listed(pl.Series(texts, dtype=pl.String))
        codes += labels.encode(rows[name].cast(pl.String))
    return codes


def released_cells(rows: pl.DataFrame, columns: Columns, layout: Layout) -> IntArray:
    """The cell of each row, its place in a flat `[cluster, arm]` array."""
    import polars as pl

    def listed(name: str, labels: tuple[Any, ...]) -> Labels:
        return Labels.listed(pl.Series(labels, dtype=rows[name].dtype))

    cluster, arm = columns.cluster, columns.arm
    encoder = CellEncoder(
        clusters=None if cluster is None else listed(cluster, layout.clusters),
        arms=listed(arm, layout.arms),
    )
    return encoder.encode(rows, cluster, arm)
