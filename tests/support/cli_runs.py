"""The commands as the tests run them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from clusterdp.cli.app import app
from clusterdp.cli.owner import NO_LEDGER

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from typer.testing import Result


COLUMNS = ["--unit", "user", "--arm", "treated", "--cluster", "market"]
PARTS = [*COLUMNS, "--outcome", "clicks=0..3"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def release(source: object, target: object, *options: object) -> Result:
    parts = COLUMNS if "--outcome" in options else PARTS
    budget = () if "--epsilon" in options or "--resample-prob" in options else ("--epsilon", 2)
    return run("release", source, *parts, *budget, "--out", target, *options)


def write(table: pl.DataFrame, folder: Path) -> Path:
    path = folder / "t.parquet"
    table.write_parquet(path)
    return path


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    # Beside the error there is one line that a release may say, and nothing else.
    told = result.stderr.replace(f"{NO_LEDGER}\n", "")
    assert len(told.strip().splitlines()) == 1, result.stderr
    # A value of the data; ids of releases, which are random, may hold these digits.
    assert not re.search(r"(?<![0-9a-f])4321(?![0-9a-f])", result.stderr)
    assert "Traceback" not in result.output
