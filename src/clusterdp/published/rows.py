"""Released rows as counts by cell and response: all that estimators read of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._named import column, columns, unnamed
from clusterdp.errors import DataError, FormatError
from clusterdp.rows.frames import is_spark
from clusterdp.rows.value_codes import CellEncoder, ValueCodes
from clusterdp.spec.answers import NOT_ASKED
from clusterdp.spec.columns import QUESTION, RESPONSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.draw import ReleasedQuestion
    from clusterdp.published.release import Release
    from clusterdp.spec.columns import Columns


# A name that no column of a user has.
COUNT = "__clusterdp_count"


def scan_units(release: Release) -> pl.LazyFrame:
    """The released rows as a Polars query, from any library."""
    import narwhals as nw
    import polars as pl

    if isinstance(release.units, pl.LazyFrame):
        return release.units
    if is_spark(release.units):
        raise DataError(
            "the rows of this release are in Spark; to segment, join or adjust them, publish a "
            "folder (clusterdp release --engine spark) and read it with read_release"
        )
    units = nw.from_native(release.units).lazy().collect("polars")
    native: pl.DataFrame = units.to_native()
    return native.lazy()


def answer_columns(release: Release) -> tuple[str, ...]:
    """The columns that hold what a row answers: `question` where there are several, `response`."""
    return (RESPONSE,) if len(release.questions) == 1 else (QUESTION, RESPONSE)


def count_released(release: Release, more: tuple[str, ...] = ()) -> list[pl.DataFrame]:
    """Rows counted by cell, response and more columns, as each question reads them.

    See `by_question`; counts are in a column `COUNT`.

    Raises:
        DataError: If the rows do not fill the cells.
    """
    names = tuple(dict.fromkeys((*release.columns.cell, *more, *answer_columns(release))))
    if is_spark(release.units):
        from clusterdp.engines.spark.session import count_groups  # only Spark can count its rows

        counted = count_groups(release.units, [*names], COUNT)
    else:
        (counted,) = count_rows([scan_units(release)], [names])
    counts = by_question(counted, release)
    for question, groups in zip(release.questions, counts, strict=True):
        check_whole(groups, release, question)
    return counts


def by_question(counted: pl.DataFrame, release: Release) -> list[pl.DataFrame]:
    """Counted rows as each question reads them, without the column `question`.

    Rows of units that were asked another question have one more response, "not asked": the number
    of outputs that the question's channel has.

    Raises:
        DataError: If rows answer a question that there is not.
    """
    import polars as pl

    if len(release.questions) == 1:
        return [counted]
    asked = column(QUESTION).cast(pl.String)
    known = counted[QUESTION].cast(pl.String).is_in([one.name for one in release.questions])
    if not known.fill_null(value=False).all():
        raise DataError("the rows answer questions that the release does not have")
    by = columns([name for name in counted.columns if name not in (QUESTION, COUNT)])
    found = []
    for question in release.questions:
        silent = pl.lit(n_outputs(question), counted.schema[RESPONSE])
        told = pl.when(pl.col(RESPONSE) == silent).then(-1).otherwise(RESPONSE)  # there is no such
        response = pl.when(asked == question.name).then(told).otherwise(silent)
        read = counted.with_columns(response.cast(counted.schema[RESPONSE]).alias(RESPONSE))
        found.append(read.group_by(by, maintain_order=True).agg(pl.col(COUNT).sum()))
    return found


def n_outputs(question: ReleasedQuestion) -> int:
    """How many outputs its channel has; a response of this number means "not asked"."""
    assert question.channel is not None  # noqa: S101 - there are rows
    return int(question.channel.possible().shape[-1])


def count_rows(parts: Iterable[pl.LazyFrame], several: list[tuple[str, ...]]) -> list[pl.DataFrame]:
    """Rows counted by each of some lists of columns, in the order of their values.

    Counts are in a column `COUNT`; categories without an order become text. A part is read once,
    and memory holds what a query over it needs and the counts.

    Args:
        parts: Queries over rows, which are counted together.
        several: The columns to count by.

    Raises:
        FormatError: If the files of rows cannot be read.
    """
    import polars as pl

    n_rows, total = pl.len().cast(pl.Int64).alias(COUNT), pl.col(COUNT).sum()
    found = []
    for rows in parts:
        queries = [rows.group_by(columns(names)).agg(n_rows) for names in several]
        with released_row_errors():
            found.append(pl.collect_all(queries, engine="streaming"))
    tables = []
    for names, counts in zip(several, zip(*found, strict=True), strict=True):
        table = pl.concat(counts).group_by(columns(names)).agg(total)
        tables.append(with_text(table).sort(columns(names)))
    return tables


def with_text(table: pl.DataFrame) -> pl.DataFrame:
    """The same; categories without an order become text."""
    import polars as pl

    return table.with_columns(pl.selectors.categorical().cast(pl.String))


def collect_rows(query: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over released rows.

    Raises:
        FormatError: If their files cannot be read.
    """
    with released_row_errors():
        return query.collect(engine="streaming")


@contextmanager
def released_row_errors() -> Iterator[None]:
    """Errors of reading released rows, as a FormatError."""
    import polars as pl

    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise FormatError(
            f"the files of rows cannot be read ({type(error).__name__}); they are damaged"
        ) from None


def check_whole(groups: pl.DataFrame, release: Release, question: ReleasedQuestion) -> None:
    """Check counts of all rows, as a question reads them.

    Raises:
        DataError: If the rows do not fill the cells, or hold responses that they cannot have.
    """
    layout, channel = release.layout, question.answers
    cells = released_cells(groups, release.columns, layout)
    possible = channel.possible()
    responses = groups[RESPONSE].to_numpy()
    inside = (responses >= 0) & (responses < possible.shape[-1])
    if not (inside.all() and possible[channel.groups.ravel()[cells], responses].all()):
        raise DataError("the rows have responses that their randomizers do not have")
    counts = np.zeros(layout.sizes.size, dtype=np.int64)
    np.add.at(counts, cells, groups[COUNT].to_numpy())
    if not np.array_equal(counts, layout.sizes.ravel()):
        raise DataError("the number of rows does not match the cells")


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
        labels = ValueCodes.from_values(pl.Series(texts, dtype=pl.String))
        # Of an answer, units without a label are a group.
        codes += labels.encode(unnamed(rows[name]).cast(pl.String).fill_null(NOT_ASKED))
    return codes


def released_cells(rows: pl.DataFrame, columns: Columns, layout: Layout) -> IntArray:
    """The cell of each row, its place in a flat `[cluster, arm]` array."""
    import polars as pl

    def listed(name: str, labels: tuple[Any, ...]) -> ValueCodes:
        return ValueCodes.from_values(pl.Series(labels, dtype=rows[name].dtype))

    cluster, arm = columns.cluster, columns.arm
    encoder = CellEncoder(
        clusters=None if cluster is None else listed(cluster, layout.clusters),
        arms=listed(arm, layout.arms),
    )
    return encoder.encode(rows, cluster, arm)
