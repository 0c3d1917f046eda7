"""Whole releases and their estimates, drawn from cell counts: the cost does not grow with n.

A finite population with all its potential outcomes: what theory and simulation are about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import EffectArrays
from clusterdp.estimation.means.arms import arm_effects, contrast_effects
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import declared_noise
from clusterdp.estimation.means.responses import ProfileSums, ResponseValues
from clusterdp.estimation.reading.profiles import Profiles
from clusterdp.mechanisms.draw import release_cells
from clusterdp.outcomes.space import ValueRange
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.effects.effect import Estimator, Use
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace


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
) -> EffectArrays:
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
) -> EffectArrays:
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
) -> EffectArrays:
    """One release and estimate of each replicate's counts `[replicate, cluster, arm, outcome]`."""
    statistics, channel = release_cells(
        CellTotals.from_counts(counts, space), layout, space, mechanism, simulated_noise(rng)
    )
    if channel is None:
        contrasts = statistics[0].contrasts(layout, metric)
        return contrast_effects(
            contrasts, layout, ValueRange.from_values(space.metric_values()[metric])
        )
    profiles = Profiles.from_layout(layout)
    released = channel.simulate(counts, rng)
    outputs = ResponseValues.from_channel(channel, space, metric)
    whole = ProfileSums.from_cell_counts(released, outputs)
    whole = replace(whole, sizes=profiles.sizes)  # the same in all replicates
    used = statistics if use == "everything" else ()
    readings = [reading for one in used for reading in one.sum_readings(metric)]
    noise = declared_noise(mechanism, space, metric)
    calibration = Calibration(readings, profiles, whole, noise)
    return arm_effects(whole, layout, estimator, profiles, calibration, origin=outputs.middle)


def _chunks(n_replicates: int, n_elements: int) -> Iterator[int]:
    """Sizes of the chunks that replicates are run in."""
    size = max(1, _CHUNK_ELEMENTS // n_elements)
    for chunk in range(math.ceil(n_replicates / size)):
        yield min(size, n_replicates - chunk * size)


def _joined(chunks: Iterator[EffectArrays]) -> EffectArrays:
    parts = list(chunks)
    return EffectArrays(
        effects=np.concatenate([part.effects for part in parts]),
        variances=np.concatenate([part.variances for part in parts]),
        privacy_variances=np.concatenate([part.privacy_variances for part in parts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Units of a few types, where a type fixes the outcome a unit would have in every arm.

    Attributes:
        type_outcomes: The outcome code of each type in each arm; axes `[type, arm]`.
        type_counts: How many units of each type each cluster has; axes `[cluster, type]`.
        layout: What is public; its sizes are how many units each arm gets in each cluster.
        space: The outcome space.
    """

    type_outcomes: IntArray
    type_counts: IntArray
    layout: Layout
    space: CategorySpace

    def __post_init__(self) -> None:
        if not np.array_equal(self.type_counts.sum(axis=1), self.layout.sizes.sum(axis=1)):
            raise ParameterError("type_counts and layout.sizes must agree on the size of clusters")

    def potential_counts(self) -> IntArray:
        """How many units of each cluster would have each outcome in each arm.

        Axes `[cluster, arm, outcome]`; unlike in observed counts, every arm counts all units.
        """
        one_hot = np.eye(self.space.n_categories, dtype=np.int64)[self.type_outcomes]
        return np.asarray(np.einsum("ct,tao->cao", self.type_counts, one_hot))

    def effects(self, metric: int = 0) -> FloatArray:
        """True average effects on a metric against control; axes `[treatment]`."""
        gains = self.unit_effects(metric)
        shares = self.type_counts.sum(axis=0) / self.layout.n_units
        return np.asarray(shares @ gains)

    def unit_effects(self, metric: int = 0) -> FloatArray:
        """The effect of each treatment on a metric of each type; axes `[type, treatment]`."""
        outcomes = self.space.metric_values()[metric][self.type_outcomes]
        treated = outcomes[:, list(self.layout.treatments)]
        return np.asarray(treated - outcomes[:, [self.layout.control]])

    def merged(self) -> Population:
        """The same units as one cluster."""
        sizes = self.layout.sizes.sum(axis=0, keepdims=True)
        return replace(
            self,
            type_counts=self.type_counts.sum(axis=0, keepdims=True),
            layout=replace(self.layout, clusters=("all",), sizes=sizes),
        )

    def assign(self, n_replicates: int, rng: np.random.Generator) -> IntArray:
        """Observed counts under fresh assignments; axes `[replicate, cluster, arm, outcome]`.

        Within each cluster the fixed number of units of each arm is drawn without replacement.
        """
        n_clusters, n_arms = self.layout.sizes.shape
        unassigned = np.repeat(self.type_counts[np.newaxis], n_replicates, axis=0)
        observed = np.zeros((n_replicates, n_clusters, n_arms, self.space.n_categories), np.int64)
        for arm in range(n_arms):
            last = arm == n_arms - 1
            drawn = unassigned if last else _draw(unassigned, self.layout.sizes[:, arm], rng)
            for kind, outcome in enumerate(self.type_outcomes[:, arm]):
                observed[:, :, arm, outcome] += drawn[:, :, kind]
            unassigned = unassigned - drawn
        return observed


def _draw(counts: IntArray, n_drawn: IntArray, rng: np.random.Generator) -> IntArray:
    """Multivariate hypergeometric draws, type by type; axes `[replicate, cluster, type]`."""
    drawn = np.zeros_like(counts)
    to_draw = np.broadcast_to(n_drawn, counts.shape[:2]).copy()
    others = counts.sum(axis=-1)
    for kind in range(counts.shape[-1]):
        others = others - counts[..., kind]
        drawn[..., kind] = rng.hypergeometric(counts[..., kind], others, to_draw)
        to_draw -= drawn[..., kind]
    return drawn
