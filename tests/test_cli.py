"""The command line as the two people use it, and everything it must refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import clusterdp as cdp
from clusterdp.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

PARTS = ["--unit", "user", "--arm", "treated", "--cluster", "market", "--outcome", "clicks"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def release(source: object, target: Path, *options: object) -> Result:
    budget = () if "--epsilon" in options or "--resample-prob" in options else ("--epsilon", 2)
    return run("release", source, *PARTS, "--outcomes", "0..3", *budget, "--out", target, *options)


@pytest.fixture
def source(table: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "clicks.parquet"
    table.write_parquet(path)
    return path


@pytest.fixture
def published(source: Path, tmp_path: Path) -> Path:
    result = release(source, tmp_path / "published", "--keep", "secret")
    assert result.exit_code == 0, result.output
    return tmp_path / "published"


def test_owner_and_analyst(source: Path, published: Path, table: pl.DataFrame) -> None:
    assert sorted(path.name for path in published.iterdir()) == [
        "README.md",
        "cells.parquet",
        "manifest.json",
        "units.parquet",
    ]
    units = pl.read_parquet(published / "units.parquet")
    public = ["user", "treated", "market", "secret"]
    assert units.columns == [*public, "released_outcome", "debiased_outcome"]
    assert units.select(public).equals(table.select(public))  # order kept
    assert "label differentially private" in run("inspect", published).output
    verified = run("verify", published)
    assert verified.exit_code == 0
    assert verified.output.count("ok ") == 8
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
    assert release(source, target, "--mechanism", mechanism).exit_code == 0
    assert run("verify", target).exit_code == 0
    loaded = cdp.read_release(target)
    assert loaded.guarantee.epsilon <= 2
    assert loaded.guarantee == loaded.mechanism.guarantee(loaded.layout.space)
    result = run("estimate", target)
    assert result.exit_code == 0, result.output
    assert "95% interval" in result.output


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
    given = {
        "parquet": source,
        "csv": tmp_path / "t.csv",
        "arrow": tmp_path / "t.arrow",
        "folder": parts,
        "glob": f"{parts}/*.parquet",
        "duckdb": f"duckdb:?select * from '{source}'",
        "database": f"duckdb:{tmp_path}/w.db?select * from clicks",
    }[kind]
    result = release(given, tmp_path / "out")
    assert result.exit_code == 0, result.output
    users = pl.read_parquet(tmp_path / "out" / "units.parquet")["user"]
    assert users.equals(table["user"])


def test_a_spec_is_overridden_by_the_command_line(source: Path, tmp_path: Path) -> None:
    spec = tmp_path / "experiment.toml"
    spec.write_text(
        f"""
        input = "{source}"
        unit = "user"
        arm = "treated"
        cluster = "market"
        outcome = "clicks"
        outcomes = "0..3"
        keep = ["secret"]
        epsilon = 1
        out = "{tmp_path / "first"}"
        """
    )
    assert run("release", "--spec", spec).exit_code == 0
    assert cdp.read_release(tmp_path / "first").guarantee.epsilon <= 1
    result = run("release", "--spec", spec, "--epsilon", 3, "--out", tmp_path / "second")
    assert result.exit_code == 0
    assert 2.9 < cdp.read_release(tmp_path / "second").guarantee.epsilon <= 3
    spec.write_text("epsilom = 3")
    refused = run("release", "--spec", spec)
    assert refused.exit_code == 2
    assert "unknown key 'epsilom'" in refused.stderr


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
    assert plan["expected_std_error"] > plan["expected_std_error_from_privacy"] > 0
    assert not (tmp_path / "out").exists()


def test_parameters_by_hand(source: Path, tmp_path: Path) -> None:
    by_hand = ("--mechanism", "cluster-dp", "--noise-scale", 5, "--prior-floor", 0.05)
    result = release(source, tmp_path / "out", *by_hand, "--resample-prob", 0.5)
    assert result.exit_code == 0, result.output
    (mechanism,) = [cdp.read_release(tmp_path / "out").mechanism]
    assert mechanism.response(cdp.OutcomeSpace.integers(0, 3)).resample_prob == 0.5
    assert mechanism.summary.noise_scale == 5  # type: ignore[union-attr]


def test_nothing_secret_is_in_the_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key, no column but those published, no path, no name of the machine or its user."""
    keys: list[bytes] = []
    real = os.urandom

    def remembered(size: int) -> bytes:
        keys.append(real(size))
        return keys[-1]

    monkeypatch.setattr("clusterdp.randomness.os.urandom", remembered)
    assert release(source, tmp_path / "out").exit_code == 0
    assert keys
    secrets = [key for key in keys if len(key) == 32]
    secrets += [key.hex().encode() for key in secrets]
    secrets += [str(tmp_path).encode(), b"secret", os.uname().nodename.encode()]
    for path in (tmp_path / "out").iterdir():
        content = path.read_bytes()
        for secret in secrets:
            assert secret not in content, f"{path.name} holds {secret!r}"
    units = pl.read_parquet(tmp_path / "out" / "units.parquet")
    truth = pl.read_parquet(source)["clicks"].cast(pl.Float64)
    assert not any(units[name].cast(pl.Float64).equals(truth) for name in units.columns)


def write(table: pl.DataFrame, folder: Path) -> Path:
    path = folder / "t.parquet"
    table.write_parquet(path)
    return path


def text_file(folder: Path) -> Path:
    path = folder / "t.parquet"
    path.write_text("this is no table")
    return path


def late_text(table: pl.DataFrame, folder: Path) -> Path:
    """A CSV whose outcome column turns into text long after its types were taken."""
    path = folder / "t.csv"
    many = pl.concat([table] * 200).with_columns(user=pl.int_range(pl.len()))
    path.write_text(many.write_csv() + "999999,1,1,word4321,0.5\n")
    return path


def ragged(table: pl.DataFrame, folder: Path) -> Path:
    """A CSV with one field too many in a row, which shifts an outcome into a kept column."""
    path = folder / "t.csv"
    path.write_text(table.write_csv() + "999999,1,1,0,3,0.5\n")
    return path


BAD_TABLES = {
    "no such file": (lambda t, d: d / "none.parquet", (), "there is no file"),
    "not parquet": (lambda t, d: text_file(d), (), "cannot be read as parquet"),
    "unknown kind": (lambda t, d: shutil.copy(write(t, d), d / "t.xls"), (), "no known kind"),
    "unknown column": (lambda t, d: write(t.drop("market"), d), (), "no column 'market'"),
    "duplicate ids": (
        lambda t, d: write(pl.concat([t, t.head(2)]), d),
        (),
        "repeats an id in 2 rows",
    ),
    "duplicate text ids": (
        lambda t, d: write(pl.concat([t, t.head(2)]).with_columns(pl.col("user").cast(str)), d),
        (),
        "repeats an id in 2 rows",
    ),
    "null outcome": (
        lambda t, d: write(t.with_columns(clicks=pl.col("clicks").replace(3, None)), d),
        (),
        "missing values",
    ),
    "null id": (
        lambda t, d: write(t.with_columns(user=pl.col("user").replace(3, None)), d),
        (),
        "'user' (unit) has 1 missing values",
    ),
    "outside": (
        lambda t, d: write(t.with_columns(clicks=pl.col("clicks").replace(3, 4321)), d),
        (),
        "outside the outcome space",
    ),
    "one-armed cluster": (
        lambda t, d: write(t.filter((pl.col("market") > 0) | (pl.col("treated") == 0)), d),
        (),
        "no unit in some arm",
    ),
    "epsilon 0": (write, ("--epsilon", 0), "epsilon must be"),
    "epsilon below 0": (write, ("--epsilon", -1), "epsilon must be"),
    "no budget": (
        write,
        ("--mechanism", "cluster-dp", "--resample-prob", 0.5),
        "must all be given",
    ),
    "bad outcomes": (write, ("--outcomes", "few"), "outcomes reads values"),
    "bad mechanism": (write, ("--mechanism", "magic"), "must be one of"),
    "outcome kept": (write, ("--keep", "clicks"), "must all differ"),
    "no such folder": (
        write,
        ("--out", "/nowhere/at/all"),
        "there is no folder /nowhere/at",
    ),
    "csv that changes type": (
        late_text,
        (),
        "column 'clicks' cannot be read",
    ),
    "csv with a field too many": (
        ragged,
        ("--keep", "secret"),
        "more fields than its header",
    ),
    "kept column that is the outcome": (
        lambda t, d: write(t.with_columns(code=pl.col("clicks") * 7 + 1), d),
        ("--keep", "code"),
        "publishing it would publish the outcome",
    ),
    "kept column that is the outcome with noise": (
        lambda t, d: write(t.with_columns(score=pl.col("clicks") + pl.col("secret") / 1000), d),
        ("--keep", "score"),
        "publishing it would publish the outcome",
    ),
    "sorted by outcome": (
        lambda t, d: write(t.sort("clicks"), d),
        (),
        "the order of the rows tells outcomes",
    ),
    "one arm": (lambda t, d: write(t.with_columns(treated=1), d), (), "at least 2 arms"),
    "no place to write": (write, ("--out", "/proc/out"), "cannot write in"),
    "bad reference": (write, ("--reference", "a"), "separated by commas"),
    "query that quotes a value": (
        lambda t, d: f"duckdb:?select *, cast('word4321' as int) from '{write(t, d)}'",
        (),
        "DuckDB could not run the query",
    ),
    "bad query": (lambda t, d: "duckdb:?select nothing", (), "DuckDB refused"),
    "no query": (lambda t, d: "duckdb:", (), "there is no query"),
    "no database": (lambda t, d: "duckdb:none.db?select 1", (), "no database"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_input_is_one_clear_line(case: str, table: pl.DataFrame, tmp_path: Path) -> None:
    spoil, options, message = BAD_TABLES[case]
    result = release(spoil(table, tmp_path), tmp_path / "out", *options)
    assert_refused(result, message)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "4321" not in result.stderr
    assert "Traceback" not in result.output


def test_an_existing_folder_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    assert_refused(release(source, target), "exists already")
    assert not list(target.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk(table: pl.DataFrame, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    many = pl.concat([table] * 400).with_columns(user=pl.int_range(pl.len()), noise=pl.lit(0.0))
    rng = np.random.default_rng()
    many = many.with_columns(noise=pl.Series(rng.normal(size=len(many)))).sample(
        fraction=1.0, shuffle=True
    )
    path = write(many, tmp_path)
    mounted = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],  # noqa: S607
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        result = release(path, disk / "out", "--keep", "noise")
        assert_refused(result, "No space left")
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)  # noqa: S603, S607


def spoil_file(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda d: spoil_file(d, "units.parquet", lambda b: b[:-100]), "truncated"),
    "one bit": (
        lambda d: spoil_file(d, "units.parquet", lambda b: b[:99] + bytes([b[99] ^ 1]) + b[100:]),
        "was changed",
    ),
    "lost file": (lambda d: (d / "cells.parquet").unlink(), "lacks cells.parquet"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "no manifest.json"),
    "edited": (
        lambda d: spoil_file(
            d, "manifest.json", lambda b: b.replace(b'"delta": 0.0', b'"delta": 0.1')
        ),
        "was edited",
    ),
    "newer": (
        lambda d: spoil_file(
            d,
            "manifest.json",
            lambda b: b.replace(b'"format_version": 1', b'"format_version": 2'),
        ),
        "upgrade clusterdp",
    ),
    "other JSON": (lambda d: (d / "manifest.json").write_text("[1]"), "not the manifest"),
    "no JSON": (lambda d: (d / "manifest.json").write_bytes(b"\xff"), "not JSON"),
}


@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.parametrize("command", ["estimate", "verify"])
def test_damaged_folders_are_refused(case: str, command: str, published: Path) -> None:
    damage, message = DAMAGE[case]
    damage(published)
    result = run(command, published)
    assert result.exit_code == 2
    assert message in (result.stderr or result.stdout)
    assert "Traceback" not in result.output


def test_a_forged_guarantee_is_noticed(published: Path) -> None:
    """Sealed anew after an edit, a manifest still cannot state less than its parameters cost."""
    from clusterdp import manifest as manifests

    content = manifests.unseal((published / "manifest.json").read_bytes())
    content["guarantee"]["epsilon"] = 0.5
    (published / "manifest.json").write_bytes(manifests.seal(content))
    result = run("verify", published)
    assert result.exit_code == 2
    assert "does not follow from the parameters" in result.output


def test_forged_rows_are_noticed(published: Path) -> None:
    from clusterdp import manifest as manifests
    from clusterdp.folder import _sha256

    path = published / "units.parquet"
    pl.read_parquet(path).with_columns(pl.col("debiased_outcome") + 1e-3).write_parquet(path)
    content = manifests.unseal((published / "manifest.json").read_bytes())
    content["files"]["units.parquet"] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    (published / "manifest.json").write_bytes(manifests.seal(content))
    result = run("verify", published)
    assert result.exit_code == 2
    assert "FAIL debiased outcomes follow" in result.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('cluster = ["market"]', "cluster that is no str"),
        ('epsilon = "two"', "epsilon that is no int or float"),
        ("epsilon = true", "epsilon that is no int or float"),
        ("keep = [1, 2]", "names of columns"),
        ('reference = [0.5, "a"]', "separated by commas"),
        ("min_cell_size = 3.5", "min_cell_size that is no int"),
        ('clip = "yes"', "clip that is no bool"),
        ("epsilon = ", "is not TOML"),
    ],
)
def test_specs_that_make_no_sense(line: str, message: str, source: Path, tmp_path: Path) -> None:
    spec = tmp_path / "experiment.toml"
    spec.write_text(line)
    options = [*PARTS, "--outcomes", "0..3", "--out", tmp_path / "out"]
    if "cluster" in line:
        del options[4:6]
    budget = () if "epsilon" in line else ("--epsilon", 1)
    assert_refused(run("release", source, "--spec", spec, *options, *budget), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--adjust", "released_outcome"), "not a covariate"),
        (("--adjust", "treated"), "not a covariate"),
        (("--adjust", "secret,secret"), "named twice"),
        (("--by", "colour"), "cannot cut by 'colour'"),
        (("--level", 95), "level must lie"),
        (("--plot", "forest.jpg"), ".svg, .png or .pdf"),
        (("--csv", "/nowhere/x.csv"), "cannot write"),
        (("--control", "B"), "is not an arm"),
        (("--shares", "half"), "shares reads"),
        (("--segments", "none.csv"), "there is no file"),
    ],
)
def test_estimates_that_make_no_sense(
    options: tuple[object, ...], message: str, published: Path
) -> None:
    assert_refused(run("estimate", published, *options), message)


def test_an_estimate_never_overwrites_what_it_reads(
    published: Path, table: pl.DataFrame, tmp_path: Path
) -> None:
    segments = tmp_path / "crm.csv"
    table.select("user", tier=pl.col("user") % 2).write_csv(segments)
    before = segments.read_bytes()
    options = ("--segments", segments, "--by", "tier", "--csv", segments)
    assert_refused(run("estimate", published, *options), "what is being read")
    assert segments.read_bytes() == before
    result = run("estimate", published, "--plot", published / "forest.svg")
    assert_refused(result, "what is being read")


def test_segments_plots_and_tables(published: Path, table: pl.DataFrame, tmp_path: Path) -> None:
    segments = tmp_path / "crm.csv"
    table.select("user", tier=pl.col("user") % 2).write_csv(segments)
    options = ("--segments", segments, "--by", "tier", "--by", "tier", "--adjust", "secret")
    files = ("--csv", tmp_path / "e.csv", "--plot", tmp_path / "forest.svg")
    result = run("estimate", published, *options, *files, "--level", 0.9)
    assert result.exit_code == 0, result.output
    assert "90% interval" in result.output
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
    assert_refused(run("estimate", published, *options), "is in the release")


def test_a_foreign_file_is_noticed(published: Path) -> None:
    (published / "secret.csv").write_text("true outcomes")
    result = run("verify", published)
    assert result.exit_code == 2
    assert "secret.csv is not part of the release" in result.output


def test_a_weak_guarantee_and_tiny_cells_are_pointed_out(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    few = pl.concat(
        [table.filter(pl.col("market") > 0), table.filter(pl.col("market") == 0).head(4)]
    )
    result = release(write(few, tmp_path), tmp_path / "out", "--epsilon", 12, "--dry-run")
    assert "protects next to nothing" in result.output
    assert "the smallest cell has 2 units" in result.output


def test_aggregates_do_not_claim_rows(source: Path, tmp_path: Path) -> None:
    result = release(source, tmp_path / "out", "--mechanism", "noisy-histogram")
    assert "aggregates alone, no rows" in result.output
    assert "'user'" not in run("inspect", tmp_path / "out").output
    assert "order of rows" not in (tmp_path / "out" / "README.md").read_text()


def test_odd_names_in_the_readme(table: pl.DataFrame, tmp_path: Path) -> None:
    """The examples of the folder's own README run, whatever columns are called."""
    odd = table.rename({"treated": "tre\"at'ed"})
    path = write(odd, tmp_path)
    target = tmp_path / "out"
    parts = [*PARTS]
    parts[3] = "tre\"at'ed"
    result = run("release", path, *parts, "--outcomes", "0..3", "--epsilon", 1, "--out", target)
    assert result.exit_code == 0, result.output
    readme = (target / "README.md").read_text()
    query = (
        readme.split("```sql\n")[1]
        .split("```")[0]
        .replace("units.parquet", str(target / "units.parquet"))
    )
    assert len(duckdb.sql(query).fetchall()) == 2
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
    result = run(
        "release", path, *parts, "--outcomes", "0..3", "--epsilon", 1, "--out", tmp_path / "out"
    )
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
