"""Overall effects in sentences that anyone can read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.report.tables import p_value_text, plain_label, to_decimals

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.estimation.report.results import Effect, Estimate


class Unit(NamedTuple):
    """How the numbers of a metric are said.

    Attributes:
        factor: What they are multiplied with.
        noun: What stands behind them; empty if nothing does.
        show: A number as text.
    """

    factor: float
    noun: str
    show: Callable[[float | None], str]

    @classmethod
    def of(cls, estimate: Estimate, metric: str) -> Unit:
        """Effects on shares are said in percentage points, others in units of the outcome."""
        effects = [effect for effect in estimate.effects if effect.of.metric == metric]
        if metric in estimate.origin.shares:
            return cls(100.0, " percentage points", to_decimals(effects, 0.01))
        return cls(1.0, "", to_decimals(effects))

    def told(self, number: float) -> str:
        """A number, without what stands behind it."""
        return self.show(self.factor * number)


def headline(estimate: Estimate) -> list[str]:
    """A sentence for each metric and arm, on the overall effect to report."""
    return [
        _sentence(effect, estimate) + _adjusted_for(effect, estimate)
        for effect in estimate.effects
        if not effect.of.segment and effect.to_report
    ]


def arm_label(estimate: Estimate, arm: object) -> str:
    """An arm by its label; labels that are no words have the name of their column."""
    label = plain_label(arm)
    is_word = isinstance(arm, str) and any(letter.isalpha() for letter in label)
    return label if is_word else f"{plain_label(estimate.treatment)} = {label}"


def _sentence(effect: Effect, estimate: Estimate) -> str:
    unit, metric = Unit.of(estimate, effect.of.metric), plain_label(effect.of.metric)
    arm = arm_label(estimate, effect.of.arm)
    if math.isnan(effect.effect):
        return f"{arm}: nothing can be said of {metric}; an arm has too few units."
    if math.isnan(effect.std_error):
        return f"{arm}: no interval for {metric}; what was published does not tell how it varies."
    level = f"{100 * estimate.level:.4g}% interval"
    low, high = effect.ci(estimate.level)
    gap = effect.ci_gap(estimate.level)
    if gap is not None:
        clear = "an effect" if gap[0] < 0 < gap[1] else "no clear effect"
        left_out = f"{unit.told(gap[0])} and {unit.told(gap[1])}{unit.noun}"
        return f"{arm}: {clear} on {metric}. It may be anything but between {left_out} ({level})."
    if low <= 0 <= high:
        return f"{arm}: no clear effect on {metric}. {_possible(low, high, unit)} ({level})."
    verb, size = ("raised", effect.effect) if low > 0 else ("lowered", -effect.effect)
    size = min(size, effect.largest)
    ends = sorted((abs(low), abs(high)))
    between = f"{unit.told(ends[0])} to {unit.told(ends[1])}"
    if math.isinf(ends[1]):
        between = f"more than {unit.told(ends[0])}"
    said = f"{arm} {verb} {metric} by {unit.told(size)}{unit.noun} ({level} {between})."
    return said + _judged_together(effect, estimate)


def _adjusted_for(effect: Effect, estimate: Estimate) -> str:
    if not effect.of.adjusted:
        return ""
    return f" Adjusted for {', '.join(map(plain_label, estimate.adjusted_for))}."


def _possible(low: float, high: float, unit: Unit) -> str:
    """What the effect may be, where zero is possible."""
    if low == high:
        return f"It is {unit.told(low)}{unit.noun}"
    if math.isinf(low) and math.isinf(high):
        return "The data do not bound it"
    if math.isinf(high):
        return f"It may be anything above {unit.told(low)}{unit.noun}"
    if math.isinf(low):
        return f"It may be anything below {unit.told(high)}{unit.noun}"
    return f"It may be anything between {unit.told(low)} and {unit.told(high)}{unit.noun}"


def _judged_together(effect: Effect, estimate: Estimate) -> str:
    """That an effect may be chance, where it is one of several."""
    if effect.family_size == 1 or effect.holm_p_value < 1 - estimate.level:
        return ""
    p_value = p_value_text(effect.holm_p_value)
    return (
        f" As one of {effect.family_size} effects that are judged together, it may still be chance "
        f"(Holm's p-value {p_value})."
    )
