"""The rows of a query, from a database of any kind: stored in private, or some columns in memory.

Drivers quote values in their errors. Each of them turns its errors into ours, which speak of the
query alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from clusterdp._named import columns
from clusterdp.engines.named_source import DUCKDB, SQLITE
from clusterdp.storage.folder import private_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    import polars as pl

    from clusterdp.engines.named_source import NamedSource, Wanted


class Query(Protocol):
    """A query that is open, in a transaction that can only read."""

    @property
    def names(self) -> list[str]:
        """The columns of the query."""
        ...

    def schema(self, names: Collection[str]) -> dict[str, pl.DataType]:
        """The types that some columns have when they are read."""
        ...

    def read(self, names: Collection[str]) -> pl.DataFrame:
        """Some columns of all rows."""
        ...

    def store(self, names: Collection[str], path: Path) -> None:
        """Some columns of all rows into an empty Parquet file, never all in memory."""
        ...


def store_query(source: NamedSource, wanted: Wanted, folder: Path) -> pl.LazyFrame:
    """Run a query once and keep its rows: run twice, it might give others."""
    import polars as pl

    stored = private_file(folder / "query.parquet")
    with _running(source, wanted, folder) as query:
        names, held = query.names, wanted.among(query.names)
        if held:
            query.store(held, stored)
    if not held:
        return _with_unread(pl.LazyFrame(), names, {})
    return _with_unread(pl.scan_parquet(stored, glob=False), names, {})


def read_query(source: NamedSource, wanted: Wanted, hidden: Collection[str]) -> pl.LazyFrame:
    """Some columns of a query in memory; the others hold nulls."""
    import polars as pl

    with _running(source, wanted, None) as query:
        names, there = query.names, wanted.among(query.names)
        held = [name for name in there if name not in hidden]
        types = query.schema([name for name in there if name in hidden])
        values = query.read(held) if held else pl.DataFrame()
    return _with_unread(values.lazy(), names, types)


def _with_unread(
    rows: pl.LazyFrame, names: list[str], types: dict[str, pl.DataType]
) -> pl.LazyFrame:
    """The columns that were read, and nulls for all others, so that their names are known."""
    import polars as pl

    held = rows.collect_schema()
    unread = [
        pl.lit(None, dtype=types.get(name, pl.Null())).alias(name)
        for name in names
        if name not in held
    ]
    return rows.with_columns(unread).select(columns(names))


@contextmanager
def _running(source: NamedSource, wanted: Wanted, scratch: Path | None) -> Iterator[Query]:
    """A query while its connection is open; `scratch` is where rows may be stored, if any."""
    if source.database == DUCKDB:
        from clusterdp.engines.local.sources.duckdb import running_duckdb

        with running_duckdb(source, scratch) as rows:
            yield rows
    elif source.database == SQLITE:
        from clusterdp.engines.local.sources.sqlite import running_sqlite

        with running_sqlite(source, wanted) as rows:
            yield rows
    else:
        from clusterdp.engines.local.sources.postgres import running_postgres

        with running_postgres(source) as rows:
            yield rows
