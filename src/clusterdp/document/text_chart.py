"""Estimates with their intervals as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.document.charts import interval_scale, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.document.charts import Interval
    from clusterdp.document.scales import Linear

# Letters between two numbers of an axis.
_GAP = 2
_BAR, _DOT, _ZERO, _CROSSED, _BELOW, _ABOVE = "─", "●", "│", "┼", "<", ">"


def interval_lines(intervals: Sequence[Interval], unit: str, width: int) -> list[str]:
    """An axis, and a line for each interval: dot, whiskers, zero, and arrows beyond the axis."""
    scale = interval_scale([(one.low, one.high) for one in intervals])
    width -= len(unit) + 2  # for the last number of the axis
    return [_axis(scale, unit, width), *(_drawn(one, scale, width) for one in intervals)]


def _axis(scale: Linear, unit: str, width: int) -> str:
    """Zero and every n-th number from there, as many as have room; the last has the unit."""
    ticks = scale.ticks()
    zero = min(range(len(ticks)), key=lambda index: abs(ticks[index]))
    for step in range(1, len(ticks) + 1):
        chosen = ticks[zero % step :: step]
        texts = [short(tick).replace("−", "-") for tick in chosen]
        line = ""
        for tick, text in zip(chosen, texts, strict=True):
            start = max(_column(scale, tick, width) - len(text) // 2, 0)
            is_first, room = not line, start - len(line)
            if not is_first and room < _GAP:
                break
            line += " " * room + text
        else:
            break
    return f"{line} {unit}".rstrip()


def _drawn(one: Interval, scale: Linear, width: int) -> str:
    letters = [" "] * width
    zero = _column(scale, 0.0, width)
    letters[zero] = _ZERO
    if math.isnan(one.low) or math.isnan(one.high):
        return "".join(letters)
    low, high = (_column(scale, end, width) for end in (one.low, one.high))
    for column in range(low, high + 1):
        letters[column] = _CROSSED if column == zero else _BAR
    if scale.low <= one.estimate <= scale.high:
        letters[_column(scale, one.estimate, width)] = _DOT
    if one.low < scale.low:
        letters[0] = _BELOW
    if one.high > scale.high:
        letters[-1] = _ABOVE
    return "".join(letters)


def _column(scale: Linear, value: float, width: int) -> int:
    """Where a number stands; those beyond the axis at its ends."""
    (place,) = scale.places([value])
    return round(min(max(float(place), 0.0), 1.0) * (width - 1))
