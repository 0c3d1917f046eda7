"""What every command shares: output for people and machines, progress, errors in one line."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from clusterdp.errors import ClusterDPError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress as RichProgress

# Exit codes that scripts can rely on; anything else that goes wrong is a bug and exits with 1.
REFUSED = 2
INTERRUPTED = 130


def console() -> Console:
    """Where results for people go."""
    from rich.console import Console

    # A pipe has no width; a wide one keeps tables in one piece.
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=False)


def print_json(content: Any) -> None:
    """A result for machines."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn what a user can act on into one line and exit code 2."""
    import typer

    try:
        yield
    except ClusterDPError as error:
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was published\n")
        raise typer.Exit(INTERRUPTED) from None


class Bars:
    """Progress bars on a terminal, silence elsewhere."""

    def __init__(self) -> None:
        self._bars: RichProgress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
        """Start a bar; returns what to call with rows done."""
        bars = self._bars
        if bars is None or n_rows == 0:
            return lambda _: None
        task = bars.add_task(name, total=n_rows)
        return lambda done: bars.advance(task, done)
