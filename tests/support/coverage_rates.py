"""How often nominal 95% intervals cover the true effect, in simulated releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from assertions import ALPHA
from clusterdp.estimation.effects.effect import EffectArrays
from clusterdp.estimation.means.arms import arm_effects
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import declared_noise
from clusterdp.estimation.means.responses import ProfileSums, ResponseValues
from clusterdp.estimation.reading.profiles import Profiles
from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.studies.simulation import simulate_experiments

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.studies.simulation import Population

N_REPLICATES = 4000
# Replicates that are drawn at a time: their rows by category and output fit into memory.
_CHUNK = 400
# What coverage of 93.5% and of 98% falls below, and exceeds, in so many replicates with probability
# ALPHA each.
LOWEST, HIGHEST = stats.binom.ppf([ALPHA, 1 - ALPHA], N_REPLICATES, [0.935, 0.98]) / N_REPLICATES


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


def released_metrics(  # noqa: PLR0917 - the parts of a simulated release
    inside: IntArray,
    others: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    rng: np.random.Generator,
) -> list[EffectArrays]:
    """Estimates of some units for every metric, released with all others of their cells."""
    totals = CellTotals.from_counts(inside + others, space)
    statistics, channel = release_cells(totals, layout, space, mechanism, simulated_noise(rng))
    assert channel is not None
    released = channel.simulate(inside, rng)
    everyone = released + channel.simulate(others, rng)
    profiles = Profiles.from_layout(layout)

    def effects(metric: int) -> EffectArrays:
        outputs = ResponseValues.from_channel(channel, space, metric)
        part, whole = (
            ProfileSums.from_cell_counts(counts, outputs) for counts in (released, everyone)
        )
        readings = [reading for one in statistics for reading in one.sum_readings(metric)]
        noise = declared_noise(mechanism, space, metric)
        calibration = Calibration(readings, profiles, whole, noise)
        return arm_effects(part, layout, "stratified", profiles, calibration, origin=outputs.middle)

    return [effects(metric) for metric in range(len(space.metric_values()))]


def simulate_metrics(
    population: Population,
    mechanism: Mechanism,
    rng: np.random.Generator,
    segment_share: float = 1.0,
) -> list[EffectArrays]:
    """Estimates of every metric over fresh assignments and releases, by replicate.

    They are of the units that a coin of the given share picks, which is thrown again with every
    assignment: the effect on them is on average that on everyone.
    """
    chunks = []
    for _ in range(N_REPLICATES // _CHUNK):
        counts = population.assign(_CHUNK, rng)
        inside = rng.binomial(counts, segment_share)
        parts = population.layout, population.space, mechanism, rng
        chunks.append(released_metrics(inside, counts - inside, *parts))
    return [
        EffectArrays(
            effects=np.concatenate([part.effects for part in parts]),
            variances=np.concatenate([part.variances for part in parts]),
            privacy_variances=np.concatenate([part.privacy_variances for part in parts]),
        )
        for parts in zip(*chunks, strict=True)
    ]
