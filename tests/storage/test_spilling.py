"""However short memory is, libraries store no true outcomes where others can read them.

Programs run with a megabyte of memory, as Polars sees it: it would store nearly all rows.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import COLUMNS

N_UNITS, ROWS_PER_UNIT = 50_000, 3
PARTS = (*COLUMNS, "--outcome", "clicks=0..3", "--aggregate", "sum", "--epsilon", 2, "--out", "out")
COMMAND = "from clusterdp.cli.app import app; app()"
# For as long as a process runs, Polars stores rows in one folder. Once that is gone, it complains
# when it would store more.
IN_MEMORY = """
import os, shutil, sys
import polars as pl

rows = pl.scan_parquet(sys.argv[1]).sort("clicks", "user")
folder = os.environ["POLARS_OOC_SPILL_DIR"] = os.path.abspath("earlier")
rows.collect(engine="streaming")
assert os.listdir(folder) == [str(os.getpid())], "nothing was stored"
shutil.rmtree(folder)

import clusterdp as cdp

parts = {"unit": "user", "arm": "treated", "cluster": "market", "outcomes": {"clicks": "0..3"}}
cdp.plan(rows, epsilon=2, aggregate="sum", **parts)
cdp.release(rows, mechanism=cdp.uniform_prior_dp(epsilon=2), aggregate="sum", **parts)
"""
# What strace shows of a file or a folder that is made.
_CALLS = "trace=?open,openat,?openat2,?creat,?mkdir,mkdirat"
_MADE = re.compile(r'^\d+ +\w+\([^"\n]*"([^"]*)", (?:.*O_(?:CREAT|TMPFILE)|0)', re.MULTILINE)
# What a release makes beside its target, for its owner alone; and what Polars did before it.
_PRIVATE = (".out.partial", ".out.scratch", "work/earlier", os.devnull)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several rows of each unit, in random order."""
    units = np.random.default_rng().permutation(np.repeat(np.arange(N_UNITS), ROWS_PER_UNIT))
    rows = {"user": units, "treated": units % 2, "market": units // 2 % 5, "clicks": units % 3 == 0}
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pl.DataFrame(rows).cast(pl.Int64).write_parquet(path)
    return path


def tracing(trace: Path) -> list[str]:
    """The beginning of a command whose files are to be seen; empty where strace cannot trace."""
    tracer = shutil.which("strace")
    if tracer is None:
        return []
    command = [tracer, "-f", "--seccomp-bpf", "-qq", "-e", _CALLS, "-o", str(trace)]
    tried = subprocess.run([*command, sys.executable, "-V"], capture_output=True, check=False)  # noqa: S603 - ours
    return [] if tried.returncode else command


def run_short_of_memory(folder: Path, code: str, *arguments: object) -> str:
    """Run a program, see that it stored nothing where others can read, and return what it told.

    With strace, every file that it makes is seen. Without, those that stay: where Polars stores
    rows by default, it leaves a folder.
    """
    user = f"clusterdp-test-{os.getpid()}"
    spilled = Path("/var/tmp") / f"polars-{user}"  # noqa: S108 - Polars' own choice
    trace = folder / "trace"
    tracer = tracing(trace)
    for name in ("work", "tmp", "home"):
        (folder / name).mkdir()
    environment = {
        # Not what this process has from clusterdp.
        **{name: text for name, text in os.environ.items() if "POLARS_OOC" not in name},
        "USER": user,
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "POLARS_OVERRIDE_TOTAL_MEMORY_MB": "1",
    }
    try:
        done = subprocess.run(  # noqa: S603 - ours
            [*tracer, sys.executable, "-c", code, *map(str, arguments)],
            cwd=folder / "work",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not spilled.exists()
    finally:
        shutil.rmtree(spilled, ignore_errors=True)
    assert {path.name for path in folder.glob("*/*")} <= {"out"}, "something is left"
    made = _MADE.findall(trace.read_text()) if tracer else []
    assert made or not tracer, "nothing was seen"
    for name in made:
        assert any(part in name for part in _PRIVATE), name
    return done.stderr


def test_a_log_is_released(log: Path, tmp_path: Path) -> None:
    run_short_of_memory(tmp_path, COMMAND, "release", log, *PARTS)
    assert cdp.read_release(tmp_path / "work" / "out").layout.n_units == N_UNITS


def test_a_lazy_frame_where_polars_has_stored_rows_before(log: Path, tmp_path: Path) -> None:
    told = run_short_of_memory(tmp_path, IN_MEMORY, log)
    assert "panicked" not in told


def test_what_sqlite_sorts(log: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "log.db") as database:
        database.execute("create table log (user, treated, market, clicks)")
        database.executemany("insert into log values (?, ?, ?, ?)", pl.read_parquet(log).rows())
    database.close()
    query = "select * from log order by clicks, hex(randomblob(50))"
    source = f"sqlite:///{tmp_path / 'log.db'}"
    run_short_of_memory(tmp_path, COMMAND, "release", source, "--query", query, *PARTS)


def test_a_users_duckdb_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself it stores rows in the working directory; the user's setting comes back."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    wide = (
        "select repeat('x', 100) || i as user, i % 2 as treated, i % 5 as market, "
        "i % 3 as clicks from range({}) as t(i) order by hash(i)"
    )

    def release(rows: object) -> cdp.Release:
        return cdp.release(
            rows,
            mechanism=cdp.uniform_prior_dp(epsilon=1),
            outcomes={"clicks": "0..2"},
            unit="user",
            arm="treated",
            cluster="market",
        )

    with duckdb.connect(config={"memory_limit": "80MB", "threads": 1}) as connection:
        rows = connection.sql(wide.format(600_000))
        with pytest.raises(cdp.DataError, match=r"OutOfMemoryException.*collect it first"):
            release(rows)
        assert not list(tmp_path.iterdir())
        small = connection.sql(wide.format(1000))
        assert release(small).layout.n_units == 1000
        assert connection.sql("select current_setting('temp_directory')").fetchall() == [(".tmp",)]
        # Without clusterdp, rows are stored; from then on the connection cannot be kept from it.
        connection.sql("select count(distinct user) from rows").fetchall()
        assert (tmp_path / ".tmp").is_dir()
        with pytest.raises(cdp.DataError, match="collect it first"):
            release(small)
