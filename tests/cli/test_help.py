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
    example = re.search(rf"clusterdp {name} (.*)", text, re.DOTALL)
    assert example is not None
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", example[1])) <= known


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
    budget = ("--epsilon", 1, "--mechanism", "uniform-prior-dp")
    plan = run("plan", path, *PARTS, *budget, "--out", tmp_path / "plan.toml")
    released = run("release", path, *PARTS, *budget, "--out", out)
    said = [plan.output, released.output, run("inspect", out).output]
    said += [(out / "README.md").read_text(), (tmp_path / "plan.toml").read_text()]
    for text in [*said, repr(cdp.read_release(out))]:
        assert "1 clusters" not in text
        assert "asked for" not in text
    assert all("1 cluster" in text for text in said)
