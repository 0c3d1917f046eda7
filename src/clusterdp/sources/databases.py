"""The rows of a query, from a database of any kind: stored in private, or some columns in memory.

A kind of database is a module with a context manager `running_NAME`; `source.py: SCHEMES` lists it.
Drivers quote values in their errors. Each module turns its driver's errors into ours, which speak
of the query alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING

from clusterdp._named import columns
from clusterdp.errors import DataError
from clusterdp.sources.source import ColumnRequest
from clusterdp.storage.folder import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import polars as pl

    from clusterdp.sources.source import NamedSource


class Query(ABC):
    """A query that is open, in a transaction that can only read.

    Attributes:
        names: The columns of the query.
    """

    __slots__ = ()

    names: list[str]

    @abstractmethod
    def schema(self, names: Collection[str]) -> dict[str, pl.DataType]:
        """The types that some columns have when they are read."""

    @abstractmethod
    def batches(self, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
        """Some columns of all rows, of these types, in batches."""

    def read(self, names: Collection[str]) -> pl.DataFrame:
        """Some columns of all rows."""
        import polars as pl

        schema = self.schema(names)
        return pl.concat([pl.DataFrame(schema=schema), *self.batches(schema)])

    def store(self, names: Collection[str], path: Path) -> None:
        """Some columns of all rows into an empty Parquet file, never all in memory.

        Errors of batches come through.
        """
        from polars.io.plugins import register_io_source

        schema = self.schema(names)

        def produce(chosen: list[str] | None, *_: object) -> Iterator[pl.DataFrame]:
            for batch in self.batches(schema):
                yield batch if chosen is None else batch.select(columns(chosen))

        rows = register_io_source(produce, schema=schema)
        rows.sink_parquet(path, compression="zstd", compression_level=1, statistics=False)


def sql_name(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def selected(names: Collection[str], types: Mapping[str, str], read_as: Mapping[str, str]) -> str:
    """Columns to select, with those of some types cast to others, that more tools have a word for.

    Args:
        names: The columns.
        types: The type of each, by name.
        read_as: What columns of a type are read as, where it is another.
    """
    casts = {name: read_as.get(types[name]) for name in names}
    return ", ".join(
        sql_name(name) if kind is None else f"{sql_name(name)}::{kind} as {sql_name(name)}"
        for name, kind in casts.items()
    )


def check_names(names: Sequence[str]) -> None:
    """Raise a DataError if two columns of a query have one name."""
    if len(set(names)) < len(names):
        raise DataError("the query has two columns of one name; rename one: select ... as ...")


def store_query(source: NamedSource, wanted: ColumnRequest, folder: Path) -> pl.LazyFrame:
    """Run a query once and keep its rows: run twice, it might give others."""
    import polars as pl

    stored = private_file(folder / "query.parquet")
    with _running(source, wanted, folder) as query:
        names, held = query.names, wanted.among(query.names)
        if held:
            query.store(held, stored)
    rows = pl.scan_parquet(stored, glob=False) if held else pl.LazyFrame()
    return _with_unread(rows, names, {})


def query_types(source: NamedSource) -> dict[str, pl.DataType | None]:
    """The columns of a query and their declared types; no row of it is fetched.

    SQLite declares none: each of its values has a type of its own.
    """
    with _running(source, ColumnRequest(public=()), None) as query:
        types = {} if source.database == "sqlite" else query.schema(query.names)
        return {name: types.get(name) for name in query.names}


def read_query(source: NamedSource, wanted: ColumnRequest, hidden: Collection[str]) -> pl.LazyFrame:
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


def _running(
    source: NamedSource, wanted: ColumnRequest, scratch: Path | None
) -> AbstractContextManager[Query]:
    """A query while its connection is open; `scratch` is where rows may be stored, if any."""
    module = import_module(f"clusterdp.sources.{source.database}")
    running: Callable[..., AbstractContextManager[Query]] = getattr(
        module, f"running_{source.database}"
    )
    return running(source, wanted, scratch)
