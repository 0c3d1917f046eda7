"""The same table with other clusters: as they are, small ones pooled, or none at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.experiment.pooling import pool_small_clusters
from clusterdp.planning.choose import choose
from clusterdp.planning.quick import expect_quickly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import CodeArray
    from clusterdp.planning.assumptions import Scenario
    from clusterdp.planning.choose import Request
    from clusterdp.precision.expected import Precision

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
    request: Request, scenario: Scenario, planned: tuple[Precision, ...]
) -> tuple[Clustering, ...]:
    """Plans for the same table with other clusters; none where there are no clusters.

    Args:
        request: What is asked for, with a mechanism.
        scenario: What is known.
        planned: What to expect with clusters as they are.
    """
    n_clusters = len(scenario.layout.clusters)
    if n_clusters == 1:
        return ()
    found = [Clustering("your clusters", n_clusters, planned)]
    for name, codes in _other_clusters(scenario):
        other = merged(scenario, codes)
        precisions = expect_quickly(choose(request, other), other)
        found.append(Clustering(name, len(other.layout.clusters), precisions))
    return tuple(found)


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


def _other_clusters(scenario: Scenario) -> Iterator[tuple[str, CodeArray]]:
    layout = scenario.layout
    numbered = replace(layout, clusters=tuple(range(len(layout.clusters))))
    pooled, codes, _ = pool_small_clusters(numbered, SMALL)
    if codes is not None and len(pooled.clusters) > 1:
        yield f"clusters below {SMALL} in an arm pooled", codes
    yield "no clusters", np.zeros(len(layout.clusters), dtype=np.int64)
