"""Whole releases and their estimates, drawn from cell counts: the cost does not grow with n."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clusterdp import estimators
from clusterdp.channel import Channel, design_channel
from clusterdp.noise import simulated_noise
from clusterdp.summary import draw_summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.arrays import IntArray
    from clusterdp.cells import Layout
    from clusterdp.estimators import Estimator
    from clusterdp.mechanisms import Mechanism
    from clusterdp.population import Population

# Array elements held at a time; replicates are run in chunks of about this size.
_CHUNK_ELEMENTS = 4_000_000


def simulate_experiments(
    population: Population,
    mechanism: Mechanism,
    *,
    n_replicates: int,
    rng: np.random.Generator,
    estimator: Estimator = "stratified",
) -> estimators.EffectArrays:
    """Estimates from fresh assignments and fresh releases; axes `[replicate, treatment]`."""
    return _joined(
        simulate_estimates(
            population.assign(size, rng),
            population.layout,
            mechanism,
            rng,
            estimator,
        )
        for size in _chunks(n_replicates, population.potential_counts().size)
    )


def simulate_releases(  # noqa: PLR0913 - a population's parts, given as they are
    counts: IntArray,
    layout: Layout,
    mechanism: Mechanism,
    *,
    n_replicates: int,
    rng: np.random.Generator,
    estimator: Estimator = "stratified",
) -> estimators.EffectArrays:
    """Estimates from fresh releases of the same observed counts; axes `[replicate, treatment]`.

    Args:
        counts: Observed counts; axes `[cluster, arm, outcome]`.
        layout: What is public.
        mechanism: What to release.
        n_replicates: How many releases to draw.
        rng: Where randomness comes from.
        estimator: As in `estimate`.
    """
    return _joined(
        simulate_estimates(
            np.broadcast_to(counts, (size, *counts.shape)),
            layout,
            mechanism,
            rng,
            estimator,
        )
        for size in _chunks(n_replicates, counts.size)
    )


def simulate_estimates(
    counts: IntArray,
    layout: Layout,
    mechanism: Mechanism,
    rng: np.random.Generator,
    estimator: Estimator,
) -> estimators.EffectArrays:
    """One release and estimate of each replicate's counts `[replicate, cluster, arm, outcome]`."""
    summary = draw_summary(counts, layout, mechanism.summary, simulated_noise(rng))
    channel = released_counts = None
    if mechanism.releases_rows:
        channel = design_channel(mechanism, layout, summary)
        released_counts = draw_released_counts(counts, channel, rng)
    return estimators.estimate_effects(
        layout,
        estimator,
        summary=summary,
        channel=channel,
        released_counts=released_counts,
    )


def draw_released_counts(counts: IntArray, channel: Channel, rng: np.random.Generator) -> IntArray:
    """How often each outcome is released, in distribution as if every row were randomized.

    Axes of `counts` and of the result: `[..., cluster, arm, outcome]`.
    """
    resampled = rng.binomial(counts, channel.resample_prob)
    prior = channel.prior()[..., channel.groups, :]
    redrawn = rng.multinomial(resampled.sum(axis=-1), prior)
    return np.asarray(counts - resampled + redrawn)


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
