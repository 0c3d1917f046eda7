"""The analyst's own table, joined to released rows by the ids of units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import DataError
from clusterdp.estimation.notes import Note, Weight
from clusterdp.published.row_counts import scan_units
from clusterdp.rows.frames import column_names, evaluated, read_frame
from clusterdp.rows.labels import plain_column

if TYPE_CHECKING:
    from collections.abc import Collection

    import polars as pl

    from clusterdp.published.release import Release

# True for units that the analyst's table has; null for the others.
MATCHED = "__clusterdp_matched"
# So many ids of the analyst's table are joined at once.
_IDS_TOGETHER = 2**24


class Joined(NamedTuple):
    """How the analyst's table was joined to the rows.

    Attributes:
        n_units: Released units.
        n_ids: Ids of the table.
        n_matched: Units that are in both.
        n_nulls: Of the units in both, those without a value in a column.
    """

    n_units: int
    n_ids: int
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
        if self.n_matched < self.n_ids:
            texts.append(
                f"{self.n_ids - self.n_matched:,} of {self.n_ids:,} ids of the segments table are "
                "not in the release"
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
    """The columns of the analyst's table that are used, its ids named as in the release.

    Ordered categories keep their order. Text of a lazy frame is read as categories, which need a
    fraction of the memory.

    Args:
        release: The release.
        segments: A frame of any library.
        on: Its column of ids; that of the release by default.
        used: The columns to cut by and to adjust for, of either.

    Raises:
        DataError: If there is no such column of ids, or it repeats one.
    """
    import polars as pl

    unit, key = release.columns.unit, on or release.columns.unit
    there = column_names(segments, "segments")
    if key not in there:
        raise DataError(f"the segments table has no column {key!r} to join units on")
    if key != unit and unit in there:
        raise DataError(
            f"the segments table has both {key!r} and {unit!r}; drop the one that is not the id"
        )
    released = scan_units(release).collect_schema().names()
    # Columns that both have are refused, and so are those that neither has, after all are listed.
    read = {key, *used, *released} if set(used) <= {*there, *released} else set(there)
    names = [name for name in there if name in read]
    if isinstance(segments, pl.LazyFrame):
        texts = pl.selectors.string().exclude(key).cast(pl.Categorical)
        segments = evaluated(segments.select(names).with_columns(texts), "segments")
    table = _as_polars(segments, names)
    if table[key].n_unique() < len(table):
        raise DataError(f"column {key!r} of the segments table repeats an id")
    return table.rename({key: unit}).with_columns(plain_column(table[key]).alias(unit))


def _as_polars(segments: Any, names: list[str]) -> pl.DataFrame:
    """Some columns of a frame of any library."""
    import narwhals as nw
    import polars as pl

    frame = read_frame(segments, "segments", names).select(names)
    ordered = {
        name: pl.Enum(kind.categories)
        for name, kind in frame.schema.items()
        if isinstance(kind, nw.Enum)
    }
    return frame.to_polars().cast(ordered)  # type: ignore[arg-type]  # names of columns


def join_units(units: pl.LazyFrame, release: Release, table: pl.DataFrame) -> list[pl.LazyFrame]:
    """Released rows joined to the analyst's table by unit id, with a column `MATCHED`.

    Rows are in no order. Text becomes categories, which are faster to join and to compare. A large
    table is joined in parts, by a hash of ids: a join needs four times the memory of what it joins.
    """
    import polars as pl

    unit = release.columns.unit
    clash = sorted((set(table.columns) & set(units.collect_schema().names())) - {unit})
    if clash:
        raise DataError(
            f"the segments table and the release both have a column {clash[0]!r}; rename or drop it"
        )
    ours, theirs = units.collect_schema()[unit], table.schema[unit]
    if not (theirs == pl.String or theirs.is_integer()) or (ours == pl.String) != (
        theirs == pl.String
    ):
        raise DataError(
            f"ids are {ours} in the release and {theirs} in the segments table; convert one"
        )
    matched = pl.lit(value=True).alias(MATCHED)
    # An id that does not fit the release's type becomes null, and no unit has it.
    ids = pl.col(unit).cast(ours, strict=False)
    texts = pl.selectors.string().exclude(unit).cast(pl.Categorical)
    theirs_by_id = table.lazy().with_columns(texts, ids, matched).drop_nulls(unit)
    n_parts = max(math.ceil(len(table) / _IDS_TOGETHER), 1)
    hashed = pl.col(unit).hash() % n_parts
    chosen = [hashed == part for part in range(n_parts)] if n_parts > 1 else [pl.lit(value=True)]
    return [units.filter(one).join(theirs_by_id.filter(one), on=unit, how="left") for one in chosen]
