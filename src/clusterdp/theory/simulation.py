"""Whole releases and their estimates, drawn from cell counts: the cost does not grow with n."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.estimation import moments as estimators
from clusterdp.estimation.arm_means import arm_effects
from clusterdp.estimation.calibration import calibrate
from clusterdp.estimation.measured import declared_noise
from clusterdp.estimation.profiles import Outputs, Profiles, ProfileSums
from clusterdp.experiment.category_space import Ends
from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import IntArray
    from clusterdp.estimation.moments import Estimator, Use
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.theory.population import Population

# Array elements held at a time; replicates are run in chunks of about this size.
_CHUNK_ELEMENTS = 4_000_000


def simulate_experiments(  # noqa: PLR0913 - what to draw, by name
    population: Population,
    mechanism: Mechanism,
    *,
    n_replicates: int,
    rng: np.random.Generator,
    estimator: Estimator = "stratified",
    use: Use = "everything",
    metric: int = 0,
) -> estimators.EffectArrays:
    """Estimates from fresh assignments and fresh releases; axes `[replicate, treatment]`."""
    return _joined(
        simulate_estimates(
            population.assign(size, rng),
            population.layout,
            population.space,
            mechanism,
            rng,
            estimator,
            use,
            metric,
        )
        for size in _chunks(n_replicates, population.potential_counts().size)
    )


def simulate_releases(  # noqa: PLR0913 - a population's parts, given as they are
    counts: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    *,
    n_replicates: int,
    rng: np.random.Generator,
    estimator: Estimator = "stratified",
    use: Use = "everything",
    metric: int = 0,
) -> estimators.EffectArrays:
    """Estimates from fresh releases of the same observed counts; axes `[replicate, treatment]`.

    Args:
        counts: Observed counts; axes `[cluster, arm, outcome]`.
        layout: What is public.
        space: The outcome space.
        mechanism: What to release.
        n_replicates: How many releases to draw.
        rng: Where randomness comes from.
        estimator: As in `estimate`.
        use: As in `estimate`.
        metric: Which metric.
    """
    return _joined(
        simulate_estimates(
            np.broadcast_to(counts, (size, *counts.shape)),
            layout,
            space,
            mechanism,
            rng,
            estimator,
            use,
            metric,
        )
        for size in _chunks(n_replicates, counts.size)
    )


def simulate_estimates(  # noqa: PLR0913, PLR0917 - as its callers
    counts: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    rng: np.random.Generator,
    estimator: Estimator,
    use: Use,
    metric: int = 0,
) -> estimators.EffectArrays:
    """One release and estimate of each replicate's counts `[replicate, cluster, arm, outcome]`."""
    about_cells = release_cells(
        CellTotals.of_counts(counts, space), layout, space, mechanism, simulated_noise(rng)
    )
    statistics, channel = about_cells
    if channel is None:
        contrasts = statistics[0].contrasts(layout, metric)
        return estimators.contrast_effects(contrasts, layout, Ends.of(space, metric))
    profiles = Profiles.of_cells(layout)
    released = channel.simulate(counts, rng)
    outputs = Outputs.of(channel, space, metric)
    whole = ProfileSums.of_cell_counts(released, outputs)
    whole = replace(whole, sizes=profiles.sizes)  # alike in all replicates
    used = statistics if use == "everything" else ()
    readings = [reading for one in used for reading in one.sum_readings(metric)]
    noise = declared_noise(mechanism, space, metric)
    calibration = calibrate(readings, profiles, whole, noise)
    return arm_effects(whole, layout, estimator, profiles, calibration, origin=outputs.middle)


def _chunks(n_replicates: int, n_elements: int) -> Iterator[int]:
    """Sizes of the chunks that replicates are run in."""
    size = max(1, _CHUNK_ELEMENTS // n_elements)
    for chunk in range(math.ceil(n_replicates / size)):
        yield min(size, n_replicates - chunk * size)


def _joined(chunks: Iterator[estimators.EffectArrays]) -> estimators.EffectArrays:
    parts = list(chunks)
    return estimators.EffectArrays(
        effects=np.concatenate([part.effects for part in parts]),
        variances=np.concatenate([part.variances for part in parts]),
        privacy_variances=np.concatenate([part.privacy_variances for part in parts]),
    )
