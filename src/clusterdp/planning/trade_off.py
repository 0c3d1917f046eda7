"""What every mechanism could do at other budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.planning.choose import MECHANISMS
from clusterdp.planning.plan import LEAST_EPSILON, MOST_EPSILON, at_its_best, shown_prediction
from clusterdp.planning.predictions import is_joint
from clusterdp.planning.quick import expect_quickly

if TYPE_CHECKING:
    from clusterdp.planning.plan import Comparison

# Budgets around the one that is planned for. Channels of several metrics are known at powers of 2.
_AROUND, _JOINT_AROUND = np.geomspace(1 / 8, 4, 9), np.geomspace(1 / 8, 4, 6)


class Curve(NamedTuple):
    """Standard errors of a mechanism at its best, against ε; of the first metric."""

    name: str
    epsilons: tuple[float, ...]
    std_errors: tuple[float, ...]


def trade_off(comparison: Comparison) -> list[Curve]:
    """What each mechanism could do at other budgets, for what is planned for."""
    request, scenario = comparison.request, comparison.scenario
    joint = is_joint(scenario.space)
    centre = request.epsilon or 1.0
    around = np.clip(centre * (_JOINT_AROUND if joint else _AROUND), LEAST_EPSILON, MOST_EPSILON)
    epsilons = tuple(float(value) for value in np.unique(around))
    curves = []
    for name in [option.name for option in comparison.options] if joint else MECHANISMS:
        made = [
            at_its_best(name, replace(request, epsilon=epsilon), scenario).mechanism
            for epsilon in epsilons
        ]
        if request.purpose not in {None, "overall"} and not made[0].releases_rows:
            continue
        first = [
            shown_prediction(expect_quickly(one, scenario)[0], request, scenario) for one in made
        ]
        curves.append(Curve(name, epsilons, tuple(one.std_error for one in first)))
    return curves
