"""Numbers with their nouns, and in percent; and which characters are safe to show.

Numbers as people write them: a float stands for the shortest decimal that denotes it.
"""

from __future__ import annotations

import math
import unicodedata
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# What stands in place of a number that is not known.
NOTHING = "–"
# With more decimals than this a number is shown in powers of ten.
_MOST_DECIMALS = 9

# Control characters, what cannot be seen or reorders its neighbours, halves of pairs, and what
# breaks lines.
_REFUSED_KINDS = ("Cc", "Cf", "Cs", "Zl", "Zp")
# They join letters, or keep them apart, as Persian and Hindi are written.
_JOINERS = "\u200c\u200d"
# Letters and marks that show as nothing. U+FE0F is not among them: it makes a sign an emoji.
_UNSEEN = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800)),
    *((0x3164, 0x3164), (0xFE00, 0xFE0E), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)),
)
_UNSEEN_LETTERS = frozenset(chr(code) for low, high in _UNSEEN for code in range(low, high + 1))
_UNSEEN_RANGES = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in _UNSEEN)
# The same as a regular expression, which Rust and Java read the same.
NOT_PLAIN = rf"[\p{{Cc}}\p{{Zl}}\p{{Zp}}{_UNSEEN_RANGES}]|[\p{{Cf}}&&[^\x{{200c}}\x{{200d}}]]"


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number and its noun: `1 cluster`, `1,200 clusters`."""
    return f"{number:,} " + (noun if number == 1 else several or plural(noun))


def plural(noun: str) -> str:
    """Several of a noun: `users`, `companies`."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def with_article(noun: str) -> str:
    """`a unit`, `an outcome`; an initial u is taken for that of unit and user."""
    return f"an {noun}" if noun[:1].lower() in "aeio" else f"a {noun}"


def percent(part: float) -> str:
    """A share in percent, in two digits where it is small."""
    return f"{100 * part:.2g}%" if part < 0.1 else f"{part:.0%}"


def range_in_words(low: float, high: float) -> str:
    """A range of numbers: "0–200", "-5 to 5"."""
    return f"{shortest_decimal(low)}{'–' if low >= 0 else ' to '}{shortest_decimal(high)}"


def two_digits(number: float) -> str:
    """A number in two digits, written out: `1.0`, `0.036`, `170,000`."""
    rounded = float(f"{number:.2g}")
    if not rounded:
        return "0"
    decimals = max(0, 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def three_digits(number: float) -> str:
    """A number in three digits, without zeros at its end: `0.3`, `12.5`, `2,500`."""
    return f"{float(f'{number:.3g}'):,.15g}"


def is_plain(letter: str) -> bool:
    """Whether a character shows as itself, and changes nothing around it."""
    if letter in _JOINERS:
        return True
    return unicodedata.category(letter) not in _REFUSED_KINDS and letter not in _UNSEEN_LETTERS


def plain_text(text: str, layout: str = "") -> str:
    """A text that can be shown anywhere: a question mark stands for what is not plain.

    All that is shown passes here: names and labels can come from anyone, and could otherwise move
    the cursor, or hide and reorder what stands next to them.

    Args:
        text: The text.
        layout: Characters that lay it out, such as line breaks, and stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter in layout or is_plain(letter) else "?" for letter in text)


def held_texts(held: Any) -> Iterator[str]:
    """Every text in lists and dictionaries, at any depth; bytes are read as text."""
    match held:
        case str():
            yield held
        case bytes():
            yield held.decode()
        case dict():
            yield from held_texts([*held, *held.values()])
        case list() | tuple():
            for one in held:
                yield from held_texts(one)


# A decimal as people write it, with an optional sign and exponent.
DECIMAL = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def exact(number: float) -> Fraction:
    """The number that the shortest decimal denotes: 0.1 is one tenth."""
    return Fraction(repr(float(number)))


def shortest_decimal(number: float) -> str:
    """The shortest decimal, without a trailing `.0`."""
    return repr(float(number)).removesuffix(".0")


def to_decimals(std_errors: Iterable[float]) -> Callable[[float | None], str]:
    """How the numbers of a metric are shown: to two digits of the smallest standard error."""
    errors = [error for error in std_errors if error > 0]
    decimals = max(0, 1 - math.floor(math.log10(min(errors)))) if errors else 4

    def show(number: float | None) -> str:
        if number is None or math.isnan(number):
            return NOTHING
        if math.isinf(number):
            return "∞" if number > 0 else "-∞"
        return f"{number:z,.{decimals}f}" if decimals <= _MOST_DECIMALS else f"{number:.4g}"

    return show


def effect_text(effect: float, std_error: float, *, is_share: bool) -> str:
    """An effect in a sentence, to two digits of its standard error: `+3.95 pp`."""
    factor, unit = (100.0, " pp") if is_share else (1.0, "")
    text = to_decimals([factor * std_error])(factor * effect)
    return f"{'' if text.startswith('-') else '+'}{text}{unit}"


def mean_text(mean: float, std_error: float, *, is_share: bool) -> str:
    """The mean of an arm in a sentence: `28.72%`."""
    factor, unit = (100.0, "%") if is_share else (1.0, "")
    return f"{to_decimals([factor * std_error])(factor * mean)}{unit}"


def limits_text(limits: tuple[float, float], show: Callable[[float | None], str]) -> str:
    """Two limits in brackets."""
    low, high = limits
    return NOTHING if math.isnan(low) else f"[{show(low)}, {show(high)}]"


def p_value_text(p_value: float) -> str:
    """A p-value to four decimals."""
    if math.isnan(p_value):
        return NOTHING
    return f"{p_value:.4f}" if p_value >= 1e-4 else "<0.0001"


def p_text(p_value: float) -> str:
    """The same in a sentence: `p = 0.0213`, `p < 0.0001`."""
    text = p_value_text(p_value)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
