"""Whether a look pays, and how much of ε it should have: from public numbers alone.

A look costs variance: a share s of ε costs about 2s of it where ε is small, and more where ε is
large. It finds the range of numbers, and the prior of the channel. The share that is recommended
costs at most a few percent even where it finds nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.optimal_rows import OptimalBudget, OptimalRows
from clusterdp.errors import ParameterError
from clusterdp.experiment.decimals import shown
from clusterdp.experiment.joint_prior import base_measure
from clusterdp.planning.predictions import takes_long
from clusterdp.statistics.counts import NoisyCounts

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.categories import Categories
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario

# With so many units per 1/ε of the look, tails of one in a hundred are seen.
_ENOUGH = 2400
# The variance that a look may cost where it finds nothing.
_MOST_COST = 0.045
# Whoever declares a range so wide and no reference does not know it.
_WIDE = 10_000
# At a smaller ε the prior of a channel hardly matters.
_LEAST_EPSILON = 2.0
# A prior that saves less of the variance is not worth the step.
_LEAST_GAIN = 0.05
# Outcomes may well decline with such means, as shares of their range, or be all alike.
_MEANS = (0.1, 0.25, math.inf)
_DIGITS = 2


class LookAdvice(NamedTuple):
    """A look that pays.

    Attributes:
        share: The share of ε it should have.
        reason: Why, in a sentence.
    """

    share: float
    reason: str


def advise_look(
    mechanism: Mechanism, scenario: Scenario, space: Categories, epsilon: float
) -> LookAdvice | None:
    """A look that would pay beside a mechanism without one; None if none would.

    Args:
        mechanism: What would be published without a look.
        scenario: What is known.
        space: The declared categories.
        epsilon: ε of the whole release.
    """
    learns = mechanism.look is not None or mechanism.find(NoisyCounts) is not None
    if learns or scenario.reference.is_declared or not isinstance(mechanism.rows, OptimalBudget):
        return None
    share = _share(scenario.layout.n_units, epsilon)
    if wide := wide_ranges(space):
        return LookAdvice(
            share,
            f"the range of {', '.join(wide)} is wide and no reference is declared; noise grows "
            "with the range, and a look finds where outcomes end",
        )
    if epsilon < _LEAST_EPSILON or space.n_categories == 2 or takes_long(space):
        return None
    gain = _gain(mechanism.row_epsilon(space), share * epsilon, space)
    if gain < _LEAST_GAIN:
        return None
    return LookAdvice(
        share,
        f"at epsilon {epsilon:g} a channel designed for the distribution of outcomes is worth "
        f"about {gain:.0%} of the variance, which a look finds",
    )


def wide_ranges(space: Categories) -> list[str]:
    """Numbers with ranges as nobody declares who knows them, in words."""
    return [
        f"{name} ({shown(number.low)}..{shown(number.high)})"
        for name, number in space.declared.numbers.items()
        if number.high - number.low >= _WIDE
    ]


def _share(n_units: int, epsilon: float) -> float:
    """The share that sees enough, if that costs little; variance goes with ε·coth(ε/2)."""
    costs = epsilon / math.tanh(epsilon / 2)
    share = min(_ENOUGH / (n_units * epsilon), _MOST_COST / costs)
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale


def _gain(row_epsilon: float, cost: float, space: Categories) -> float:
    """The share of a unit's variance that a look saves, on average over plausible shapes."""
    if row_epsilon <= cost:
        return 0.0
    saved = []
    for shape in _shapes(space):
        without = _variance(OptimalRows(epsilon=row_epsilon), space, shape)
        designed = OptimalRows(epsilon=row_epsilon - cost, prior=tuple(shape.tolist()))
        saved.append(1 - _variance(designed, space, shape) / without)
    return float(np.mean(saved))


def _shapes(space: Categories) -> list[FloatArray]:
    """Distributions that outcomes may have; axes `[category]` each."""
    base, values = base_measure(space), space.metric_values()[0]
    places = (values - values.min()) / np.ptp(values)
    shapes = (base * np.exp(-places / mean) for mean in _MEANS)
    return [np.asarray(shape / shape.sum()) for shape in shapes]


def _variance(rows: OptimalRows, space: Categories, shape: FloatArray) -> float:
    """Σ_j w_j of sampling and noise of a unit, if outcomes have a shape."""
    values, weights = space.metric_values(), space.metric_weights(shape)
    sampling = values**2 @ shape - (values @ shape) ** 2
    try:
        noise = rows.public_channel(space).weighted_noise(weights)[0] @ shape
    except ParameterError:  # too little is left for rows
        return math.inf
    return float(weights @ sampling + noise)
