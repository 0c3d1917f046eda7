"""The same table with other clusters: as they are, small ones pooled, or none at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.cells.assignment import pool_small_clusters
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.forecast import expect_quickly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clusterdp._arrays import CodeArray
    from clusterdp.cells.layout import Layout
    from clusterdp.planning.expected import Scenario
    from clusterdp.precision.prediction import Precision
    from clusterdp.spec.request import BudgetRequest

# Clusters that expect fewer units in some arm are small.
SMALL = 50


class Clustering(NamedTuple):
    """A way to form clusters, and what a plan for it would give.

    Attributes:
        name: In words.
        n_clusters: How many clusters there are.
        precisions: What to expect, metric by metric.
    """

    name: str
    n_clusters: int
    precisions: tuple[Precision, ...]


def compare_clusters(
    requests: Sequence[BudgetRequest],
    scenarios: Sequence[Scenario],
    planned: Sequence[tuple[Precision, ...]],
) -> list[tuple[Clustering, ...]]:
    """Plans for the same table with other clusters, by question; none where there are no clusters.

    Args:
        requests: What is asked of each question, with a mechanism.
        scenarios: What is known of each question.
        planned: What to expect of each question with clusters as they are.
    """
    n_clusters = len(scenarios[0].layout.clusters)
    if n_clusters == 1:
        return [() for _ in scenarios]
    found = [[Clustering("your clusters", n_clusters, one)] for one in planned]
    for name, codes in _other_clusters(scenarios[0].layout):
        others = [merged(scenario, codes) for scenario in scenarios]
        made = plan_mechanisms(requests, others).mechanisms
        for every, mechanism, other in zip(found, made, others, strict=True):
            precisions = expect_quickly(mechanism, other)
            every.append(Clustering(name, len(other.layout.clusters), precisions))
    return [tuple(every) for every in found]


def merged(scenario: Scenario, codes: CodeArray) -> Scenario:
    """The same units in fewer clusters.

    Args:
        scenario: What is known.
        codes: The new cluster of each old one, from 0 on.
    """
    layout, space, reference = scenario
    n_clusters = int(codes.max()) + 1
    sizes = np.zeros((n_clusters, len(layout.arms)), dtype=np.int64)
    np.add.at(sizes, codes, layout.sizes)
    if reference.differs:
        of_cells = reference.of_clusters(np.arange(len(layout.clusters)))
        kinds = np.zeros((*sizes.shape, space.n_categories))
        np.add.at(kinds, codes, layout.sizes[..., np.newaxis] * of_cells)
        reference = replace(reference, kinds=kinds / sizes[..., np.newaxis])
    fewer = replace(layout, clusters=tuple(range(n_clusters)), sizes=sizes)
    return scenario._replace(layout=fewer, reference=reference)


def _other_clusters(layout: Layout) -> Iterator[tuple[str, CodeArray]]:
    numbered = replace(layout, clusters=tuple(range(len(layout.clusters))))
    pooled, codes, _ = pool_small_clusters(numbered, SMALL)
    if codes is not None and len(pooled.clusters) > 1:
        yield f"clusters below {SMALL} in an arm pooled", codes
    yield "no clusters", np.zeros(len(layout.clusters), dtype=np.int64)
