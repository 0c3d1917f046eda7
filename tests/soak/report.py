"""What a trial of faults found, as a line of the table."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One trial. Everything but runs and faults must be zero.

    Attributes:
        trial: What was done.
        runs: How many commands were run.
        faults: How many of them were disturbed.
        lost: Releases that could not be finished, or came out other than undisturbed.
        overspent: Budgets spent twice, or beyond their cap, or not at all.
        partial: Folders that were taken for a release and are none.
        details: What else there is to know.
    """

    trial: str
    runs: int
    faults: int
    lost: int
    overspent: int
    partial: int
    details: str

    @property
    def passed(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.overspent or self.partial)
