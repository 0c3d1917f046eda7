"""Malformed folders, requests and ledgers: no traceback, no acceptance. More of it in `soak`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome, one_question
from cli_runs import COLUMNS, assert_refused, run
from clusterdp.errors import LedgerError
from clusterdp.ledger._store import Entry
from clusterdp.ledger.ledger import Ledger
from soak import malformed
from soak.attempts import write_folder
from soak.second_opinion import find_flaw
from soak.sound_folders import as_parquet, seal, sealed, sound_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from soak.sound_folders import SoundFolder


@pytest.mark.slow
def test_random_malformed_inputs(rng: np.random.Generator) -> None:
    report, _ = malformed.run_apart(60, rng)
    assert not report.tracebacks, str(report)
    assert not report.accepted, str(report)
    # Inputs are malformed, as a rule: a run that refuses little tries little.
    assert report.refused > 30, str(report)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SoundFolder]:
    made = sound_folders(np.random.default_rng(), tmp_path_factory.mktemp("sound"))
    return {folder.name: folder for folder in made}


def test_sound_folders_are_sound(folders: dict[str, SoundFolder], tmp_path: Path) -> None:
    """The negative control: what is spoilt was accepted before."""
    for folder in folders.values():
        write_folder(tmp_path / "folder", folder.files)
        for command in ("inspect", "verify", "estimate"):
            result = run(command, tmp_path / "folder")
            assert result.exit_code == 0, (folder.name, result.output)
        assert find_flaw(tmp_path / "folder", folder) is None, folder.name


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of a manifest: the last argument put at the path before."""
    *holders, key, value = path

    def edit(content: dict[str, Any]) -> None:
        for holder in holders:
            content = content[holder]
        content[key] = value

    return edit


MANIFESTS: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "arms": ("Cluster-DP", put("arms", [0, 2]), "disagree on the arms"),
    "arms of another type": ("Cluster-DP", put("arms", [False, True]), "see 'control'"),
    "arms and control of another type": (
        "Cluster-DP",
        lambda content: content.update(arms=[False, True], control=False),
        "disagree on the arms",
    ),
    "control": ("Cluster-DP", put("control", "0"), "see 'control'"),
    "arm shares": ("Cluster-DP", put("arm_shares", [0.9, 0.3]), "see 'arm_shares'"),
    "neighbours": ("Contrasts", put("guarantee", "neighbours", "anyone"), "$.guarantee.neighbours"),
    "unknown key": ("Histogram", put("true_outcomes", [1, 2]), "unknown field `true_outcomes`"),
    "noise of sums": (
        "Optimal",
        put("questions", 0, "noise", "sums", "noise_scale", [9.0]),
        "'noise' is inconsistent",
    ),
    "scale of counts": (
        "Optimal",
        put("questions", 0, "mechanism", "statistics", 0, "noise_scale", 9.0),
        "the stated guarantee does not match the parameters",
    ),
    "unknown parameter": (
        "Optimal",
        put("questions", 0, "mechanism", "rows", "true_prior", 1),
        "was edited",
    ),
    "text for a number": (
        "Histogram",
        put("questions", 0, "outcomes", "grids", [0.75]),
        ".outcomes.grids",
    ),
    "number for a text": (
        "Histogram",
        put("questions", 0, "outcomes", "declared", "outcomes", 0, "space", 7),
        ".outcomes.declared.outcomes",
    ),
    "too large a number": (
        "Contrasts",
        put("questions", 0, "outcomes", "declared", "weights", {"clicks": 10**400}),
        ".outcomes.declared.weights",
    ),
    "values beyond squares": (
        "Histogram",
        put("questions", 0, "outcomes", "declared", "outcomes", 0, "space", "0,1,1e200"),
        "at most 1e+100",
    ),
    "files of another kind": ("Histogram", put("files", []), "$.files"),
    "a file too many": (
        "Histogram",
        put("files", "units.parquet", {"bytes": 0, "sha256": ""}),
        "names a file of rows",
    ),
    "a path": (
        "Cluster-DP",
        put("files", "../secret.csv", {"bytes": 0, "sha256": ""}),
        "not part of a release",
    ),
    "an older format": (
        "Optimal",
        put("format_version", 2),
        "read it with the version that wrote it",
    ),
    "a prior too short": (
        "Optimal, public",
        put("questions", 0, "mechanism", "rows", "prior", [0.5, 0.5]),
        "prior has 2 numbers",
    ),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_manifests_that_say_what_no_release_says(
    case: str, folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    """Sealed anew after an edit, and so with the right checksum."""
    name, edit, message = MANIFESTS[case]
    content = folders[name].manifest()
    edit(content)
    write_folder(tmp_path / "folder", {**folders[name].files, "manifest.json": seal(content)})
    assert_refused(run("estimate", tmp_path / "folder"), message)
    assert run("verify", tmp_path / "folder").exit_code == 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: "[" * 100_000, "not the manifest of a clusterdp release"),
        (lambda text: '{"a":' * 100_000, "not JSON"),
        (lambda text: text.replace("{", '{"format": "other",', 1), "was edited"),
        (lambda text: text.replace("{", '{"format": "clusterdp release",', 1), "was edited"),
        (lambda text: text.replace('"n_units": 48', '"n_units": NaN'), "not JSON"),
        (lambda text: text.replace('"files": {', '"files": {"\\ud800": 1,'), "not JSON"),
        (lambda text: text.replace('"files": {', '"files":  {'), "was edited"),
    ],
    ids=[
        "lists without end",
        "objects without end",
        "a key twice",
        "a key twice alike",
        "NaN",
        "half a letter",
        "a space more",
    ],
)
def test_manifests_whose_text_is_not_as_written(
    spoil: Callable[[str], str], message: str, folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    files = folders["Cluster-DP"].files
    sound = files["manifest.json"].decode()
    text = spoil(sound)
    assert text != sound
    write_folder(tmp_path / "folder", {**files, "manifest.json": text.encode()})
    for command in ("inspect", "estimate"):
        assert_refused(run(command, tmp_path / "folder"), message)


TABLES: dict[str, tuple[str, str, Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "a column more": (
        "Histogram",
        "cells.parquet",
        lambda t: t.with_columns(true_counts=1),
        "do not have the columns",
    ),
    "sizes that are no numbers": (
        "Histogram",
        "cells.parquet",
        lambda t: t.with_columns(pl.col("size").cast(str)),
        "column 'size' of the cells",
    ),
    "an empty cell": (
        "Histogram",
        "cells.parquet",
        lambda t: t.with_columns(size=pl.lit(0, pl.Int64)),
        "no cluster has units in every arm",
    ),
    "cells in another order": (
        "Histogram",
        "cells.parquet",
        lambda t: t[[1, 0, *range(2, len(t))]],
        "one for every cluster and arm",
    ),
    "counts of arms that differ": (
        "Cluster-Free-DP",
        "cells.parquet",
        lambda t: t.with_columns(
            pl.when(pl.int_range(pl.len()) == 0)
            .then(pl.col("noisy_counts").list.eval(pl.element() + 1))
            .otherwise("noisy_counts")
        ),
        "should share 'noisy_counts'",
    ),
    "a prior off by a little": (
        "Uniform",
        "cells.parquet",
        lambda t: t.with_columns(pl.col("prior").list.eval(pl.element() + 1e-12)),
        "integers over 2^32",
    ),
    "a contrast of control": (
        "Contrasts",
        "cells.parquet",
        lambda t: t.with_columns(pl.col("noisy_contrast").fill_null(1.0)),
        "a contrast for every treatment",
    ),
    "a prior beyond all numbers": (
        "Uniform",
        "cells.parquet",
        lambda t: t.with_columns(pl.col("prior").list.eval(pl.element() * 1e308)),
        "integers over 2^32",
    ),
    "an output beyond all numbers": (
        "Optimal",
        "channels.parquet",
        lambda t: t.with_columns(pl.col("decode").list.eval(pl.element() * 1e200)),
        "outputs that are not numbers",
    ),
    "weights beyond one": (
        "Optimal",
        "channels.parquet",
        lambda t: t.with_columns(pl.col("weights").list.eval(pl.element() + 2**62)),
        "not probabilities",
    ),
    "outputs in another order": (
        "Optimal",
        "channels.parquet",
        lambda t: t.reverse(),
        "not in order",
    ),
    "no rows": ("Cluster-DP", "units.parquet", lambda t: t.clear(), "does not match the cells"),
    "fractional ids": (
        "Cluster-DP",
        "units.parquet",
        lambda t: t.with_columns(pl.col("user") + 0.5),
        "column 'user' of the rows",
    ),
    "parts that differ": (
        "Cluster-DP, in parts",
        "units/part-00001.parquet",
        lambda t: t.with_columns(pl.col("tier").cast(str)),
        "differ in their columns",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_no_release_has(
    case: str, folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    name, file, edit, message = TABLES[case]
    folder = folders[name]
    before = file.replace("00001", "00000")  # another part, beside the first
    files = {**folder.files, file: as_parquet(edit(folder.table(before)))}
    write_folder(tmp_path / "folder", sealed(folder.manifest(), files))
    assert_refused(run("estimate", tmp_path / "folder"), message)
    assert run("verify", tmp_path / "folder").exit_code == 2


def test_a_missing_id_and_a_kept_column_that_cannot_be_read(
    folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    """What no estimate reads, verify does."""
    folder, place = folders["Cluster-DP"], tmp_path / "folder"
    rows = folder.table("units.parquet")
    first = pl.int_range(pl.len()) == 0
    gap = rows.with_columns(user=pl.when(first).then(None).otherwise("user"))
    write_folder(
        place, sealed(folder.manifest(), {**folder.files, "units.parquet": as_parquet(gap)})
    )
    assert "rows lack an id" in run("verify", place).stdout
    file = BytesIO()
    rows.with_columns(tier=pl.lit("gold" * 9)).write_parquet(file, compression="uncompressed")
    broken = file.getvalue().replace(b"gold" * 9, b"\xff" * 36)
    assert broken != file.getvalue()
    files = {**folder.files, "units.parquet": broken}
    write_folder(place, sealed(folder.manifest(), files))
    assert "FAIL rows can be read" in run("verify", place).stdout


def test_a_file_that_makes_polars_panic(
    folders: dict[str, SoundFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "folder", folders["Cluster-DP"].files)

    def panic(*given: object, **options: object) -> None:
        raise pl.exceptions.PanicException("a value of 4321")

    release = cdp.read_release(tmp_path / "folder")
    with monkeypatch.context() as patch:
        patch.setattr(pl, "collect_all", panic)
        with pytest.raises(cdp.FormatError, match=r"cannot be read \(PanicException\)"):
            cdp.estimate(release)
    monkeypatch.setattr(pl, "read_parquet", panic)
    assert_refused(run("estimate", tmp_path / "folder"), "PanicException")


PANIC = """
import os
from clusterdp.cli.console import reported_errors, print_aside
from clusterdp.errors import DataError

with reported_errors():
    print_aside("before")
    os.write(2, b"thread panicked at a value of 4321")
    raise DataError("in one line")
"""


@pytest.mark.parametrize("debug", [{}, {"CLUSTERDP_DEBUG": "1"}])
def test_what_libraries_print_is_not_shown(debug: dict[str, str]) -> None:
    """Polars, in Rust, tells where it panicked and on what, past Python."""
    environment = {**os.environ, **debug}
    command = [sys.executable, "-c", PANIC]
    result = subprocess.run(  # noqa: S603 - our own
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert ("4321" in result.stderr) == bool(debug)
    assert result.stderr.startswith("before\n")
    assert "error: in one line\n" in result.stderr


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (
            "outcomes.clicks",
            '{ type = "count", max = 99999999999 }',
            "at most 65536 allowed values",
        ),
        ("outcomes.clicks", '{ type = "number", range = [0, inf] }', "number:LOW..HIGH"),
        ("analysis.optimize_for", '"segments:0"', "lies in (0, 1]"),
        ("expert.noise_scale", "0", "noise_scale must be"),
        ("expert.prior_floor", "0", "prior_floor must be"),
        ("expert.prior", "[1]", "prior must be 4 numbers"),
        ("privacy.epsilon", str(10**400), "too large"),
        ("privacy.epsilon", "1e30", "epsilon must be at most 1000"),
        ("privacy.epsilon", "9" * 5000, "not TOML that can be read"),
        ("expert.prior", "[" * 5000, "not TOML that can be read"),
        ("expert.prior", f"[{10**400}]", "separated by commas"),
        ("table.source", f'"{"x" * 5000}"', "cannot be read: File name too long"),
        ("output.folder", f'"{"x" * 5000}"', "no folder can be made"),
        ("output.folder", '"\\u0000"', "no folder can be made"),
        ("privacy.ledger", '"\\u0000"\npopulation = "users"', "There is no ledger"),
        ("table.cluster", '"a\\nb"', "column 'a\\nb' has a control character"),
    ],
)
def test_requests_for_what_cannot_be(
    entry: str, value: str, message: str, source: Path, tmp_path: Path
) -> None:
    entries = {"table.source": f'"{source}"', "outcomes.clicks": '{ type = "count", max = 3 }'}
    entries |= {"privacy.epsilon": "2", "output.folder": f'"{tmp_path / "out"}"'}
    named = zip(COLUMNS[::2], COLUMNS[1::2], strict=True)
    entries |= {f"table.{flag[2:]}": f'"{column}"' for flag, column in named}
    entries[entry] = value
    sections: dict[str, list[str]] = {}
    for name, given in entries.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, [f"[{section}]"]).append(f"{key} = {given}")
    file = tmp_path / "experiment.toml"
    file.write_text("\n".join(line for lines in sections.values() for line in lines))
    planned = run("plan", file)
    assert_refused(run("release", file) if planned.exit_code == 0 else planned, message)


def test_a_plan_that_says_half_of_what_it_was_made_for(source: Path, tmp_path: Path) -> None:
    lock = tmp_path / "plan.lock"
    lock.write_text(
        'outcomes = ["clicks=0..3"]\nmechanism = "uniform-prior-dp"\nepsilon = 1\nn_units = 5\n'
    )
    shown = cdp.preview(source, lock, unit="user", arm="treated", cluster="market")
    assert any("The plan was made for 5 units" in note for note in shown.notes)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    opened = Ledger.create(str(path), 8.0, 1e-6)
    opened.reserve(
        "users",
        terms=one_question(
            one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3)), cdp.optimal(epsilon=1)
        ),
        about={"n_units": 1, "n_clusters": 1, "options": {"out": "x"}},
        place="x",
    )
    return path


def rewrite(path: Path, number: int, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit an entry and write the history anew: only a hash that was noted elsewhere shows it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT * FROM clusterdp_entries ORDER BY number").fetchall()
        previous = rows[number - 1][-1] if number else "0" * 64
        for row in rows[number:]:
            entry = Entry(*row)._replace(content=json.loads(row[5]), previous=previous)
            if entry.number == number:
                edit(entry.content)
            entry = entry._replace(hash=entry.expected_hash())
            connection.execute(
                "UPDATE clusterdp_entries SET content = ?, previous = ?, hash = ? WHERE number = ?",
                (json.dumps(entry.content), previous, entry.hash, entry.number),
            )
            previous = entry.hash
        connection.commit()


@pytest.mark.parametrize(
    ("number", "edit"),
    [
        (0, put("cap_epsilon", "much")),
        (0, put("cap_epsilon", -1)),
        (0, put("encryption", {})),
        (0, put("encryption", {"protection": "magic"})),
        (0, put("encryption", {"protection": "magic", "salt": "A" * 22 + "==", "test": "AAAA"})),
        (0, put("encryption", {"protection": "passphrase", "salt": "?", "test": "AAAA"})),
        (0, put("encryption", {"protection": ["none"]})),
        (0, put("format_version", None)),
        (1, put("guarantee", "epsilon", 0.1)),
        (1, put("questions", 0, "outcomes", "declared", "outcomes", 0, "space", "a,b,c")),
        (1, put("population", ["users"])),
        (1, lambda content: content.pop("questions")),
    ],
)
def test_entries_that_make_no_sense(
    number: int, edit: Callable[[dict[str, Any]], None], ledger: Path
) -> None:
    assert run("ledger", "verify", ledger).exit_code == 0
    rewrite(ledger, number, edit)
    assert_refused(run("ledger", "show", ledger), "has invalid content")
    verified = run("ledger", "verify", ledger)
    assert verified.exit_code == 2
    assert f"FAIL entry {number} has invalid content" in verified.stdout


@pytest.mark.parametrize("value", [b"\x00\x01", 7, "[" * 100_000])
def test_entries_that_are_no_text(value: object, ledger: Path) -> None:
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("UPDATE clusterdp_entries SET content = ? WHERE number = 1", (value,))
        connection.execute("UPDATE clusterdp_entries SET who = ? WHERE number = 1", (b"\xff",))
        connection.commit()
    assert_refused(run("ledger", "show", ledger), "entry 1 was changed")
    assert run("ledger", "verify", ledger).exit_code == 2


def test_a_schema_that_is_no_text(ledger: Path) -> None:
    """SQLite quotes it in its message, which Python then cannot read."""
    content = ledger.read_bytes().replace(b"CREATE TABLE", b"CREATE " + b"\xff" * 5)
    ledger.write_bytes(content)
    for command in ("show", "verify"):
        assert_refused(run("ledger", command, ledger), "is damaged")


def test_a_cap_that_is_none(tmp_path: Path) -> None:
    refused = run("ledger", "init", tmp_path / "a.db", "--cap-epsilon", 1e9)
    assert_refused(refused, "cap_epsilon must be a number above 0 and at most 100")


def test_releases_that_tell_nearly_everything(tmp_path: Path) -> None:
    """They are composed as if they told all, and refused in so many words."""
    space = one_outcome("y", cdp.OutcomeSpace.integers(0, 3))
    ledger = Ledger.create(tmp_path / "b.db", 100, 1e-6)
    for epsilon in (1, 80):
        mechanism = cdp.noisy_horvitz_thompson(epsilon=epsilon)
        ledger.reserve("us", terms=one_question(space, mechanism), about={}, place="x")
    assert run("ledger", "show", tmp_path / "b.db").exit_code == 0
    terms = one_question(space, cdp.noisy_histogram(epsilon=900))
    with pytest.raises(LedgerError, match="not enough budget"):
        ledger.reserve("us", terms=terms, about={}, place="x")
