"""How much a unit's noise counts in each cell, and what it is, given one draw of the statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.mechanisms.draw import complete
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace


def cell_weights(layout: Layout) -> FloatArray:
    """How much a unit's variance counts in each cell: (n_c/n)²/n_{a,c}; axes `[cluster, arm]`."""
    return np.asarray(cluster_weights(layout) ** 2 / layout.sizes)


def unit_noise(
    counts: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    rng: np.random.Generator,
) -> FloatArray:
    """Noise variance of a unit, given one draw of the statistics; axes `[metric, cluster, arm]`."""
    # Only counts are asked for; sums of large values may not fit 64 bits.
    nothing = np.zeros((*layout.sizes.shape, 0), dtype=np.int64)
    totals = CellTotals(counts=counts, sums=nothing, squares=nothing, groups={})
    noise = simulated_noise(rng)
    learned_from = tuple(
        one.draw(totals, layout, space, noise) for one in mechanism.statistics if one.of_categories
    )
    channel = complete(learned_from, layout, space, mechanism).channel
    assert channel is not None  # noqa: S101 - there are rows
    metrics = range(len(space.metric_values()))
    noises = [channel.noise_variance(metric)[channel.groups] for metric in metrics]
    return np.stack([(counts * noise).sum(axis=-1) / layout.sizes for noise in noises])


def cluster_weights(layout: Layout) -> FloatArray:
    """n_c/n; axes `[cluster, 1]`."""
    return np.asarray(layout.sizes.sum(axis=1, keepdims=True) / layout.n_units)
