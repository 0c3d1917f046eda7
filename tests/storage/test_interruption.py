"""Killed at any point, a release leaves nothing that can be taken for one, and can be run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.cli.owner import NO_LEDGER
from clusterdp.storage.folder import LocalFolder

if TYPE_CHECKING:
    import numpy as np

N_KILLS = 12

# Tells when its imports are done, so that kills fall into the work itself.
OWNER = """
import sys
from pathlib import Path
import polars as pl
import clusterdp as cdp
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.spec.columns import Columns
from clusterdp.releasing.prepare import prepare
from runs import write_release
from clusterdp.storage.folder import LocalFolder
import opendp.prelude, cryptography.hazmat.primitives.ciphers

print("ready", flush=True)
prepared = prepare(
    sys.argv[1],
    columns=Columns(unit="user", arm="arm", cluster="cluster", outcomes=("y",), kept=("extra",)),
    spaces=(Categories(declared=declare({"y": "0..5"})),),
)
target = LocalFolder(Path(sys.argv[2]))
write_release(
    prepared, [cdp.cluster_dp(noise_scale=5, prior_floor=0.05, epsilon=2)], target
)
"""


@pytest.fixture
def large_table(tmp_path: Path, rng: np.random.Generator) -> Path:
    n_rows = 1_000_000
    path = tmp_path / "t.parquet"
    pl.DataFrame(
        {
            "user": rng.permutation(n_rows),
            "arm": rng.integers(0, 2, n_rows),
            "cluster": rng.integers(0, 50, n_rows),
            "y": rng.integers(0, 6, n_rows),
            "extra": rng.normal(size=n_rows),
        }
    ).write_parquet(path)
    return path


def start(source: Path, target: Path) -> subprocess.Popen[str]:
    """An owner's process that has begun its work."""
    command = [sys.executable, "-c", OWNER, str(source), str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_killed_anywhere_it_leaves_no_release(large_table: Path, tmp_path: Path) -> None:
    durations = []
    for name in ("first", "second"):
        undisturbed = start(large_table, tmp_path / name)
        begun = time.perf_counter()
        assert undisturbed.wait() == 0
        durations.append(time.perf_counter() - begun)
    seconds = min(durations)
    target = tmp_path / "out"
    n_unfinished = 0
    for kill in range(N_KILLS):
        process = start(large_table, target)
        time.sleep(seconds * (kill + 0.5) / N_KILLS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if target.exists():  # it was faster than the undisturbed run: complete, then
            assert cdp.read_release(target).layout.n_units == 1_000_000
            target.rename(tmp_path / f"finished-{kill}")
            continue
        n_unfinished += 1
        for left in tmp_path.glob(".out*"):
            # Whatever the modes of its files: nobody else gets into the folder.
            assert left.stat().st_mode & 0o777 == 0o700
            with pytest.raises(cdp.FormatError):
                cdp.read_release(left)
    assert n_unfinished >= N_KILLS // 4
    assert start(large_table, target).wait() == 0
    assert cdp.read_release(target).layout.n_units == 1_000_000
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_cleans_up(
    sent: signal.Signals, large_table: Path, tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).with_name("clusterdp")), "release", str(large_table)]
    command += [
        "--unit",
        "user",
        "--arm",
        "arm",
        "--cluster",
        "cluster",
        "--outcome",
        "y=0..5",
    ]
    command += ["--epsilon", "2", "--passthrough", "extra", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    # Not before its first file: until the folder is locked, it is nobody's to remove.
    while not list(tmp_path.glob(".out.partial/*")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(sent)
    _, told = process.communicate(timeout=60)
    if (tmp_path / "out").exists():  # it finished first
        assert process.returncode == 0
        return
    assert process.returncode == 130
    assert " ".join(told.split()) == f"{NO_LEDGER} interrupted: nothing was published"
    assert not list(tmp_path.glob(".out*"))


def test_a_complete_folder_under_its_temporary_name_is_no_release(
    large_table: Path, tmp_path: Path
) -> None:
    """Killed between the last file and the rename: nobody must take it for published."""
    assert start(large_table, tmp_path / "out").wait() == 0
    partial = (tmp_path / "out").rename(tmp_path / ".out.partial")
    with pytest.raises(cdp.FormatError, match="interrupted run"):
        cdp.read_release(partial)


def test_others_get_in_only_when_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the rename, it is its owner's alone; killed after it, everybody's."""
    rename, out = Path.rename, tmp_path / "out"
    modes = []

    def note_the_mode(path: Path, target: Path) -> Path:
        modes.append(path.parent.stat().st_mode & 0o777)
        made = rename(path, target)
        if made == out:
            modes.append(made.stat().st_mode & 0o777)
        return made

    monkeypatch.setattr(Path, "rename", note_the_mode)
    umask = os.umask(0o022)
    try:
        with LocalFolder(out).staged("") as (folder, _):
            (folder / "file").write_text("whole")
    finally:
        os.umask(umask)
    assert modes == [0o700, 0o700, 0o755]
    assert list(tmp_path.iterdir()) == [out]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with LocalFolder(tmp_path / "out").staged("") as (folder, _):
            (folder / "file").write_text("half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert not list(tmp_path.iterdir())


def test_two_runs_do_not_write_one_folder(tmp_path: Path) -> None:
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with LocalFolder(tmp_path / "out").staged("") as (folder, _):
            (folder / "file").write_text("whole")
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(30)
    with (
        pytest.raises(cdp.OutputError, match="another run"),
        LocalFolder(tmp_path / "out").staged(""),
    ):
        pass
    leave.set()
    thread.join()
    assert (tmp_path / "out" / "file").read_text() == "whole"
    with (
        pytest.raises(cdp.OutputError, match="exists already"),
        LocalFolder(tmp_path / "out").staged(""),
    ):
        pass


def test_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".out.partial"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "old").write_text("old")
    with LocalFolder(tmp_path / "out").staged("") as (folder, _):
        (folder / "new").write_text("new")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]
