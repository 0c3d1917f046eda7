"""What is public of the cells of each arm, as the closed form takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.precision.level_noise import ArmCells, LevelNoise
from clusterdp.statistics.totals import NoisyTotals

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism


# Stands for a variance of zero, so that its inverse exists.
_TINY = 1e-100


def arm_cells(
    layout: Layout,
    weights: IntArray,
    chosen: IntArray | None = None,
    copies: FloatArray | None = None,
) -> list[ArmCells]:
    """The cells of each arm; of every cluster, or of some that stand for all.

    Args:
        layout: What is public.
        weights: What a unit of each cell counts in totals; axes `[cluster, arm]`.
        chosen: The clusters to take.
        copies: How many clusters each of these stands for.
    """
    sizes = layout.sizes
    targets = sizes.sum(axis=1, keepdims=True) / (layout.n_units * sizes)
    taken = np.arange(len(sizes)) if chosen is None else chosen
    return [
        ArmCells(
            sizes=sizes[taken, arm].astype(np.float64),
            weights=weights[taken, arm].astype(np.float64),
            targets=targets[taken, arm],
            copies=np.ones(len(taken)) if copies is None else copies,
            shares=tuple(one.sizes[:, arm] / one.sizes[:, arm].sum() for one in layout.breakdowns),
            folds=layout.folds,
        )
        for arm in range(len(layout.arms))
    ]


def level_noises(
    mechanism: Mechanism, layout: Layout, space: CategorySpace, metric: int
) -> list[LevelNoise]:
    """The noise on the sums that a mechanism publishes of a metric, by arm."""
    variances = {
        one.by: one.scale(space, metric).variance
        for one in mechanism.statistics
        if isinstance(one, NoisyTotals)
    }
    of_cells = np.full(len(layout.clusters), _cell_sum_variance(mechanism, space, metric))
    of_groups = [variances.get(one.columns, np.inf) for one in layout.breakdowns]
    return [
        LevelNoise(
            cells=of_cells,
            totals=np.asarray(variances.get((), np.inf)),
            breakdowns=np.array(of_groups, dtype=np.float64),
        )
        for _ in layout.arms
    ]


def _cell_sum_variance(mechanism: Mechanism, space: CategorySpace, metric: int) -> float:
    """The noise variance of cell sums by sums and counts together; infinite if there are none."""
    variances = [one.cell_sum_variance(space, metric) for one in mechanism.statistics]
    precision = sum(1 / max(one, _TINY) for one in variances if one is not None)
    return 1 / precision if precision else np.inf
