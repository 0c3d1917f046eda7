"""A number in a declared range: clipped there, and quantized once to a fine decimal lattice.

It is rounded to the grid points of `grid.py` at random, with 64-bit words and in exact integers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._text import DECIMAL, exact, shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.outcomes.finite import LARGEST_VALUE, OutcomeSpace

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, WordArray


# A range has at most this many steps: products with 64-bit words stay exact, and so do sums.
MOST_STEPS = 2**24
# Multiples of the unit beyond this make sums overflow 64 bits for plausible populations.
_LARGEST_MULTIPLE = 2**31
_PREFIX = "number:"
_FORM = re.compile(rf"({DECIMAL})\.\.({DECIMAL})(?: by ({DECIMAL}))?")

Steps = np.ndarray[tuple[int, ...], np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Number:
    """A number between two ends: `Number(0, 493)`. Numbers outside are clipped.

    The lattice holds `low + unit * step` for `step` = 0 … `n_steps`. Its unit is a power of ten,
    and follows from the range, unless a larger one is declared.

    Attributes:
        low: The lower end.
        high: The upper end.
        by: The unit, if it is coarser than the range requires; else None.
    """

    low: float
    high: float
    by: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _checked_end(name, getattr(self, name)))
        if self.low >= self.high:
            raise ParameterError(
                f"a number needs low < high, got low={shortest_decimal(self.low)}, "
                f"high={shortest_decimal(self.high)}; "
                "exchange the ends"
            )
        self._check_unit()
        for name in ("low", "high"):
            self._check_on_lattice(name)

    @classmethod
    def parse(cls, given: str) -> Number:
        """A number from a text such as `number:0..493`."""
        found = _FORM.fullmatch(given.strip().removeprefix(_PREFIX).strip())
        if not found:
            raise ParameterError(f"a number is declared as number:LOW..HIGH, got {given!r}")
        return cls(float(found[1]), float(found[2]), float(found[3]) if found[3] else None)

    @staticmethod
    def is_meant_by(given: str) -> bool:
        """Whether a text declares a number."""
        return given.strip().startswith(_PREFIX)

    def __str__(self) -> str:
        """What `parse` reads back."""
        unit = "" if self.by is None else f" by {shortest_decimal(self.by)}"
        return f"{_PREFIX}{shortest_decimal(self.low)}..{shortest_decimal(self.high)}{unit}"

    @property
    def in_words(self) -> str:
        """The same for readers."""
        return str(self)

    @property
    def unit(self) -> Fraction:
        """The distance of two lattice points, a power of ten."""
        return _unit(self.low, self.high) if self.by is None else exact(self.by)

    @property
    def n_steps(self) -> int:
        """How many units there are from `low` to `high`."""
        return int((exact(self.high) - exact(self.low)) / self.unit)

    @property
    def first_multiple(self) -> int:
        """`low` as a multiple of the unit; lattice point `step` is the multiple `first + step`."""
        return int(exact(self.low) / self.unit)

    def value(self, step: int) -> Fraction:
        """The lattice point at a step, exactly."""
        return self.unit * (self.first_multiple + step)

    def steps_to(self, value: float) -> Fraction:
        """How many units a value lies above `low`; whole for values of the lattice."""
        return (exact(value) - exact(self.low)) / self.unit

    def quantize(self, observed: npt.NDArray[Any]) -> tuple[Steps, BoolArray]:
        """The nearest lattice point of each observed number, which must not be NaN.

        Floating-point error is below 1e-6 steps, so a decimal of the lattice is its own nearest
        point. Integers, booleans, infinities and floats of less precision are all read.

        Returns:
            `(steps, clipped)`: steps above `low`, and where the number was beyond an end.
        """
        values = observed.astype(np.float64)
        clipped = (values < self.low) | (values > self.high)
        np.clip(values, self.low, self.high, out=values)
        values -= self.low
        if self.unit < 1:
            values *= float(1 / self.unit)
        else:
            values /= float(self.unit)
        return np.rint(values, out=values).astype(np.int32), clipped

    def _check_unit(self) -> None:
        """Forget a unit that follows from the range; refuse one that is too fine, or uneven."""
        if self.by is None:
            return
        finest, unit = _unit(self.low, self.high), exact(_checked_end("by", self.by))
        power = Fraction(10) ** round(math.log10(unit)) if unit > 0 else None
        if unit != power or unit < finest:
            raise ParameterError(
                "the unit of a number must be a power of ten of at least "
                f"{shortest_decimal(float(finest))} for a range of this width, got "
                f"{shortest_decimal(float(unit))}; leave it out"
            )
        object.__setattr__(self, "by", None if unit == finest else float(unit))

    def _check_on_lattice(self, name: str) -> None:
        end = exact(getattr(self, name))
        if (end / self.unit).denominator > 1:
            nearest = float(round(end / self.unit) * self.unit)
            raise ParameterError(
                f"{name} must be a multiple of {shortest_decimal(float(self.unit))}, the unit of "
                f"a range of this width, got {shortest_decimal(float(end))}; "
                f"use {shortest_decimal(nearest)}"
            )


def _checked_end(name: str, given: float) -> float:
    try:
        end = float(given) + 0.0  # no negative zero
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(f"{name} must be a number, got {given!r}") from None
    if not math.isfinite(end) or abs(end) > LARGEST_VALUE:
        raise ParameterError(
            f"{name} must be finite and of at most {LARGEST_VALUE:g}, got {given!r}; "
            "use a larger unit"
        )
    return end


@lru_cache(maxsize=256)
def _unit(low: float, high: float) -> Fraction:
    """The finest power of ten that keeps steps and multiples within their limits."""
    span = exact(high) - exact(low)
    largest = max(abs(exact(low)), abs(exact(high)))
    needed = max(span / MOST_STEPS, largest / _LARGEST_MULTIPLE)
    exponent = math.floor(math.log10(needed)) - 1  # one lower: logarithms are not exact
    while Fraction(10) ** exponent < needed:
        exponent += 1
    return Fraction(10) ** exponent


_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def rounds_up(words: WordArray, numerators: WordArray, widths: WordArray) -> BoolArray:
    """Whether each number becomes the grid point above it: ⌊word·width / 2^64⌋ < numerator.

    The product is taken in two halves of the word. With word = a·2^32 + b, the quotient is
    ⌊(a·width + ⌊b·width / 2^32⌋) / 2^32⌋. Widths are below 2^25, so no part exceeds 64 bits and
    the quotient is exact.

    It is so for ⌈numerator·2^64 / width⌉ words: more than numerator/width by less than 2^-64. The
    mean of the rounded number exceeds the number by less than width·2^-64 ≤ 2^-40 steps, and by
    nothing where the width is a power of two, and at grid points.

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


# The values that one outcome can take. Both kinds have ends (low, high), a unit that all values are
# multiples of, words for readers (in_words), and a text that reads back (str).
Space = OutcomeSpace | Number
