"""What can be seen in a release: standard errors and detectable effects, target by target.

Private clusters are targets as well, whose units are known by noisy labels alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.precision.prediction import UNSEEN, Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Breakdown, Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.precision.prediction import ExpectedVariance


# Segments that are shown, by their share of the units.
SEGMENTS = (0.5, 0.25, 0.1, 0.05, 0.01)
# Of a breakdown with more groups than this, the largest are shown.
_MOST_GROUPS = 12
_LONGEST_NAME = 34
# Of more clusters than this, the largest are shown.
_MOST_CLUSTERS = 12


class VisibleEffect(NamedTuple):
    """An effect that could be looked at.

    Attributes:
        name: What it is of, for people.
        share: Its share of the units, where that is what it is known by.
        predictions: What to expect of it, metric by metric.
    """

    name: str
    share: float | None
    predictions: tuple[Prediction, ...]


def visible_targets(precisions: Sequence[ExpectedVariance], layout: Layout) -> list[VisibleEffect]:
    """Everyone, the groups of each breakdown, and segments of several shares.

    Everyone alone where no rows are published. Groups without units in some arm are left out.

    Args:
        precisions: What to expect, metric by metric.
        layout: What is public.
    """
    found = [VisibleEffect("everyone", 1.0, tuple(one.overall for one in precisions))]
    if precisions[0].by_rows is None:
        return found
    first = 1
    for breakdown in layout.breakdowns:
        for group in _shown(breakdown):
            predictions = tuple(one.of_target(first + group) for one in precisions)
            found.append(VisibleEffect(group_name(breakdown, group), None, predictions))
        first += len(breakdown.sizes)
    for share in SEGMENTS:
        of_share = [one.segment(share) for one in precisions]
        predictions = tuple(one for one in of_share if one is not None)
        found.append(VisibleEffect(f"a segment of {share:.0%}", share, predictions))
    return found


def visible_rows(seen: Sequence[VisibleEffect], metric: int) -> list[tuple[str, ...]]:
    """The table of one metric: a header, then a row for each sight.

    Detectable effects are beside those that could be detected without privacy.
    """
    rows = [
        (
            one.name,
            f"{one.predictions[metric].std_error:.4g}",
            detectable_in_words(one.predictions[metric]),
            _without_privacy(one.predictions[metric]),
        )
        for one in seen
    ]
    return [("", "std error", "detectable", "without privacy"), *rows]


def detectable_in_words(found: Prediction) -> str:
    """The smallest effect that can be detected, if any effect can be as large."""
    return f"{found.detectable_effect:.4g}" if found.is_visible else UNSEEN


def _without_privacy(found: Prediction) -> str:
    """The same from true outcomes."""
    effect = found.detectable_without_privacy
    return f"{effect:.4g}" if found.is_visible_without_privacy else UNSEEN


def unseen_notes(metrics: Sequence[str], overall: Sequence[Prediction]) -> list[str]:
    """A note on each metric of which not even the overall effect can be detected."""
    return [
        f"too small: no effect on {name} can be seen, not even over everyone; the largest possible "
        f"is {one.largest_effect:.4g}, and it takes {one.detectable_effect:.4g}"
        + (
            f" (without privacy {one.detectable_without_privacy:.4g}): give a larger epsilon, or "
            "find more units"
            if one.is_visible_without_privacy
            else ", also without privacy: find more units"
        )
        for name, one in zip(metrics, overall, strict=True)
        if not one.is_visible
    ]


def group_name(breakdown: Breakdown, group: int) -> str:
    """A group of a breakdown, for people: `region=north, tier=2`."""
    pairs = zip(breakdown.columns, breakdown.groups[group], strict=True)
    return short_name(", ".join(f"{column}={label}" for column, label in pairs))


def short_name(name: str) -> str:
    """The name of a group, cut off where it is long."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _shown(breakdown: Breakdown) -> list[int]:
    """The groups with units in every arm, in their order; the largest if there are many."""
    sizes = breakdown.sizes
    present = np.flatnonzero((sizes > 0).all(axis=1))
    largest = np.argsort(-sizes[present].sum(axis=1), kind="stable")[:_MOST_GROUPS]
    return sorted(present[largest].tolist())


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

    def effects(
        self, precisions: Sequence[ExpectedVariance], layout: Layout
    ) -> list[VisibleEffect]:
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
            found.append(VisibleEffect(name, None, predictions))
        return found

    def _counted(self, layout: Layout) -> tuple[FloatArray, FloatArray]:
        """Units of true clusters as labels tell them, and Σw²/(Σw)²; axes `[cluster, arm]`.

        Σw²/(Σw)² takes the place of 1/n in the variance of a mean. It is at least 1/n.
        """
        weights = self.response.inverse(layout.clusters)
        # Where labels tell of less than one unit, one is as good as none.
        n_units = np.maximum(weights.T @ layout.sizes, 1.0)
        return n_units, (weights.T**2 @ layout.sizes) / n_units**2


def _prediction(one: ExpectedVariance, true: FloatArray, noisy: FloatArray) -> Prediction:
    """What to expect in a true cluster, from how often a unit's variance counts there."""
    assert one.by_rows is not None  # noqa: S101 - there are rows
    sampling = one.sampling[0] * true
    privacy = (one.sampling[0] + one.by_rows) * noisy - sampling
    return Prediction.from_variances(sampling, np.maximum(privacy, 0.0), one.largest_effect)


def true_cluster_notes(metrics: Sequence[str], seen: Sequence[VisibleEffect]) -> list[str]:
    """A note on each metric of which no effect can be seen in any true cluster."""
    return [
        f"no effect on {name} can be seen in any true cluster, however large: give "
        "their labels more of epsilon (private_cluster=..., --private-cluster), declare fewer "
        "labels, or leave clusters out"
        for place, name in enumerate(metrics)
        if seen and not any(one.predictions[place].is_visible for one in seen)
    ]
