"""Rounding at random with 64-bit words, in exact integers."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, WordArray

_WORDS = 2**64
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def rounds_up(words: WordArray, numerators: WordArray, widths: WordArray) -> BoolArray:
    """Whether each number becomes the grid point above it: ⌊word·width / 2^64⌋ < numerator.

    The product is taken in two halves of the word. With word = a·2^32 + b, the quotient is
    ⌊(a·width + ⌊b·width / 2^32⌋) / 2^32⌋. Widths are below 2^25, so no part exceeds 64 bits and
    the quotient is exact. Its distribution is in `up_prob`.

    Args:
        words: Uniform words, one per number; none is used for anything else. Axes `[row]`.
        numerators: Steps above the grid point below, less than the width.
        widths: Steps between the two grid points.
    """
    quotients = words >> _HALF
    quotients *= widths
    low = words & _LOW_HALF
    low *= widths
    low >>= _HALF
    quotients += low
    quotients >>= _HALF
    return np.asarray(quotients < numerators)


def up_prob(numerator: int, width: int) -> Fraction:
    """The probability with which `rounds_up` rounds up: ⌈numerator·2^64 / width⌉ / 2^64.

    For an integer m, ⌊word·width / 2^64⌋ < m holds exactly when word < m·2^64 / width, which is so
    for ⌈m·2^64 / width⌉ words. That exceeds m/width by less than 2^-64, so the mean of the rounded
    number exceeds the number by less than width·2^-64 ≤ 2^-40 steps. It is exact where the width
    is a power of two, and at grid points.
    """
    return Fraction(-(-numerator * _WORDS // width), _WORDS)
