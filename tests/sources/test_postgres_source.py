"""Queries to PostgreSQL: types, one snapshot that is only read, and nothing left behind."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest

from cli_runs import PARTS, assert_refused, run
from clusterdp.sources.databases import read_query, store_query
from clusterdp.sources.source import ColumnRequest, NamedSource
from source_forms import in_postgres

if TYPE_CHECKING:
    from pathlib import Path

    from soak.postgres import Server

pytestmark = pytest.mark.postgres

EVERY_TYPE = """
    select 1::int2 as int2, 2::int4 as int4, 3::int8 as int8, 0.1::numeric as numeric,
        2.50::numeric(10, 2) as decimal, 'x'::text as text, 'y'::varchar(9) as varchar,
        true as bool, '2024-02-29'::date as date, 0.5::real as real, 0.1::float8 as float8,
        '6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid as uuid, 'ok'::mood as mood
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null
"""
READ_AS: dict[str, tuple[Any, Any]] = {
    "int2": (pl.Int16, 1),
    "int4": (pl.Int32, 2),
    "int8": (pl.Int64, 3),
    "numeric": (pl.Float64, 0.1),
    "decimal": (pl.Float64, 2.5),
    "text": (pl.String, "x"),
    "varchar": (pl.String, "y"),
    "bool": (pl.Boolean, True),
    "date": (pl.Date, date(2024, 2, 29)),
    "real": (pl.Float32, 0.5),
    "float8": (pl.Float64, 0.1),
    "uuid": (pl.String, str(UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))),
    "mood": (pl.String, "ok"),
}


@pytest.fixture
def clicks(table: pl.DataFrame, postgres: Server) -> NamedSource:
    return in_postgres(table.with_columns(pl.col("secret").round(4)), postgres)


@pytest.fixture
def admin(clicks: NamedSource, postgres: Server) -> str:
    """The same database, for its owner."""
    return clicks.name.replace("//reader@", f"//{postgres.user}@", 1)


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement)
        return found.fetchall() if found.description else []


def release(source: NamedSource, out: Path, *options: object, query: str | None = None) -> Any:
    asked = ("--query", query or source.query, "--epsilon", 2, "--out", out)
    return run("release", source.name, *PARTS, *asked, *options)


def test_every_type_stored_or_not(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_database(f"d{uuid4().hex}")
    execute(url, "create type mood as enum ('sad', 'ok')")
    source = NamedSource(name=postgres.for_reader(url), query=EVERY_TYPE)
    for rows in (
        store_query(source, ColumnRequest(), tmp_path).collect(),
        read_query(source, ColumnRequest(), ()).collect(),
    ):
        assert {name: (kind, rows[name][0]) for name, kind in rows.schema.items()} == READ_AS
        assert rows.row(1) == (None,) * len(READ_AS)
    assert (tmp_path / "query.parquet").stat().st_mode & 0o777 == 0o600
    types = read_query(source, ColumnRequest(public=READ_AS), list(READ_AS)).collect_schema()
    assert dict(types) == {name: kind for name, (kind, _) in READ_AS.items()}


def test_a_table_without_rows(clicks: NamedSource, tmp_path: Path) -> None:
    empty = release(clicks, tmp_path / "out", query="select * from people where false")
    assert_refused(empty, "the table has no rows")


REFUSED = {
    "no such table": ("select * from word4320", 'relation "word4320" does not exist'),
    "no such column": ("select nowhere from people", 'column "nowhere" does not exist'),
    "no SQL": ("selec 1", "PostgreSQL rejected the query: syntax error"),
    "two statements": ("select 1; select 2", "PostgreSQL rejected the query"),
    "two columns of a name": ("select 1 as a, 2 as a", "two columns of one name"),
    "an outcome that cannot be computed": (
        "select \"user\", treated, market, ('word4321' || market)::int as clicks from people",
        "PostgreSQL could not run the query",
    ),
    "writing": (
        "with gone as (delete from people returning *) select * from gone",
        "PostgreSQL could not run the query (error 0A000)",
    ),
    "a function that writes": (
        "select \"user\", treated, market, clicks + nextval('counter') - 1 as clicks from people",
        "it may only read",
    ),
}


def test_refused_queries_are_one_line_without_values(
    clicks: NamedSource, admin: str, tmp_path: Path
) -> None:
    execute(admin, "create sequence counter", "grant usage on sequence counter to reader")
    before = execute(admin, "select count(*), sum(clicks) from people")
    for query, message in REFUSED.values():
        assert_refused(release(clicks, tmp_path / "out", query=query), message)
        assert not list(tmp_path.iterdir())
    assert execute(admin, "select count(*), sum(clicks) from people") == before
    assert execute(admin, "select is_called from counter") == [(False,)]


def test_who_may_call_what_writes_files_is_refused(
    clicks: NamedSource, admin: str, tmp_path: Path
) -> None:
    execute(admin, "grant execute on function lo_export(oid, text) to reader")
    try:
        assert_refused(release(clicks, tmp_path / "out"), "may reach files of the server")
    finally:
        execute(admin, "revoke execute on function lo_export(oid, text) from reader")


def test_nothing_is_left_behind(clicks: NamedSource, admin: str, tmp_path: Path) -> None:
    said = release(clicks, tmp_path / "out", "--passthrough", "secret")
    assert said.exit_code == 0, said.output
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    left = "select relname from pg_class where relpersistence = 't'"
    others = (
        "select pid from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid()"
    )
    kept = "select name from pg_prepared_statements union select name from pg_cursors"
    for asked in (left, others, kept):
        assert execute(admin, asked) == []


def test_passwords_come_from_the_environment(
    clicks: NamedSource,
    admin: str,
    postgres: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = postgres.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    execute(
        admin,
        "drop role if exists guarded",
        "create role guarded login password 'word4321'",
        "grant pg_read_all_data to guarded",
    )
    guarded = clicks.name.replace("//reader@", "//guarded@")
    source = NamedSource(name=guarded, query=clicks.query)
    try:
        rules.write_text(f"local all guarded scram-sha-256\n{before}")
        execute(admin, "select pg_reload_conf()")
        monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
        assert_refused(release(source, tmp_path / "out"), "needs a password; give it as PGPASSWORD")
        monkeypatch.setenv("PGPASSWORD", "wrong4321")
        assert_refused(release(source, tmp_path / "out"), "password authentication failed")
        monkeypatch.setenv("PGPASSWORD", "word4321")
        assert release(source, tmp_path / "out").exit_code == 0
    finally:
        rules.write_text(before)
        execute(admin, "select pg_reload_conf()")


def test_no_such_database(postgres: Server, tmp_path: Path) -> None:
    source = NamedSource(name=postgres.for_reader(postgres.url("nowhere")), query="select 1")
    assert_refused(release(source, tmp_path / "out"), 'database "nowhere" does not exist')
