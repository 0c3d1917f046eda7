"""Families of effects: p-values and intervals that hold for all effects of a family at once.

A family has effects of one kind: overall effects, effects in segments, or differences between
segments; adjusted ones apart, because one of the two is reported. What varies within a family is
declared: arms, segments, metrics. Effects without an interval count for nothing.

Which effect to report, where there is an adjusted one beside a plain one.

Slopes count the less, the noisier they are (see `adjustment`), so that an adjusted effect is hardly
ever known worse. The choice follows from numbers of units, never from the effects.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp._lists import parse_names
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, EffectTarget

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


# What effects of a family may differ in.
VARYING = ("arms", "segments", "metrics")


def parse_family(family: Any) -> tuple[str, ...]:
    """What varies within a family, in the order of `VARYING`.

    Raises:
        ParameterError: If it is something else.
    """
    if isinstance(family, str | list | tuple):
        names = parse_names(family)
        if names and set(names) <= set(VARYING):
            return tuple(name for name in VARYING if name in names)
    raise ParameterError(
        f"family must be some of {', '.join(VARYING)}, separated by commas; got {family!r}"
    )


def with_families(effects: Sequence[Effect], varying: tuple[str, ...]) -> tuple[Effect, ...]:
    """The same effects, each with the size of its family and its p-values in it."""
    families: dict[Hashable, list[int]] = {}
    for place, effect in enumerate(effects):
        if effect.std_error == effect.std_error:  # a number
            families.setdefault(_family_of(effect.of, varying), []).append(place)
    found = list(effects)
    for places in families.values():
        p_values = np.array([effects[place].p_value for place in places])
        for place, holm, rate in zip(
            places, holm_p_values(p_values), benjamini_hochberg(p_values), strict=True
        ):
            found[place] = replace(
                effects[place],
                family_size=len(places),
                holm_p_value=float(holm),
                bh_p_value=float(rate),
            )
    return tuple(found)


def holm_p_values(p_values: FloatArray) -> FloatArray:
    """Holm's (1979): the chance of any false positive in the family, however effects are related.

    The k-th smallest of m is multiplied by m − k + 1, and is at least the one before it.
    """
    order = np.argsort(p_values)
    rising = np.maximum.accumulate(np.arange(len(p_values), 0, -1) * p_values[order])
    return np.asarray(np.minimum(rising, 1.0)[np.argsort(order)])


def benjamini_hochberg(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's (1995): the expected share of false positives among all positives.

    The k-th smallest of m is multiplied by m/k, and is at most the one after it.
    """
    order, ranks = np.argsort(p_values)[::-1], np.arange(len(p_values), 0, -1)
    falling = np.minimum.accumulate(len(p_values) / ranks * p_values[order])
    return np.asarray(np.minimum(falling, 1.0)[np.argsort(order)])


def _family_of(of: EffectTarget, varying: tuple[str, ...]) -> Hashable:
    """What the effects of a family have in common."""
    kind = (bool(of.segment), of.against is not None, of.adjusted)
    fixed = {"arms": of.arm, "segments": (of.segment, of.against), "metrics": of.metric}
    return (kind, *(value for name, value in fixed.items() if name not in varying))


# With fewer units for each slope, a regression may cost more than it gains.
_UNITS_PER_SLOPE = 20
WHY_REPORTED = (
    "to report: the adjusted effect, whose slopes count the less, the noisier rows are; the plain "
    f"one where an arm has fewer than {_UNITS_PER_SLOPE} units for each slope"
)


def mark_reported(effects: Sequence[Effect], n_slopes: int) -> list[Effect]:
    """The same effects; of a plain and an adjusted one, one is marked.

    Args:
        effects: Plain ones, and adjusted ones beside some of them.
        n_slopes: How many slopes each arm has.
    """
    adjusted = {
        _plain(effect.of) for effect in effects if effect.of.adjusted and _pays(effect, n_slopes)
    }
    return [
        replace(effect, to_report=effect.of.adjusted == (_plain(effect.of) in adjusted))
        for effect in effects
    ]


def _pays(adjusted: Effect, n_slopes: int) -> bool:
    """Whether an adjusted effect has a standard error, and units enough."""
    fewest = min(adjusted.n_treated, adjusted.n_control)
    return not math.isnan(adjusted.std_error) and fewest >= _UNITS_PER_SLOPE * n_slopes


def _plain(of: EffectTarget) -> EffectTarget:
    return of._replace(adjusted=False)
