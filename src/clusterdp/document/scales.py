"""Scales: where a number stands on an axis, and which are written there; intervals on a scale.

Terminal, pages and figures draw these.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp._arrays import FloatArray


# An axis has about this many numbers.
_N_TICKS = 5
# A range without a width is widened by this share of its value on both sides.
_WIDENED = 0.5
# How far a number may be from an end of an axis, as a share of a step, and still be on it.
_ROUNDING = 1e-9
# Intervals that are as many times longer than the median end in an arrow, if they reach further.
_TOO_LONG = 6.0


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal steps for equal differences.

    Attributes:
        low: The start of the axis.
        high: Its end.
        least: The least step between numbers at it: 1 for counts.
    """

    low: float
    high: float
    least: float = 0.0

    @classmethod
    def over(cls, values: Iterable[float], least: float = 0.0) -> Linear:
        """From a round number below all finite values to one above.

        Without any value, from 0 to 1.
        """
        known = [value for value in values if math.isfinite(value)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if low == high:
            wider = _WIDENED * abs(low) or 1.0
            low, high = low - wider, high + wider
        step = _round_step(high - low)
        return cls(math.floor(low / step) * step, math.ceil(high / step) * step, least)

    def places(self, values: Iterable[float]) -> FloatArray:
        """Where values stand: 0 at the start of the axis, 1 at its end."""
        return np.asarray((np.array(list(values), dtype=float) - self.low) / (self.high - self.low))

    def ticks(self) -> list[float]:
        """Multiples of a round number."""
        step = max(_round_step(self.high - self.low), self.least)
        first = math.ceil(self.low / step - _ROUNDING)
        last = math.floor(self.high / step + _ROUNDING)
        return [place * step for place in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Equal steps for equal ratios; of positive numbers.

    Attributes:
        low: The start of the axis.
        high: Its end.
    """

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Logarithmic:
        """Between numbers 1, 2 or 5 times a power of ten around all values that are positive.

        Without any, from 0.1 to 1.
        """
        known = [value for value in values if 0 < value < math.inf]
        low, high = (min(known), max(known)) if known else (0.1, 1.0)
        marks = _marks(low / 10, high * 10, (1, 2, 5))
        start = max(mark for mark in marks if mark <= low * (1 + _ROUNDING))
        return cls(start, min(mark for mark in marks if mark >= high and mark > start))

    def places(self, values: Iterable[float]) -> FloatArray:
        """Where values stand: 0 at the start of the axis, 1 at its end; zero is below all."""
        ratios = np.array(list(values), dtype=float) / self.low
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(ratios) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """Numbers 1, 2 or 5 times a power of ten; powers of ten alone where there are many."""
        few = _marks(self.low, self.high, (1, 2, 5))
        tens = _marks(self.low, self.high, (1,))
        if len(few) <= 2 * _N_TICKS:
            return few
        return tens[:: math.ceil(len(tens) / (2 * _N_TICKS))]


# How numbers become places on an axis.
Scale = Linear | Logarithmic


def _marks(low: float, high: float, digits: tuple[int, ...]) -> list[float]:
    """Numbers of one such digit times a power of ten, within a range."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    # By way of text, which gives the number that is written so.
    marks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return [one for one in marks if low * (1 - _ROUNDING) <= one <= high * (1 + _ROUNDING)]


def _round_step(width: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that divides a width into few steps."""
    least = max(width / _N_TICKS, sys.float_info.min)  # the least with a logarithm
    power = math.floor(math.log10(least))
    steps = [float(f"{digit}e{power}") for digit in (1, 2, 5, 10)]
    return min(step for step in steps if step >= least * (1 - _ROUNDING))


def short(value: float) -> str:
    """A number at an axis."""
    return f"{value:.6g}".replace("-", "−")


class Interval(NamedTuple):
    """An estimate with its interval.

    Attributes:
        label: What it shows.
        estimate: The number. Where this or an end is not a number, the text alone is shown.
        low: The lower end; may be minus infinity.
        high: The upper end; may be infinity.
        told: The three as text.
        outer: A wider interval, such as one that holds for several estimates at once.
        series: Which colour and mark it has.
        is_main: Whether it is above others, which show parts of it.
        is_reference: Whether a line leads from it to the others.
        is_hollow: Whether its mark is.
        is_muted: Whether it is gray, such as an effect that is not significant.
    """

    label: str
    estimate: float
    low: float
    high: float
    told: str
    outer: tuple[float, float] | None = None
    series: int = 0
    is_main: bool = False
    is_reference: bool = False
    is_hollow: bool = False
    is_muted: bool = False


class IntervalPanel(NamedTuple):
    """Estimates below each other.

    Attributes:
        title: What they show.
        caption: What else is to be said.
        header: What the texts of intervals are.
        intervals: From the top; those that are main ones first.
    """

    title: str
    caption: str
    header: str
    intervals: Sequence[Interval]


def interval_scale(intervals: Sequence[tuple[float, float]]) -> Linear:
    """An axis that holds zero and all intervals, but those that would make others too small."""
    ends = np.array(intervals, dtype=np.float64).reshape(-1, 2)
    known = ends[np.isfinite(ends).all(axis=1)]
    lengths = known[:, 1] - known[:, 0]
    if not len(known):
        return Linear.over([0.0])
    usual = np.sort(lengths)[(len(lengths) - 1) // 2]
    shown = known[lengths <= _TOO_LONG * usual]
    return Linear.over([0.0, *shown.ravel().tolist()])
