"""Short versions of what `make soak` does at length."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from soak.closings import run_closings
from soak.executors import run_executor_kills
from soak.kills import run_kills
from soak.later import Beginning, run_later_kills, run_later_race
from soak.outages import run_database_outages, run_disk_outages, run_permission_outages
from soak.races import run_race
from soak.scaling import ROWS, Measured, as_guide, as_table, run_scaling
from soak.stores import run_store_kills, run_store_race
from soak.writes import run_write_kills

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from soak import s3
    from soak.postgres import Server


@pytest.mark.slow
def test_make_finds_everything() -> None:
    """With the folders that the Makefile names, and no others."""
    project = Path(__file__).parents[2]
    folders = re.search(r"PYTHONPATH=(\S+) .* -m soak", (project / "Makefile").read_text())
    assert folders is not None
    environment = {**os.environ, "PYTHONPATH": folders[1]}
    command = [sys.executable, "-m", "soak", "--help"]
    subprocess.run(command, cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


@pytest.mark.slow
def test_killed_and_resumed(rng: np.random.Generator, tmp_path: Path) -> None:
    line = run_kills(2, 200_000, rng, tmp_path)
    assert line.passed, line


@pytest.mark.slow
def test_killed_at_writes(rng: np.random.Generator, tmp_path: Path) -> None:
    line = run_write_kills(12, 5000, rng, tmp_path)
    assert line.passed, line


@pytest.mark.slow
@pytest.mark.store
def test_killed_and_resumed_in_a_store(
    rng: np.random.Generator, store_server: s3.Server, tmp_path: Path
) -> None:
    line = run_store_kills(2, 20_000, rng, tmp_path, store_server)
    assert line.passed, line


@pytest.mark.slow
@pytest.mark.store
def test_a_race_for_a_place_in_a_store(store_server: s3.Server, tmp_path: Path) -> None:
    line = run_store_race(1, 2, tmp_path, store_server)
    assert line.passed, line


@pytest.mark.slow
def test_answers_and_batches_killed_at_writes(rng: np.random.Generator, tmp_path: Path) -> None:
    line = run_later_kills(4, 3000, rng, tmp_path)
    assert line.passed, line


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["answer", "batch"])
def test_of_owners_at_once_one_answers_or_continues_in_postgresql(
    kind: str, postgres: Server, tmp_path: Path
) -> None:
    begun = Beginning.make(tmp_path, postgres.new_database(f"later_{kind}"), 3000)
    line = run_later_race(kind, "PostgreSQL", begun, 3)
    assert line.passed, line


@pytest.mark.slow
def test_closed_while_at_work(rng: np.random.Generator, tmp_path: Path) -> None:
    line = run_closings(4, 200_000, rng, tmp_path)
    assert line.passed, line


@pytest.mark.slow
def test_a_race_in_a_file(tmp_path: Path) -> None:
    line = run_race(str(tmp_path / "budget.db"), "SQLite", 4, 2, tmp_path)
    assert line.passed, line


@pytest.mark.postgres
def test_a_race_in_postgresql(postgres: Server, tmp_path: Path) -> None:
    line = run_race(postgres.new_database(tmp_path.name), "PostgreSQL", 4, 2, tmp_path)
    assert line.passed, line


@pytest.mark.postgres
def test_a_database_that_goes_away(postgres: Server, tmp_path: Path) -> None:
    line = run_database_outages(postgres, postgres.new_database, tmp_path)
    assert line.passed, line


def test_a_full_disk(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        line = run_disk_outages(tmp_path)
    except subprocess.CalledProcessError:
        pytest.skip("this machine does not let root mount a disk")
    assert line.passed, line


def test_a_denied_permission() -> None:
    with folder_for_all() as folder:
        line = run_permission_outages(folder)
    assert line.passed, line


@pytest.mark.spark
def test_a_lost_executor(tmp_path: Path) -> None:
    (line,) = run_executor_kills(tmp_path, 300_000, passes=(2,))
    assert line.passed, line


@pytest.mark.spark
def test_scaling_is_measured(tmp_path: Path) -> None:
    found = run_scaling(tmp_path, rows=(20_000,), clusters=(10,))
    assert [one.engine for one in found] == ["local", "spark"]
    assert all(one.seconds > 0 and one.peak_bytes > 1e7 for one in found)
    assert "| 20,000 | 10 |" in as_table(found)


def test_the_guide_follows_from_the_table() -> None:
    """10 s to start and 2 µs a row on two cores are 4 core-microseconds."""
    found = [Measured("spark", n_rows, 1000, 10 + 2e-6 * n_rows, 10**9) for n_rows in ROWS]
    guide = as_guide(found)
    assert "= 4.00" in guide
    # 12 s for the small table, and 4e-6 × 1e9 / 32 = 125 s.
    assert "| 1,000,000,000 | 2.3 min |" in guide


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """Somebody else must be able to get there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
