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

    Args:
        categories: The categories.
        prior: The declared distribution; None where nothing is declared. Axes `[category]`.
    """
    values = categories.metric_values()
    scales = np.ptp(values, axis=1)
    if prior is not None:
        deviations = values - (values @ prior)[:, np.newaxis]
        scales = np.maximum(np.sqrt(deviations**2 @ prior), _LEAST_STD * scales)
    return np.asarray(np.array(categories.declared.multipliers) / scales**2)
