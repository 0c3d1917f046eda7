"""Intervals of differences and ratios of two arms' quantiles.

A quantile jumps. Next to a jump, limits say nothing of how a quantile is spread between them, and
limits that are combined as of normal numbers miss: if half of each arm has one star and half has
five, the difference of medians is 4, 0 or −4, whatever √2 times an arm's interval reaches to.

So values are combined, not limits. A value of an arm is z standard errors away, its *reach*, if its
interval begins to hold it there. Two arms' values are held together if z₁² + z₀² is at most a
radius: as both arms are independent, that is a profile likelihood. The interval reaches from the
least difference of two values that are held together to the largest one. Where quantiles are near
normal, that is the interval of a difference of normal numbers.

At a jump z is the positive part of a normal number: noise in one direction has no effect. If both
arms are at one, z₁² + z₀² exceeds c with probability P(χ²₁ > c)/2 + P(χ²₂ > c)/4 (Chernoff, 1954).
The radius is that which this exceeds rarely enough. It is √4.23 at 95%, where normal numbers need
√3.84.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.intervals import Limits

# The square of a radius that no level needs.
_FARTHEST = 1e4


class Reaches(NamedTuple):
    """How far values of an arm are away, in the order of that; axes `[value]`.

    Attributes:
        values: The values.
        reaches: z, as of normal numbers.
        least: The least of all values that are no farther away.
        most: The largest of them.
    """

    values: FloatArray
    reaches: FloatArray
    least: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, values: FloatArray, reaches: FloatArray) -> Reaches:
        """From values in any order, one of them at zero."""
        order = np.argsort(reaches, kind="stable")
        values = values[order]
        least, most = np.minimum.accumulate(values), np.maximum.accumulate(values)
        return cls(values, reaches[order], least, most)

    def within(self, radii: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least and the largest value that is no farther away than each radius."""
        last = np.searchsorted(self.reaches, radii, side="right") - 1
        return self.least[last], self.most[last]


class Reaching(Protocol):
    """A quantile of an arm."""

    @property
    def value(self) -> float:
        """The estimate."""
        ...

    def reaches(self) -> Reaches:
        """How far values are away."""
        ...


class QuantilePair(NamedTuple):
    """The quantiles of two arms, independent of each other.

    Attributes:
        difference: Treatment minus control.
        relative: The same as a share of control.
        treated: Values of treatment.
        control: Values of control.
    """

    difference: float
    relative: float
    treated: Reaches
    control: Reaches

    @classmethod
    def of(cls, treated: Reaching, control: Reaching) -> QuantilePair:
        """From both arms."""
        difference = treated.value - control.value
        relative = difference / control.value if control.value else math.nan
        return cls(difference, relative, treated.reaches(), control.reaches())

    def ci(self, level: float) -> Limits:
        """The least and the largest difference of two values that are held together."""
        values, (least, most) = self._held(level)
        return float((values - most).min()), float((values - least).max())

    def gap(self, level: float) -> None:
        """Nothing is left out inside."""

    def lift(self, level: float) -> tuple[float, float, float] | None:
        """The difference relative to control, with limits; None unless control is above zero."""
        values, (least, most) = self._held(level)
        if least.min() <= 0:
            return None
        ratios = np.concatenate([values / least, values / most])
        return self.relative, float(ratios.min()) - 1, float(ratios.max()) - 1

    @property
    def p_value(self) -> float:
        """One minus the highest level at which the interval does not hold zero."""
        above = _nearest(self.treated, self.control)
        below = _nearest(self.control, self.treated)
        return _exceeded(max(above, below))

    def _held(self, level: float) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Values of treatment, and the least and the largest of control held with each."""
        left = _squared_radius(level) - self.treated.reaches**2
        return self.treated.values[left >= 0], self.control.within(np.sqrt(left[left >= 0]))


def _nearest(first: Reaches, second: Reaches) -> float:
    """The least z₁² + z₀² of two values, the first no less than the second."""
    order = np.argsort(second.values, kind="stable")
    nearest = np.minimum.accumulate(second.reaches[order])
    last = np.searchsorted(second.values[order], first.values, side="right") - 1
    found = first.reaches[last >= 0] ** 2 + nearest[last[last >= 0]] ** 2
    return float(found.min(initial=np.inf))


def _exceeded(squared: float) -> float:
    """How often z₁² + z₀² is at least this, if both quantiles are at a jump."""
    if squared == 0:
        return 1.0
    return math.erfc(math.sqrt(squared / 2)) / 2 + math.exp(-squared / 2) / 4


@functools.cache
def _squared_radius(level: float) -> float:
    """What z₁² + z₀² exceeds with the probability that a level leaves."""
    from scipy.optimize import brentq

    least = 1e-12  # below that, half of all cases are: they have no distance at all
    if _exceeded(least) <= 1 - level:
        return 0.0
    return float(brentq(lambda one: _exceeded(one) - (1 - level), least, _FARTHEST))
