"""The commands as the tests run them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from clusterdp.cli.app import app
from clusterdp.cli.owner import NO_LEDGER, UNPUBLISHED, UNREAD
from clusterdp.spec.experiment import write_experiment
from clusterdp.spec.parse import parse_options

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from typer.testing import Result


COLUMNS = ["--unit", "user", "--arm", "treated", "--cluster", "market"]
PARTS = [*COLUMNS, "--outcome", "clicks=0..3"]


def run(*arguments: object, width: int = 10_000, typed: str | None = None) -> Result:
    """Run a command; by default no line is broken, so that texts can be searched for."""
    env = {"COLUMNS": str(width)}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], typed, env=env)


def release(source: object, target: object, *options: object) -> Result:
    parts = COLUMNS if "--outcome" in options else PARTS
    budget = () if "--epsilon" in options else ("--epsilon", 2)
    return run("release", source, *parts, *budget, "--out", target, *options)


def declare(path: Path, **options: Any) -> Path:
    """Write an experiment file, which can have options that no flag has."""
    write_experiment(parse_options(options), path)
    return path


def release_declared(source: object, target: Path, *flags: object, **options: Any) -> Result:
    """Plan and release by an experiment file."""
    given: dict[str, Any] = {
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
        "outcomes": ["clicks=0..3"],
    }
    given |= {"input": str(source), "out": target, "epsilon": 2, **options}
    file = declare(target.with_suffix(".toml"), **given | options)
    planned = run("plan", file)
    return run("release", file, *flags) if planned.exit_code == 0 else planned


def write(table: pl.DataFrame, folder: Path) -> Path:
    path = folder / "t.parquet"
    table.write_parquet(path)
    return path


def _spoken(message: str) -> str:
    """A message without what screens change: the first letter, and the way to the fix."""
    return " ".join(re.sub(r"[.;](?= |$)|\bFix:", "", message).split()).casefold()


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    shown = " ".join(result.stderr.split())
    # A screen has a line of its own for what was not done, which messages do not say.
    for undone in (UNREAD, UNPUBLISHED):
        shown = shown if undone in message else shown.replace(f"{undone} ", "")
    assert _spoken(message) in _spoken(shown), shown
    # Next to the error there is one line that a release may print, and nothing else.
    told = result.stderr.replace(f"{NO_LEDGER}\n", "")
    told = re.sub(r"warning: Owner only: .+\n", "", told)
    assert re.fullmatch(r"error: .+\n(\n(  .+\n)+)?", told), result.stderr
    # A value of the data; ids of releases, which are random, may hold these digits.
    assert not re.search(r"(?<![0-9a-f])4321(?![0-9a-f])", result.stderr)
    assert "Traceback" not in result.output
