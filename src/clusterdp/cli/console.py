"""What every command shares: output for people and machines, progress, errors in one line.

Options of the commands: those of the owner's functions, and those that commands share.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterdp._progress import NoProgress
from clusterdp._text import is_plain, plain_text
from clusterdp.document.text import terminal_width, wrapped
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


def console() -> Console:
    """Where results for people go."""
    from rich.console import Console

    return Console(highlight=False, markup=False)


def print_line(text: str) -> None:
    """A line for people; it is not broken, so that it can be searched for."""
    print_text(plain_text(text))


def print_text(text: str) -> None:
    """A text for people that is laid out already."""
    sys.stdout.write(plain_text(text, "\n") + "\n")


def print_note(text: str) -> None:
    """A note for people: wrapped on a terminal, one line elsewhere."""
    print_text("\n".join(wrapped(f"note: {text}", terminal_width(), "  ")))


def print_aside(text: str) -> None:
    """A line for people that is no result: it does not get into what scripts read."""
    sys.stderr.write(plain_text(text, "\n") + "\n")


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

    They raise an error as well, which is reported in one line. `CLUSTERDP_DEBUG` shows all of it.
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
def errors_in_one_line() -> Iterator[None]:
    """Turn what a user can act on into one line and exit code 2."""
    with _without_library_output(), _reported_in_one_line():
        yield


@contextmanager
def _reported_in_one_line() -> Iterator[None]:
    import typer

    # Asked to stop, a run cleans up behind itself as if interrupted.
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.default_int_handler)
    try:
        yield
    except ClusterDPError as error:
        sys.stderr.write(f"error: {plain_text(str(error))}\n")
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was published\n")
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
            text = f"WARNING, for your eyes only: {plain_text(str(message))}"
            sys.stderr.write(f"\033[1;31m{text}\033[0m\n" if sys.stderr.isatty() else f"{text}\n")

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]  # it takes what it needs
        yield


class Bars:
    """Progress bars on a terminal."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
        """Start a bar; returns what to call with rows done."""
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
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield Bars(bars)


Folder = Annotated[
    str, typer.Argument(help="A published folder, or its address in a store (s3://...).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
