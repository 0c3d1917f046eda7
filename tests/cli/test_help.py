"""What the commands say of themselves, and numbers with their nouns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest
import typer.main

import clusterdp as cdp
from cli_runs import PARTS, run
from clusterdp.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = typer.main.get_group(app).commands


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "ledger"])
def test_help_shows_an_example_of_options_that_exist(name: str) -> None:
    text = COMMANDS[name].help or ""
    example = re.search(rf"clusterdp {name}\b(.*)", text, re.DOTALL)
    assert example is not None
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", example[1])) <= known


LEDGER = ["init", "show", "verify", "close", "cancel"]


@pytest.mark.parametrize(
    "command",
    [(), *((name,) for name in COMMANDS), *(("ledger", name) for name in LEDGER)],
    ids=str,
)
def test_help_fits_one_screen(command: tuple[str, ...]) -> None:
    lines = run(*command, "--help", width=80).output.rstrip("\n").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    # People do not read types of Python.
    assert not re.search(r"<\w+(\[\w+\])?>", "\n".join(lines))


@pytest.mark.parametrize("name", ["plan", "release", "estimate"])
def test_help_all_has_every_option(name: str) -> None:
    short, every = run(name, "--help").output, run(name, "--help-all").output
    flags = {one.opts[-1] for one in COMMANDS[name].params if one.opts[0].startswith("--")}
    hidden = {flag for flag in flags if not re.search(rf"{flag}\s", short)}
    assert f"--help-all lists {len(hidden)} more options" in short
    assert hidden
    assert all(re.search(rf"{flag}\s", every) for flag in flags)


def test_commands_are_listed_in_the_order_of_work() -> None:
    listed = run("--help").output
    names = ["init", "plan", "release", "ledger", "inspect", "estimate", "verify", "calibrate"]
    places = [listed.index(f"│ {name} ") for name in [*names, "errata", "reproduce"]]
    assert places == sorted(places)


def test_one_cluster_is_one_cluster(tmp_path: Path) -> None:
    path, out = tmp_path / "one.csv", tmp_path / "out"
    pl.DataFrame(
        {
            "user": range(40),
            "treated": [0, 1] * 20,
            "market": ["here"] * 40,
            "clicks": [0, 1, 2, 3] * 10,
        }
    ).write_csv(path)
    file = tmp_path / "experiment.toml"
    plan = run("plan", path, *PARTS, "--epsilon", 1, "--out", file)
    released = run("release", file, "--out", out, "-v")
    said = [plan.output, released.output, run("inspect", out).output]
    said.append(file.with_suffix(".lock").read_text())
    for text in [*said, (out / "README.md").read_text(), repr(cdp.read_release(out))]:
        assert "1 clusters" not in text
        assert "asked for" not in text
    assert all("1 cluster" in text for text in said)
