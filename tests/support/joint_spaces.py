"""Spaces of several metrics, and optimal channels for them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

import clusterdp as cdp
from clusterdp.channels._optimal_channel import OptimalChannel, design_optimal
from clusterdp.channels.optimal import OptimalRows

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.channels._optimal_channel import OptimalBound


def grid_of(*n_levels: int) -> FloatArray:
    """Every combination of levels; axes `[metric, category]`, each metric of mean 0, variance 1."""
    points = np.array(list(product(*[range(n) for n in n_levels])), dtype=np.float64).T
    centred = points - points.mean(axis=1, keepdims=True)
    return np.asarray(centred / centred.std(axis=1, keepdims=True))


def response_of(epsilon: float, delta: float = 0.0) -> OptimalBound:
    """What bounds rows of this ε and δ."""
    return OptimalRows(epsilon=epsilon, delta=delta).bound(cdp.OutcomeSpace.binary())


def channel_of(priors: FloatArray, values: FloatArray, response: OptimalBound) -> OptimalChannel:
    """The channels for some priors, all metrics of weight one."""
    tables, outputs, _ = design_optimal(priors, values, np.ones(len(values)), response)
    groups = np.zeros((1, 1), dtype=np.int64)
    return OptimalChannel(tables=tables, outputs=outputs, groups=groups, values=values)
