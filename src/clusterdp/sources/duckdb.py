"""Queries to DuckDB: to a database file, or to files by their names.

In DuckDB a select, too, can write files and change settings: by a COPY in its WITH, or by selecting
from a function such as `enable_logging`. So a query is read before it runs: it is one select, each
part of it reads, and it selects from no function but those listed here. It then runs in a database
that was opened to be read, under settings that it cannot change.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from clusterdp.errors import DataError, raise_alone
from clusterdp.sources.databases import Query, selected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import duckdb
    import polars as pl

    from clusterdp.sources.source import ColumnRequest, NamedSource


# How a database is opened: a query finds no extension, which reaches other places, and no variable
# of this process.
CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
# Parts of a query that read, as DuckDB names them.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
# Functions to select from: those that make rows, and those that read files.
_MAKE_ROWS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
_READ_FILES = frozenset(
    {
        *("glob", "parquet_scan", "read_blob", "read_csv", "read_csv_auto", "read_json"),
        *("read_json_auto", "read_json_objects", "read_ndjson", "read_ndjson_auto"),
        *("read_ndjson_objects", "read_parquet", "read_text"),
    }
)
# Types that others have no word for, and what they are read as.
_READ_AS = {"HUGEINT": "double", "UHUGEINT": "double", "DECIMAL": "double", "UUID": "varchar"}


@dataclass(frozen=True, slots=True)
class _DuckdbQuery(Query):
    """The rows of a query, to be taken while its connection is open.

    Attributes:
        names: Its columns.
        rows: The query.
    """

    names: list[str]
    rows: duckdb.DuckDBPyRelation

    def schema(self, names: Collection[str]) -> dict[str, pl.DataType]:
        """The types that some columns have when they are read."""
        return dict(_to_frame(self._chosen(names).limit(0)).schema) if names else {}

    def batches(self, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
        """Some columns of all rows, at once."""
        yield _to_frame(self._chosen(schema))

    def store(self, names: Collection[str], path: Path) -> None:
        """Some columns of all rows into a file."""
        # Through a file of its own, DuckDB would give it the mode of any new file.
        self._chosen(names).write_parquet(str(path), use_tmp_file=False)

    def _chosen(self, names: Collection[str]) -> duckdb.DuckDBPyRelation:
        kinds = (str(kind).partition("(")[0] for kind in self.rows.types)
        types = dict(zip(self.names, kinds, strict=True))
        return self.rows.project(selected(names, types, _READ_AS))


def _to_frame(rows: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    import polars as pl

    # As a stream of Arrow batches, and nothing else of DuckDB's for Polars to hold on to.
    stream: Any = SimpleNamespace(__arrow_c_stream__=rows.__arrow_c_stream__)
    try:
        return pl.DataFrame(stream)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise_alone(DataError("the result of the DuckDB query cannot be read"))


@contextmanager
def running_duckdb(
    source: NamedSource,
    wanted: ColumnRequest,  # noqa: ARG001 - values have types of their own
    scratch: Path | None,
) -> Iterator[_DuckdbQuery]:
    """A query while its connection is open.

    Args:
        source: The database and the query.
        wanted: The columns that are needed.
        scratch: Where rows may be stored, and what does not fit into memory; None for nowhere.

    Raises:
        DataError: If there is no such database, or it refuses the query.
    """
    try:
        import duckdb
    except ImportError:
        raise DataError("duckdb sources need DuckDB: pip install '.[duckdb]'") from None
    database = source.database_file
    if database and not Path(database).is_file():
        raise DataError(f"there is no database {database}")
    # By itself DuckDB would store rows in the working directory, for everyone to read.
    place = "" if scratch is None else str(scratch / "spill")
    config = {**CONFIG, "temp_directory": place}
    try:
        with duckdb.connect(
            database or ":memory:", read_only=bool(database), config=config
        ) as connection:
            _check_reads(connection, source.query or "")
            _confine(connection, reads_files=not database, scratch=scratch)
            rows = connection.sql(source.query or "")
            yield _DuckdbQuery(rows.columns, rows)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        # These speak of the query alone; other errors quote values.
        reason = str(error).strip().split("\n", 1)[0]
        raise DataError(f"DuckDB rejected the query: {reason}") from None
    except duckdb.PermissionException:
        raise DataError(
            "DuckDB rejected the query: it may read the database file only; to query other "
            "files, give duckdb:// as the source"
        ) from None
    except duckdb.OutOfMemoryException:
        raise DataError(
            "the query does not fit into DuckDB's memory; write its result to a Parquet file, and "
            "give that"
        ) from None
    except duckdb.Error as error:
        kind = type(error).__name__
        raise_alone(DataError(f"DuckDB could not run the query ({kind})"))


def _check_reads(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise a DataError unless a query is one select that reads in all of its parts."""
    from duckdb import StatementType

    found = [one.type for one in connection.extract_statements(query)]
    if found != [StatementType.SELECT]:
        raise DataError("the query must be one select; leave out all other statements")
    parts: list[dict[str, Any]] = []

    def keep(part: dict[str, Any]) -> dict[str, Any]:
        parts.append(part)
        return part

    ((tree,),) = connection.sql("select json_serialize_sql($1)", params=[query]).fetchall()
    json.loads(tree, object_hook=keep)
    statements = {part["type"] for part in parts if "cte_map" in part}
    if not statements or not statements <= _READING:
        raise DataError("the query must be a select; leave out what writes, also in its WITH")
    functions = {
        part["function"]["function_name"] for part in parts if part.get("type") == "TABLE_FUNCTION"
    }
    for name in sorted(functions - _MAKE_ROWS - _READ_FILES):
        raise DataError(
            f"the query selects from the function {name!r}, which is not known to only read; "
            "select from tables and files"
        )


def _confine(
    connection: duckdb.DuckDBPyConnection, *, reads_files: bool, scratch: Path | None
) -> None:
    """Let queries reach the open database alone, or files too, and lock all settings."""
    if not reads_files:
        allowed = [] if scratch is None else [str(scratch)]
        connection.execute("set allowed_directories = $1", [allowed])
        connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
