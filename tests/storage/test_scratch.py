"""True outcomes are stored in one private folder while a query is released, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from cli_runs import PARTS, release, run
from clusterdp.ledger.reservation import Reservation
from clusterdp.storage.folder import FileSum, SummedFile, scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

# A query cannot set how much memory DuckDB has.
COMMAND = """
from clusterdp.cli.app import app
from clusterdp.sources import duckdb

duckdb.CONFIG.update(memory_limit="{memory}", threads="1")
app()
"""
N_ROWS = 1_000_000
# Sorting these rows takes more memory than 100 MB, so that DuckDB must store some of them.
DUCKDB = "duckdb://"
LARGE = (
    "select repeat('x', 100) || i as user, i % 2 as treated, i % 5 as market, "
    f"hash(i) % 4 as clicks from range({N_ROWS}) as t(i) order by hash(i)"
)
ANY_VALUES = "select any_value(treated) as treated, any_value(market) as market"
PLANNED = (*PARTS[2:], "--epsilon", "2")


@dataclass(slots=True)
class Places:
    """Where a command runs, and all that was seen there: modes by path."""

    root: Path
    seen: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.work, self.temporary, self.published):
            folder.mkdir()

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def published(self) -> Path:
        return self.root / "published"

    def start(self, *arguments: object, memory: str = "2GB") -> subprocess.Popen[str]:
        """The command, at work in these places; `memory` is what DuckDB has."""
        return subprocess.Popen(  # noqa: S603 - ours
            [sys.executable, "-c", COMMAND.format(memory=memory), *map(str, arguments)],
            cwd=self.work,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pilot(self) -> set[Path]:
        """What is there now, but for finished plans and releases."""
        found = set()
        # Folders may go while they are looked through, which this passes over.
        walked = os.walk(self.root)
        for path in (Path(at) / name for at, *names in walked for name in (*names[0], *names[1])):
            if path.parent == self.root or "out" in path.relative_to(self.root).parts:
                continue
            try:
                self.seen[path] = path.stat().st_mode & 0o777
            except OSError:  # gone meanwhile
                continue
            found.add(path)
        return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.002):
                self.pilot()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def release_arguments(places: Places) -> list[object]:
    return [
        *("release", DUCKDB, "--query", LARGE, *PARTS, "--epsilon", 2),
        *("--out", places.published / "out"),
    ]


@pytest.mark.slow
def test_a_query_that_does_not_fit_into_memory_is_stored_in_private(places: Places) -> None:
    with places.watched():
        process = places.start(*release_arguments(places), memory="100MB")
        _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    scratch = places.published / ".out.scratch"
    assert any(path.is_relative_to(scratch / "spill") for path in places.seen), "nothing was stored"
    hidden = {scratch, places.published / ".out.partial"}
    for path, mode in places.seen.items():
        if path in hidden:
            assert mode == 0o700
        else:
            assert hidden & set(path.parents), path
    assert not places.pilot()
    assert cdp.read_release(places.published / "out").layout.n_units == N_ROWS


@pytest.mark.parametrize("command", ["plan", "dry run", "large plan"])
def test_a_plan_stores_nothing(command: str, places: Places, tmp_path: Path) -> None:
    """Large: even where DuckDB has to sort outcomes, and is refused the memory for it."""
    query, memory = LARGE, "2GB"
    if command == "large plan":
        query, memory = f"{ANY_VALUES} from ({LARGE}) group by user", "60MB"
    arguments = ["plan", DUCKDB, "--query", query, *PLANNED, "--out", tmp_path / "experiment.toml"]
    if command == "dry run":
        arguments = ["release", DUCKDB, "--query", query, *PARTS, "--epsilon", 2, "--dry-run"]
    with places.watched():
        process = places.start(*arguments, memory=memory)
        _, told = process.communicate(timeout=300)
    if command == "large plan":
        assert process.returncode == 2
        assert "does not fit into DuckDB's memory" in " ".join(told.split())
    else:
        assert process.returncode == 0, told
    assert not places.seen


def test_killed_a_release_leaves_a_private_folder_that_the_next_removes(
    places: Places, table: pl.DataFrame
) -> None:
    scratch = places.published / ".out.scratch"
    process = places.start(*release_arguments(places), memory="100MB")
    deadline = time.monotonic() + 120
    while not list(scratch.glob("*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = places.pilot()
    assert scratch in left
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert all(path == scratch or scratch in path.parents for path in left)
    small = places.root / "small.parquet"
    table.write_parquet(small)
    again = release(DUCKDB, places.published / "out", "--query", f"select * from '{small}'")
    assert again.exit_code == 0, again.output
    assert not [path for path in places.pilot() if path != small]


@pytest.mark.slow
def test_killed_a_plan_leaves_nothing(places: Places, tmp_path: Path) -> None:
    for seconds in (1.5, 2.5, 3.5):
        process = places.start(
            "plan", DUCKDB, "--query", LARGE, *PLANNED, "--out", tmp_path / "out"
        )
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not places.pilot()


def test_segments_of_a_query_are_read_without_storing_them(
    published: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a temporary folder was made")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    # A sum is a HUGEINT, which Arrow knows as a decimal number.
    query = f"select user, sum(market) as half from '{source}' group by user"
    segments = ("--segments", DUCKDB, "--segments-query", query)
    told = run("estimate", published, *segments, "--on", "user", "--by", "half")
    assert told.exit_code == 0, told.output


def test_two_runs_do_not_share_a_scratch_folder(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "out") as folder:
        (folder / "query.parquet").write_text("rows")
        with pytest.raises(cdp.OutputError, match="another run"), scratch_folder(tmp_path / "out"):
            pass
        assert (folder / "query.parquet").exists()
    assert not list(tmp_path.iterdir())


def test_a_file_is_summed_while_it_is_written(tmp_path: Path) -> None:
    parts = [b"", b"one", bytes(100_000), b"two"]
    with SummedFile(tmp_path / "file") as file:
        for part in parts:
            file.write(part)
            file.flush()
    assert file.sum() == FileSum.from_file(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
    assert file.error is None


def test_rows_of_a_query_are_removed_when_a_published_release_is_recorded(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was killed after the rename: no other run for the same folder can follow."""
    ledger, out = cdp.Ledger.create(str(tmp_path / "budget.db"), 4), tmp_path / "out"

    def interrupted(reservation: Reservation, place: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as faulty:
        faulty.setattr(Reservation, "commit", interrupted)
        paid = ("--ledger", ledger, "--population", "us", "--new-population")
        release("duckdb://", out, "--query", f"select * from '{source}'", *paid)
    left = tmp_path / ".out.scratch"
    left.mkdir()
    (left / "query.parquet").touch()
    (record,) = ledger.releases()
    assert run("release", "--resume", record.release_id, "--ledger", ledger).exit_code == 0
    assert [one.status for one in ledger.releases()] == ["committed"]
    assert not left.exists()
