"""What `import clusterdp` loads, and what works on a system without `fcntl` and `pwd`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from cli_runs import PARTS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_IMPORT = """
import json, sys, time
begun = time.perf_counter()
import clusterdp
seconds = time.perf_counter() - begun
heavy = ["polars", "opendp", "cryptography", "narwhals", "pandas", "pyarrow", "scipy"]
print(json.dumps([seconds, [name for name in heavy if name in sys.modules]]))
"""
# As on Windows: to import one of them is an ImportError.
_BLOCKED = """
import sys
sys.modules["fcntl"] = sys.modules["pwd"] = None
"""
_IN_MEMORY = """
import polars as pl
import clusterdp as cdp

source, folder = sys.argv[1:]
released = cdp.release(
    pl.read_parquet(source),
    mechanism=cdp.optimal(epsilon=2),
    outcomes={"clicks": cdp.OutcomeSpace.integers(0, 3)},
    unit="user",
    arm="treated",
    cluster="market",
)
for one in (released, cdp.read_release(folder)):
    print(cdp.estimate(one))
"""
_COMMAND = """
from clusterdp.cli.app import app
app(sys.argv[1:])
"""
_COMMAND_ALONE = """
import json, sys
from clusterdp.cli.app import app
app(sys.argv[1:], standalone_mode=False)
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "clusterdp"]))
"""
MOST_MODULES = 120
OWNERS = ("engines", "ledger", "owner", "planning", "releasing", "sources", "studies")


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own."""
    return subprocess.run(  # noqa: S603 - our own interpreter and our own code
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_importing_the_package_loads_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(_IMPORT)
    assert done.returncode == 0, done.stderr
    seconds, heavy = json.loads(done.stdout)
    assert heavy == []
    # Shown, and never a failure: machines differ.
    with capsys.disabled():
        print(f"[import clusterdp: {seconds:.2f} s]", end=" ")  # noqa: T201


def test_in_memory_both_people_need_neither_module(source: Path, published: Path) -> None:
    done = run(_BLOCKED + _IN_MEMORY, source, published)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("600 units") == 2


def test_without_locks_no_folder_is_published(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = (*PARTS, "--epsilon", 2, "--out", out)
    done = run(_BLOCKED + _COMMAND, "release", source, *options)
    assert done.returncode == 2, done.stderr
    assert "a folder can be published on Linux and macOS only" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*out*"))


def test_an_estimate_loads_few_modules_and_none_of_the_owner(published: Path) -> None:
    done = run(_COMMAND_ALONE, "estimate", published)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "clusterdp.estimation.estimate" in loaded
    assert len(loaded) <= MOST_MODULES
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    assert rooms.isdisjoint(OWNERS)
    # Nothing that an analyst runs designs a randomizer.
    assert "clusterdp.channels._solver" not in loaded
    assert {name for name in loaded if name.startswith("clusterdp.cli.")} == {
        f"clusterdp.cli.{name}" for name in ("analyst", "app", "console")
    }
