"""What a user installs: the wheel, built, installed into a fresh environment, and used."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_runs import PARTS

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).parents[2]

_IN_MEMORY = """
import sys
from pathlib import Path
import polars as pl
import clusterdp as cdp

assert Path(cdp.__file__).is_relative_to(sys.prefix), cdp.__file__
release = cdp.release(
    pl.read_parquet("clicks.parquet"),
    mechanism=cdp.optimal(epsilon=2),
    outcomes={"clicks": cdp.OutcomeSpace.integers(0, 3)},
    unit="user",
    arm="treated",
    cluster="market",
)
print(cdp.estimate(release))
print(cdp.estimate(cdp.read_release(Path("published"))))
"""


def run(*command: object, cwd: Path) -> str:
    """Run a program that does not see the modules of this checkout; returns what it printed."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - our own commands
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    # With the modules of the tests' environment, hatchling among them.
    subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def fresh_environment(folder: Path, wheel: Path) -> Path:
    """An environment with the wheel, and with the dependencies that are installed here.

    Returns:
        The folder of its programs.
    """
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    # Python does not read .pth files of a folder that a .pth file names, so that a clusterdp that
    # is installed from a checkout stays unknown.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return programs


@pytest.mark.slow
def test_the_wheel_releases_and_estimates(table: pl.DataFrame, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "dist")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"clusterdp/py.typed", "clusterdp/studies/youtube_top50.csv"} <= set(names)
    assert {
        "clusterdp/app/templates/app.js",
        "clusterdp/planning/templates/plan.html",
        "clusterdp/document/templates/base.html",
    } <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"clusterdp"}

    programs = fresh_environment(tmp_path / "env", wheel)
    work = tmp_path / "work"
    work.mkdir()
    table.write_parquet(work / "clicks.parquet")
    options = [*PARTS, "--epsilon", 2, "--out", "published"]
    run(programs / "clusterdp", "release", "clicks.parquet", *options, cwd=work)
    answer = "1 vs 0 (control), 600 units"
    assert answer in run(programs / "clusterdp", "estimate", "published", cwd=work)
    assert run(programs / "python", "-c", _IN_MEMORY, cwd=work).count(answer) == 2
