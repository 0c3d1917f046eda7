"""A source as a query over its rows, to be run as often as needed.

Names of files show their kind. They may be in object storage: one file, a folder or a glob.
"""

from __future__ import annotations

import csv
import glob
import json
import re
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp._named import columns
from clusterdp.errors import DataError, ParameterError, errors_about, raise_alone
from clusterdp.sources.databases import query_types, read_query, store_query
from clusterdp.sources.source import ColumnRequest
from clusterdp.sources.text import (
    COMPRESSED,
    LINES,
    TEXT,
    find_delimiter,
    first_line,
    open_lines,
    open_text,
)
from clusterdp.storage.store import ObjectStore, is_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import polars as pl

    from clusterdp.sources.source import NamedSource
    from clusterdp.sources.text import FoundFiles


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
    return scan_files(source, wanted)


def open_unstored(
    source: NamedSource, wanted: ColumnRequest, hidden: Collection[str] = ()
) -> pl.LazyFrame:
    """As `open_source`, with nothing stored anywhere: for callers that need only some columns.

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
    return scan_files(source, wanted)


_PARQUET, _ARROW = (".parquet", ".pq"), (".arrow", ".ipc", ".feather")
_COMPRESSIBLE = (*TEXT, *LINES)
_IN_PYTHON = "read it in Python, and give the frame: clusterdp.publish(pandas.{}(...), ...)"
_QUERIED = "give {}:///FILE, and a query (--query; of your segments --segments-query)"
# What cannot be read, and the way that works.
_REMEDIES = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV, and give that"),
    **dict.fromkeys((".sav", ".zsav", ".por"), _IN_PYTHON.format("read_spss")),
    ".dta": _IN_PYTHON.format("read_stata"),
    **dict.fromkeys((".sas7bdat", ".xpt"), _IN_PYTHON.format("read_sas")),
    ".orc": _IN_PYTHON.format("read_orc"),
    ".avro": "read it in Python, and give the frame: clusterdp.publish(polars.read_avro(...), ...)",
    **dict.fromkeys((".rds", ".rda", ".rdata"), "write it in R: arrow::write_parquet(...)"),
    ".json": "write one object per line into an .ndjson file: jq -c '.[]' FILE > FILE.ndjson",
    **dict.fromkeys(
        (".zip", ".bz2", ".xz", ".7z", ".tar", ".tgz", *COMPRESSED),
        "unpack it; of compressed files .csv.gz, .csv.zst, .ndjson.gz and similar can be read",
    ),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _QUERIED.format("sqlite")),
    ".duckdb": _QUERIED.format("duckdb"),
    **dict.fromkeys((".txt", ".dat", ".psv"), "name it .csv, and give its delimiter (--delimiter)"),
}


def scan_files(source: NamedSource, wanted: ColumnRequest) -> pl.LazyFrame:
    """A query over files.

    Raises:
        DataError: If no file is found, or files cannot be read as what they are.
    """
    with _found(source) as (files, kind):
        query = _scan(kind, files, source, wanted)
        query.collect_schema()
    return query


@contextmanager
def _found(source: NamedSource) -> Iterator[tuple[FoundFiles, str]]:
    """The files of a source, and their kind; errors of Polars quote no value then."""
    import polars as pl

    found: FoundFiles = (
        find_objects(source.name) if is_store(source.name) else (_find_files(source.name), {})
    )
    kinds = {_kind_of(PurePath(path)) for path in found[0]}
    if len(kinds) > 1:
        raise DataError(f"{source} mixes files of different kinds: {', '.join(sorted(kinds))}")
    (kind,) = kinds
    if source.delimiter is not None and kind not in TEXT:
        raise ParameterError(
            f"delimiter (--delimiter) belongs to text files, and {source} is {kind[1:]}; leave it "
            "out"
        )
    wrong = (OSError, UnicodeDecodeError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        yield found, kind
    except wrong as error:
        raise_alone(DataError(f"{source} {_trouble(str(error), kind)}"))


class DeclaredColumns(NamedTuple):
    """What a table declares of itself.

    Attributes:
        types: The type of each column, by name; None where none is declared.
        n_rows: How many rows it has; None where that is not declared.
    """

    types: dict[str, pl.DataType | None]
    n_rows: int | None = None


def declared_columns(source: NamedSource) -> DeclaredColumns:
    """The names and declared types of a table's columns, and no value of any.

    Parquet and Arrow files and databases declare types. Of a text file the header is read, of lines
    of JSON the names in the first one.

    Raises:
        DataError: As `open_source`.
    """
    import polars as pl

    if source.database is not None:
        return DeclaredColumns(query_types(source))
    with _found(source) as (files, kind):
        if kind in TEXT:
            separator = _separator(kind, files, source)
            header = next(csv.reader([first_line(files)], delimiter=separator), [])
            if not header:
                raise DataError(f"{source} is empty; it needs a line with the names of columns")
            return DeclaredColumns(dict.fromkeys(header))
        if kind in LINES:
            return DeclaredColumns(dict.fromkeys(_keys(source, first_line(files))))
        rows = _scan(kind, files, source, ColumnRequest(public=()))
        n_rows = rows.select(pl.len()).collect().item()
        return DeclaredColumns(dict(rows.collect_schema()), n_rows)


def public_columns(source: NamedSource, names: Collection[str]) -> pl.DataFrame:
    """The values of some public columns only."""
    import polars as pl

    if source.database is not None:
        rows = read_query(source, ColumnRequest(public=names), ())
        return rows.select(columns(names)).collect()
    with _found(source) as (files, kind):
        paths, reach = files
        if kind in TEXT:
            separator = _separator(kind, files, source)
            rows = pl.scan_csv(paths, glob=False, infer_schema=False, separator=separator, **reach)
        elif kind in LINES:
            rows = pl.scan_ndjson(paths, schema=dict.fromkeys(names, pl.String()))
        else:
            rows = _scan(kind, files, source, ColumnRequest(public=names))
        return rows.select(columns(names)).collect()


def _keys(source: NamedSource, line: str) -> list[str]:
    """The names in a line of JSON."""
    try:
        return list(dict(json.loads(line)))
    except (RecursionError, TypeError, ValueError):
        raise_alone(DataError(f"{source} is not lines of JSON: every line must be one object"))


def _separator(kind: str, files: FoundFiles, source: NamedSource) -> str:
    given = source.delimiter or ("\t" if kind == ".tsv" else None)
    return given or find_delimiter(first_line(files))


def _scan(kind: str, files: FoundFiles, source: NamedSource, wanted: ColumnRequest) -> pl.LazyFrame:
    import polars as pl

    paths, reach = files
    if kind in _PARQUET:
        return pl.scan_parquet(paths, glob=False, **reach)
    if kind in _ARROW:
        return pl.scan_ipc(paths, glob=False, **reach)
    if kind in LINES:
        if reach:  # Polars would find types from a copy on the disk, and leave it there
            raise DataError(
                f"{source} is {kind[1:]} in object storage, but this file type is read from disk "
                "only; copy it here, or give a Parquet or CSV file"
            )
        return open_lines(paths, wanted)
    if kind in TEXT:
        return open_text(files, _separator(kind, files, source), wanted)
    known = "use .parquet, .csv, .tsv, .ndjson, .jsonl, .arrow, .ipc or .feather"
    raise DataError(f"{source}: unsupported file type; {_REMEDIES.get(kind, known)}")


def _kind_of(path: PurePath) -> str:
    """The suffix that shows what a file holds, below that of its compression."""
    suffix, stem = path.suffix.lower(), PurePath(path.stem)
    inner = stem.suffix.lower()
    return inner if suffix in COMPRESSED and inner in _COMPRESSIBLE else suffix


# What Polars says of a damaged file, and what is wrong with it.
_TROUBLES = {
    "more fields": "has a row with more fields than its header as {}",
    "utf-8": "is not UTF-8; convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW",
    "utf8": "is not UTF-8; convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW",
    "unexpected end of file": "ends too early; it is damaged, or was not copied to its end",
    "incomplete frame": "ends too early; it is damaged, or was not copied to its end",
}


def _trouble(said: str, kind: str) -> str:
    """What is wrong with a file, from the error of Polars, which may quote values."""
    lines = ": every line must be one JSON object" if kind in LINES else ""
    known = (trouble for words, trouble in _TROUBLES.items() if words in said)
    hint = lines or "; check that the end of its name shows what it is"
    return next(known, "cannot be read as {}" + hint).format(kind[1:])


@errors_about("input")
def _find_files(source: str) -> list[Path]:
    """The files a path, folder or glob names, in a fixed order."""
    path, none = Path(source), f"there is no file {source}; check its name"
    try:
        if path.is_file():
            return [path]
        if path.is_dir():
            none = f"the folder {str(path)!r} holds no files"
            # At any depth, but for what other tools leave next to their data.
            found = [
                entry
                for entry in sorted(path.rglob("*"))
                if entry.is_file() and not is_hidden(entry.relative_to(path))
            ]
        else:
            # A glob as in shells, with ** for any depth.
            found = [Path(name) for name in sorted(glob.glob(source, recursive=True))]  # noqa: PTH207
    except OSError as error:
        raise DataError(f"{source[:200]} cannot be read: {error.strerror}") from None
    if not found:
        raise DataError(none)
    return found


_WILD = re.compile(r"[*?\[]")
# A piece of a glob, and what it stands for in a regular expression; ** is any depth.
_PIECE = re.compile(r"(\*\*/)|(\*\*)|(\*)|(\?)|(\[!?[^\]]+\])")


def find_objects(source: str) -> tuple[list[str], dict[str, Any]]:
    """The addresses of the files of a source, in the order in which a disk would have them.

    Raises:
        DataError: If no file is found, or the store cannot be read.
    """
    source = source.rstrip("/")
    above, _, name = source.rpartition("/")
    if not above.endswith("/"):  # there is more than a bucket
        store = ObjectStore.open(above, DataError)
        if store.size(name) is not None:
            return _located(source, store, [name])
    wild = _WILD.search(source)
    if wild is None:
        store = ObjectStore.open(source, DataError)
        paths = sorted(map(PurePosixPath, store.sizes()))
        return _located(source, store, [str(path) for path in paths if not is_hidden(path)])
    folder, _, _ = source[: wild.start()].rpartition("/")
    store, pattern = ObjectStore.open(folder, DataError), _to_pattern(source[len(folder) + 1 :])
    return _located(source, store, sorted(filter(pattern.fullmatch, store.sizes())))


def is_hidden(path: PurePath) -> bool:
    """Whether a file of a folder is what other tools leave next to their data."""
    return any(part.startswith((".", "_")) for part in path.parts)


@errors_about("input")
def _located(source: str, store: ObjectStore, names: list[str]) -> tuple[list[str], dict[str, Any]]:
    if not names:
        raise DataError(f"there is no file {source}; check its name")
    return [f"{store}/{name}" for name in names], store.access.for_polars()


def _to_pattern(wild: str) -> re.Pattern[str]:
    """A glob as in shells, with ** for any depth; names with a dot first are left out."""
    stands_for = (r"(?:[^/.][^/]*/)*", r".*", r"[^/]*", r"[^/]")
    pattern, end = "", 0
    for piece in _PIECE.finditer(wild):
        which = (piece.lastindex or 0) - 1
        chosen = stands_for[which] if which < len(stands_for) else piece[0].replace("[!", "[^")
        before = wild[: piece.start()]
        visible = r"(?!\.)" if not before or before.endswith("/") else ""
        pattern += re.escape(wild[end : piece.start()]) + visible + chosen
        end = piece.end()
    return re.compile(pattern + re.escape(wild[end:]))
