"""Errata come after the seal: they are shown, and decide nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from cli_runs import assert_refused, run

if TYPE_CHECKING:
    from pathlib import Path

WRONG = "12 units were assigned twice"


def test_an_erratum_is_shown_wherever_the_folder_is_used(published: Path) -> None:
    for text in (WRONG, "and *another*"):
        assert run("errata", published, text).exit_code == 0
    written = (published / "errata.md").read_text()
    assert written.count("\n- 2") == 2
    assert WRONG in run("inspect", published).output
    assert any(
        WRONG in one for one in json.loads(run("inspect", published, "--json").output)["errata"]
    )
    assert WRONG in run("estimate", published).output
    assert any(WRONG in note for note in cdp.estimate(published).notes)
    assert run("verify", published).exit_code == 0


def test_without_errata_nothing_is_said_of_them(published: Path) -> None:
    assert "errat" not in run("estimate", published).output
    assert "erratum" not in run("inspect", published).output


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "\x1b[31m", "x" * 2001, "\u202eabc"])
def test_an_erratum_is_one_plain_line(text: str, published: Path) -> None:
    assert_refused(run("errata", published, text), "an erratum must")
    assert not (published / "errata.md").exists()


def test_what_others_wrote_cannot_change_a_terminal(published: Path) -> None:
    (published / "errata.md").write_bytes("- a\x1b[31m\u202eb\r\n".encode())
    for command in ("inspect", "estimate"):
        done = run(command, published)
        assert done.exit_code == 0
        assert not {"\x1b", "\u202e", "\r"} & set(done.output)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 200_000])
def test_what_cannot_be_shown_is_said(content: bytes, published: Path) -> None:
    (published / "errata.md").write_bytes(content)
    for command in ("inspect", "estimate", "verify"):
        done = run(command, published)
        assert done.exit_code == 0
        assert len(done.output) < 20_000
    assert "errata.md" in run("inspect", published).output


def test_an_erratum_goes_nowhere_else(published: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (published / "errata.md").symlink_to(tmp_path / "other")
    assert_refused(run("errata", published, WRONG), "is not a file of its own")
    assert (tmp_path / "other").read_text() == "mine"
    assert "mine" not in run("inspect", published).output
    assert run("verify", published).exit_code != 0
    assert_refused(run("errata", tmp_path, WRONG), "is not a release")
