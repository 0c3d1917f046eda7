"""Clusters, public or private: what they cost, which cells to expect, which are pooled.

Both kinds answer the same questions, so that nobody else has to ask which one they have. A public
cluster is read with the other public columns. A private one goes through a response: every unit is
given a label, and later steps see the given labels only. They take ε₁ of the budget and
leave ε₂ = ε − ε₁ for outcomes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.cells.assignment import (
    PooledLayout,
    assignment_probs,
    check_assignment,
    expected_sizes,
    inflation,
    pool_small_clusters,
)
from clusterdp.channels.base import KEEP_TOTAL, SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.assignment import AssignmentProbs
    from clusterdp.cells.layout import Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.spec.columns import Columns

_ALIKE = (
    "arms are assumed to have the same probabilities in all private clusters. If they differ, "
    "effects are biased: declare them (assignment, under [private_clusters])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicClusters:
    """Clusters that are published as they are, or none at all.

    Attributes:
        min_cell_size: Pool clusters that expect fewer units than this in some arm into one.
    """

    min_cell_size: int | None = None

    @property
    def response(self) -> ClusterResponse | None:
        """None: nothing is randomized."""
        return None

    @property
    def epsilon(self) -> float:
        """What they take of the budget."""
        return 0.0

    def left_for_outcomes(self, epsilon: float) -> float:
        """All of it."""
        return epsilon

    def within_share(self, declared: float) -> float:
        """The share of an outcome's variance within clusters, as it was declared."""
        return declared

    def probs(self, layout: Layout) -> AssignmentProbs | None:  # noqa: ARG002 - as private ones
        """None: the sizes of cells show how arms were assigned."""
        return None

    def expected(self, layout: Layout, cluster: str | None) -> PooledLayout:
        """The cells to plan with: those that are published."""
        pooled = self.pool(layout)
        if pooled.regroup is not None and any(cluster in one.columns for one in layout.breakdowns):
            raise ParameterError(
                f"clusters of {cluster!r} are pooled, so it cannot be a breakdown as well; give a "
                "copy of the column under another name"
            )
        return pooled

    def pool(self, layout: Layout) -> PooledLayout:
        """The cells after small ones were pooled, checked."""
        check_assignment(layout)
        pooled = pool_small_clusters(layout, self.min_cell_size)
        pooled.layout.check()
        return pooled

    def notes(self, columns: Columns, layout: Layout) -> list[str]:  # noqa: ARG002 - as private ones
        """What an owner should know of them before a release: nothing."""
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateClusters:
    """Clusters that are sensitive themselves.

    Attributes:
        response: The labels, and the response that they go through.
        shares: The share of units that each label is expected to have, for plans alone.
        assignment: Of every label, the probabilities of treatments as text; None if arms have the
            same in all of them.
        min_cell_size: Pool labels that expect fewer units than this in some arm into one.
    """

    response: ClusterResponse
    shares: tuple[float, ...]
    assignment: Mapping[str, str] | None = None
    min_cell_size: int | None = None

    def __post_init__(self) -> None:
        if self.assignment is not None and self.min_cell_size is not None:
            raise ParameterError(
                "labels with probabilities of arms of their own cannot be pooled: leave out "
                "min_cell_size (--min-cell-size)"
            )

    @property
    def epsilon(self) -> float:
        """ε₁, what labels take of the budget."""
        return self.response.guarantee().epsilon

    def left_for_outcomes(self, epsilon: float) -> float:
        """ε₂ = ε − ε₁, rounded down.

        Raises:
            ParameterError: If labels take all of it.
        """
        left = Fraction(epsilon) - Fraction(self.epsilon)
        found = float(left)
        if Fraction(found) > left:
            found = math.nextafter(found, 0.0)
        if found < SMALLEST_ROW_EPSILON:
            raise ParameterError(
                f"private_cluster must be less than epsilon, which is {epsilon:g}, got "
                f"{self.epsilon:g}: outcomes need some of it; give less "
                "(private_cluster=..., epsilon under [private_clusters])"
            )
        return found

    def within_share(self, declared: float) -> float:
        """The share of an outcome's variance within given labels, from that in true clusters.

        A label that is kept with probability q, and else drawn uniformly, shows a unit's
        cluster mean with the slope q where clusters are as large: q² of the variance between
        clusters is left.
        """
        kept = (self.response.own - self.response.other) / KEEP_TOTAL
        return 1 - (1 - declared) * kept**2

    def probs(self, layout: Layout) -> AssignmentProbs | None:
        """The declared probabilities of arms by label; None if they are the same."""
        return None if self.assignment is None else assignment_probs(self.assignment, layout)

    def expected(self, layout: Layout, cluster: str | None = None) -> PooledLayout:  # noqa: ARG002 - as public ones
        """The cells to plan with: given labels and arms, of the sizes that are to be expected."""
        layout.check()
        return PooledLayout(self._with_response(layout, self.response.probs()))

    def unanswered(self, layout: Layout) -> Layout:
        """The same cells, if units were given their own labels."""
        return self._with_response(layout, np.eye(self.response.n_labels))

    def _with_response(self, layout: Layout, response: FloatArray) -> Layout:
        probs = self.probs(layout)
        sizes = expected_sizes(
            layout.sizes.sum(axis=0).tolist(),
            response,
            np.array(self.shares) / sum(self.shares),
            None if probs is None else np.array(probs),
        )
        return replace(layout, clusters=self.response.labels, sizes=sizes.astype(np.int64))

    def pool(self, layout: Layout) -> PooledLayout:
        """The cells of given labels after small ones were pooled, checked."""
        if self.assignment is None:
            return PublicClusters(min_cell_size=self.min_cell_size).pool(layout)
        layout.check()
        return PooledLayout(layout)

    def notes(self, columns: Columns, layout: Layout) -> list[str]:
        """How they are going to be published, and what is assumed of arms in them."""
        published = (
            f"{columns.cluster} is published as a noisy cluster, {columns.noisy_name}: "
            f"{self.response.in_words}"
        )
        if self.assignment is None:
            return [published, _ALIKE]
        price = (
            "units are weighted by the declared probabilities of arms, so overall effects are "
            f"unbiased. SEs are about {self.inflation(layout):.3g} times those without weights"
        )
        return [published, price]

    def inflation(self, layout: Layout) -> float:
        """How much larger standard errors are for weights that invert the response."""
        weights = self.response.inverse() @ (1 / np.array(self.probs(layout)))
        return inflation(weights, layout.sizes)


Clusters = PublicClusters | PrivateClusters
