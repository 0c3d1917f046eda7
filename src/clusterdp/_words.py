"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number and its noun: `1 cluster`, `1,200 clusters`."""
    return f"{number:,} " + (noun if number == 1 else several or f"{noun}s")
