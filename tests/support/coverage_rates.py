"""How often nominal 95% intervals cover the true effect, in simulated releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from clusterdp.estimation import moments as estimators
from clusterdp.estimation.calibration import read_cells
from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.theory.simulation import simulate_experiments

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.moments import EffectArrays
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.theory.population import Population

N_REPLICATES = 8000
LOWEST, HIGHEST = 0.935, 0.98


def coverage(
    population: Population,
    mechanism: Mechanism,
    rng: np.random.Generator,
    shrink: float = 1.0,
    metric: int = 0,
) -> FloatArray:
    """How often the interval of a metric holds the true effect; axes `[treatment]`."""
    drawn = simulate_experiments(
        population, mechanism, n_replicates=N_REPLICATES, rng=rng, metric=metric
    )
    return covered(drawn, population.effects(metric), shrink)


def covered(drawn: EffectArrays, truth: FloatArray, shrink: float = 1.0) -> FloatArray:
    """How often intervals of replicates, times `shrink`, hold the truth; axes `[treatment]`."""
    reach = stats.norm.isf(0.025) * np.sqrt(drawn.variances) * shrink
    return np.asarray((np.abs(drawn.effects - truth) <= reach).mean(axis=0))


def released_segment(  # noqa: PLR0917 - the parts of a simulated release
    inside: IntArray,
    others: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    rng: np.random.Generator,
    metric: int = 0,
) -> EffectArrays:
    """Estimates of some units, released together with all others of their cells."""
    totals = CellTotals.of_counts(inside + others, space)
    statistics, channel = release_cells(totals, layout, space, mechanism, simulated_noise(rng))
    assert channel is not None
    released = channel.simulate(inside, rng)
    everyone = released + channel.simulate(others, rng)
    moments = estimators.row_moments(released, channel, metric)
    readings = read_cells(mechanism, layout, space, statistics, metric)
    if readings is not None:
        whole = estimators.row_moments(everyone, channel, metric)
        moments = estimators.calibrated(moments, whole, readings)
    return estimators.stratified_effects(moments, layout)
