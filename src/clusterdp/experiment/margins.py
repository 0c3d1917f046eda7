"""What one outcome is thought to be like, before any is read. It decides efficiency, nothing else.

A margin is declared as `0.15` (the share of the larger of two values), `0.5,0.3,0.2` (a share for
each value, or for equal parts of a number's range), `mean:2,std:1` or `mean:2`. It becomes linear
constraints: the mean of some functions of the level is known. Of an outcome that may be missing it
is about those observed; their share has a margin of its own, `spend_observed=0.9`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.lists import parse_numbers
from clusterdp.experiment.number import Number

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.spaces import Space

_MOMENTS = re.compile(r"\s*mean:([^,]+)(?:,\s*std:(.+))?")
# A reference is published as it is. What a table tells is its people's, and has to be paid for.
_DECLARED = (
    "a reference reads OUTCOME=MARGIN (visit=0.15), got {!r}; it is published, so no table is read "
    "for it: declare numbers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The share of each value of an outcome.

    Attributes:
        shares: Shares of at least 0, which sum to 1.
    """

    shares: tuple[float, ...]

    def constraints(self, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Functions of the level and their means; axes `[constraint, level]`, `[constraint]`."""
        return np.eye(len(levels)), np.array(self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShares:
    """The share of each of equal parts of a number's range.

    Attributes:
        number: The number.
        shares: Shares of at least 0, which sum to 1.
    """

    number: Number
    shares: tuple[float, ...]

    def constraints(self, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Functions of the level and their means; axes `[constraint, level]`, `[constraint]`."""
        ends = np.linspace(self.number.low, self.number.high, len(self.shares) + 1)
        parts = np.searchsorted(ends[1:-1], levels, side="right")
        return np.eye(len(self.shares))[:, parts], np.array(self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The mean of an outcome, and how it spreads.

    Attributes:
        mean: The mean.
        std: The standard deviation; None if it is not declared.
    """

    mean: float
    std: float | None = None

    def constraints(self, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Functions of the level and their means; axes `[constraint, level]`, `[constraint]`."""
        scaled = (levels - self.mean) / (self.std or np.ptp(levels))
        if self.std is None or len(levels) == 2:
            return scaled[np.newaxis], np.zeros(1)
        return np.stack([scaled, scaled**2]), np.array([0.0, 1.0])


Margin = Shares | PartShares | Moments


def parse_margin(name: str, given: str | Sequence[float] | float, space: Space) -> Margin:
    """The margin of an outcome as people write it.

    Args:
        name: The outcome, for messages.
        given: Such as `0.15`, `0.5,0.3,0.2`, `mean:2,std:1`; or numbers.
        space: The space of the outcome.
    """
    moments = _MOMENTS.fullmatch(given) if isinstance(given, str) else None
    if moments:
        parts = [part for part in moments.groups() if part is not None]
        return _checked_moments(name, parse_numbers(",".join(parts)), space)
    try:
        numbers = parse_numbers([given] if isinstance(given, int | float) else given)
    except ParameterError:
        raise ParameterError(_DECLARED.format(given)) from None
    if isinstance(space, Number):
        return PartShares(number=space, shares=_checked_shares(name, numbers, max(2, len(numbers))))
    if len(numbers) == 1 and space.n_categories == 2:
        if not 0 <= numbers[0] <= 1:
            raise ParameterError(
                f"the reference of {name!r} is the share of {space.values[1]:g}, which lies "
                f"between 0 and 1; got {numbers[0]:g}"
            )
        numbers = [1 - numbers[0], numbers[0]]
    return Shares(shares=_checked_shares(name, numbers, space.n_categories))


def parse_margins(
    given: Mapping[str, str | Sequence[float] | float] | Iterable[str], spaces: Mapping[str, Space]
) -> dict[str, Margin]:
    """The margins of several outcomes, by name, or as texts such as `visit=0.15`."""
    if not isinstance(given, Mapping):
        given = dict(_named(text) for text in given)
    for name in given:
        if name not in spaces:
            raise ParameterError(
                f"reference names {name!r}, which is no declared outcome; "
                f"the outcomes are {', '.join(map(repr, spaces))}"
            )
    return {name: parse_margin(name, margin, spaces[name]) for name, margin in given.items()}


def _named(text: str) -> tuple[str, str]:
    name, found, margin = text.partition("=")
    if not found:
        raise ParameterError(_DECLARED.format(text))
    return name.strip(), margin.strip()


def _checked_moments(name: str, numbers: list[float], space: Space) -> Moments:
    mean, std = numbers[0], numbers[1] if len(numbers) > 1 else None
    low, high = _ends(space)
    if not low < mean < high:
        raise ParameterError(
            f"the mean of {name!r} must lie between {low:g} and {high:g}, got {mean:g}"
        )
    largest = math.sqrt((high - mean) * (mean - low))
    if std is not None and not 0 < std <= largest:
        raise ParameterError(
            f"the std of {name!r} must be above 0 and at most {largest:.6g}, which is the most "
            f"that is possible about its mean, got {std:g}"
        )
    return Moments(mean=mean, std=std)


def _checked_shares(name: str, numbers: list[float], n_wanted: int) -> tuple[float, ...]:
    sound = all(math.isfinite(number) and number >= 0 for number in numbers) and sum(numbers) > 0
    if not sound or len(numbers) != n_wanted:
        raise ParameterError(
            f"the reference of {name!r} must be {n_wanted} shares of at least 0, got "
            f"{len(numbers)} numbers; give a share for each value, or mean:M,std:S"
        )
    return tuple(number / sum(numbers) for number in numbers)


def _ends(space: Space) -> tuple[float, float]:
    if isinstance(space, Number):
        return space.low, space.high
    return space.values[0], space.values[-1]
