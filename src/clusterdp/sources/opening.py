"""A source as a query over its rows, to be run as often as needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.sources.databases import read_query, store_query
from clusterdp.sources.files import open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import polars as pl

    from clusterdp.sources.source import ColumnRequest, NamedSource


def open_source(
    source: NamedSource, wanted: ColumnRequest, scratch: Callable[[], Path]
) -> pl.LazyFrame:
    """A query over a source, to be run as often as needed.

    Args:
        source: Files, or a database and a query.
        wanted: The columns that are needed. Others may hold nulls.
        scratch: Makes a private folder for what must be stored meanwhile: the rows of a query,
            which might give others when it is run again.

    Raises:
        DataError: If there is no such source, or it cannot be read as what it is.
    """
    if source.database is not None:
        return store_query(source, wanted, scratch())
    return open_files(source, wanted)


def open_unstored(
    source: NamedSource, wanted: ColumnRequest, hidden: Collection[str] = ()
) -> pl.LazyFrame:
    """As `open_source`, with nothing stored anywhere: for those who need some columns alone.

    Of a file, columns are read when they are asked for. A query is run at once, into memory, for
    the columns that are wanted and not hidden.

    Args:
        source: As in `open_source`.
        wanted: The columns that are needed.
        hidden: Those of them that are needed for their types alone: no value is fetched.

    Raises:
        DataError: As `open_source`.
    """
    if source.database is not None:
        return read_query(source, wanted, hidden)
    return open_files(source, wanted)
