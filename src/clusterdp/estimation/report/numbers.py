"""How numbers of effects are written: percentage points for shares, two digits of the SE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.effects.effect import Effect, within
from clusterdp.estimation.effects.text import NOTHING, limits_text, to_decimals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from clusterdp.estimation.effects.findings import Findings


class MetricNumbers(NamedTuple):
    """How the numbers of a metric are written.

    Attributes:
        show: A number as text, with the decimals of the metric.
        is_share: Whether they are shares of units: means are in percent, effects in points.
    """

    show: Callable[[float | None], str]
    is_share: bool

    @classmethod
    def from_effects(cls, estimate: Findings, metric: str) -> MetricNumbers:
        """Two digits of the smallest standard error of the metric."""
        is_share = metric in estimate.origin.shares
        factor = 100.0 if is_share else 1.0
        errors = (factor * one.std_error for one in estimate.effects if one.of.metric == metric)
        written = to_decimals(errors)
        return cls(
            lambda number: written(None if number is None else factor * number), is_share=is_share
        )

    @property
    def unit(self) -> str:
        """The unit of effects: "pp", or none."""
        return "pp" if self.is_share else ""

    def effect(self, number: float | None) -> str:
        """A signed effect with its unit: `+3.95 pp`."""
        text = self.show(number)
        sign = "" if text == NOTHING or text.startswith("-") else "+"
        return f"{sign}{self.error(number)}"

    def error(self, number: float | None) -> str:
        """A number in the unit of effects."""
        text = self.show(number)
        return f"{text} {self.unit}" if self.unit and text != NOTHING else text

    def mean(self, number: float | None) -> str:
        """The mean of an arm: `28.72%`."""
        text = self.show(number)
        return f"{text}%" if self.is_share and text != NOTHING else text

    def interval(self, effect: Effect, level: float) -> str:
        """`[3.42, 4.47]`, in the unit of effects; or what it leaves out, if it is all else."""
        gap = effect.ci_gap(level)
        if gap is not None:
            return f"outside {limits_text(gap, self.show)}"
        return limits_text(effect.ci(level), self.show)


def shown_effect(effect: Effect) -> float:
    """An effect as people are shown it: what is possible, where noise took it further."""
    return within(effect.effect, (-effect.largest, effect.largest))


def shown_mean(mean: float | None, effect: Effect) -> float | None:
    """The mean of an arm, likewise."""
    return mean if mean is None or effect.possible is None else within(mean, effect.possible)


def lift_text(effect: Effect, level: float) -> str:
    """The effect relative to control's mean."""
    lift = effect.lift(level)
    return NOTHING if lift is None else f"{lift[0]:+.1%}"


def lift_ci_text(effect: Effect, level: float) -> str:
    """The interval of the lift."""
    lift = effect.lift(level)
    if lift is None:
        return NOTHING
    _, low, high = lift
    return f"above {low:+.1%}" if math.isinf(high) else f"[{low:+.1%}, {high:+.1%}]"


def privacy_text(shares: Iterable[float]) -> str:
    """The largest share of variances that is due to privacy."""
    known = [share for share in shares if not math.isnan(share)]
    if not known:
        return NOTHING
    return "<1%" if 0 < max(known) < 0.005 else f"{max(known):.0%}"
