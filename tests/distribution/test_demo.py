"""`make demo` tells one experiment from the plan to the report, and names pages that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli_runs import assert_refused, run
from clusterdp import demo


@pytest.mark.slow
def test_the_demo_names_pages_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_process(command: list[str], *, check: bool) -> None:
        done = run(*command[3:])
        assert done.exit_code == 0, done.output
        commands.append(command[3])

    commands: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.run", in_process)
    monkeypatch.setattr(demo, "_PEOPLE", 8000)
    demo.main()
    told = capsys.readouterr().out
    written = (tmp_path / "demo-output/experiment.toml").read_text()
    assert all(f"{key} = {value}" in written for key, value in demo.FILLED_IN.items())
    assert '"?"\n' not in written
    first = ["init", "plan", "ledger", "release", "estimate"]
    assert commands == [*first, "ask", "answer", "estimate"]
    assert max(map(len, told.splitlines())) <= 80
    named = re.findall(r"^  (demo-output/\S+\.html) ", told, re.MULTILINE)
    assert [Path(name).name for name in named] == [
        *("plan.html", "index.html", "report.html", "index.html")
    ]
    assert all(Path(name).exists() for name in named)


def test_the_demo_names_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    assert_refused(run("demo"), "pip install 'clusterdp[ledger]'")
    assert not list(tmp_path.iterdir())


def test_make_installs_what_the_demo_needs() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    (extras,) = re.findall(r'editable "\.\[([a-z,]+)\]"', makefile)
    assert {"ledger", "plot"} <= set(extras.split(","))
