"""Where a long run reports to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

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
