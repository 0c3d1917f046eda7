"""What can be detected in a release: minimum detectable effects, target by target.

Private clusters are targets as well, whose units are known by noisy labels only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._text import three_digits, two_digits
from clusterdp.document.model import Table
from clusterdp.precision.forecast import UNSEEN, Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Breakdown, Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.outcomes.categories import Categories
    from clusterdp.precision.forecast import ExpectedVariance


# Segments that are shown, by their share of the units.
SEGMENTS = (0.5, 0.25, 0.1, 0.05, 0.01)
# Of a breakdown with more groups than this, or of more clusters, the largest are shown.
_MOST_GROUPS = 12
_LONGEST_NAME = 34


# Columns of a table of minimum detectable effects that fit a terminal.
_MOST_TARGETS = 3
# A small segment that is shown next to the one a plan is for.
_SMALL_SEGMENT = 0.01
MDE_TITLE = "Minimum detectable effect (80% power, two-sided 5% test)"


class ShownMetric(NamedTuple):
    """A metric as people read it.

    Attributes:
        name: Its name.
        is_share: Whether its mean is a share, so that a change is in percentage points.
    """

    name: str
    is_share: bool

    def change(self, effect: float) -> str:
        """A change in two digits, with its unit: `0.75 pp`, `0.27`."""
        return f"{two_digits(100 * effect)} pp" if self.is_share else two_digits(effect)

    def detectable(self, found: Prediction) -> str:
        """The smallest change that can be detected, if any change can be as large."""
        return self.change(found.detectable_effect) if found.is_visible else UNSEEN

    def detectable_without_privacy(self, found: Prediction) -> str:
        """The same from true outcomes."""
        seen = found.is_visible_without_privacy
        return self.change(found.detectable_without_privacy) if seen else UNSEEN

    def level(self, mean: float) -> str:
        """A mean: `30%`, `3`."""
        return f"{100 * mean:.3g}%" if self.is_share else three_digits(mean)


def shown_metrics(space: Categories) -> tuple[ShownMetric, ...]:
    """The metrics of a question, outcomes first."""
    numbers = space.metric_lattice().is_number
    return tuple(
        ShownMetric(str(metric), set(values.tolist()) <= {0.0, 1.0} and not is_number)
        for metric, values, is_number in zip(
            space.declared.metrics, space.metric_values(), numbers, strict=True
        )
    )


class VisibleEffect(NamedTuple):
    """An effect that could be looked at.

    Attributes:
        name: What people call it.
        share: Its share of the units, where that is what it is known by.
        predictions: What to expect of it, metric by metric.
        by: The columns that define it, if it is a group of these.
    """

    name: str
    share: float | None
    predictions: tuple[Prediction, ...]
    by: str = ""

    def called(self, units: str) -> str:
        """What people call it, where units are called so."""
        return f"all {units}" if self.share == 1 else self.name


def visible_targets(
    precisions: Sequence[ExpectedVariance], layout: Layout, shares: Sequence[float] = SEGMENTS
) -> list[VisibleEffect]:
    """All units, the groups of each breakdown, and segments of several shares.

    Only all units where no rows are published. Groups without units in some arm are left out.

    Args:
        precisions: What to expect, metric by metric.
        layout: What is public.
        shares: Of the segments.
    """
    found = [VisibleEffect("all units", 1.0, tuple(one.overall for one in precisions))]
    first = 1
    for breakdown in layout.breakdowns if precisions[0].by_rows is not None else ():
        for group in _shown(breakdown):
            predictions = tuple(one.of_target(first + group) for one in precisions)
            by = ", ".join(breakdown.columns)
            found.append(VisibleEffect(group_name(breakdown, group), None, predictions, by))
        first += len(breakdown.sizes)
    for share in shares:
        of_share = [one.segment(share) for one in precisions]
        if predictions := tuple(one for one in of_share if one is not None):
            found.append(VisibleEffect(share_name(share), share, predictions))
    return found


def share_name(share: float) -> str:
    """`10% segment`."""
    return f"{100 * share:.3g}% segment"


def mde_columns(seen: Sequence[VisibleEffect], share: float) -> list[VisibleEffect]:
    """What a table for a terminal shows: all units, the group with the largest SE, and segments.

    Args:
        seen: All that can be looked at.
        share: The segment that matters most.
    """
    groups = [one.predictions for one in seen if one.share is None]
    segments = {one.share: one for one in seen if one.share not in (None, 1.0)}
    found = [one for one in seen if one.share == 1.0]
    if groups:
        worst = tuple(
            max(each, key=lambda one: one.std_error) for each in zip(*groups, strict=True)
        )
        by = " or ".join(dict.fromkeys(one.by for one in seen if one.share is None))
        found.append(VisibleEffect(f"worst {by} group", None, worst))
    found += [segments[one] for one in dict.fromkeys((share, _SMALL_SEGMENT)) if one in segments]
    return found[:_MOST_TARGETS]


def mde_table(
    metrics: Sequence[ShownMetric],
    columns: Sequence[VisibleEffect],
    with_privacy: str,
    units: str = "units",
) -> Table:
    """Minimum detectable effects: a row for each metric, two columns for each target.

    Args:
        metrics: As people read them.
        columns: Which units effects cover.
        with_privacy: What the release is called next to "no privacy", such as `ε = 2`.
        units: What units are called.
    """
    rows = [
        (
            metric.name,
            *(
                cell
                for one in columns
                for cell in (
                    metric.detectable(one.predictions[place]),
                    metric.detectable_without_privacy(one.predictions[place]),
                )
            ),
        )
        for place, metric in enumerate(metrics)
    ]
    header = ("outcome", *((with_privacy, "no privacy") * len(columns)))
    return Table(MDE_TITLE, [header, *rows], groups=[(one.called(units), 2) for one in columns])


def visible_rows(
    seen: Sequence[VisibleEffect], metric: ShownMetric, place: int, units: str = "units"
) -> list[tuple[str, ...]]:
    """The table of one metric: a header, then a row for each target."""
    rows: list[tuple[str, ...]] = [("", "SE", "MDE", "MDE without privacy")]
    for one in seen:
        found = one.predictions[place]
        mde = metric.detectable(found), metric.detectable_without_privacy(found)
        rows.append((one.called(units), metric.change(found.std_error), *mde))
    return rows


def unseen_notes(
    metrics: Sequence[ShownMetric], overall: Sequence[Prediction], units: str = "units"
) -> list[str]:
    """A note on each metric of which not even the overall effect can be detected."""
    notes = []
    for metric, one in zip(metrics, overall, strict=True):
        if one.is_visible:
            continue
        remedy = f"That is so without privacy, too. Add {units}."
        if one.is_visible_without_privacy:
            without = metric.change(one.detectable_without_privacy)
            remedy = f"Without privacy it is {without}. Raise ε, or add {units}."
        notes.append(
            f"No change in {metric.name} is detectable, even among all {units}: the largest "
            f"possible is {metric.change(one.largest_effect)}, and the MDE is "
            f"{metric.change(one.detectable_effect)}. {remedy}"
        )
    return notes


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


def true_cluster_effects(
    column: str, response: ClusterResponse, precisions: Sequence[ExpectedVariance], layout: Layout
) -> list[VisibleEffect]:
    """Effects in true clusters, where clusters are private; none where no rows are published.

    Args:
        column: What the private clusters are called.
        response: What their labels went through.
        precisions: What to expect, metric by metric.
        layout: What is public: cells by given labels.
    """
    if precisions[0].by_rows is None:
        return []
    weights = response.inverse(layout.clusters)
    # Where labels amount to less than one unit, one unit is assumed.
    n_units = np.maximum(weights.T @ layout.sizes, 1.0)
    # Σw²/(Σw)² takes the place of 1/n in the variance of a mean. It is at least 1/n.
    inflated = (weights.T**2 @ layout.sizes) / n_units**2
    largest = np.argsort(-n_units.sum(axis=1), kind="stable")[:_MOST_GROUPS]
    whole = layout.against_control(1 / layout.sizes.sum(axis=0))
    found = []
    for place in sorted(largest.tolist()):
        true = layout.against_control(1 / n_units[place]) / whole
        noisy = layout.against_control(inflated[place]) / whole
        predictions = tuple(_prediction(one, true, noisy) for one in precisions)
        name = short_name(f"{column}={layout.clusters[place]}")
        found.append(VisibleEffect(name, None, predictions, column))
    return found


def _prediction(one: ExpectedVariance, true: FloatArray, noisy: FloatArray) -> Prediction:
    """What to expect in a true cluster, from how often a unit's variance counts there."""
    assert one.by_rows is not None  # noqa: S101 - there are rows
    sampling = one.sampling[0] * true
    privacy = (one.sampling[0] + one.by_rows) * noisy - sampling
    return Prediction.from_variances(sampling, np.maximum(privacy, 0.0), one.largest_effect)


def true_cluster_notes(metrics: Sequence[ShownMetric], seen: Sequence[VisibleEffect]) -> list[str]:
    """A note on each metric of which no effect can be seen in any true cluster."""
    return [
        f"No change in {metric.name} is detectable in any true cluster. Give their labels more of "
        "ε (epsilon under [private_clusters]), declare fewer labels, or leave clusters out."
        for place, metric in enumerate(metrics)
        if seen and not any(one.predictions[place].is_visible for one in seen)
    ]
