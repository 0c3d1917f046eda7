"""Numbers with their nouns, and in percent; and which characters are safe to show."""

from __future__ import annotations

import unicodedata

# Control characters, halves of pairs, and what breaks lines.
_REFUSED_KINDS = ("Cc", "Cs", "Zl", "Zp")
# These reorder what stands beside them.
_REORDERING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number and its noun: `1 cluster`, `1,200 clusters`."""
    return f"{number:,} " + (noun if number == 1 else several or f"{noun}s")


def percent(part: float) -> str:
    """A share in percent, in two digits where it is small."""
    return f"{100 * part:.2g}%" if part < 0.1 else f"{part:.0%}"


def is_plain(letter: str) -> bool:
    """Whether a character shows as itself, and changes nothing around it."""
    return unicodedata.category(letter) not in _REFUSED_KINDS and letter not in _REORDERING
