"""A query is one select that reads: it writes nothing, and reaches its own database alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from source_forms import FORMS, in_postgres

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from soak.postgres import Server

ASKED: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "outcomes": {"clicks": "0..3"},
    "epsilon": 2,
}
CALLS: list[Callable[..., Any]] = [cdp.plan, cdp.preview, cdp.publish]
ROWS = "select * from people"
# A select of the table that also selects from a function.
BESIDE = "select people.* from people left join {} on true"

ANY_DUCKDB = {
    "copy": f"copy ({ROWS}) to 'stolen.csv'",
    "select, then copy": f"{ROWS}; copy ({ROWS}) to 'stolen.csv'",
    "copy, then select": f"copy ({ROWS}) to 'stolen.csv'; {ROWS}",
    "copy in a query of a query": BESIDE.format(f"query('copy ({ROWS}) to ''stolen.csv''')"),
    "copy in a CTE": f"with gone as (copy ({ROWS}) to 'stolen.csv') {ROWS}",
    "copy in a CTE to the database": f"with gone as (copy ({ROWS}) to 'people.duckdb.wal') {ROWS}",
    "export": "export database 'stolen'",
    "attach": f"attach 'stolen.db'; {ROWS}",
    "create": f"create temp table stolen as {ROWS}; {ROWS}",
    "create a macro": f"create temp macro stolen() as 1; {ROWS}",
    "set": f"set temp_directory = 'stolen'; {ROWS}",
    "pragma": f"pragma enable_profiling = 'json'; {ROWS}",
    "load": f"load httpfs; {ROWS}",
    "install": f"install httpfs; {ROWS}",
    "call": "call enable_logging('QueryLog', storage='file', storage_path='stolen')",
    "explain": f"explain analyze {ROWS}",
    "a statement in a text": BESIDE.format(f"query('{ROWS}')"),
    "a statement in JSON": BESIDE.format(
        f"json_execute_serialized_sql(json_serialize_sql('{ROWS}'))"
    ),
    "log to a file": BESIDE.format(
        "enable_logging('QueryLog', storage='file', storage_path='stolen')"
    ),
    "profile to a file": BESIDE.format(
        "enable_profiling(format='json', save_location='stolen.json')"
    ),
    "another machine": BESIDE.format("'https://localhost:1/stolen.csv'"),
    "a variable of this process": BESIDE.format("frame_in_sight"),
}
HOSTILE: dict[str, dict[str, str]] = {
    "duckdb": {
        **ANY_DUCKDB,
        "a CTE that writes": f"with gone as (delete from people returning *) {ROWS}",
        "another file": BESIDE.format("'beside.csv'"),
        "another file by a function": BESIDE.format("read_text('beside.csv')"),
        "a glob": BESIDE.format("glob('*')"),
        "another database": BESIDE.format("read_duckdb('other.db', table_name='people')"),
    },
    "duckdb files": {
        what: query.replace("people", "'people.parquet'") for what, query in ANY_DUCKDB.items()
    },
    "sqlite": {
        "attach": f"attach 'stolen.db' as stolen; {ROWS}",
        "attach alone": "attach 'stolen.db' as stolen",
        "vacuum": "vacuum into 'stolen.db'",
        "pragma": "pragma query_only = off",
        "delete": "delete from people returning *",
        "a CTE that writes": f"with gone as (delete from people returning *) {ROWS}",
        "create": f"create temp table stolen as {ROWS}",
        "select, then attach": f"{ROWS}; attach 'stolen.db' as stolen",
        "out of the brackets": f"{ROWS}); attach 'stolen.db' as stolen; select * from (select 1",
        "an extension": f"{ROWS} where load_extension('stolen') is null",
        "writefile": "select *, writefile('stolen', 'x') from people",
        "readfile": "select *, readfile('beside.csv') from people",
    },
    "postgresql": {
        "copy": f"copy ({ROWS}) to '/tmp/stolen.csv'",
        "a program": f"copy ({ROWS}) to program 'touch /tmp/stolen'",
        "out of the brackets": "select 1) to program 'touch /tmp/stolen' --",
        "read write": f"set transaction read write; {ROWS}",
        "read write by a function": (
            "select *, set_config('transaction_read_only', 'off', false) from people"
        ),
        "a CTE that writes": f"with gone as (delete from people returning *) {ROWS}",
        "delete": "delete from people returning *",
        "into": "select * into stolen from people",
        "lock": f"{ROWS} for update",
        "a large object": "select *, lo_import('/etc/hostname') from people",
        "export": "select *, lo_export(1, '/tmp/stolen') from people",
        "a file of the server": "select *, pg_read_file('/etc/hostname') from people",
        "do": "do $$ begin perform 1; end $$",
        "explain": f"explain analyze {ROWS}",
    },
}
EVERY = [
    *("duckdb", "duckdb files", "sqlite"),
    pytest.param("postgresql", marks=pytest.mark.postgres),
]


def listed(folder: Path) -> dict[str, int]:
    """The files of a folder, and how large they are."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_size for path in files}


def name_of(database: str, table: pl.DataFrame, folder: Path, request: Any) -> str:
    if database == "postgresql":
        return in_postgres(table, request.getfixturevalue("postgres")).name
    if database == "duckdb files":
        FORMS["parquet"](table, folder)
        return "duckdb://"
    return FORMS[database](table, folder).name


@pytest.mark.parametrize("database", EVERY)
def test_hostile_queries_are_refused(
    database: str,
    table: pl.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """By plan, preview and release alike; no file appears or changes."""
    monkeypatch.chdir(tmp_path)
    frame_in_sight = pl.DataFrame({"a": [1]})
    assert len(frame_in_sight) == 1
    (tmp_path / "beside.csv").write_text("a\n1\n")
    name = name_of(database, table.drop("secret"), tmp_path, request)
    before = listed(tmp_path)
    taken = []
    for what, query in HOSTILE[database].items():
        for call in CALLS:
            more: dict[str, Any] = {} if call is cdp.plan else {"out": "out"}
            try:
                call(name, query=query, **ASKED, **more)
            except cdp.DataError:
                continue
            taken.append((what, call.__name__))
    assert taken == []
    assert listed(tmp_path) == before


@pytest.mark.parametrize("database", ["duckdb", "duckdb files", "sqlite"])
def test_a_select_that_reads_is_taken(
    database: str, table: pl.DataFrame, tmp_path: Path, request: Any
) -> None:
    """Comments, CTEs and a semicolon at the end are parts of one."""
    name = name_of(database, table.drop("secret"), tmp_path, request)
    place = tmp_path / "people.parquet"
    people = f"'{place}'" if database == "duckdb files" else "people"
    query = f"-- first\nwith one as (values (1)) select * from {people}, one; "
    assert cdp.plan(name, query=query, **ASKED).options.n_units == len(table)
    published = cdp.publish(name, query=query, out=tmp_path / "out", **ASKED)
    assert published.read().layout.n_units == len(table)


@pytest.mark.postgres
def test_a_user_of_postgresql_who_reaches_files_is_refused(
    table: pl.DataFrame, postgres: Server, tmp_path: Path
) -> None:
    """Also in a role that was set, which a query could leave."""
    source = in_postgres(table.drop("secret"), postgres)
    owner = source.name.replace("//reader@", f"//{postgres.user}@", 1)
    for name in (owner, f"{owner}&options=-crole%3Dreader"):
        with pytest.raises(cdp.DataError, match="may reach files of the server"):
            cdp.publish(name, query=ROWS, out=tmp_path / "out", **ASKED)
