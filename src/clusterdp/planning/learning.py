"""Whether noisy counts, from which priors are learned, are worth it where nothing is declared.

A channel for all outcomes alike is the best there is if outcomes are uniform, and they hardly ever
are. So a plan looks at what a prior would be worth for a few shapes that outcomes often have. It
recommends counts where they pay on average over these, their cost included, and where they cost
little if outcomes are uniform after all.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec.structs import replace

from clusterdp.channels.optimal_rows import OptimalRows
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.planning.predictions import is_joint
from clusterdp.planning.row_noise import warner

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.planning.assumptions import Scenario

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

    Counts are of cells if these are large enough, and else of arms.
    """
    layout, space, _ = scenario
    if epsilon < _LEAST_EPSILON or space.n_categories == 2 or is_joint(space):
        return 0.0
    most = min(_MOST_LOSS, _MOST_SHARE * epsilon)
    for n_units in (layout.n_units / layout.sizes.size, int(layout.sizes.sum(axis=0).min())):
        loss = _loss(space, n_units)
        if loss <= most and _pays(space, epsilon, loss):
            return round(loss / epsilon, 4)
    return 0.0


def scope_of_counts(layout: Layout, space: CategorySpace, noise_scale: float) -> Scope:
    """What to count with such noise: every cell, or every arm where cells are too small."""
    noise = math.sqrt(2 * space.n_categories) * noise_scale
    return "cluster" if noise <= _TOO_NOISY * layout.n_units / layout.sizes.size else "population"


def _loss(space: CategorySpace, n_units: float) -> float:
    """What counts of so many units cost if they are as noisy as they may be.

    Noise of scale 2/loss has variance 2(2/loss)². Its length is √K times its standard deviation,
    over n.
    """
    return 2 * math.sqrt(2 * space.n_categories) / (_NOISE * n_units)


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
