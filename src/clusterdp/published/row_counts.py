"""Released rows as counts by cell and response: all that estimators read of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import DataError, FormatError
from clusterdp.rows.encoding import RESPONSE, CellEncoder, Labels
from clusterdp.rows.frames import is_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.release import Release
    from clusterdp.rows.encoding import Columns


# A name that no column of a user has.
COUNT = "__clusterdp_count"
_BATCH_ROWS = 500_000


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


def count_released(release: Release) -> IntArray:
    """How often each response was released; axes `[cluster, arm, response]`.

    Raises:
        DataError: If the rows do not fill the cells.
    """
    if is_spark(release.units):
        from clusterdp.engines.spark.frame import count_groups  # only Spark can count its rows

        columns = release.columns
        groups = count_groups(release.units, [*columns.cell, RESPONSE], COUNT)
    else:
        groups = collect_rows(group_released(scan_units(release), release.columns))
    return to_whole_counts(groups, release)


def group_released(
    units: pl.LazyFrame, columns: Columns, dimensions: tuple[str, ...] = ()
) -> pl.LazyFrame:
    """Rows counted by some dimensions, cell and response, in a column `COUNT`."""
    import polars as pl

    by = dict.fromkeys((*dimensions, *columns.cell, RESPONSE))
    return units.group_by(*by).agg(pl.len().alias(COUNT))


def count_together(
    units: pl.LazyFrame, columns: Columns, dimensions: list[tuple[str, ...]]
) -> list[pl.DataFrame]:
    """Rows counted by each of some dimensions, see `group_released`, in one pass.

    Memory holds a batch of rows and the counts.

    Raises:
        FormatError: If the files of rows cannot be read.
    """
    import polars as pl

    if len(dimensions) == 1:
        return [collect_rows(group_released(units, columns, dimensions[0]))]
    names = [name for dimension in dimensions for name in dimension]
    read = units.select(dict.fromkeys((*names, *columns.cell, RESPONSE)).keys())
    counts = [group_released(read.clear(), columns, one).collect() for one in dimensions]
    with read_errors():
        for batch in read.collect_batches(chunk_size=_BATCH_ROWS, engine="streaming"):
            for place, one in enumerate(dimensions):
                more = group_released(batch.lazy(), columns, one).collect()
                both = pl.concat([counts[place], more])
                counts[place] = both.group_by(pl.exclude(COUNT)).agg(pl.col(COUNT).sum())
    return counts


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


def to_whole_counts(groups: pl.DataFrame, release: Release) -> IntArray:
    """Counts of a table of all rows, see `to_counts`.

    Raises:
        DataError: If the rows do not fill the cells.
    """
    counts = to_counts(groups, release)
    if not np.array_equal(counts.sum(axis=-1), release.layout.sizes):
        raise DataError("the rows are not as many as the cells of the release say")
    return counts


def to_counts(groups: pl.DataFrame, release: Release) -> IntArray:
    """Counts by cluster, arm and response; axes `[cluster, arm, response]`.

    Args:
        groups: Columns of cluster, arm, response, and `COUNT`. Rows with the same cell and
            response are added up.
        release: The release they are from.

    Raises:
        DataError: If the rows do not belong to the cells.
    """
    assert release.channel is not None  # noqa: S101 - there are rows
    layout, n_outputs = release.layout, release.channel.decode().shape[-1]
    counts = np.zeros((*layout.sizes.shape, n_outputs), dtype=np.int64)
    cells = released_cells(groups, release.columns, layout)
    responses = groups[RESPONSE].to_numpy()
    possible = release.channel.possible()[release.channel.groups.ravel()]  # [cell, response]
    inside = (responses >= 0) & (responses < n_outputs)
    if not (inside.all() and possible[cells, responses].all()):
        raise DataError("the rows hold responses that their channels do not have")
    np.add.at(counts.reshape(-1), cells * n_outputs + responses, groups[COUNT].to_numpy())
    return counts


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
