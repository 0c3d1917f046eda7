"""`clusterdp init` drafts an experiment file, and reads nothing of outcomes."""

from __future__ import annotations

import sqlite3
import tomllib
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from cli_runs import assert_refused, run
from clusterdp.owner.drafting import DraftedFile, PublicColumns, draft_experiment
from clusterdp.sources.source import NamedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PUBLIC = PublicColumns("user", "arm", "market")
QUERY = "select * from visits"


def table(*, changed: bool) -> pl.DataFrame:
    """Two tables that differ in every outcome: values, ends, how many are missing or differ."""
    number = pl.int_range(60)
    outcomes: dict[str, Any] = {
        "visit": pl.lit(value=True) if changed else number % 2 == 0,
        "rounds": pl.when(number > 30).then(number * 1000) if changed else number,
        "spend": pl.lit(1e9) if changed else number / 7,
        "member": pl.lit("always") if changed else pl.format("a{}", number % 2),
        "tier": pl.lit(None, dtype=pl.String) if changed else pl.lit("gold"),
    }
    public = [number.alias("user"), (number % 2).alias("arm")]
    rows: pl.DataFrame = pl.select(*public, market=pl.format("m{}", number % 3), **outcomes)
    return rows


def as_sqlite(rows: pl.DataFrame, path: Path) -> NamedSource:
    with sqlite3.connect(path) as database:
        database.execute("create table visits (user, arm, market, visit, rounds, spend, member)")
        held = rows.drop("tier").rows()
        database.executemany("insert into visits values (?, ?, ?, ?, ?, ?, ?)", held)
    database.close()
    return NamedSource(name=f"sqlite:///{path}", query=QUERY)


def as_duckdb(rows: pl.DataFrame, path: Path) -> NamedSource:
    with duckdb.connect(str(path)) as connection:
        connection.register("given", rows.to_arrow())
        connection.sql("create table visits as from given")
    return NamedSource(name=f"duckdb:///{path}", query=QUERY)


def as_file(write: Callable[..., Any], **given: Any) -> Callable[..., NamedSource]:
    def written(rows: pl.DataFrame, path: Path) -> NamedSource:
        write(rows, path, **given)
        return NamedSource(name=str(path))

    return written


FORMS: dict[str, tuple[str, Callable[[pl.DataFrame, Path], NamedSource]]] = {
    "parquet": (".parquet", as_file(pl.DataFrame.write_parquet, statistics="full")),
    "bare parquet": (".parquet", as_file(pl.DataFrame.write_parquet, statistics=False)),
    "arrow": (".arrow", as_file(pl.DataFrame.write_ipc)),
    "csv": (".csv", as_file(pl.DataFrame.write_csv)),
    "ndjson": (".ndjson", as_file(pl.DataFrame.write_ndjson)),
    "sqlite": (".db", as_sqlite),
    "duckdb": (".duckdb", as_duckdb),
}


def drafted(form: str, folder: Path, *, changed: bool, public: PublicColumns) -> DraftedFile:
    suffix, write = FORMS[form]
    place = folder / f"t{suffix}"
    place.unlink(missing_ok=True)
    return draft_experiment(write(table(changed=changed), place), public, folder / "e.toml")


@pytest.mark.parametrize("public", [PUBLIC, PublicColumns()], ids=["named", "unnamed"])
@pytest.mark.parametrize("form", FORMS)
def test_a_draft_is_the_same_whatever_outcomes_are(
    form: str, public: PublicColumns, tmp_path: Path
) -> None:
    first = drafted(form, tmp_path, changed=False, public=public)
    assert drafted(form, tmp_path, changed=True, public=public) == first


def test_statistics_of_parquet_change_nothing(tmp_path: Path) -> None:
    drafts = [
        drafted(form, tmp_path, changed=False, public=PUBLIC)
        for form in ("parquet", "bare parquet")
    ]
    assert drafts[0] == drafts[1]
    footers = []
    for with_statistics in (True, False):
        table(changed=False).write_parquet(tmp_path / "t.parquet", statistics=with_statistics)
        footers.append(len((tmp_path / "t.parquet").read_bytes()))
    assert footers[0] > footers[1]  # there was something to read


def test_outcomes_that_cannot_be_read_are_not(tmp_path: Path) -> None:
    """Their bytes are overwritten, or fail when they are computed: touching one is an error."""
    marker = b"SENSITIVE-OUTCOME-"
    secret = [marker.decode() + str(number) for number in range(60)]
    path = tmp_path / "t.parquet"
    rows = table(changed=False).with_columns(tier=pl.Series(secret))
    rows.write_parquet(path, compression="uncompressed", statistics=False)
    path.write_bytes(path.read_bytes().replace(marker, b"\xff" * len(marker)))
    with pytest.raises(pl.exceptions.PolarsError):
        pl.read_parquet(path, columns=["tier"])
    text, found, _ = draft_experiment(NamedSource(name=str(path)), PUBLIC, tmp_path / "e.toml")
    assert "3 clusters" in found
    overflow = "select user, arm, abs(visit) as visit from visits"
    source = NamedSource(name=f"sqlite:///{tmp_path}/t.db", query=overflow)
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("create table visits as select 1 user, 0 arm, (1 << 63) visit")
        with pytest.raises(sqlite3.OperationalError, match="overflow"):
            database.execute(overflow).fetchall()
    database.close()
    text, found, _ = draft_experiment(source, PublicColumns("user", "arm"), tmp_path / "e.toml")
    assert 'visit = { type = "?" }' in text


def test_of_a_text_file_the_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    drafts = []
    for rows in (b"", b"1,0,3.5\n", b"\xff\xfe,too,many,fields\n" * 50):
        path.write_bytes(b"user,arm,net revenue\n" + rows)
        source = NamedSource(name=str(path))
        drafts.append(draft_experiment(source, PublicColumns(), tmp_path / "e.toml"))
    assert all(draft == drafts[0] for draft in drafts)
    assert drafts[0][1] == ["3 columns"]
    assert '"net revenue" = { type = "?" }' in drafts[0][0]


def test_types_say_what_an_outcome_is_and_nothing_is_guessed(tmp_path: Path) -> None:
    text = drafted("parquet", tmp_path, changed=False, public=PUBLIC)[0]
    read = tomllib.loads(text)
    source = str(tmp_path / "t.parquet")
    public = {"unit": "user", "arm": "arm", "control": 0, "cluster": "market"}
    assert read["table"] == {"source": source, **public}
    assert read["outcomes"] == {
        "visit": {"type": "binary"},
        "rounds": {"type": "?"},
        "spend": {"type": "number", "range": []},
        "member": {"type": "labels", "values": []},
        "tier": {"type": "labels", "values": []},
    }
    assert read["privacy"] == {"epsilon": "?"}
    bare = tomllib.loads(drafted("parquet", tmp_path, changed=False, public=PublicColumns())[0])
    assert bare["table"] == {"source": source, "unit": "?", "arm": "?"}
    assert max(len(line) for line in text.splitlines() if "source =" not in line) <= 90


def test_a_draft_is_completed_planned_and_published(tmp_path: Path) -> None:
    table(changed=False).write_parquet(tmp_path / "t.parquet")
    file = tmp_path / "experiment.toml"
    made = run("init", tmp_path / "t.parquet", "--unit", "user", "--arm", "arm", "--out", file)
    assert made.exit_code == 0, made.output
    assert "8 columns, 60 rows, 2 arms, no duplicate ids. No outcome was read." in made.stdout
    assert f"then clusterdp plan {file}" in made.stdout
    assert_refused(run("plan", file), "fill in values of 'market'")
    kept = [
        line
        for line in file.read_text().splitlines()
        if not line.startswith(("market", "member", "tier"))
    ]
    text = "\n".join(kept).replace('epsilon = "?"', "epsilon = 2").replace("[] }", "[0, 20] }")
    assert_refused(run("plan", file), "fill in")
    file.write_text(
        text.replace('rounds = { type = "?" }', 'rounds = { type = "count", max = 60 }')
    )
    planned = run("plan", file)
    assert planned.exit_code == 0, planned.output
    released = run("release", file)
    assert released.exit_code == 0, released.output
    assert (tmp_path / "published").is_dir()


def test_what_is_refused(tmp_path: Path) -> None:
    path, file = tmp_path / "t.parquet", tmp_path / "experiment.toml"
    table(changed=False).write_parquet(path)
    assert_refused(run("init", path, "--arm", "am", "--out", file), "Did you mean 'arm'?")
    (tmp_path / "t.xlsx").write_bytes(b"")
    refused = run("init", tmp_path / "t.xlsx", "--out", file)
    assert_refused(refused, "save the sheet as CSV")
    (tmp_path / "t.json").write_bytes(b"[]")
    assert_refused(run("init", tmp_path / "t.json", "--out", file), "one object per line")
    assert_refused(run("init", tmp_path / "nowhere.csv", "--out", file), "there is no file")
    file.write_text("mine")
    assert_refused(run("init", path, "--out", file), "exists, and was left as it is")
    assert file.read_text() == "mine"


def test_likely_columns_are_asked_for(tmp_path: Path) -> None:
    """Their names are no decision: a plan stops until the owner has made it."""
    path, file = tmp_path / "t.csv", tmp_path / "experiment.toml"
    path.write_text("customer id,exp_arm,spend\n")
    made = run("init", path, "--out", file, width=80)
    assert made.exit_code == 0, made.output
    assert "--unit 'customer id' --arm exp_arm" in made.stdout
    assert max(map(len, made.stdout.replace(str(tmp_path), "").splitlines())) <= 80
    text = file.read_text()
    assert 'unit = "?"  # "customer id"? ids, one row per unit. Published.' in text
    assert 'arm = "?"  # "exp_arm"? treatment arms. Published.' in text
    assert 'spend = { type = "?" }  # binary, count, number or labels?' in text
    assert_refused(run("plan", file), "line 7: fill in unit. No data was read.")


@pytest.mark.parametrize("public", [("--unit", "user"), ()])
def test_an_empty_file_is_no_table(public: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"")
    refused = run("init", path, *public, "--out", tmp_path / "e.toml")
    assert_refused(refused, "t.csv is empty; it needs a line with the names of columns")
    assert not (tmp_path / "e.toml").exists()


def test_arms_that_need_a_control_are_listed(tmp_path: Path) -> None:
    rows = table(changed=False).with_columns(arm=pl.format("v{}", pl.col("user") % 3))
    rows.write_parquet(tmp_path / "t.parquet")
    source = NamedSource(name=str(tmp_path / "t.parquet"))
    text, found, _ = draft_experiment(source, PUBLIC, tmp_path / "e.toml")
    assert 'control = "?"  # one of v0, v1, v2' in text
    repeated = pl.concat([rows, rows])
    repeated.write_parquet(tmp_path / "t.parquet")
    text, found, _ = draft_experiment(source, PUBLIC, tmp_path / "e.toml")
    assert "duplicate ids (see aggregate)" in found
