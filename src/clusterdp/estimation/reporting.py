"""Which effect to report, where there is an adjusted one beside a plain one.

Adjusting takes off what covariates explain of the variance of sampling, and adds noise of privacy:
slopes are fitted to noisy rows, and published totals hardly calibrate them. How much they explain
is not known. If half of it, adjusting pays while the noise it adds is less than half of the
variance of sampling. So the choice follows from numbers of units, from known noise and from how
much outcomes vary, never from the effects or from what covariates seem to explain.
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
# What covariates are thought to explain of the variance of outcomes.
_EXPLAINED = 0.5
WHY_REPORTED = (
    "to report: the adjusted effect; the plain one where adjusting adds more noise of privacy than "
    f"half of the variance of sampling, or an arm has fewer than {_UNITS_PER_SLOPE} units for each "
    "slope"
)


def mark_reported(effects: Sequence[Effect], n_slopes: int) -> list[Effect]:
    """The same effects; of a plain and an adjusted one, one is marked.

    Args:
        effects: Plain ones, and adjusted ones beside some of them.
        n_slopes: How many slopes each arm has.
    """
    plain = {effect.of: effect for effect in effects if not effect.of.adjusted}
    adjusted = {
        _plain(effect.of)
        for effect in effects
        if effect.of.adjusted and _pays(effect, plain.get(_plain(effect.of)), n_slopes)
    }
    return [
        replace(effect, to_report=effect.of.adjusted == (_plain(effect.of) in adjusted))
        for effect in effects
    ]


def _pays(adjusted: Effect, plain: Effect | None, n_slopes: int) -> bool:
    """Whether an adjusted effect has units enough, and little more noise than the plain one."""
    fewest = min(adjusted.n_treated, adjusted.n_control)
    if math.isnan(adjusted.std_error) or fewest < _UNITS_PER_SLOPE * n_slopes:
        return False
    if plain is None or math.isnan(plain.std_error):
        return True
    added = adjusted.privacy_variance - plain.privacy_variance
    return added <= _EXPLAINED * plain.sampling_variance


def _plain(of: Target) -> Target:
    return of._replace(adjusted=False)
