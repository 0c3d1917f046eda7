"""One table in every form that it can come in."""

from __future__ import annotations

import gzip
import json
import sqlite3
from typing import TYPE_CHECKING
from uuid import uuid4

import duckdb
import polars as pl

from clusterdp.sources.source import NamedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from soak.postgres import Server

QUERY = "select * from people"
_POSTGRES_TYPES = {
    pl.Int64: "bigint",
    pl.Float64: "numeric(12, 4)",
    pl.String: "text",
    pl.Boolean: "boolean",
}


def _csv(table: pl.DataFrame, folder: Path) -> NamedSource:
    table.write_csv(folder / "people.csv")
    return NamedSource(name=str(folder / "people.csv"))


def _csv_of_semicolons(table: pl.DataFrame, folder: Path) -> NamedSource:
    table.write_csv(folder / "people.csv", separator=";")
    return NamedSource(name=str(folder / "people.csv"))


def _csv_of_carets(table: pl.DataFrame, folder: Path) -> NamedSource:
    table.write_csv(folder / "people.csv", separator="^")
    return NamedSource(name=str(folder / "people.csv"), delimiter="^")


def _tsv_gz(table: pl.DataFrame, folder: Path) -> NamedSource:
    path = folder / "people.tsv.gz"
    path.write_bytes(gzip.compress(table.write_csv(separator="\t").encode()))
    return NamedSource(name=str(path))


def _csv_gz(table: pl.DataFrame, folder: Path) -> NamedSource:
    path = folder / "people.csv.gz"
    path.write_bytes(gzip.compress(table.write_csv().encode()))
    return NamedSource(name=str(path))


def _csv_zst(table: pl.DataFrame, folder: Path) -> NamedSource:
    import pyarrow as pa

    path = folder / "people.csv.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(table.write_csv().encode())
    return NamedSource(name=str(path))


def _ndjson(table: pl.DataFrame, folder: Path) -> NamedSource:
    path = folder / "people.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_dicts()))
    return NamedSource(name=str(path))


def _jsonl_gz(table: pl.DataFrame, folder: Path) -> NamedSource:
    """Without the keys of what is missing."""
    path = folder / "people.jsonl.gz"
    rows = ({k: v for k, v in row.items() if v is not None} for row in table.to_dicts())
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return NamedSource(name=str(path))


def _parquet(table: pl.DataFrame, folder: Path) -> NamedSource:
    table.write_parquet(folder / "people.parquet")
    return NamedSource(name=str(folder / "people.parquet"))


def _arrow(table: pl.DataFrame, folder: Path) -> NamedSource:
    table.write_ipc(folder / "people.feather")
    return NamedSource(name=str(folder / "people.feather"))


def _sqlite(table: pl.DataFrame, folder: Path) -> NamedSource:
    path = folder / "people.sqlite"
    columns = ", ".join(f'"{name}"' for name in table.columns)
    marks = ", ".join("?" * table.width)
    connection = sqlite3.connect(path)
    connection.execute(f"create table people ({columns})")
    connection.executemany(f"insert into people values ({marks})", table.rows())
    connection.commit()
    connection.close()
    return NamedSource(name=f"sqlite:///{path}", query=QUERY + "; ")


def _duckdb(table: pl.DataFrame, folder: Path) -> NamedSource:
    path = folder / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table.to_arrow())
        connection.execute("create table people as from given")
    return NamedSource(name=f"duckdb:///{path}", query=QUERY)


FORMS: dict[str, Callable[[pl.DataFrame, Path], NamedSource]] = {
    "parquet": _parquet,
    "feather": _arrow,
    "csv": _csv,
    "csv with semicolons": _csv_of_semicolons,
    "csv with carets": _csv_of_carets,
    "csv.gz": _csv_gz,
    "tsv.gz": _tsv_gz,
    "csv.zst": _csv_zst,
    "ndjson": _ndjson,
    "jsonl.gz": _jsonl_gz,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
}


def in_postgres(table: pl.DataFrame, server: Server) -> NamedSource:
    """The table in a database of its own, and a user who can only read it."""
    import psycopg

    url = server.new_database(f"d{uuid4().hex}")
    columns = ", ".join(
        f'"{name}" {_POSTGRES_TYPES[kind.base_type()]}' for name, kind in table.schema.items()
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create table people ({columns})")
        copying = "copy people from stdin (format csv, header)"
        with connection.cursor() as cursor, cursor.copy(copying) as copy:
            copy.write(table.write_csv())
    return NamedSource(name=server.for_reader(url), query=QUERY + " -- all of them")
