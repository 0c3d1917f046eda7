"""Queries to DuckDB: to a database file, or to files by their names."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import DataError, raise_alone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import duckdb
    import polars as pl

    from clusterdp.engines.named_source import NamedSource

# Types that others have no word for, and what they are read as.
_READ_AS = {"HUGEINT": "double", "UHUGEINT": "double", "DECIMAL": "double", "UUID": "varchar"}


@dataclass(frozen=True, slots=True)
class _DuckdbQuery:
    """The rows of a query, to be taken while its connection is open."""

    rows: duckdb.DuckDBPyRelation

    @property
    def names(self) -> list[str]:
        """The columns of the query."""
        return self.rows.columns

    def schema(self, names: Collection[str]) -> dict[str, pl.DataType]:
        """The types that some columns have when they are read."""
        return dict(_to_frame(self._chosen(names).limit(0)).schema) if names else {}

    def read(self, names: Collection[str]) -> pl.DataFrame:
        """Some columns of all rows."""
        return _to_frame(self._chosen(names))

    def store(self, names: Collection[str], path: Path) -> None:
        """Some columns of all rows into a file."""
        self._chosen(names).write_parquet(str(path))

    def _chosen(self, names: Collection[str]) -> duckdb.DuckDBPyRelation:
        kinds = dict(zip(self.rows.columns, map(str, self.rows.types), strict=True))
        chosen = []
        for name in names:
            quoted = '"' + name.replace('"', '""') + '"'
            kind = _READ_AS.get(kinds[name].partition("(")[0])
            chosen.append(quoted if kind is None else f"{quoted}::{kind} as {quoted}")
        return self.rows.project(", ".join(chosen))


def _to_frame(rows: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.DataFrame(_Stream(rows))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise_alone(DataError("the result of the DuckDB query cannot be read"))


@dataclass(frozen=True, slots=True)
class _Stream:
    """Rows as a stream of Arrow batches, and nothing else of DuckDB's for Polars to hold on to."""

    rows: duckdb.DuckDBPyRelation

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


@contextmanager
def running_duckdb(source: NamedSource, spill: Path | None) -> Iterator[_DuckdbQuery]:
    """A query while its connection is open.

    Args:
        source: The database and the query.
        spill: Where DuckDB may store what does not fit into memory; None for nowhere.

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
    place = "" if spill is None else str(spill / "spill")
    try:
        with duckdb.connect(
            database or ":memory:", read_only=bool(database), config={"temp_directory": place}
        ) as connection:
            rows = connection.sql(source.query or "")
            if rows is None:
                raise DataError("the query gives no rows; end with a select")
            yield _DuckdbQuery(rows)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        # These speak of the query alone; other errors quote values.
        reason = str(error).strip().split("\n", 1)[0]
        raise DataError(f"DuckDB refused the query: {reason}") from None
    except duckdb.OutOfMemoryException:
        raise DataError(
            "the query does not fit into DuckDB's memory; write its result to a Parquet file, and "
            "give that"
        ) from None
    except duckdb.Error as error:
        kind = type(error).__name__
        raise_alone(DataError(f"DuckDB could not run the query ({kind})"))
