"""The analyst's own table, joined to released rows by the ids of units."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from clusterdp._named import column, columns, unnamed
from clusterdp._text import counted
from clusterdp.errors import DataError, did_you_mean, nearest_first
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.published.release import Release
from clusterdp.published.rows import scan_units
from clusterdp.rows.frames import column_names, evaluated, read_frame
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    import polars as pl


# True for units that the analyst's table has; null for the others.
MATCHED = "__clusterdp_matched"
# The columns of a join; no column of a user has such a name.
_ID, _WORD = "__clusterdp_id", "__clusterdp_word"
# So many ids are joined at once: a join needs several times the memory of what it joins.
_IDS_TOGETHER = 2**24


# What the analyst's table has: its ids; rows without an id; and rows that repeat another one.
TableNumbers = tuple[int, int, int]


def join_notes(
    table: str, size: TableNumbers, n_units: int, n_matched: int, n_nulls: dict[str, int]
) -> list[Note]:
    """What released rows and the analyst's table lack of each other.

    Args:
        table: What the table is called.
        size: What the table has. Rows without an id, and those that repeat others, are left out.
        n_units: Released units.
        n_matched: Units that are in both.
        n_nulls: Of the units in both, those without a value in a column.
    """
    n_ids, n_without, n_repeated = size
    unmatched = f"{n_units - n_matched:,} of {n_units:,} released ids are not in"
    texts = [
        (
            n_matched < n_units,
            f"{unmatched} {table}. They count overall and in no segment.",
        ),
        (
            n_matched < n_ids,
            f"{n_ids - n_matched:,} of {n_ids:,} ids of {table} are not in the release.",
        ),
        (n_without, f"{counted(n_without, 'row')} of {table} without an id: ignored."),
        (
            n_repeated,
            f"{counted(n_repeated, 'duplicate row')} of {table}: ignored.",
        ),
    ]
    texts += [
        (n, f"{n:,} ids of {table} have no {name}. They are in no segment by {name}.")
        for name, n in n_nulls.items()
    ]
    return [Note(text, Weight.SCOPE) for is_so, text in texts if is_so]


def read_table(
    release: Release, segments: Any, on: str | None, used: Collection[str]
) -> pl.DataFrame:
    """The columns of the analyst's table that are used, ids first and named as in the release.

    Ordered categories keep their order. Text becomes categories, which need a fraction of the
    memory, and which rows are counted by in a fraction of the time.

    Args:
        release: The release.
        segments: A frame of any library, or the path of a file.
        on: Its column of ids; that of the release by default.
        used: The columns to segment by and to adjust for, of either.

    Raises:
        DataError: If there is no such column of ids.
    """
    import polars as pl

    unit, key = release.columns.unit, on or release.columns.unit
    if isinstance(segments, str | os.PathLike):
        segments = open_segments(os.fspath(segments), key)
    there = column_names(segments, "segments")
    if key not in there:
        raise DataError(
            f"The segments table has no column {key!r} of ids.{did_you_mean(key, there)} Fix: name "
            f"it with on (--on). The table has {nearest_first(key, there)}."
        )
    if key != unit and unit in there:
        raise DataError(
            f"The segments table has both {key!r} and {unit!r}. Fix: drop the one that has no ids."
        )
    released = scan_units(release).collect_schema()
    known = {*there, *released, release.columns.true_cluster}
    # What neither has is refused after all columns are listed.
    others = set() if set(used) <= known else set(there) - set(released)
    names = [name for name in there if name in {key, *used, *others}]
    texts = (pl.selectors.string() - columns([key])).cast(pl.Categorical(pl.Categories.random()))
    if isinstance(segments, pl.LazyFrame):
        segments = evaluated(segments.select(columns(names)).with_columns(texts), "segments")
    table = _as_polars(segments, names).with_columns(texts)
    ids = plain_column(table[key]).alias(unit)
    if released[unit].is_integer():
        ids = _whole(ids)
    return table.drop(columns([key])).insert_column(0, ids)


def open_segments(source: str, key: str | None, query: str | None = None) -> pl.LazyFrame:
    """The analyst's table, where it is a file or in a database.

    Args:
        source: Its path or address.
        key: Its column of ids, if that was named.
        query: What to select from a database.
    """
    from clusterdp.sources.opening import open_unstored
    from clusterdp.sources.source import ColumnRequest, NamedSource

    return open_unstored(NamedSource(name=source, query=query), ColumnRequest(unit=key))


def _whole(ids: pl.Series) -> pl.Series:
    """Ids that pandas made floats of, because some are missing, as the integers that they are.

    In a text file, too, where they read 7.0.
    """
    import polars as pl

    if ids.dtype == pl.String:
        known = unnamed(ids).str.strip_chars()
        is_written = known.drop_nulls().str.contains(r"^-?\d{1,18}\.0$").all()
        whole = known.str.strip_suffix(".0").cast(pl.Int64, strict=False)
        return whole.alias(ids.name) if is_written else ids
    if not ids.dtype.is_float():
        return ids
    known = unnamed(ids).fill_nan(None)
    is_whole = (known.drop_nulls() == known.drop_nulls().round()).all()
    return known.cast(pl.Int64, strict=False).alias(ids.name) if is_whole else ids


def _as_polars(segments: Any, names: list[str]) -> pl.DataFrame:
    """Some columns of a frame of any library."""
    import narwhals as nw
    import polars as pl

    frame = read_frame(segments, "segments", names)[names]
    if frame.implementation.is_pandas():
        # Categories that are no text, such as intervals of `cut`, become text, and keep their
        # order. Other libraries have no such categories.
        native, texts = nw.to_native(frame), {}
        for name, kind in native.dtypes.items():
            if kind == "category" or str(kind).startswith("interval"):
                values = native[name] if kind == "category" else native[name].astype("category")
                ordered = values if kind == "category" else values.cat.as_ordered()
                texts[name] = ordered.cat.rename_categories(str)
        frame = nw.from_native(native.assign(**texts), eager_only=True)
    return frame.to_polars().with_columns(
        column(name).cast(pl.Enum(kind.categories))
        for name, kind in frame.schema.items()
        if isinstance(kind, nw.Enum)
    )


def check_joinable(units: pl.Schema, release: Release, table: pl.DataFrame) -> None:
    """Raise a DataError unless the analyst's table can be joined to released rows."""
    import polars as pl

    unit = release.columns.unit
    taken = {*units.names(), release.columns.true_cluster}
    clash = sorted(name for name in table.columns if name in taken and name != unit)
    if clash:
        raise DataError(
            f"The segments table and the release both have a column {clash[0]!r}. Fix: rename it."
        )
    ours, theirs = units[unit], table.schema[unit]
    if not (theirs == pl.String or theirs.is_integer()) or (ours == pl.String) != (
        theirs == pl.String
    ):
        raise DataError(
            f"Ids are {_in_words(ours)} in the release and {_in_words(theirs)} in the segments "
            "table. Fix: convert one: those of the segments table."
        )


def _in_words(kind: pl.DataType) -> str:
    """A type of ids as people call it."""
    import polars as pl

    if kind.is_numeric():
        return "whole numbers" if kind.is_integer() else "decimal numbers"
    return "text" if kind == pl.String else f"of type {kind}"


def join_table(
    units: pl.LazyFrame, table: pl.DataFrame, key: str
) -> tuple[list[pl.LazyFrame], TableNumbers]:
    """Released rows with the columns of the analyst's table and `MATCHED`.

    Args:
        units: Released rows.
        table: The table, see `read_table`.
        key: What its column of ids was called.

    Returns:
        Queries that together give every row once, each for a part of all ids; and what the table
        has.

    Raises:
        DataError: If the table repeats an id, with other values.
    """
    import polars as pl

    unit, kind = table.columns[0], units.collect_schema()[table.columns[0]]
    known = table.drop_nulls(columns([unit]))
    n_known, n_without = len(known), len(table) - len(known)
    # An id that does not fit the release's type becomes null, and no unit has it.
    ids = column(unit).cast(kind, strict=False)
    word = _telling_word(known.select(ids))
    if word is None:
        known = known.unique()
        word = _telling_word(known.select(ids))
    if word is None:
        raise DataError(
            f"Column {key!r} of the segments table has duplicate ids with different values. Fix: "
            "keep one row for each id."
        )
    rows, theirs = units.with_columns(word.alias(_WORD)), columns([*known.columns[1:], MATCHED])
    typed = known.lazy().with_columns(ids, pl.lit(value=True).alias(MATCHED))
    listed = typed.drop_nulls(columns([unit])).select(word.alias(_WORD), ids.alias(_ID), theirs)
    n_parts = math.ceil(len(known) / _IDS_TOGETHER)
    parts = [(rows, listed)]
    if n_parts > 1:
        every = [pl.col(_WORD).hash() % n_parts == part for part in range(n_parts)]
        parts = [(rows.filter(one), listed.filter(one)) for one in every]
    joined = [one.join(other, on=_WORD, how="left") for one, other in parts]
    if kind == pl.String:  # a unit that has the hash of another id is not in the table
        same = pl.when(column(unit) == pl.col(_ID)).then(theirs.as_expr())
        joined = [one.with_columns(same) for one in joined]
    return joined, (len(known), n_without, n_known - len(known))


def _telling_word(ids: pl.DataFrame) -> pl.Expr | None:
    """What ids are joined by, a word of each; None if one is repeated.

    Text is joined by a hash, in two thirds of the time.
    """
    import polars as pl

    known, word = ids.drop_nulls(), column(ids.columns[0])
    words = [_hash(word), word] if ids.dtypes == [pl.String] else [word]
    is_own = (known.select(one.n_unique()).item() == len(known) for one in words)
    return next((one for one, own in zip(words, is_own, strict=True) if own), None)


def _hash(word: pl.Expr) -> pl.Expr:
    return word.hash()
