"""Queries to SQLite, by the module that Python has.

A column of SQLite has no type: each value has its own. The types of public columns follow from all
of their values. Outcomes are text, numbers among them as the owner says that text has numbers.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from clusterdp._named import column, columns
from clusterdp.errors import DataError, raise_alone
from clusterdp.sources.databases import Query, check_names, sql_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import polars as pl

    from clusterdp.sources.source import ColumnRequest, NamedSource


_ROWS_PER_BATCH = 2**16
# An outcome has two columns for each value: its number, or its text if it is not a number.
_NUMBER, _TEXT = "number:", "text:"


@dataclass(frozen=True, slots=True)
class _SqliteQuery(Query):
    """A query in a transaction that can only read.

    Attributes:
        connection: The connection.
        text: The query.
        names: Its columns.
        wanted: Which of them are outcomes.
    """

    connection: sqlite3.Connection
    text: str
    names: list[str]
    wanted: ColumnRequest

    def schema(self, names: Collection[str]) -> dict[str, pl.DataType]:
        """The types that some columns have when they are read."""
        import polars as pl

        found: dict[str, pl.DataType] = self._public_types(
            [name for name in names if name not in self.wanted.outcomes]
        )
        found |= dict.fromkeys(self.wanted.outcomes, pl.String())
        return {name: found[name] for name in names}

    def _public_types(self, names: list[str]) -> dict[str, pl.DataType]:
        """Text if a value is text, else numbers with a point if one is, else whole numbers."""
        import polars as pl

        if not names:
            return {}
        kinds = ("text", "real", "integer", "blob")
        asked = [f"max(typeof({sql_name(name)}) = '{kind}')" for name in names for kind in kinds]
        found = iter(next(self._rows(", ".join(asked), 1))[0])
        types: dict[str, pl.DataType] = {}
        for name in names:
            has = {kind: bool(next(found)) for kind in kinds}
            if has["blob"]:
                raise DataError(f"column {name!r} holds bytes; convert it: hex({name})")
            plain = pl.Float64() if has["real"] else pl.Int64() if has["integer"] else pl.String()
            types[name] = pl.String() if has["text"] else plain
        return types

    def batches(self, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
        """Some columns of all rows, of these types, in batches."""
        import polars as pl

        chosen, read = self._chosen(schema)
        for rows in self._rows(", ".join(chosen), _ROWS_PER_BATCH):
            batch = pl.DataFrame(rows, schema=read, orient="row")
            yield batch.with_columns(
                # Numbers as text that is read as the same numbers.
                pl.coalesce(
                    _TEXT + name,
                    column(_NUMBER + name)
                    .cast(pl.String)
                    .str.replace(".", self.wanted.decimal, literal=True),
                ).alias(name)
                for name in self.wanted.numeric
                if name in schema
            ).select(columns(schema))

    def _chosen(self, schema: dict[str, pl.DataType]) -> tuple[list[str], dict[str, pl.DataType]]:
        """What is selected, and as what it arrives."""
        import polars as pl

        chosen: list[str] = []
        read: dict[str, pl.DataType] = {}
        for name, kind in schema.items():
            value = sql_name(name)
            if name in self.wanted.numeric:
                is_number = f"typeof({value}) in ('integer', 'real')"
                chosen += [
                    f"case when {is_number} then cast({value} as real) end",
                    f"case when not {is_number} then cast({value} as text) end",
                ]
                read |= {_NUMBER + name: pl.Float64(), _TEXT + name: pl.String()}
            else:
                chosen.append(f"cast({value} as text)" if kind == pl.String() else value)
                read[name] = kind
        return chosen, read

    def _rows(self, chosen: str, n_rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """What is selected from the query, in batches."""
        try:
            with closing(self.connection.execute(_selecting(chosen, self.text))) as cursor:
                while batch := cursor.fetchmany(n_rows):
                    yield batch
        except (sqlite3.Error, OverflowError):
            raise_alone(DataError("SQLite could not run the query; run it in SQLite to see why"))


@contextmanager
def running_sqlite(
    source: NamedSource,
    wanted: ColumnRequest,
    scratch: Path | None,  # noqa: ARG001 - nothing is stored
) -> Iterator[_SqliteQuery]:
    """A query while its connection is open.

    Raises:
        DataError: If there is no such database, or it refuses the query.
    """
    place = Path(source.database_file)
    if not place.is_file():
        raise DataError(f"there is no database {place}")
    try:
        address = f"file:{quote(str(place.absolute()))}?mode=ro"
        # Polars takes batches in a thread of its own, one after another.
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error:
        raise_alone(DataError(f"{place} cannot be opened; check its permissions"))
    with closing(connection):
        try:
            # What does not fit must not be stored by SQLite, where others might read it.
            connection.execute("pragma temp_store = memory")
            connection.execute("pragma query_only = on")
            connection.execute("begin")
            described = connection.execute(_selecting("*", source.trimmed_query) + " limit 0")
        except sqlite3.Error as error:
            _refuse(str(place), error)
        names = [column[0] for column in described.description]
        check_names(names)
        yield _SqliteQuery(connection, source.trimmed_query, names, wanted)


def _selecting(chosen: str, query: str) -> str:
    return f"select {chosen} from (\n{query}\n)"  # noqa: S608 - the owner's own query


def _refuse(place: str, error: sqlite3.Error) -> NoReturn:
    """Say why a query was refused before any row was read: that speaks of the query alone."""
    code = getattr(error, "sqlite_errorname", "")
    if code in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
        raise_alone(DataError(f"{place} is not a SQLite database, or is damaged"))
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        raise_alone(DataError(f"{place} is locked by another program; try again later"))
    raise_alone(DataError(f"SQLite rejected the query: {error}"))
