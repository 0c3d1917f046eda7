"""Run the guides of a folder as a reader would, and keep what they print.

python -m sitepages.running owner
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sitepages.pages import guides, start_of

if TYPE_CHECKING:
    from sitepages.pages import Block, Page

# The width of the terminal that guides are written for. Some tables are wider, up to the second.
_WIDTH, _WIDEST = 92, 108


class GuideError(Exception):
    """A block of a guide failed."""


class _Terminal(io.StringIO):
    """What is printed, laid out as for a terminal."""

    def isatty(self) -> bool:
        return True


def run_folder(folder: str) -> dict[str, list[str]]:
    """What each block of each page prints, by the name of the page.

    Where pages continue another one, that one runs first. Files are written into the working
    directory, which all pages of a folder share.

    Raises:
        GuideError: If a block fails; it names the page and the line.
    """
    pages = guides(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    start = start_of(pages[0])
    if start is not None:
        _run_page(start, names)
    return {page.path.name: _run_page(page, dict(names)) for page in pages}


def _run_page(page: Page, names: dict[str, Any]) -> list[str]:
    return [run_block(page, block, names) for block in page.blocks]


def run_block(page: Page, block: Block, names: dict[str, Any]) -> str:
    """What a block prints; nothing if its language is not run."""
    printed = _Terminal()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            _RUNNERS.get(block.language, _leave)(block.code, names)
    except (Exception, SystemExit) as error:
        place = f"{page.path.parent.name}/{page.path.name}, line {block.line}"
        raise GuideError(f"{place}: {error!r}\n{printed.getvalue()}") from error
    lines = printed.getvalue().strip("\n").splitlines()
    return "\n".join(folded for line in lines for folded in _folded(line.rstrip()))


def _folded(line: str) -> list[str]:
    """A line of prose as lines that fit; tables stay as they are."""
    if len(line) <= _WIDEST:
        return [line]
    return textwrap.wrap(line, _WIDTH, subsequent_indent="  ")


def _run_python(code: str, names: dict[str, Any]) -> None:
    exec(code, names)  # noqa: S102 - our own documents


def _run_commands(code: str, _: dict[str, Any]) -> None:
    """Commands of clusterdp, one a line; a line that ends with a backslash goes on."""
    from clusterdp.cli.app import app

    for line in textwrap.dedent(code).replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program != "clusterdp":
            raise GuideError(f"only clusterdp is run, got {program}")
        app(arguments, prog_name="clusterdp", standalone_mode=False)


def _run_query(code: str, _: dict[str, Any]) -> None:
    import duckdb

    sys.stdout.write(f"{duckdb.sql(code)}\n")


def _run_r(code: str, _: dict[str, Any]) -> None:
    """A script of R, where it is installed."""
    program = shutil.which("Rscript")
    if program is not None:
        arguments = [program, "-e", code]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)  # noqa: S603
        sys.stdout.write(done.stdout)


def _write_experiment(code: str, _: dict[str, Any]) -> None:
    """An experiment file is where commands that follow it find it."""
    Path("experiment.toml").write_text(code, encoding="utf-8")


def _leave(_: str, __: dict[str, Any]) -> None:
    """Blocks in other languages are shown and not run."""


_RUNNERS = {
    "python": _run_python,
    "sh": _run_commands,
    "sql": _run_query,
    "r": _run_r,
    "toml": _write_experiment,
}


def main() -> None:
    """Print what the guides of a folder print, as JSON."""
    os.environ |= {"COLUMNS": str(_WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    (folder,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        printed = run_folder(folder)
    json.dump(printed, sys.stdout)


if __name__ == "__main__":
    main()
