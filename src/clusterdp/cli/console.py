"""What every command shares: output for people and machines, progress, errors.

Options of the commands: those of the owner's functions, and those that commands share.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import re
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from clusterdp._progress import NoProgress
from clusterdp._text import is_plain, plain_text
from clusterdp.document.text import remark, terminal_width, wrapped
from clusterdp.errors import ClusterDPError, OwnerNotice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress as RichProgress

    from clusterdp._progress import Progress


# Exit codes that scripts can rely on; anything else that goes wrong is a bug and exits with 1.
REFUSED = 2
_STDERR = 2
INTERRUPTED = 130
# What is bold, yellow, red and dim on a terminal: the answer, warnings, errors, the next step.
_PLAIN = "\033[0m"
_STYLES = (
    (r"\A.+", "\033[1m"),
    (r"^warning:", "\033[33m"),
    (r"^error:", "\033[31m"),
    (r"^Next:.*(?:\n  .*)*", "\033[2m"),
)
# How signs are spelled where the encoding of a terminal does not have them.
_SPELLED = str.maketrans(
    {"ε": "epsilon", "δ": "delta", "→": "->", "–": "-", "−": "-", "±": "+-", "∞": "inf", "×": "x"}
    | {"│": "|", "─": "-", "●": "o", "┼": "+", "█": "#", "░": ".", "≥": ">=", "≤": "<=", "…": "..."}
)


def console() -> Console:
    """Where results for people go."""
    from rich.console import Console

    return Console(highlight=False, markup=False)


def print_line(text: str) -> None:
    """A line for people; it is not broken, so that it can be searched for."""
    print_text(plain_text(text))


def print_text(text: str) -> None:
    """A text for people that is laid out already."""
    _write(sys.stdout, text)


def print_screen(text: str) -> None:
    """A text for people whose first line is the answer."""
    _write(sys.stdout, text, has_answer=True)


def print_note(text: str) -> None:
    """A note for people."""
    print_text("\n".join(remark("note", text, terminal_width())))


def print_next(text: str) -> None:
    """What to do next."""
    print_text("\n".join(wrapped(f"Next: {text}", terminal_width(), "  ")))


def print_aside(text: str) -> None:
    """A line for people that is no result: it does not get into what scripts read."""
    _write(sys.stderr, text)


def print_error(message: str) -> None:
    """An error: what is wrong, then what was not done and the fix, each in a line of its own.

    Messages are sentences. The first one says what is wrong.
    """
    first, *rest = re.split(r"(?<=[.?!]) +(?=[A-Z])|\n+", plain_text(message, "\n").strip())
    lines = remark("error", first.removesuffix("."), terminal_width())
    paragraphs = re.sub(r" (?=Fix: )", "\n", " ".join(rest)).splitlines()
    below = [line for one in paragraphs for line in wrapped(f"  {one}", terminal_width(), "  ")]
    _write(sys.stderr, "\n".join([*lines, *([""] if below else []), *below]))


def _write(stream: TextIO, text: str, *, has_answer: bool = False) -> None:
    """Write a text: in color on a terminal, and with the letters that its encoding has."""
    shown = plain_text(text, "\n")
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        shown.encode(encoding)
    except UnicodeEncodeError:
        shown = shown.translate(_SPELLED).encode(encoding, "replace").decode(encoding)
    if stream.isatty() and "NO_COLOR" not in os.environ:
        for pattern, style in _STYLES[0 if has_answer else 1 :]:
            shown = re.sub(pattern, rf"{style}\g<0>{_PLAIN}", shown, flags=re.MULTILINE)
    stream.write(shown + "\n")


def print_pairs(pairs: list[tuple[str, str]]) -> None:
    """Names and what they stand for: wrapped on a terminal, one line each elsewhere."""
    pairs = [(plain_text(name), plain_text(text)) for name, text in pairs]
    if not sys.stdout.isatty():
        width = max(len(name) for name, _ in pairs)
        sys.stdout.writelines(f"{name:{width}}  {text}\n" for name, text in pairs)
        return
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for name, text in pairs:
        grid.add_row(name, text)
    console().print(grid)


def print_json(content: Any) -> None:
    """A result for machines."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, default=str)
    # JSON has an escape for every character, and none of these outside of texts.
    escaped = (one if one == "\n" or is_plain(one) else json.dumps(one)[1:-1] for one in text)
    sys.stdout.write("".join(escaped) + "\n")


def _finite(content: Any) -> Any:
    """The same with null for what is not a number, which JSON has no word for."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


@contextmanager
def _without_library_output() -> Iterator[None]:
    """Keep what libraries print past Python out of the terminal: where they panicked, and on what.

    They raise an error as well, which is reported. `CLUSTERDP_DEBUG` shows all of it.
    """
    try:
        ours = sys.stderr.fileno() == _STDERR and "CLUSTERDP_DEBUG" not in os.environ
    except (AttributeError, OSError, ValueError):
        ours = False  # standard error is not the terminal's
    if not ours:
        yield
        return
    given = sys.stderr
    given.flush()
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        os.fdopen(os.dup(_STDERR), "w", buffering=1, errors="backslashreplace") as terminal,
    ):
        os.dup2(nowhere.fileno(), _STDERR)
        sys.stderr = terminal
        # A process that a library aborts reports at least that.
        faulthandler.enable(terminal, all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()
            sys.stderr = given
            os.dup2(terminal.fileno(), _STDERR)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turn what a user can act on into a message and exit code 2."""
    with _without_library_output(), _reporting():
        yield


@contextmanager
def _reporting() -> Iterator[None]:
    import typer

    # Asked to stop, a run cleans up behind itself as if interrupted.
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.default_int_handler)
    try:
        yield
    except ClusterDPError as error:
        print_error(str(error))
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        print_aside("interrupted: nothing was published")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def owner_notices() -> Iterator[None]:
    """Show what the owner alone should know in words that cannot be overlooked.

    It goes to the terminal as it comes up, never into results: it depends on true outcomes.
    """
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not issubclass(category, OwnerNotice):
            usual(message, category, *where)
        else:
            print_aside("\n".join(remark("warning", str(message), terminal_width())))

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]  # it takes what it needs
        yield


class Bars:
    """Progress bars on a terminal, from the first stage on: before that there may be a question."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
        """Start a bar; returns what to call with rows done."""
        self._bars.start()
        task = self._bars.add_task(name, total=n_rows or None)
        return lambda done: self._bars.advance(task, done)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Progress bars on a terminal, silence elsewhere."""
    if not sys.stderr.isatty():
        yield NoProgress()
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    bars = rich.Progress(*columns, console=Console(stderr=True), transient=True)
    try:
        yield Bars(bars)
    finally:
        bars.stop()


Folder = Annotated[
    str, typer.Argument(help="A published folder, or its address in a store (s3://...).")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
