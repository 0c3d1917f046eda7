"""Where a long run reports to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

# Takes the number of rows, or of other things, that were done since it was last called.
RowsDone = Callable[[int], None]


def no_progress(n_rows: int) -> None:
    """Ignore progress."""


# Most of a plan's time goes into channels, which are designed far below what people wait for.
_ON_CHANNEL: ContextVar[RowsDone] = ContextVar("on_channel", default=no_progress)


@contextmanager
def counting_channels(on_done: RowsDone) -> Iterator[None]:
    """Call `on_done` with 1 after each channel that is designed meanwhile."""
    token = _ON_CHANNEL.set(on_done)
    try:
        yield
    finally:
        _ON_CHANNEL.reset(token)


def channel_done() -> None:
    """Report a channel that was designed."""
    _ON_CHANNEL.get()(1)


class Progress(Protocol):
    """Shows the stages of a long run."""

    def stage(self, name: str, n_rows: int) -> RowsDone:
        """Start a stage over that many rows; returns what to call with rows done."""


class NoProgress:
    """Shows nothing."""

    def stage(self, name: str, n_rows: int) -> RowsDone:  # noqa: ARG002 - a protocol
        """Start a stage that nobody watches."""
        return no_progress


class Bars:
    """Progress bars on a terminal, from the first stage on: before that there may be a question."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars

    def stage(self, name: str, n_rows: int) -> RowsDone:
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
