"""Whether noisy counts, from which priors are learned, are worth it where nothing is declared.

A channel for equally likely outcomes is the best one if outcomes are uniform, and they hardly ever
are. So a plan looks at what a prior would be worth for a few shapes that outcomes often have. It
recommends counts where they pay on average over these, their cost included, and where they cost
little if outcomes are uniform after all.

Whether a pilot pays, and how much of ε it should have: from public numbers alone.

A pilot costs variance: a share s of ε costs about 2s of it where ε is small, and more where ε is
large. It finds the range of numbers, and the prior of the channel. The share that is recommended
costs at most a few percent even where it finds nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from clusterdp._text import percent, shortest_decimal
from clusterdp.channels.optimal import OptimalBudget, OptimalRows
from clusterdp.errors import ParameterError
from clusterdp.outcomes.baseline import QUICK_CATEGORIES, base_measure
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.precision.row_noise import warner
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.precision.expected import Scenario
    from clusterdp.precision.forecast import ExpectedVariance
    from clusterdp.precision.visible import ShownMetric


Scope = Literal["cluster", "population"]

# At smaller budgets no prior pays for the counts that it is learned from.
_LEAST_EPSILON = 2.0
# Counts of n units are good enough if the noise on their frequencies, as a vector, has this length.
_NOISE = 0.25
# Counts take at most this much of ε, and this share of it: more would cost over 5% in standard
# errors where outcomes are uniform.
_MOST_LOSS, _MOST_SHARE = 0.1, 0.03
# By this factor the standard error of segments must fall, on average over shapes.
_WORTH_IT = 0.97
# What a prior is worth hardly depends on how many more levels there are.
_LEVELS = 12
# At more noise than this, groups lead to worse priors than the population.
_TOO_NOISY = 0.5


def share_of_counts(scenario: Scenario, epsilon: float) -> float:
    """The share of ε for noisy counts where nothing is known of outcomes; 0 if none is worth it.

    Cells are counted if they are large enough, and arms otherwise.
    """
    layout, space = scenario.layout, scenario.space
    if epsilon < _LEAST_EPSILON or space.n_categories == 2 or scenario.is_joint:
        return 0.0
    most = min(_MOST_LOSS, _MOST_SHARE * epsilon)
    for n_units in (layout.n_units / layout.sizes.size, int(layout.sizes.sum(axis=0).min())):
        # Noise of scale 2/loss has variance 2(2/loss)². Its length is √K times its standard
        # deviation, over n; counts are as noisy as they may be.
        loss = 2 * math.sqrt(2 * space.n_categories) / (_NOISE * n_units)
        if loss <= most and _pays(space, epsilon, loss):
            return round(loss / epsilon, 4)
    return 0.0


def scope_of_counts(layout: Layout, space: CategorySpace, noise_scale: float) -> Scope:
    """What to count with such noise: every cell, or every arm where cells are too small."""
    noise = math.sqrt(2 * space.n_categories) * noise_scale
    return "cluster" if noise <= _TOO_NOISY * layout.n_units / layout.sizes.size else "population"


def _pays(space: CategorySpace, epsilon: float, loss: float) -> bool:
    """Whether counts of such a loss are worth it, by what they leave for rows."""
    values = np.unique(space.metric_values()[0])
    places = np.linspace(0, len(values) - 1, min(len(values), _LEVELS)).astype(np.int64)
    worth = _worth(tuple(values[places].tolist()), epsilon - loss)
    cost = math.sqrt(float(warner(epsilon - loss) / warner(epsilon)))
    return worth * cost <= _WORTH_IT


@lru_cache(maxsize=256)
def _worth(values: tuple[float, ...], epsilon: float) -> float:
    """By what factor standard errors of rows fall if a prior is known, on average over shapes."""
    space, uniform = OutcomeSpace.of(values), OptimalRows(epsilon=epsilon)
    plain = uniform.public_channel(space).noise_variance()[0]
    ratios = []
    for shape in _shapes(np.array(values)):
        known = replace(uniform, prior=tuple(shape.tolist())).public_channel(space)
        ratios.append(float(known.noise_variance()[0] @ shape) / float(plain @ shape))
    return math.exp(0.5 * float(np.mean(np.log(ratios))))


def _shapes(values: FloatArray) -> FloatArray:
    """What outcomes often look like: uniform, falling, mostly least, in the middle, to one side."""
    place = (values - values.min()) / np.ptp(values)
    least = place == 0
    shapes = np.array(
        [
            np.ones_like(place),
            np.exp(-5 * place),
            np.where(least, 0.85, 0.15 / (~least).sum()),
            np.exp(-(((place - 0.5) / 0.15) ** 2) / 2),
            np.exp(-(((place - 0.25) / 0.12) ** 2) / 2),
        ]
    )
    return np.asarray(shapes / shapes.sum(axis=1, keepdims=True))


# With so many units per 1/ε of the pilot, tails of one in a hundred are seen.
_ENOUGH = 2400
# The variance that a pilot may cost where it finds nothing.
_MOST_COST = 0.045
# An owner who declares a range so wide and no baseline does not know it.
_WIDE = 10_000
# A prior that saves less of the variance is not worth the step.
_LEAST_GAIN = 0.05
# Outcomes may well decline with such means, as shares of their range, or be equally likely.
_MEANS = (0.1, 0.25, math.inf)
_DIGITS = 2


class PilotAdvice(NamedTuple):
    """A pilot that pays.

    Attributes:
        share: The share of ε it should have.
        reason: Why, in sentences.
    """

    share: float
    reason: str


def advise_pilot(
    mechanism: Mechanism, scenario: Scenario, space: Categories, epsilon: float
) -> PilotAdvice | None:
    """A pilot that would pay with a mechanism without one; None if none would.

    Args:
        mechanism: What would be published without a pilot.
        scenario: What is known.
        space: The declared categories.
        epsilon: ε of the whole release.
    """
    learns = mechanism.pilot is not None or mechanism.find(NoisyCounts) is not None
    if learns or scenario.baseline.is_declared or not isinstance(mechanism.rows, OptimalBudget):
        return None
    share = _share(mechanism.asked_share * scenario.layout.n_units, epsilon)
    if wide := wide_ranges(space):
        return PilotAdvice(
            share,
            f"{' and '.join(wide)} {'has a wide range' if len(wide) == 1 else 'have wide ranges'} "
            "and no baseline. Noise grows with the range. A pilot histogram finds where the "
            "values end.",
        )
    if epsilon < _LEAST_EPSILON or not 2 < space.n_categories <= QUICK_CATEGORIES:
        return None
    gain = _gain(mechanism.row_epsilon(space), share * epsilon, space)
    if gain < _LEAST_GAIN:
        return None
    return PilotAdvice(
        share,
        f"A pilot histogram finds the distribution of outcomes. A randomizer optimized for it has "
        f"about {gain:.0%} less variance at ε = {epsilon:g}.",
    )


def wide_ranges(space: Categories) -> list[str]:
    """Numbers with ranges as nobody declares who knows them, in words."""
    return [
        f"{name} ({shortest_decimal(number.low)}..{shortest_decimal(number.high)})"
        for name, number in space.declared.numbers.items()
        if number.high - number.low >= _WIDE
    ]


def _share(n_units: float, epsilon: float) -> float:
    """The share that sees enough, if that costs little; variance goes with ε·coth(ε/2)."""
    costs = epsilon / math.tanh(epsilon / 2)
    share = min(_ENOUGH / (n_units * epsilon), _MOST_COST / costs)
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale


def _gain(row_epsilon: float, cost: float, space: Categories) -> float:
    """The share of a unit's variance that a pilot saves, on average over plausible shapes."""
    if row_epsilon <= cost:
        return 0.0
    saved = []
    for shape in _possible_shapes(space):
        without = _variance(OptimalRows(epsilon=row_epsilon), space, shape)
        designed = OptimalRows(epsilon=row_epsilon - cost, prior=tuple(shape.tolist()))
        saved.append(1 - _variance(designed, space, shape) / without)
    return float(np.mean(saved))


def _possible_shapes(space: Categories) -> list[FloatArray]:
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


# A randomizer whose noise is at most this share above the least is called optimal.
_NEAR_OPTIMAL = 0.011


def pilot_range_notes(mechanism: Mechanism, space: Categories) -> tuple[str, ...]:
    """What predictions leave out where a pilot is going to clip numbers."""
    if mechanism.pilot is None or not space.declared.numbers:
        return ()
    return (
        (
            "Predictions use the declared ranges of numbers. The pilot may narrow them, and "
            "standard errors shrink with them."
        ),
    )


def gap_notes(mechanism: Mechanism, space: Categories) -> tuple[str, ...]:
    """How far a randomizer may be from the best there is, if that is more than a percent."""
    if not mechanism.designs_rows or mechanism.find(NoisyCounts) is not None:
        return ()
    rows = mechanism.settled_rows(space)
    gap = rows.design_gap(space) if isinstance(rows, OptimalRows) else 0.0
    if gap <= _NEAR_OPTIMAL:
        return ()
    far = f"at most {percent(gap)} more noise than" if gap < 1 else "an unknown distance to"
    names = ", ".join(space.declared.names)
    return (
        (
            f"{names}: with {space.n_categories} outcome combinations the randomizer has {far} "
            "the best one."
        ),
    )


# A covariate pays if it makes standard errors smaller by more than this factor.
_WORTHWHILE = 0.98


def covariate_notes(
    mechanism: Mechanism,
    space: Categories,
    metrics: Sequence[ShownMetric],
    precisions: Sequence[ExpectedVariance],
) -> list[str]:
    """What the owner's covariates change for overall effects.

    Args:
        mechanism: What is published.
        space: The categories.
        metrics: As people read them.
        precisions: What to expect of each.
    """
    covariates = mechanism.find(NoisyCovariates)
    notes = []
    for place, one in () if covariates is None else covariates.of_space(space):
        plain, adjusted = precisions[place].of_target(0), precisions[place].overall
        effect = f"the overall effect on {one.outcome}"
        if one.correlation is None:
            notes.append(
                f"{one.column} makes {effect} more precise if both are correlated. Declare the "
                "correlation that you expect, to see by how much."
            )
        elif adjusted.std_error < _WORTHWHILE * plain.std_error:
            notes.append(
                f"Adjusted by {one.column}, {effect} has an MDE of "
                f"{metrics[place].detectable(adjusted)} instead of "
                f"{metrics[place].detectable(plain)}, if their correlation is {one.correlation:g}."
            )
        else:
            notes.append(
                f"{one.column} makes hardly any difference to {effect}, at this ε and this number "
                "of units. Leave out its covariate."
            )
    return notes
