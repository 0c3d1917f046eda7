"""Numbers as people write them: a float stands for the shortest decimal that denotes it."""

from __future__ import annotations

from fractions import Fraction

# A decimal as people write it, with an optional sign and exponent.
DECIMAL = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def exact(number: float) -> Fraction:
    """The number that the shortest decimal denotes: 0.1 is one tenth."""
    return Fraction(repr(float(number)))


def shown(number: float) -> str:
    """The shortest decimal, without a trailing `.0`."""
    return repr(float(number)).removesuffix(".0")
