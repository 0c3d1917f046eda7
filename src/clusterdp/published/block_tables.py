"""Tables that hold several blocks of outcomes: put together, and taken apart again.

With one block they are the table of this block as it is. With several, columns end with the number
of their block, or rows begin with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import FormatError
from clusterdp.experiment.published_names import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl


def stacked(tables: Sequence[pl.DataFrame | None]) -> pl.DataFrame | None:
    """The tables of all blocks below each other; None if no block has one.

    Where there are several blocks, the first column is the number of the block, from 1 on, and
    columns that a block does not have are empty in its rows.
    """
    import polars as pl

    if len(tables) == 1:
        return tables[0]
    numbered = [
        table.select(pl.lit(place, dtype=pl.Int32).alias(BLOCK), pl.all())
        for place, table in enumerate(tables, start=1)
        if table is not None
    ]
    return pl.concat(numbered, how="diagonal") if numbered else None


def unstacked(table: pl.DataFrame | None, present: Sequence[bool]) -> list[pl.DataFrame | None]:
    """The table of each block, from the table of all; None of a block that has none.

    Args:
        table: What was published; None if no block has a table.
        present: Whether each block has one.

    Raises:
        FormatError: If blocks are missing, or not in order.
    """
    import polars as pl

    if table is None:
        return [None] * len(present)
    if len(present) == 1:
        return [table]
    numbers = [place for place, there in enumerate(present, start=1) if there]
    if table.columns[:1] != [BLOCK] or table.schema[BLOCK] != pl.Int32():
        raise FormatError(f"a table of several blocks does not begin with a column {BLOCK!r}")
    found = table[BLOCK]
    if found.null_count() or not found.is_sorted() or found.unique().sort().to_list() != numbers:
        raise FormatError("a table of several blocks does not have the blocks of the manifest")
    tables = [
        _held(table.filter(pl.col(BLOCK) == place).drop(BLOCK)) if there else None
        for place, there in enumerate(present, start=1)
    ]
    if {BLOCK, *(name for one in tables if one is not None for name in one.columns)} != set(
        table.columns
    ):
        raise FormatError("a table of several blocks has a column of no block")
    return tables


def _held(table: pl.DataFrame) -> pl.DataFrame:
    """The columns of a table that are not empty."""
    return table.select(one for one in table if one.null_count() < len(table))
