"""Overall effects in sentences that anyone can read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.effects.text import p_value_text, plain_label, to_decimals

if TYPE_CHECKING:
    from collections.abc import Callable


def headline(estimate: Findings) -> list[str]:
    """A sentence for each metric and arm, on the overall effect to report."""
    return [
        _sentence(effect, estimate) + _adjusted_for(effect, estimate)
        for effect in estimate.effects
        if not effect.of.segment and effect.to_report
    ]


def arm_label(estimate: Findings, arm: object) -> str:
    """An arm by its label; labels that are no words have the name of their column."""
    label = plain_label(arm)
    is_word = isinstance(arm, str) and any(letter.isalpha() for letter in label)
    return label if is_word else f"{plain_label(estimate.treatment)} = {label}"


def _sentence(effect: Effect, estimate: Findings) -> str:
    (told, noun), metric = _unit(estimate, effect.of.metric), plain_label(effect.of.metric)
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
        left_out = f"{told(gap[0])} and {told(gap[1])}{noun}"
        return f"{arm}: {clear} on {metric}. It may be anything but between {left_out} ({level})."
    if low <= 0 <= high:
        return f"{arm}: no clear effect on {metric}. {_possible(low, high, told, noun)} ({level})."
    verb, size = ("raised", effect.effect) if low > 0 else ("lowered", -effect.effect)
    size = min(size, effect.largest)
    ends = sorted((abs(low), abs(high)))
    between = f"{told(ends[0])} to {told(ends[1])}"
    if math.isinf(ends[1]):
        between = f"more than {told(ends[0])}"
    said = f"{arm} {verb} {metric} by {told(size)}{noun} ({level} {between})."
    return said + _judged_together(effect, estimate)


def _unit(estimate: Findings, metric: str) -> tuple[Callable[[float], str], str]:
    """How the numbers of a metric are said: as text, and what stands behind them.

    Effects on shares are said in percentage points, others in units of the outcome.
    """
    is_share = metric in estimate.origin.shares
    factor, noun = (100.0, " percentage points") if is_share else (1.0, "")
    errors = (factor * one.std_error for one in estimate.effects if one.of.metric == metric)
    show = to_decimals(errors)
    return lambda number: show(factor * number), noun


def _adjusted_for(effect: Effect, estimate: Findings) -> str:
    if not effect.of.adjusted:
        return ""
    return f" Adjusted for {', '.join(map(plain_label, estimate.adjusted_for))}."


def _possible(low: float, high: float, told: Callable[[float], str], noun: str) -> str:
    """What the effect may be, where zero is possible."""
    if low == high:
        return f"It is {told(low)}{noun}"
    if math.isinf(low) and math.isinf(high):
        return "The data do not bound it"
    if math.isinf(high):
        return f"It may be anything above {told(low)}{noun}"
    if math.isinf(low):
        return f"It may be anything below {told(high)}{noun}"
    return f"It may be anything between {told(low)} and {told(high)}{noun}"


def _judged_together(effect: Effect, estimate: Findings) -> str:
    """That an effect may be chance, where it is one of several."""
    if effect.family_size == 1 or effect.holm_p_value < 1 - estimate.level:
        return ""
    p_value = p_value_text(effect.holm_p_value)
    return (
        f" As one of {effect.family_size} effects that are judged together, it may still be chance "
        f"(Holm's p-value {p_value})."
    )
