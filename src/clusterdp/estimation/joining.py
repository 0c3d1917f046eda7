"""The analyst's own table, joined to released rows by the ids of units."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._named import column, columns, unnamed
from clusterdp._words import counted
from clusterdp.errors import DataError
from clusterdp.estimation.coded_rows import CodedRows
from clusterdp.estimation.id_places import find_places
from clusterdp.estimation.notes import Note, Weight
from clusterdp.published.row_counts import read_batches, scan_units
from clusterdp.rows.frames import column_names, evaluated, read_frame
from clusterdp.rows.labels import plain_column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import narwhals as nw
    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray
    from clusterdp.estimation.coded_rows import RowColumns
    from clusterdp.published.release import Release

# True for units that the analyst's table has; null for the others.
MATCHED = "__clusterdp_matched"


class TableSize(NamedTuple):
    """What the analyst's table has.

    Attributes:
        n_ids: Its ids.
        n_without: Rows without an id, which are left out.
        n_repeated: Rows that repeat another one, which are left out, too.
    """

    n_ids: int
    n_without: int
    n_repeated: int


class Joined(NamedTuple):
    """How the analyst's table was joined to the rows.

    Attributes:
        n_units: Released units.
        size: What the table has.
        n_matched: Units that are in both.
        n_nulls: Of the units in both, those without a value in a column.
    """

    n_units: int
    size: TableSize
    n_matched: int
    n_nulls: dict[str, int]

    def notes(self) -> list[Note]:
        """What is missing on either side."""
        texts = []
        if self.n_matched < self.n_units:
            texts.append(
                f"{self.n_units - self.n_matched:,} of {self.n_units:,} released units are not in "
                "the segments table; they count overall and in no segment"
            )
        n_ids, n_without, n_repeated = self.size
        if self.n_matched < n_ids:
            texts.append(
                f"{n_ids - self.n_matched:,} of {n_ids:,} ids of the segments table are not in the "
                "release"
            )
        if n_without:
            texts.append(
                f"{counted(n_without, 'row')} of the segments table without an id: left out"
            )
        if n_repeated:
            texts.append(
                f"{counted(n_repeated, 'row')} of the segments table the same as another one: "
                "left out"
            )
        texts += [
            f"{n_units:,} units of the segments table have no {name}; they are in no segment by it"
            for name, n_units in self.n_nulls.items()
            if n_units
        ]
        return [Note(text, Weight.SCOPE) for text in texts]


def read_table(
    release: Release, segments: Any, on: str | None, used: Collection[str]
) -> pl.DataFrame:
    """The columns of the analyst's table that are used, ids first and named as in the release.

    Ordered categories keep their order. Text of a lazy frame is read as categories, which need a
    fraction of the memory.

    Args:
        release: The release.
        segments: A frame of any library, or the path of a file.
        on: Its column of ids; that of the release by default.
        used: The columns to cut by and to adjust for, of either.

    Raises:
        DataError: If there is no such column of ids.
    """
    import polars as pl

    unit, key = release.columns.unit, on or release.columns.unit
    if isinstance(segments, str | os.PathLike):
        segments = _opened(os.fspath(segments), key)
    there = column_names(segments, "segments")
    if key not in there:
        raise DataError(f"the segments table has no column {key!r} to join units on")
    if key != unit and unit in there:
        raise DataError(
            f"the segments table has both {key!r} and {unit!r}; drop the one that is not the id"
        )
    released = scan_units(release).collect_schema()
    # What neither has is refused after all columns are listed.
    others = set() if set(used) <= {*there, *released} else set(there) - set(released)
    names = [name for name in there if name in {key, *used, *others}]
    if isinstance(segments, pl.LazyFrame):
        texts = pl.selectors.string() - columns([key])
        typed = texts.cast(pl.Categorical(pl.Categories.random()))
        segments = evaluated(segments.select(columns(names)).with_columns(typed), "segments")
    table = _as_polars(segments, names)
    ids = plain_column(table[key]).alias(unit)
    if released[unit].is_integer():
        ids = _whole(ids)
    return table.drop(columns([key])).insert_column(0, ids)


def _opened(path: str, key: str) -> pl.LazyFrame:
    """The table of a file, read as the command line reads it."""
    from clusterdp.engines.local.sources.opening import open_unstored
    from clusterdp.engines.named_source import NamedSource, Wanted

    return open_unstored(NamedSource(name=path), Wanted(unit=key))


def _whole(ids: pl.Series) -> pl.Series:
    """Ids that pandas made floats of, because some are missing, as the integers that they are."""
    import polars as pl

    if not ids.dtype.is_float():
        return ids
    known = unnamed(ids).fill_nan(None)
    is_whole = (known.drop_nulls() == known.drop_nulls().round()).all()
    return known.cast(pl.Int64, strict=False).alias(ids.name) if is_whole else ids


def _as_polars(segments: Any, names: list[str]) -> pl.DataFrame:
    """Some columns of a frame of any library."""
    import narwhals as nw
    import polars as pl

    frame = _with_text_categories(read_frame(segments, "segments", names)[names])
    return frame.to_polars().with_columns(
        column(name).cast(pl.Enum(kind.categories))
        for name, kind in frame.schema.items()
        if isinstance(kind, nw.Enum)
    )


def _with_text_categories(frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
    """The same; categories of pandas that are no text, such as intervals of `cut`, become text.

    Other libraries have no such categories. Their order stays.
    """
    import narwhals as nw

    if not frame.implementation.is_pandas():
        return frame
    native, texts = nw.to_native(frame), {}
    for name, kind in native.dtypes.items():
        if kind == "category" or str(kind).startswith("interval"):
            values = native[name] if kind == "category" else native[name].astype("category")
            ordered = values if kind == "category" else values.cat.as_ordered()
            texts[name] = ordered.cat.rename_categories(str)
    return nw.from_native(native.assign(**texts), eager_only=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedTable:
    """The analyst's table as codes and numbers, for every released unit.

    Columns have one entry more than there are ids: it is for units that the table does not have,
    whose place `NOWHERE` stands for the last entry.

    Attributes:
        places: Where each unit stands in the table; axes `[unit]`.
        codes: Columns to count by, with `MATCHED`; axes `[id + 1]`.
        numbers: Columns to adjust for, NaN where missing; axes `[id + 1]`.
        size: What the table has.
    """

    places: CodeArray
    codes: Mapping[str, CodeArray]
    numbers: Mapping[str, FloatArray]
    size: TableSize

    def rows(self, first: int, n_rows: int) -> CodedRows:
        """The columns of some units, which follow each other in the release."""
        places = self.places[first : first + n_rows]
        return CodedRows(
            codes={name: one[places] for name, one in self.codes.items()},
            numbers={name: one[places] for name, one in self.numbers.items()},
        )


def check_joinable(units: pl.Schema, release: Release, table: pl.DataFrame) -> None:
    """Raise a DataError unless the analyst's table can be joined to released rows."""
    import polars as pl

    unit = release.columns.unit
    clash = sorted((set(table.columns) & set(units.names())) - {unit})
    if clash:
        raise DataError(
            f"the segments table and the release both have a column {clash[0]!r}; rename or drop it"
        )
    ours, theirs = units[unit], table.schema[unit]
    if not (theirs == pl.String or theirs.is_integer()) or (ours == pl.String) != (
        theirs == pl.String
    ):
        raise DataError(
            f"ids are {ours} in the release and {theirs} in the segments table; convert one"
        )


def join_table(
    units: pl.LazyFrame, table: pl.DataFrame, key: str, wanted: RowColumns
) -> JoinedTable:
    """The analyst's table, joined to released rows.

    Args:
        units: Released rows.
        table: The table, see `read_table`.
        key: What its column of ids was called.
        wanted: Which columns are wanted, and as what; some are of the rows.

    Raises:
        DataError: If the table repeats an id, with other values.
    """
    import polars as pl

    unit, n_rows = table.columns[0], len(table)
    kind, n_without = units.collect_schema()[unit], table[unit].null_count()
    table = table.drop_nulls(unit) if n_without else table
    # An id that does not fit the release's type becomes null, and no unit has it.
    places = find_places(units, table[unit].cast(kind, strict=False))
    if places is None:
        table = table.unique(maintain_order=True)
        places = find_places(units, table[unit].cast(kind, strict=False))
    if places is None:
        raise DataError(
            f"column {key!r} of the segments table repeats an id, with other values; keep one row "
            "for each id"
        )
    with_matched = table.with_columns(pl.lit(value=True).alias(MATCHED))
    chosen = wanted.chosen(with_matched.columns)
    rows = chosen.encode(with_matched.select(chosen.typed()))
    return JoinedTable(
        places=places,
        codes={name: np.append(one, one.dtype.type(0)) for name, one in rows.codes.items()},
        numbers={name: np.append(one, np.nan) for name, one in rows.numbers.items()},
        size=TableSize(len(table), n_without, n_rows - n_without - len(table)),
    )


def joined_rows(
    units: pl.LazyFrame, table: JoinedTable | None, wanted: RowColumns
) -> Iterator[CodedRows]:
    """Released rows, in their order and batch by batch, with the analyst's columns if any.

    Raises:
        FormatError: If the files of rows cannot be read.
    """
    own, first = wanted.chosen(units.collect_schema().names()), 0
    for batch in read_batches(units.select(own.typed())):
        rows = own.encode(batch)
        yield rows if table is None else rows.beside(table.rows(first, len(batch)))
        first += len(batch)
