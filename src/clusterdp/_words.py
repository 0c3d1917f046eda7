"""Numbers with their nouns, and in percent; and which characters are safe to show."""

from __future__ import annotations

import unicodedata

# Control characters, what cannot be seen or reorders its neighbours, halves of pairs, and what
# breaks lines.
_REFUSED_KINDS = ("Cc", "Cf", "Cs", "Zl", "Zp")
# They join letters, or keep them apart, as Persian and Hindi are written.
_JOINERS = "\u200c\u200d"
# The same as a regular expression, which Rust and Java read alike.
NOT_PLAIN = r"[\p{Cc}\p{Zl}\p{Zp}]|[\p{Cf}&&[^\x{200c}\x{200d}]]"


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number and its noun: `1 cluster`, `1,200 clusters`."""
    return f"{number:,} " + (noun if number == 1 else several or f"{noun}s")


def percent(part: float) -> str:
    """A share in percent, in two digits where it is small."""
    return f"{100 * part:.2g}%" if part < 0.1 else f"{part:.0%}"


def is_plain(letter: str) -> bool:
    """Whether a character shows as itself, and changes nothing around it."""
    return unicodedata.category(letter) not in _REFUSED_KINDS or letter in _JOINERS


def plain_text(text: str, layout: str = "") -> str:
    """A text that can be shown anywhere: a question mark stands for what is not plain.

    All that is shown passes here: names and labels may be anybody's, and could otherwise move the
    cursor, or hide and reorder what stands beside them.

    Args:
        text: The text.
        layout: Characters that lay it out, such as line breaks, and stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter in layout or is_plain(letter) else "?" for letter in text)
