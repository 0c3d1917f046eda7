"""Labels and numbers of effects as people read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from clusterdp._text import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# Columns with their values; empty for everyone.
Segment = tuple[tuple[str, Any], ...]
# What stands in place of a number that is not known.
NOTHING = "–"
# With more decimals than this a number is shown in powers of ten.
_MOST_DECIMALS = 9


def segment_label(segment: Segment) -> str:
    """A segment in words: "tier=gold, region=1", or "overall"."""
    return ", ".join(f"{name}={value}" for name, value in segment) or "overall"


def plain_label(label: object) -> str:
    """A label in one line, whatever it holds."""
    return plain_text(str(label))


def short_label(label: object, longest: int) -> str:
    """A label in one line, cut off if it is longer."""
    text = plain_label(label)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


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


def limits_text(limits: tuple[float, float], show: Callable[[float | None], str]) -> str:
    """Two limits in brackets."""
    low, high = limits
    return NOTHING if math.isnan(low) else f"[{show(low)}, {show(high)}]"


def p_value_text(p_value: float) -> str:
    """A p-value to four decimals."""
    if math.isnan(p_value):
        return NOTHING
    return f"{p_value:.4f}" if p_value >= 1e-4 else "<0.0001"
