"""How much the variance of each metric counts when a channel is designed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.categories import Categories

# A metric that hardly varies under the reference is weighed by this share of its range instead.
_LEAST_STD = 1e-3


def metric_weights(categories: Categories, prior: FloatArray | None) -> FloatArray:
    """The weight of each metric in the sum of variances; axes `[metric]`.

    By default metrics count alike relative to their own variance under the prior, or relative to
    their squared range where nothing is declared. Declared multipliers come on top.

    A mean N/D of those observed is wanted as N − θD, θ its value under the prior: what varies is
    that, and noise on D counts θ² times as much as noise on N, beside what D counts for itself.

    Args:
        categories: The categories.
        prior: The declared distribution; None where nothing is declared. Axes `[category]`.
    """
    values = categories.metric_values()
    scales = np.ptp(values, axis=1)
    ratios: dict[int, float] = {}
    if prior is not None:
        deviations = values - (values @ prior)[:, np.newaxis]
        for place, one in categories.of_observed().items():
            above, below = values[place], values[one.observed]
            ratios[place] = float(above @ prior) / max(float(below @ prior), _LEAST_STD)
            deviations[place] = above - ratios[place] * below
        scales = np.maximum(np.sqrt(deviations**2 @ prior), _LEAST_STD * scales)
    weights = np.array(categories.declared.multipliers) / scales**2
    shared = weights.copy()
    for place, ratio in ratios.items():
        shared[categories.of_observed()[place].observed] += ratio**2 * weights[place]
    return np.asarray(shared)
