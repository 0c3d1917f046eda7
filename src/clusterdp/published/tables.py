"""The published table of cells: written, and read back as what it stands for.

The published table of totals: one row for each breakdown, group, fold and arm.

Tables that hold several questions: put together, and taken apart again.

With one question they are its table as it is. With several, rows begin with the question's name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._named import column, columns, unnamed
from clusterdp.cells.layout import EVERYONE
from clusterdp.errors import FormatError
from clusterdp.rows.column_types import holds_labels
from clusterdp.rows.value_codes import n_unplain
from clusterdp.spec.columns import FOLD, QUESTION, question_suffixes
from clusterdp.statistics.base import are_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.draw import Question, ReleasedQuestion, Statistics
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.rows.value_codes import CellEncoder
    from clusterdp.spec.columns import Columns


# How many units a cell has, and what one of them counts in totals.
SIZE, WEIGHT = "size", "weight"


def cells_table(
    encoder: CellEncoder, layout: Layout, questions: Sequence[ReleasedQuestion]
) -> pl.DataFrame:
    """The published table of cells; lists follow the order of the outcome space.

    Args:
        encoder: The labels of cells.
        layout: The cells.
        questions: What is published of each question; the columns of several end with their number.
    """
    import polars as pl

    n_clusters, n_arms = layout.sizes.shape
    published: list[pl.Series] = [
        encoder.arms.values[np.tile(np.arange(n_arms), n_clusters)],
        pl.Series(SIZE, layout.sizes.ravel()),
    ]
    if encoder.clusters is not None:
        clusters = encoder.clusters.values
        if encoder.pooled is not None:
            clusters = pl.Series(clusters.name, layout.clusters)
        published.insert(0, clusters[np.repeat(np.arange(n_clusters), n_arms)])
    totals = [one for one in questions[0].statistics if one.level is not None]
    if totals:  # the same for all questions
        published.append(pl.Series(WEIGHT, totals[0].sum_readings()[0].weights.ravel()))
    for question, ending in zip(questions, question_suffixes(len(questions)), strict=True):
        of_cells = [one for one in question.statistics if one.level is None]
        own = [values for one in of_cells for values in one.to_columns()]
        if question.channel is not None:
            own += question.channel.cell_columns()
        published += [one.alias(one.name + ending) for one in own]
    return pl.DataFrame(published)


def has_totals(mechanism: Mechanism) -> bool:
    """Whether a release has totals of groups, in a table of their own."""
    return any(one.level is not None for one in mechanism.statistics)


def cells_of_questions(
    cells: pl.DataFrame, columns: Columns, questions: Sequence[Question]
) -> list[pl.DataFrame]:
    """The table of cells as each question alone would have it.

    Args:
        cells: The published table.
        columns: The names of its labels.
        questions: What was published.

    Raises:
        FormatError: If it does not have the columns of such a release, or gaps in them.
    """
    import polars as pl

    labels = [*columns.cell, SIZE, *([WEIGHT] if has_totals(questions[0].mechanism) else [])]
    own = [list(_column_types(question)) for question in questions]
    endings = question_suffixes(len(questions))
    every = [name + end for names, end in zip(own, endings, strict=True) for name in names]
    names = [*labels, *every]
    if cells.columns != names:
        raise FormatError(f"the cells do not have the columns {', '.join(names)}")
    found = []
    for question, of_question, ending in zip(questions, own, endings, strict=True):
        renamed = [pl.col(name + ending).alias(name) for name in of_question]
        found.append(cells.select(*map(column, labels), *renamed))
        _check_question(found[-1], columns, question)
    return found


def _check_question(cells: pl.DataFrame, columns: Columns, question: Question) -> None:
    """Raise a FormatError unless the columns of a question hold what they should."""
    import polars as pl

    expected = _column_types(question)
    expected |= {name: pl.Int64() for name in (SIZE, WEIGHT) if name in cells.columns}
    sound = {name: cells.schema[name] == kind for name, kind in expected.items()}
    sound |= {name: holds_labels(cells.schema[name]) for name in columns.cell}
    of_cells = [one for one in question.mechanism.statistics if one.level is None]
    may_have_gaps = {name for one in of_cells for name in one.with_gaps}
    n_metrics, n_categories = question.space.metric_values().shape
    lengths = {"prior": (n_categories,), "decode": (n_metrics, n_categories)}
    for statistic in of_cells:
        lengths |= {name: (length,) for name, length in statistic.lengths(question.space).items()}
    for name, right_type in sound.items():
        gaps = name not in may_have_gaps and bool(cells[name].null_count())
        if not right_type or gaps or not are_whole(cells[name], lengths.get(name, ())):
            raise FormatError(f"column {name!r} of the cells has unexpected values")


def _column_types(question: Question) -> dict[str, pl.DataType]:
    """The columns of a question in a table of cells."""
    types: dict[str, pl.DataType] = {}
    for statistic in question.mechanism.statistics:
        if statistic.level is None:
            types |= statistic.column_types(question.space)
    if question.mechanism.releases_rows:
        types |= question.rows.column_types()
    return types


def read_labels(cells: pl.DataFrame, columns: Columns) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Clusters and arms of a table of cells, which has one row for each pair, in order."""
    import polars as pl

    names = columns.cell
    every = [unnamed(cells[name]).unique(maintain_order=True).alias(name) for name in names]
    for labels in every:
        if n_unplain(labels):
            raise FormatError(f"column {labels.name!r} of the cells has control characters")
        if labels.dtype != pl.String and not labels.is_sorted():
            raise FormatError(f"column {labels.name!r} of the cells is not in order")
    shape = tuple(map(len, every))
    if len(cells) != math.prod(shape) or not all(
        labels[codes.ravel()].equals(cells[labels.name])
        for labels, codes in zip(every, np.indices(shape), strict=True)
    ):
        raise FormatError("the cells are not one for every cluster and arm, in order")
    *clusters, arms = map(tuple, every)
    return clusters[0] if clusters else (EVERYONE,), arms


_BY, _GROUP = "by", "group"


def totals_table(arms: pl.Series, layout: Layout, statistics: Statistics) -> pl.DataFrame | None:
    """The totals among some statistics, in one table; None without totals.

    Args:
        arms: The labels of arms, in order, as a column.
        layout: The groups.
        statistics: What was drawn.
    """
    import polars as pl

    tables = [
        _groups(arms, layout, one.level).with_columns(one.to_columns())
        for one in statistics
        if one.level is not None
    ]
    return pl.concat(tables) if tables else None


def read_totals(
    table: pl.DataFrame, arms: pl.Series, question: Question, layout: Layout
) -> dict[tuple[str, ...] | None, pl.DataFrame]:
    """The rows of each breakdown, by its columns; none for everyone.

    Args:
        table: The published table.
        arms: The labels of arms, in order, as a column of the table of cells.
        question: What was published.
        layout: The groups.

    Raises:
        FormatError: If the table is not that of such a release.
    """
    import polars as pl

    space = question.space
    totals = [one for one in question.mechanism.statistics if one.level is not None]
    expected = pl.concat([_groups(arms, layout, one.level or ()) for one in totals])
    kinds, lengths = totals[0].column_types(space), totals[0].lengths(space)
    if table.columns != [*expected.columns, *kinds]:
        raise FormatError("the totals have unexpected columns")
    if not table.select(columns(expected.columns)).equals(expected):
        raise FormatError("the totals are not one for every group, fold and arm, in order")
    for name, kind in kinds.items():
        if table.schema[name] != kind or not are_whole(table[name], (lengths[name],)):
            raise FormatError(f"column {name!r} of the totals has unexpected values")
    found: dict[tuple[str, ...] | None, pl.DataFrame] = {}
    first = 0
    for one in totals:
        length = layout.n_groups(one.level or ()) * layout.folds * len(layout.arms)
        found[one.level or ()] = table.slice(first, length)
        first += length
    return found


def _groups(arms: pl.Series, layout: Layout, by: tuple[str, ...]) -> pl.DataFrame:
    """One row for each group, fold and arm of a breakdown, in this order."""
    import polars as pl

    shape = (layout.n_groups(by), layout.folds, len(layout.arms))
    group, fold, arm = (axis.ravel() for axis in np.indices(shape))
    labels = pl.Series(_GROUP, layout.group_names(by), dtype=pl.String)
    return pl.DataFrame(
        [
            pl.Series(_BY, [", ".join(by)] * len(group), dtype=pl.String),
            labels.gather(group),
            pl.Series(FOLD, fold, dtype=pl.Int32),
            arms[arm],
        ]
    )


def stacked(tables: Sequence[pl.DataFrame | None], names: tuple[str, ...]) -> pl.DataFrame | None:
    """The tables of all questions below each other; None if no question has one.

    Where there are several questions, the first column is the name of the question, and columns
    that a question does not have are empty in its rows.
    """
    import polars as pl

    if not names:
        return tables[0]
    named = [
        table.select(pl.lit(name).alias(QUESTION), pl.all())
        for name, table in zip(names, tables, strict=True)
        if table is not None
    ]
    return pl.concat(named, how="diagonal") if named else None


def unstacked(
    table: pl.DataFrame | None, present: Sequence[bool], names: tuple[str, ...]
) -> list[pl.DataFrame | None]:
    """The table of each question, from the table of all; None of a question that has none.

    Args:
        table: What was published; None if no question has a table.
        present: Whether each question has one.
        names: The names of questions; none where there is one.

    Raises:
        FormatError: If questions are missing, or not in order.
    """
    import polars as pl

    if table is None:
        return [None] * len(present)
    if not names:
        return [table]
    expected = [name for name, there in zip(names, present, strict=True) if there]
    if table.columns[:1] != [QUESTION] or table.schema[QUESTION] != pl.String():
        raise FormatError(f"a table of several questions does not begin with {QUESTION!r}")
    found = table[QUESTION].rle().struct.field("value").to_list()
    if found != expected:
        raise FormatError("a table of several questions does not match the manifest")
    tables = [
        table.filter(pl.col(QUESTION) == name).drop(QUESTION) if there else None
        for name, there in zip(names, present, strict=True)
    ]
    # Without the columns that are other questions' alone.
    own = [
        None if one is None else one.select(held for held in one if held.null_count() < len(one))
        for one in tables
    ]
    if {QUESTION, *(name for one in own if one is not None for name in one.columns)} != set(
        table.columns
    ):
        raise FormatError("a table of several questions has a column without a question")
    return own
