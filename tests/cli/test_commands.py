"""The command line as the two people use it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import PARTS, assert_refused, release, release_declared, run, write
from clusterdp.cli import console


def test_owner_and_analyst(source: Path, published: Path, table: pl.DataFrame) -> None:
    assert sorted(path.name for path in published.iterdir()) == [
        "README.md",
        "cells.parquet",
        "channels.parquet",
        "index.html",
        "manifest.json",
        "totals.parquet",
        "units.parquet",
    ]
    units = pl.read_parquet(published / "units.parquet")
    public = ["user", "treated", "market", "secret"]
    assert units.columns == [*public, "fold", "response", "clicks_debiased"]
    assert units.select(public).equals(table.select(public).sort("user"))
    assert "(label DP)" in run("inspect", published).output
    verified = run("verify", published)
    assert verified.exit_code == 0
    assert verified.output.splitlines()[0] == f"{published} is sound: it passed all 16 checks."
    assert verified.output.count("ok ") == 16
    estimated = run("estimate", published, "--json")
    effects = json.loads(estimated.output)["effects"]
    again = cdp.estimate(cdp.read_release(published))
    assert effects[0]["effect"] == again.effect
    assert source.exists()


@pytest.mark.parametrize(
    "mechanism",
    [
        "cluster-dp",
        "cluster-free-dp",
        "uniform-prior-dp",
        "noisy-horvitz-thompson",
        "noisy-histogram",
    ],
)
def test_every_mechanism_survives_the_folder(mechanism: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert release_declared(source, target, mechanism=mechanism).exit_code == 0
    assert run("verify", target).exit_code == 0
    loaded = cdp.read_release(target)
    assert loaded.guarantee.epsilon <= 2
    assert loaded.guarantee == loaded.questions[0].mechanism.guarantee(loaded.questions[0].space)
    result = run("estimate", target)
    assert result.exit_code == 0, result.output
    assert "95% CI" in result.output


@pytest.mark.parametrize(
    "kind", ["parquet", "csv", "arrow", "folder", "glob", "duckdb", "database"]
)
def test_every_kind_of_input(kind: str, table: pl.DataFrame, source: Path, tmp_path: Path) -> None:
    half = len(table) // 2
    parts = tmp_path / "parts"
    parts.mkdir()
    table[:half].write_parquet(parts / "a.parquet")
    table[half:].write_parquet(parts / "b.parquet")
    table.write_csv(tmp_path / "t.csv")
    table.write_ipc(tmp_path / "t.arrow")
    with duckdb.connect(str(tmp_path / "w.db")) as connection:
        connection.sql(f"create table clicks as from '{source}'")
    given: dict[str, tuple[object, ...]] = {
        "parquet": (source,),
        "csv": (tmp_path / "t.csv",),
        "arrow": (tmp_path / "t.arrow",),
        "folder": (parts,),
        "glob": (f"{parts}/*.parquet",),
        "duckdb": ("duckdb://", "--query", f"select * from '{source}'"),
        "database": (f"duckdb:///{tmp_path}/w.db", "--query", "select * from clicks"),
    }
    named, *options = given[kind]
    result = release(named, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    users = pl.read_parquet(tmp_path / "out" / "units.parquet")["user"]
    assert users.equals(table["user"].sort())


def test_a_dry_run_reads_no_outcome(table: pl.DataFrame, tmp_path: Path) -> None:
    """No outcome is there to be read: a release is refused, its plan is not."""
    unreadable = table.with_columns(clicks=pl.lit(None, dtype=pl.Int64))
    unreadable.write_parquet(tmp_path / "t.parquet")
    assert release(tmp_path / "t.parquet", tmp_path / "out").exit_code == 2
    result = release(tmp_path / "t.parquet", tmp_path / "out", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    plan = json.loads(result.output)["plan"]
    assert plan["smallest_cells"] == [60, 60, 60]
    assert plan["epsilon"] <= 2
    expected = plan["expected"]["clicks"]
    assert expected["std_error"] > expected["privacy_std_error"] > 0
    assert not (tmp_path / "out").exists()


def test_parameters_by_hand(source: Path, tmp_path: Path) -> None:
    result = release_declared(
        source, tmp_path / "out", mechanism="cluster-dp", noise_scale=5, prior_floor=0.05
    )
    assert result.exit_code == 0, result.output
    published = cdp.read_release(tmp_path / "out")
    numbers = published.questions[0].mechanism.parameters(published.questions[0].space)
    assert numbers["prior_floor"] == pytest.approx(0.05)
    assert numbers["noise_scale"] == 5


def test_nothing_secret_is_in_the_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key, no column but those published, no path, no name of the machine or its user."""
    keys: list[bytes] = []
    real = os.urandom

    def remembered(size: int) -> bytes:
        keys.append(real(size))
        return keys[-1]

    monkeypatch.setattr("clusterdp.rows.keys.os.urandom", remembered)
    assert release(source, tmp_path / "out").exit_code == 0
    assert keys
    secrets = [key for key in keys if len(key) == 32]
    secrets += [key.hex().encode() for key in secrets]
    secrets += [str(tmp_path).encode(), b"secret"]
    machine = os.uname().nodename.encode()
    as_a_word = re.compile(rb"(?<![A-Za-z0-9])" + re.escape(machine) + rb"(?![A-Za-z0-9])")
    for path in (tmp_path / "out").iterdir():
        content = path.read_bytes()
        # A short name is bound to occur among compressed bytes.
        if path.suffix != ".parquet" or len(machine) > 8:
            assert not as_a_word.search(content), path.name
        for secret in secrets:
            assert secret not in content, f"{path.name} holds {secret!r}"
    units = pl.read_parquet(tmp_path / "out" / "units.parquet")
    truth = pl.read_parquet(source)["clicks"].cast(pl.Float64)
    assert not any(units[name].cast(pl.Float64).equals(truth) for name in units.columns)


def test_an_estimate_never_overwrites_what_it_reads(
    published: Path, table: pl.DataFrame, tmp_path: Path
) -> None:
    segments = tmp_path / "crm.csv"
    table.select("user", tier=pl.col("user") % 2).write_csv(segments)
    before = segments.read_bytes()
    options = ("--segments", segments, "--by", "tier", "--csv", segments)
    assert_refused(run("estimate", published, *options), "is an input")
    assert segments.read_bytes() == before
    result = run("estimate", published, "--plot", published / "forest.svg")
    assert_refused(result, "is an input")


def test_segments_plots_and_tables(published: Path, table: pl.DataFrame, tmp_path: Path) -> None:
    segments = tmp_path / "crm.csv"
    table.select("user", tier=pl.col("user") % 2).write_csv(segments)
    options = ("--segments", segments, "--by", "tier", "--by", "tier", "--adjust", "secret")
    files = ("--csv", tmp_path / "e.csv", "--plot", tmp_path / "forest.svg")
    result = run("estimate", published, *options, *files, "--level", 0.9)
    assert result.exit_code == 0, result.output
    assert "90% CI" in result.output
    rows = pl.read_csv(tmp_path / "e.csv")
    assert rows["segment"].to_list() == ["overall"] * 2 + ["tier=0"] * 2 + ["tier=1"] * 2
    assert rows["adjusted"].to_list() == [False, True] * 3
    assert "<svg" in (tmp_path / "forest.svg").read_text()
    again = run("estimate", published, *options, "--level", 0.9, "--plot", tmp_path / "again.svg")
    assert again.exit_code == 0
    assert (tmp_path / "again.svg").read_text() == (tmp_path / "forest.svg").read_text()


def test_segments_that_match_nobody(published: Path, tmp_path: Path) -> None:
    pl.DataFrame({"user": [10**9], "tier": ["x"]}).write_csv(tmp_path / "crm.csv")
    options = ("--segments", tmp_path / "crm.csv", "--by", "tier")
    assert_refused(run("estimate", published, *options), "have no id in common")


def test_a_weak_guarantee_and_tiny_cells_are_pointed_out(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    few = pl.concat(
        [table.filter(pl.col("market") > 0), table.filter(pl.col("market") == 0).head(4)]
    )
    result = release(write(few, tmp_path), tmp_path / "out", "--epsilon", 12, "--dry-run")
    assert "At this ε rows reveal a lot" in result.output
    assert "has 2 units. Merge small clusters" in result.output


def test_aggregates_do_not_claim_rows(source: Path, tmp_path: Path) -> None:
    result = release_declared(source, tmp_path / "out", mechanism="noisy-histogram")
    assert "noisy totals, no rows" in result.output
    assert "'user'" not in run("inspect", tmp_path / "out").output
    assert "order of rows" not in (tmp_path / "out" / "README.md").read_text()


def test_odd_names_in_the_readme(table: pl.DataFrame, tmp_path: Path) -> None:
    """The examples of the folder's own README run, whatever columns are called."""
    odd = table.rename({"treated": "tre\"at'ed"})
    path = write(odd, tmp_path)
    target = tmp_path / "out"
    parts = [*PARTS]
    parts[3] = "tre\"at'ed"
    result = run("release", path, *parts, "--epsilon", 1, "--out", target)
    assert result.exit_code == 0, result.output
    readme = (target / "README.md").read_text()
    query = (
        readme.split("```sql\n")[1]
        .split("```")[0]
        .replace("units.parquet", str(target / "units.parquet"))
    )
    assert len(duckdb.execute(query).fetchall()) == 2
    code = (
        readme.split("```python\n")[1]
        .split("```")[0]
        .replace("units.parquet", str(target / "units.parquet"))
    )
    exec(code, {})  # noqa: S102 - our own document


def test_a_crossed_cluster_can_be_cut_by(table: pl.DataFrame, tmp_path: Path) -> None:
    path = write(table.with_columns(half=pl.col("user") % 2), tmp_path)
    parts = [*PARTS]
    parts[5] = "market,half"
    result = run("release", path, *parts, "--epsilon", 1, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    cut = run("estimate", tmp_path / "out", "--by", "market,half", "--json")
    assert len(json.loads(cut.output)["effects"]) == 11


def test_the_installed_command_starts() -> None:
    command = Path(sys.executable).with_name("clusterdp")
    done = subprocess.run(  # noqa: S603
        [str(command), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"clusterdp {cdp.__version__}"


@pytest.mark.parametrize("command", ["release", "estimate", "inspect", "verify"])
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "clusterdp" in result.output or "folder" in result.output


def test_notes_are_wrapped_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a folder without a licence says so"
    console.print_note(text)
    assert capsys.readouterr().out == f"note: {text}\n"
    monkeypatch.setattr(console, "terminal_width", lambda: 20)
    console.print_note(text)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 20
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"note: {text}"


def test_several_folders_and_looks(
    source: Path, table: pl.DataFrame, tmp_path: Path, published: Path
) -> None:
    """One command reads all; a page says how to make it again, by names of folders."""
    weeks = [tmp_path / f"week{place}" for place in (1, 2)]
    for place, week in enumerate(weeks):
        part = table[300 * place :][:300]
        part.write_parquet(tmp_path / f"{week.name}.parquet")
        assert release(tmp_path / f"{week.name}.parquet", week).exit_code == 0
    page = tmp_path / "report.html"
    shown = run("estimate", *weeks, "--by", "folder", "--look", "1/2", "--html", page)
    assert shown.exit_code == 0, shown.output
    assert "week1" in shown.output
    assert "Look 1 of 2" in shown.output
    assert "clusterdp estimate week1 week2" in page.read_text(encoding="utf-8")
    found = json.loads(run("estimate", *weeks, "--json", "--folder-weights", "precision").output)
    assert {one["n_treated"] + one["n_control"] for one in found["effects"]} == {table.height}
    again = run("estimate", published, weeks[0])
    assert again.exit_code != 0
    assert "share units" in again.output
    refused = run("estimate", *weeks, "--look", "3 of 8")
    assert "look must be which of how many" in refused.output
    assert "week1" not in cdp.estimate(weeks).origin.made_by.partition("[")[0]
    assert cdp.estimate(weeks).origin.made_by == "clusterdp.estimate(['week1', 'week2'])"
