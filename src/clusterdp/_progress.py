"""Where a long run reports to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# Takes the number of rows that were done since it was last called.
RowsDone = Callable[[int], None]


def no_progress(n_rows: int) -> None:
    """Ignore progress."""


class Progress(Protocol):
    """Shows the stages of a long run."""

    def stage(self, name: str, n_rows: int) -> RowsDone:
        """Start a stage over that many rows; returns what to call with rows done."""


class NoProgress:
    """Shows nothing."""

    def stage(self, name: str, n_rows: int) -> RowsDone:  # noqa: ARG002 - a protocol
        """Start a stage that nobody watches."""
        return no_progress
