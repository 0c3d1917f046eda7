"""Numbers with their nouns, and in percent."""

from __future__ import annotations


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number and its noun: `1 cluster`, `1,200 clusters`."""
    return f"{number:,} " + (noun if number == 1 else several or f"{noun}s")


def percent(part: float) -> str:
    """A share in percent, in two digits where it is small."""
    return f"{100 * part:.2g}%" if part < 0.1 else f"{part:.0%}"
