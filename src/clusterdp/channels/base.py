"""What is found when a published channel is checked."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """A check: what it is about, and what is wrong, or None."""

    name: str
    problem: str | None

    @classmethod
    def of(cls, name: str, problem: str, *, holds: bool) -> Check:
        """A check that holds, or what is wrong if it does not."""
        return cls(name, None if holds else problem)
