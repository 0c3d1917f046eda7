"""`clusterdp estimate` in a terminal: effect, error, interval and arm means at every width."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.estimation.report.sentences import reported_overall
from clusterdp.estimation.report.tables import segment_tables

if TYPE_CHECKING:
    from pathlib import Path

LABELS: dict[str, list[Any]] = {
    "two": [0, 1],
    "three": ["No E-Mail", "Mens E-Mail", "Womens E-Mail"],
}
ONE = ["--outcome", "visit=0,1"]
FUNNEL = [*ONE, "--outcome", "order=0,1", "--constraint", "order -> visit"]
RELEASES = {"two": ("two", ONE), "three": ("three", ONE), "funnel": ("three", FUNNEL)}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "one arm": ("two", {}),
    "three arms": ("three", {}),
    "segments": ("two", {"by": ["tier", "tier,region"]}),
    "several metrics": ("funnel", {}),
    "all together": ("funnel", {"by": ["tier"], "differences": "rest"}),
}
# Runs commands one after the other, with a line between what they show.
PROGRAM = """
import json, sys
from clusterdp.cli.app import app
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
    print("=====")
"""


def in_terminal(width: int, commands: list[list[str]], **variables: str) -> list[str]:
    """What commands show on a terminal of some width, with some variables of the environment."""
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environment |= variables
    started = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, program, stream) for stream in (0, 1, 2)],
    )
    os.close(program)
    shown = b""
    with contextlib.suppress(OSError):  # the program ended, and with it the terminal
        while more := os.read(terminal, 1 << 16):
            shown += more
    os.close(terminal)
    _, status = os.waitpid(started, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown.decode()
    return shown.decode().replace("\r\n", "\n").split("=====\n")[:-1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Releases of people with a tier and a region, in two or three arms."""
    rng, place = np.random.default_rng(), tmp_path_factory.mktemp("terminal")
    n_people, found = 3000, {}
    visit = rng.random(n_people) < 0.4
    for name, (arms, outcomes) in RELEASES.items():
        labels = LABELS[arms]
        table = pl.DataFrame(
            {
                "user": np.arange(n_people),
                "arm": [labels[person % len(labels)] for person in range(n_people)],
                "market": np.arange(n_people) // 6 % 5,
                "visit": visit.astype(np.int64),
                "order": (visit & (rng.random(n_people) < 0.5)).astype(np.int64),
                "tier": rng.choice(["basic", "gold", "silver"], n_people),
                "region": rng.integers(1, 4, n_people),
            }
        )
        table.write_parquet(place / f"{name}.parquet")
        parts = ["--unit", "user", "--arm", "arm", "--cluster", "market", "--control", labels[0]]
        parts += ["--passthrough", "tier,region", "--epsilon", 3, "--out", place / name, *outcomes]
        done = run("release", place / f"{name}.parquet", *parts)
        assert done.exit_code == 0, done.output
        found[name] = place / name
    return found


def shown_effects(text: str) -> list[str]:
    """The line of each effect."""
    return [line for line in text.splitlines() if re.search(r"\[ *-?\d", line)]


def as_command(folder: Path, asked: dict[str, Any]) -> list[str]:
    """`clusterdp estimate` with some options."""
    by = [word for name in asked.get("by", ()) for word in ("--by", name)]
    rest = ["--differences", asked["differences"]] if "differences" in asked else []
    return ["estimate", str(folder), *by, *rest]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_what_matters_is_shown(width: int, folders: dict[str, Path]) -> None:
    commands = [as_command(folders[name], asked) for name, asked in CASES.values()]
    for text, (name, asked) in zip(
        in_terminal(width, commands, NO_COLOR="1"), CASES.values(), strict=True
    ):
        assert max(map(len, text.splitlines())) <= width, text
        assert all(word in text for word in ("effect", "95% CI", "Variance due to privacy"))
        found = cdp.estimate(folders[name], **asked)
        tables = segment_tables(found) or [reported_overall(found)]
        effects = [effect for rows in tables for effect in rows]
        for line, effect in zip(shown_effects(text), effects, strict=True):
            assert_shown(effect, line)


def assert_shown(effect: cdp.Effect, line: str) -> None:
    """The line of an effect has its number, its interval and its segment."""
    written = [float(one) / 100 for one in re.findall(r"-?\d+\.?\d*", line)]
    for number in (effect.effect, *effect.ci()):
        assert min(abs(number - one) for one in written) <= effect.std_error / 10, line
    for _, value in effect.of.segment:
        assert re.search(rf"\b{value}\b", line), line


def test_more_is_shown_if_asked_for(folders: dict[str, Path]) -> None:
    command = as_command(folders["funnel"], CASES["all together"][1])
    plain, verbose = run(*command).output, run(*command, "-v").output
    for header in (
        "BH p",
        "simultaneous 95% CI",
        "treatment SE",
        "units per arm",
    ):
        assert header in verbose
        assert header not in plain
    assert "passed: Sample ratio" in verbose
    (*shown, _) = plain.splitlines()
    assert set(shown) <= set(verbose.splitlines())


def test_color_is_for_terminals_that_want_it(folders: dict[str, Path]) -> None:
    command = as_command(folders["two"], {})
    assert "\033[1m" in in_terminal(80, [command])[0]
    assert "\033" not in in_terminal(80, [command], NO_COLOR="1")[0]
    assert "\033" not in run(*command).output
