"""Private clusters: what can be seen in true ones, whose units are known by noisy labels alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.precision.prediction import Prediction
from clusterdp.precision.visible import Sight, short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.precision.prediction import Precision

# Of more clusters than this, the largest are shown.
_MOST_CLUSTERS = 12


class TrueClusters(NamedTuple):
    """The private clusters of a release.

    Attributes:
        column: What they are called.
        response: What their labels went through.
    """

    column: str
    response: ClusterResponse

    @property
    def epsilon(self) -> float:
        """What labels take of the budget."""
        return self.response.guarantee().epsilon

    def sights(self, precisions: Sequence[Precision], layout: Layout) -> list[Sight]:
        """Effects in true clusters; none where no rows are published.

        Args:
            precisions: What to expect, metric by metric.
            layout: What is public: cells are of given labels.
        """
        if precisions[0].by_rows is None:
            return []
        n_units, inflated = self._counted(layout)
        largest = np.argsort(-n_units.sum(axis=1), kind="stable")[:_MOST_CLUSTERS]
        whole = layout.against_control(1 / layout.sizes.sum(axis=0))
        found = []
        for place in sorted(largest.tolist()):
            true = layout.against_control(1 / n_units[place]) / whole
            noisy = layout.against_control(inflated[place]) / whole
            predictions = tuple(_prediction(one, true, noisy) for one in precisions)
            name = short_name(f"{self.column}={layout.clusters[place]}")
            found.append(Sight(name, None, predictions))
        return found

    def _counted(self, layout: Layout) -> tuple[FloatArray, FloatArray]:
        """Units of true clusters as labels tell them, and Σw²/(Σw)²; axes `[cluster, arm]`.

        Σw²/(Σw)² takes the place of 1/n in the variance of a mean. It is at least 1/n.
        """
        weights = self.response.inverse(layout.clusters)
        # Where labels tell of less than one unit, one is as good as none.
        n_units = np.maximum(weights.T @ layout.sizes, 1.0)
        return n_units, (weights.T**2 @ layout.sizes) / n_units**2


def _prediction(one: Precision, true: FloatArray, noisy: FloatArray) -> Prediction:
    """What to expect in a true cluster, from how often a unit's variance counts there."""
    assert one.by_rows is not None  # noqa: S101 - there are rows
    sampling = one.sampling[0] * true
    privacy = (one.sampling[0] + one.by_rows) * noisy - sampling
    return Prediction.of(sampling, np.maximum(privacy, 0.0), one.largest_effect)


def true_cluster_notes(metrics: Sequence[str], seen: Sequence[Sight]) -> list[str]:
    """A note on each metric of which no effect can be seen in any true cluster."""
    return [
        f"no effect on {name} can be seen in any true cluster, however large: give "
        "their labels more of epsilon (private_cluster=..., --private-cluster), declare fewer "
        "labels, or leave clusters out"
        for place, name in enumerate(metrics)
        if seen and not any(one.predictions[place].is_visible for one in seen)
    ]
