"""How often nominal 95% intervals cover the true effect, in simulated releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from clusterdp.theory.simulation import simulate_experiments

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.theory.population import Population

N_REPLICATES = 8000
LOWEST, HIGHEST = 0.935, 0.98


def coverage(
    population: Population, mechanism: Mechanism, rng: np.random.Generator, shrink: float = 1.0
) -> FloatArray:
    """How often the interval holds the true effect; axes `[treatment]`."""
    drawn = simulate_experiments(population, mechanism, n_replicates=N_REPLICATES, rng=rng)
    reach = stats.norm.isf(0.025) * np.sqrt(drawn.variances) * shrink
    covered = np.abs(drawn.effects - population.effects()) <= reach
    return np.asarray(covered.mean(axis=0))
