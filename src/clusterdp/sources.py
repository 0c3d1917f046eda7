"""Where rows come from: files of any size, or a DuckDB query."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import DataError
from clusterdp.local_engine import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

DUCKDB = "duckdb:"
TEXT = (".csv", ".tsv")
# A text file's types are taken from this many rows.
_ROWS_TO_INFER = 100_000


def open_source(source: str, scratch: Callable[[], Path]) -> pl.LazyFrame:
    """A query over a source, to be run as often as needed.

    Args:
        source: A Parquet, CSV or Arrow/IPC file, a folder or glob of them, or
            `duckdb:database.db?select ...` (`duckdb:?select ...` without a database).
        scratch: Makes a private folder for what must be stored meanwhile.

    Raises:
        DataError: If there is no such source, or it cannot be read as what its name says.
    """
    import polars as pl

    if source.startswith(DUCKDB):
        return pl.scan_parquet(_store_query(source.removeprefix(DUCKDB), scratch()))
    paths = _find_files(source)
    suffixes = {path.suffix.lower() for path in paths}
    if len(suffixes) > 1:
        raise DataError(f"{source} mixes files of different kinds: {', '.join(sorted(suffixes))}")
    (suffix,) = suffixes
    query = _scan(suffix, paths, source)
    try:
        query.collect_schema()
        if suffix in TEXT:
            # Read it whole once: a row with too many fields would shift values into other columns,
            # and a pass over some columns alone does not notice.
            query.select(pl.all().null_count()).collect(engine="streaming")
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        if "more fields" in str(error):
            raise DataError(f"a row of {source} has more fields than its header") from None
        if "could not parse" in str(error):
            raise unreadable(error) from None
        raise DataError(f"{source} cannot be read as {suffix[1:]}") from None
    return query


def cross_columns(rows: pl.LazyFrame, name: str, secret: tuple[str, ...]) -> pl.LazyFrame:
    """Rows with a column `"a,b,c"` that crosses these columns, if there is none of that name.

    Raises:
        DataError: If one of them is missing, or is among `secret`: ids and outcomes.
    """
    import polars as pl

    parts = crossed_parts(rows.collect_schema().names(), name, secret)
    if not parts:
        return rows
    return rows.with_columns(pl.concat_str(parts, separator=" | ").alias(name))


def crossed_parts(names: list[str], name: str, secret: tuple[str, ...]) -> list[str]:
    """The columns that a column `"a,b,c"` is to be crossed from; none if it is a column itself.

    Raises:
        DataError: As `cross_columns`.
    """
    parts = [part.strip() for part in name.split(",")]
    if name in names or len(parts) == 1:
        return []
    if set(parts) & set(secret):
        raise DataError(f"clusters are public: {name!r} cannot be crossed from ids or outcomes")
    missing = [part for part in parts if part not in names]
    if missing:
        raise DataError(
            f"there is no column {missing[0]!r} to cross; "
            f"the table has {', '.join(map(repr, names))}"
        )
    return parts


def _scan(suffix: str, paths: list[Path], source: str) -> pl.LazyFrame:
    import polars as pl

    if suffix in (".parquet", ".pq"):
        return pl.scan_parquet(paths, glob=False)
    if suffix in TEXT:
        return pl.scan_csv(
            paths,
            glob=False,
            separator="\t" if suffix == ".tsv" else ",",
            infer_schema_length=_ROWS_TO_INFER,
        )
    if suffix in (".arrow", ".ipc", ".feather"):
        return pl.scan_ipc(paths, glob=False)
    raise DataError(
        f"{source} is of no known kind; give a .parquet, .csv, .tsv, .arrow, .ipc or .feather file"
    )


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
    # A glob in the form users know from shells, with ** for any depth.
    found = [Path(name) for name in sorted(glob.glob(source, recursive=True))]  # noqa: PTH207
    if not found:
        raise DataError(f"there is no file {source}")
    return found


def _files_within(folder: Path) -> list[Path]:
    """The files of a folder at any depth, but for what other tools leave beside their data."""
    hidden = (".", "_")
    found = [
        entry
        for entry in sorted(folder.rglob("*"))
        if entry.is_file()
        and not any(part.startswith(hidden) for part in entry.relative_to(folder).parts)
    ]
    if not found:
        raise DataError(f"the folder {folder} holds no files")
    return found


def _store_query(request: str, folder: Path) -> Path:
    """Run a query once and keep its rows: run twice, it might give others."""
    try:
        import duckdb
    except ImportError:
        raise DataError("duckdb sources need DuckDB: pip install 'clusterdp[duckdb]'") from None
    database, _, query = request.partition("?")
    if not query.strip():
        raise DataError("a duckdb source reads duckdb:database.db?select ...; there is no query")
    if database and not Path(database).is_file():
        raise DataError(f"there is no database {database}")
    stored = folder / "query.parquet"
    try:
        with duckdb.connect(database or ":memory:", read_only=bool(database)) as connection:
            connection.sql(query).write_parquet(str(stored))
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        # These speak of the query alone; other errors quote values.
        reason = str(error).strip().split("\n", 1)[0]
        raise DataError(f"DuckDB refused the query: {reason}") from None
    except duckdb.Error as error:
        raise DataError(f"DuckDB could not run the query ({type(error).__name__})") from None
    return stored
