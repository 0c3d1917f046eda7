"""A finite population with all its potential outcomes: what theory and simulation are about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout


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
