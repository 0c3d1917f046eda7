"""Families of effects: p-values and intervals that hold for all effects of a family at once.

A family has effects of one kind: overall effects, effects in segments, or differences between
segments; adjusted ones apart, because one of the two is reported. What varies within a family is
declared: arms, segments, metrics. Effects without an interval count for nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.lists import parse_names

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.results import Effect
    from clusterdp.estimation.target import Target

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
    """Holm's (1979): the chance of any false alarm in the family, however effects are related.

    The k-th smallest of m is multiplied by m − k + 1, and is at least the one before it.
    """
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    rising = np.maximum.accumulate(factors * p_values[order])
    found = np.empty_like(p_values)
    found[order] = np.minimum(rising, 1.0)
    return found


def benjamini_hochberg(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's (1995): the expected share of false alarms among all alarms.

    The k-th smallest of m is multiplied by m/k, and is at most the one after it.
    """
    order = np.argsort(p_values)[::-1]
    n_effects = len(p_values)
    factors = n_effects / np.arange(n_effects, 0, -1)
    falling = np.minimum.accumulate(factors * p_values[order])
    found = np.empty_like(p_values)
    found[order] = np.minimum(falling, 1.0)
    return found


def _family_of(of: Target, varying: tuple[str, ...]) -> Hashable:
    """What the effects of a family have in common."""
    kind = (bool(of.segment), of.against is not None, of.adjusted)
    fixed = {"arms": of.arm, "segments": (of.segment, of.against), "metrics": of.metric}
    return (kind, *(value for name, value in fixed.items() if name not in varying))
