"""Which effect to report, where there is an adjusted one beside a plain one.

The choice follows from numbers of units alone, so that outcomes do not decide it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.estimation.results import Effect
    from clusterdp.estimation.target import Target

# With fewer units for each slope, a regression may cost more than it gains.
_UNITS_PER_SLOPE = 20
WHY_REPORTED = (
    "to report: the adjusted effect, which in large samples is never less precise; the plain one "
    f"where an arm has fewer than {_UNITS_PER_SLOPE} units for each slope"
)


def mark_reported(effects: Sequence[Effect], n_slopes: int) -> list[Effect]:
    """The same effects; of a plain and an adjusted one, one is marked.

    Args:
        effects: Plain ones, and adjusted ones beside some of them.
        n_slopes: How many slopes each arm has.
    """
    large = {_plain(effect.of) for effect in effects if _is_large(effect, n_slopes)}
    return [
        replace(effect, to_report=effect.of.adjusted == (_plain(effect.of) in large))
        for effect in effects
    ]


def _is_large(effect: Effect, n_slopes: int) -> bool:
    """Whether an effect is adjusted, and has units enough for that."""
    fewest = min(effect.n_treated, effect.n_control)
    has_error = not math.isnan(effect.std_error)
    return effect.of.adjusted and has_error and fewest >= _UNITS_PER_SLOPE * n_slopes


def _plain(of: Target) -> Target:
    return of._replace(adjusted=False)
