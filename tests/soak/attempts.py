"""What became of a malformed input: refused by one error, taken as sound, or a traceback."""

from __future__ import annotations

import re
import shutil
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import lru_cache
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from typer.main import get_command

from clusterdp.cli.app import app
from clusterdp.cli.console import REFUSED
from clusterdp.cli.owner import NO_LEDGER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

# Harmless: it means what it meant before. Sound: it means something else that is as good.
Verdict = Literal["refused", "harmless", "sound", "accepted", "traceback"]
# An outcome that stands in no message and in no other column.
MARKER = 987_654_321
# What is wrong; then, indented, the rest of a long line, what was not done and the fix.
_ONE_ERROR = re.compile(r"error: .+(\n( .+)?)*")


class Tried(NamedTuple):
    """One input.

    Attributes:
        mutation: What was done to it.
        verdict: What became of it.
        detail: Where it went wrong, without values.
    """

    mutation: str
    verdict: Verdict
    detail: str = ""


class Ran(NamedTuple):
    """A command that was run.

    Attributes:
        exit_code: 0, or 2 if it refused.
        stdout: Its result.
        fault: What it did that no command may do; empty if nothing.
    """

    exit_code: int
    stdout: str
    fault: str


def run_command(*arguments: object) -> Ran:
    """Run a command of `clusterdp` in this process."""
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
    raised: BaseException | None = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            _command().main([str(argument) for argument in arguments])
        except BaseException as error:  # noqa: BLE001 - a panic of Polars is no Exception
            raised = error
        out.flush()
        err.flush()
    stdout, stderr = (_written(stream) for stream in (out, err))
    exit_code = raised.code if isinstance(raised, SystemExit) else 1
    name = arguments[0]
    if exit_code not in (0, REFUSED):
        return Ran(1, stdout, f"{name}: {where(raised)}")
    told = stderr.replace(f"{NO_LEDGER}\n", "").strip()
    if str(MARKER) in stdout + stderr:
        return Ran(exit_code, stdout, f"{name}: shows a value")
    refused_by_a_check = "FAIL " in stdout and not told
    if exit_code and not refused_by_a_check and not _ONE_ERROR.fullmatch(told):
        return Ran(exit_code, stdout, f"{name}: {len(told.splitlines())} lines of error")
    return Ran(exit_code, stdout, "")


@lru_cache
def _command() -> Any:
    """The command, put together once: typer takes longer for that than most commands run."""
    return get_command(app)


def _written(stream: TextIOWrapper) -> str:
    assert isinstance(stream.buffer, BytesIO)
    return stream.buffer.getvalue().decode()


def where(error: BaseException | None) -> str:
    """The kind of an error and the line that raised it: never its text, which may quote data."""
    if error is None:
        return "no error"
    if isinstance(error, KeyboardInterrupt):
        raise error
    trace, lines = error.__traceback__, []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename.rsplit("/", 1)[-1]
        lines.append(f"{file}:{trace.tb_lineno}")
        trace = trace.tb_next
    ours = [line for line in lines if "clusterdp" in line] or lines
    return f"{type(error).__name__} at {' < '.join(reversed(ours[-6:]))}"


def strictly(action: Callable[[], Tried]) -> Tried:
    """An attempt during which a warning is an error, as it is in the tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return action()


def damaged(content: bytes, rng: np.random.Generator, others: list[bytes]) -> tuple[str, bytes]:
    """Bytes after an accident, and what happened."""
    size = len(content)
    start = int(rng.integers(size))
    stop = min(size, start + int(rng.integers(1, 40)))
    noise = rng.bytes(stop - start)
    accident = str(
        rng.choice(
            [
                "flip",
                "flip",
                "flip",
                "cut",
                "zero",
                "noise",
                "insert",
                "remove",
                "swap",
                "replace",
                "empty",
                "double",
            ]
        )
    )
    if accident == "flip":
        changed = bytearray(content)
        for place in rng.integers(size, size=int(rng.integers(1, 4))):
            changed[place] ^= 1 << int(rng.integers(8))
        return accident, bytes(changed)
    made = {
        "cut": content[:start],
        "zero": content[:start] + bytes(stop - start) + content[stop:],
        "noise": content[:start] + noise + content[stop:],
        "insert": content[:start] + noise + content[start:],
        "remove": content[:start] + content[stop:],
        "swap": content[start:] + content[:start],
        "replace": others[int(rng.integers(len(others)))] if others else noise,
        "empty": b"",
        "double": content + content,
    }
    return accident, made[accident]


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
