"""Where rows come from: files of any size, or a DuckDB query."""

from __future__ import annotations

import glob
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from clusterdp.engines.local.objects import find_objects, is_hidden
from clusterdp.engines.source_names import DUCKDB, TEXT, crossed_parts
from clusterdp.errors import DataError, raise_alone
from clusterdp.storage.access import is_store
from clusterdp.storage.folder import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import duckdb
    import polars as pl


def open_source(
    source: str, scratch: Callable[[], Path], outcomes: tuple[str, ...] = ()
) -> pl.LazyFrame:
    """A query over a source, to be run as often as needed.

    Args:
        source: A Parquet, CSV or Arrow/IPC file, a folder or glob of them, on a disk or in a store
            (`s3://bucket/folder`), or `duckdb:database.db?select ...` (`duckdb:?select ...` without
            a database).
        outcomes: The columns of outcomes. In a text file they are read row by row: if their types
            were found from many rows, those would decide whether another row can be read.
        scratch: Makes a private folder for what must be stored meanwhile: the rows of a DuckDB
            query, and what DuckDB itself stores while it runs.

    Raises:
        DataError: If there is no such source, or it cannot be read as its suffix requires.
    """
    import polars as pl

    if source.startswith(DUCKDB):
        return pl.scan_parquet(_store_query(source.removeprefix(DUCKDB), scratch()))
    return _open_files(source, outcomes)


def open_unstored(
    source: str,
    read: Collection[str] | None = None,
    typed: Collection[str] = (),
    outcomes: tuple[str, ...] = (),
) -> pl.LazyFrame:
    """As `open_source`, with nothing stored anywhere: for those who need some columns alone.

    Of a file, columns are read when they are asked for. A DuckDB query is run at once, for its
    columns in `read`, into memory and without files of its own.

    Args:
        source: As in `open_source`.
        read: The columns to have values; None for all. Others of a DuckDB query hold nulls.
        typed: Columns that are to have their own type all the same.
        outcomes: As in `open_source`.

    Raises:
        DataError: As `open_source`.
    """
    if source.startswith(DUCKDB):
        return _read_query(source.removeprefix(DUCKDB), read, typed)
    return _open_files(source, outcomes)


def _open_files(source: str, outcomes: tuple[str, ...]) -> pl.LazyFrame:
    """A query over files."""
    import polars as pl

    paths, reach = find_objects(source) if is_store(source) else (_find_files(source), {})
    suffixes = {PurePath(path).suffix.lower() for path in paths}
    if len(suffixes) > 1:
        raise DataError(f"{source} mixes files of different kinds: {', '.join(sorted(suffixes))}")
    (suffix,) = suffixes
    try:
        if suffix in TEXT:
            # Read it whole once, as text: a row with too many fields would shift values into other
            # columns, and a pass over some columns alone does not notice.
            plain = _scan_text(suffix, paths, infer_schema=False, **reach)
            plain.select(pl.all().null_count()).collect(engine="streaming")
        query = _scan(suffix, paths, source, outcomes, reach)
        query.collect_schema()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        more = "more fields" in str(error)
        what = "has a row with more fields than its header" if more else "cannot be read"
        raise_alone(DataError(f"{source} {what} as {suffix[1:]}"))
    return query


def cross_columns(rows: pl.LazyFrame, name: str | None, secret: tuple[str, ...]) -> pl.LazyFrame:
    """Rows with a column `"a,b,c"` that crosses these columns, if there is none of that name.

    Raises:
        DataError: If one of them is missing, or is among `secret`: ids and outcomes.
    """
    import polars as pl

    parts = crossed_parts(rows.collect_schema().names(), name, secret)
    if not parts or name is None:
        return rows
    return rows.with_columns(pl.concat_str(parts, separator=" | ").alias(name))


def _scan(
    suffix: str,
    paths: list[Path] | list[str],
    source: str,
    outcomes: tuple[str, ...],
    reach: dict[str, Any],
) -> pl.LazyFrame:
    import polars as pl

    if suffix in (".parquet", ".pq"):
        return pl.scan_parquet(paths, glob=False, **reach)
    if suffix in TEXT:
        # From all rows: of an event table, how many come first follows from events.
        inferred: dict[str, Any] = {"infer_schema_length": None, **reach}
        query = _scan_text(suffix, paths, **inferred)
        there = [name for name in outcomes if name in query.collect_schema()]
        if not there:
            return query
        overrides = dict.fromkeys(there, pl.String)
        query = _scan_text(suffix, paths, schema_overrides=overrides, **inferred)
        return query.with_columns(_number(pl.col(name)) for name in there)
    if suffix in (".arrow", ".ipc", ".feather"):
        return pl.scan_ipc(paths, glob=False, **reach)
    raise DataError(
        f"{source} is of no known kind; give a .parquet, .csv, .tsv, .arrow, .ipc or .feather file"
    )


def _scan_text(suffix: str, paths: list[Path] | list[str], **options: Any) -> pl.LazyFrame:
    import polars as pl

    separator = "\t" if suffix == ".tsv" else ","
    return pl.scan_csv(paths, glob=False, separator=separator, **options)


def _number(text: pl.Expr) -> pl.Expr:
    """Each text as a number; not a number where it is none, and missing where it is missing."""
    import polars as pl

    plain = text.str.strip_chars()
    truth = plain.str.to_lowercase().replace_strict(
        {"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64
    )
    number = pl.coalesce(truth, plain.cast(pl.Float64, strict=False))
    return pl.when(text.is_not_null()).then(number.fill_null(float("nan"))).name.keep()


def _find_files(source: str) -> list[Path]:
    """The files a path, folder or glob names, in a fixed order."""
    path = Path(source)
    try:
        if path.is_file():
            return [path]
        if path.is_dir():
            return _files_within(path)
    except OSError as error:
        raise DataError(f"{source[:200]} cannot be read: {error.strerror}") from None
    # A glob as in shells, with ** for any depth.
    found = [Path(name) for name in sorted(glob.glob(source, recursive=True))]  # noqa: PTH207
    if not found:
        raise DataError(f"there is no file {source}")
    return found


def _files_within(folder: Path) -> list[Path]:
    """The files of a folder at any depth, but for what other tools leave beside their data."""
    found = [
        entry
        for entry in sorted(folder.rglob("*"))
        if entry.is_file() and not is_hidden(entry.relative_to(folder))
    ]
    if not found:
        raise DataError(f"the folder {folder} holds no files")
    return found


def _store_query(request: str, folder: Path) -> Path:
    """Run a query once and keep its rows: run twice, it might give others."""
    stored = private_file(folder / "query.parquet")
    with _running_query(request, spill=folder) as rows:
        rows.write_parquet(str(stored))
    return stored


def _read_query(request: str, read: Collection[str] | None, typed: Collection[str]) -> pl.LazyFrame:
    """Some columns of a query in memory; the others hold nulls."""
    import polars as pl

    with _running_query(request, spill=None) as rows:
        names, kinds = rows.columns, dict(zip(rows.columns, map(str, rows.types), strict=True))
        held = [name for name in names if read is None or name in read]
        empty = [name for name in names if name in typed and name not in held]
        schema = _to_frame(rows.limit(0), empty, kinds).schema
        values = _to_frame(rows, held, kinds)
    unread = [
        pl.lit(None, dtype=schema.get(name, pl.Null())).alias(name)
        for name in names
        if name not in held
    ]
    return values.lazy().with_columns(unread).select(names)


def _to_frame(
    rows: duckdb.DuckDBPyRelation, names: list[str], kinds: dict[str, str]
) -> pl.DataFrame:
    """Columns of a query, by the types that they would have in a Parquet file of DuckDB's."""
    import polars as pl

    if not names:
        return pl.DataFrame()
    quoted = ((name, '"' + name.replace('"', '""') + '"') for name in names)
    chosen = [
        f"{column}::double as {column}" if kinds[name].endswith("HUGEINT") else column
        for name, column in quoted
    ]
    try:
        return pl.DataFrame(_Stream(rows.project(", ".join(chosen))))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise_alone(DataError("the result of the DuckDB query cannot be read"))


@dataclass(frozen=True, slots=True)
class _Stream:
    """Rows as a stream of Arrow batches, and nothing else of DuckDB's for Polars to hold on to."""

    rows: duckdb.DuckDBPyRelation

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


@contextmanager
def _running_query(request: str, spill: Path | None) -> Iterator[duckdb.DuckDBPyRelation]:
    """The rows of a query, to be taken while its connection is open.

    Args:
        request: A database, a question mark and the query.
        spill: Where DuckDB may store what does not fit into memory; None for nowhere.
    """
    try:
        import duckdb
    except ImportError:
        raise DataError("duckdb sources need DuckDB: pip install 'clusterdp[duckdb]'") from None
    database, _, query = request.partition("?")
    if not query.strip():
        raise DataError("a duckdb source reads duckdb:database.db?select ...; there is no query")
    if database and not Path(database).is_file():
        raise DataError(f"there is no database {database}")
    # By itself DuckDB would store rows in the working directory, for everyone to read.
    place = "" if spill is None else str(spill / "spill")
    try:
        with duckdb.connect(
            database or ":memory:", read_only=bool(database), config={"temp_directory": place}
        ) as connection:
            rows = connection.sql(query)
            if rows is None:
                raise DataError("the query of a duckdb source gives no rows; end with a select")
            yield rows
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
