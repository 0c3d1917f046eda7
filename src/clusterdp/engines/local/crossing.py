"""Clusters that are crossed from several columns, by Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._named import column
from clusterdp.engines.source_names import crossed_parts

if TYPE_CHECKING:
    import polars as pl


def cross_columns(rows: pl.LazyFrame, name: str | None, secret: tuple[str, ...]) -> pl.LazyFrame:
    """Rows with a column `"a,b,c"` that crosses these columns, if there is none of that name.

    Raises:
        DataError: If one of them is missing, or is among `secret`: ids and outcomes.
    """
    import polars as pl

    parts = crossed_parts(rows.collect_schema().names(), name, secret)
    if not parts or name is None:
        return rows
    return rows.with_columns(pl.concat_str(map(column, parts), separator=" | ").alias(name))
