"""Queries to PostgreSQL, through ADBC: rows come as a stream of Arrow batches, from one snapshot.

A query runs as one COPY in a transaction that can only read. Nothing is made on the server: no
cursor, and no temporary table.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from clusterdp.errors import DataError, raise_alone
from clusterdp.sources.databases import Query, check_names, selected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    import polars as pl

    from clusterdp.sources.source import ColumnRequest, NamedSource


_READ_ONLY = "set transaction isolation level repeatable read, read only"
# Who is in one of these roles, as a superuser is in all, or may call one of these functions, can
# reach files of the server in a select that only reads. A role that was set can be left, so it does
# not count.
_REACHES_FILES = """
    select (
        select count(*) from pg_roles
        where rolname in
            ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')
        and pg_has_role(session_user, oid, 'member')
    ) + (
        select count(*) from pg_proc
        where pronamespace = 'pg_catalog'::regnamespace
        and proname in
            ('lo_export', 'lo_import', 'pg_read_file', 'pg_read_binary_file', 'pg_ls_dir')
        and has_function_privilege(session_user, oid, 'execute')
    )
"""
_ONLY_TABLES = (
    "the user of {} is a superuser, or may reach files of the server, and so might a query; "
    "connect as one who can only read tables: create role reader login; grant pg_read_all_data to "
    "reader"
)
# Types that Arrow has no word for, and what they are read as.
_READ_AS = {"numeric": "float8", "uuid": "text", "json": "text", "jsonb": "text"}
# Seconds to wait for a server, unless the URL says otherwise.
_PATIENCE = 10
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_OF_THE_QUERY = "42"
_READ_ONLY_BROKEN = "25006"


@dataclass(frozen=True, slots=True)
class _PostgresQuery(Query):
    """A query, prepared.

    Attributes:
        names: Its columns.
        cursor: In a transaction that can only read.
        text: The query.
        types: PostgreSQL's types of its columns, by name.
    """

    names: list[str]
    cursor: Any
    text: str
    types: dict[str, str]

    def schema(self, names: Collection[str]) -> dict[str, pl.DataType]:
        """The types that some columns have when they are read."""
        import polars as pl

        if not names:
            return {}
        with _explained_errors():
            described = self.cursor.adbc_execute_schema(self._selecting(names))
        return dict(pl.DataFrame(described.empty_table()).schema)

    def batches(self, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
        """Some columns of all rows, in batches."""
        import polars as pl

        with _explained_errors():
            self.cursor.execute(self._selecting(schema))
            for batch in self.cursor.fetch_record_batch():
                yield pl.DataFrame(batch)

    def _selecting(self, names: Collection[str]) -> str:
        """A query for some columns alone: what else there is never leaves the server."""
        chosen = selected(names, self.types, _READ_AS)
        return f"select {chosen} from (\n{self.text}\n) as clusterdp_rows"  # noqa: S608 - the owner's own query


@contextmanager
def running_postgresql(
    source: NamedSource,
    wanted: ColumnRequest,  # noqa: ARG001 - values have types of their own
    scratch: Path | None,  # noqa: ARG001 - nothing is stored
) -> Iterator[_PostgresQuery]:
    """A query while its connection is open.

    Raises:
        DataError: If the server, the user or the query is refused.
    """
    dbapi = _driver()
    try:
        connection = dbapi.connect(_patient(source.name))
    except dbapi.Error as error:
        _refuse_connection(source.name, str(error))
    with connection, connection.cursor() as cursor:
        with _explained_errors():
            cursor.execute(_READ_ONLY)
            cursor.execute(_REACHES_FILES)
            (reaches_files,) = cursor.fetchone()
            if reaches_files:
                raise DataError(_ONLY_TABLES.format(source.name))
            described = cursor.adbc_execute_schema(source.trimmed_query)
        if not described:
            raise DataError("the query must be one select; leave out all other statements")
        check_names(described.names)
        types = {
            field.name: (field.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
            for field in described
        }
        yield _PostgresQuery(list(types), cursor, source.trimmed_query, types)


def _driver() -> Any:
    try:
        import pyarrow as pa  # noqa: F401 - the driver needs it
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise DataError(
            "postgresql sources need ADBC's driver: pip install '.[postgres]'"
        ) from None
    return dbapi


def _patient(url: str) -> str:
    if "connect_timeout=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}connect_timeout={_PATIENCE}"


def _refuse_connection(url: str, said: str) -> NoReturn:
    """Say why there is no connection, in the words of the server if it has some."""
    fatal = re.search(r"FATAL:\s+(.*)", said)
    if fatal:
        why = f"was rejected by its server: {fatal[1].strip()}"
    elif "no password supplied" in said:
        why = "needs a password; give it as PGPASSWORD or in ~/.pgpass"
    else:
        why = "cannot be reached; check its host and port, and that it is running"
    raise_alone(DataError(f"{url} {why}"))


@contextmanager
def _explained_errors() -> Iterator[None]:
    """Errors of the server and the driver, without the values that they quote."""
    import polars as pl
    import pyarrow as pa
    from adbc_driver_manager import Error

    try:
        yield
    except (Error, pa.ArrowException, OSError, pl.exceptions.PolarsError) as error:
        raise_alone(_explained(getattr(error, "sqlstate", None) or "", str(error)))


def _explained(code: str, said: str) -> DataError:
    if code.startswith(_OF_THE_QUERY):
        # These are found before any row is read, and speak of the query alone.
        reason = re.search(r"ERROR:\s+(.*)", said)
        return DataError(f"PostgreSQL rejected the query: {reason[1] if reason else code}")
    if code == _READ_ONLY_BROKEN or "in a read-only transaction" in said:
        return DataError("PostgreSQL rejected the query: it may only read")
    if not code and "SetSqlQuery" in said:
        return DataError("the query is empty; end with a select")
    return DataError(
        "PostgreSQL could not run the query" + (f" (error {code})" if code else "") + "; run it "
        "in psql to see why"
    )
