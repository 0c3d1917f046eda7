"""An owner's command in a process of its own, which can be killed, raced and measured.

It imports everything first and says "ready", so that faults fall into the work; then it waits for a
line, so that many can begin at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import polars as pl

import clusterdp as cdp
from clusterdp.spec.experiment import write_experiment
from clusterdp.spec.fields import DECLARED, PLACES
from clusterdp.spec.parse import parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent


class Owner:
    """A running command."""

    def __init__(self, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        """Start it, with more variables if there are some, and wait until it is ready."""
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "soak.owner", *_by_file(list(map(str, arguments)))],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = _pipe(self._process.stdout).readline()
        if line != "ready\n":
            raise RuntimeError(_pipe(self._process.stderr).read())

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def begin(self) -> None:
        """Let it work."""
        stdin = _pipe(self._process.stdin)
        stdin.write("\n")
        stdin.flush()

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def wait(self) -> tuple[int, str]:
        """Its exit code, and what it said on stderr, in one line."""
        _, told = self._process.communicate()
        return self._process.returncode, " ".join(told.split())


def _by_file(words: list[str]) -> list[str]:
    """A release by an experiment file and its lock, if it has options that no flag has."""
    names = {name: word[2:].replace("-", "_") for name, word in enumerate(words)}
    flags = [at for at, word in enumerate(words) if word.startswith("--")]
    if all(DECLARED[names[at]].panel for at in flags if names[at] in DECLARED):
        return words
    places = ["release"]
    given: dict[str, Any] = {}
    for at in flags:
        name = "outcomes" if names[at] == "outcome" else names[at]
        if name in PLACES or name not in DECLARED:
            is_switch = at + 1 == len(words) or at + 1 in flags
            places += words[at : at + (1 if is_switch else 2)]
        elif list[str] in DECLARED[name].types:
            given[name] = [*given.get(name, []), words[at + 1]]
        else:
            given[name] = tomllib.loads(f"value = {_as_toml(words[at + 1])}")["value"]
    file = Path(tempfile.mkdtemp()) / "experiment.toml"
    write_experiment(parse_options({**given, "input": _absolute(words[1])}), file)
    cdp.plan(file).save()
    return [places[0], str(file), *places[1:]]


def _absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).resolve())


def _as_toml(word: str) -> str:
    try:
        float(word)
    except ValueError:
        return json.dumps(word)
    return word


def run(*arguments: object, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """A command from its beginning to its end."""
    owner = Owner(*arguments, environment=environment)
    owner.begin()
    return owner.wait()


def write_table(path: Path, n_rows: int, n_clusters: int = 50) -> Path:
    """A table to release: an arm, a cluster, clicks and visits from 0 to 5, a public column."""
    row = pl.int_range(n_rows, eager=True)
    # Whatever pilots random will do, and needs no seed.
    mixed = row.hash()
    pl.DataFrame(
        {
            "user": row,
            "treated": (row % 2).cast(pl.Int8),
            "market": (row // 2 % n_clusters).cast(pl.Int32),
            "clicks": (mixed // 1009 % 6).cast(pl.Int8),
            "visits": (mixed // 1000003 % 6).cast(pl.Int8),
            "tier": (mixed // 10007 % 3).cast(pl.Int8),
        }
    ).write_parquet(path)
    return path


def release_options(source: object, target: object, *, outcome: str = "clicks") -> list[str]:
    """The command that releases such a table."""
    parts = ["--unit", "user", "--arm", "treated", "--cluster", "market"]
    return [
        "release",
        str(source),
        *parts,
        "--outcome",
        f"{outcome}=0..5",
        "--passthrough",
        "tier",
        "--out",
        str(target),
    ]


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _main() -> None:
    import cryptography.hazmat.primitives.ciphers
    import opendp.prelude
    import scipy.optimize
    import sqlalchemy

    import clusterdp.cli.ledger
    import clusterdp.cli.owner
    import clusterdp.ledger.paid_release
    import clusterdp.storage.store_folder
    from clusterdp.cli.app import app
    from soak import deadly

    del cryptography, opendp, scipy, sqlalchemy, clusterdp
    print("ready", flush=True)
    sys.stdin.readline()
    deadly.install()
    app(sys.argv[1:])


if __name__ == "__main__":
    _main()
