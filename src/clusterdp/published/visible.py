"""What can be detected in a release, from what is published of it only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.cells.assignment import inflation
from clusterdp.precision.expected import ExpectedOutcomes, Scenario, uniform_baseline
from clusterdp.precision.forecast import predict
from clusterdp.precision.row_noise import RowNoise
from clusterdp.precision.visible import (
    TrueClusters,
    mde_columns,
    mde_table,
    shown_metrics,
    visible_rows,
    visible_targets,
)
from clusterdp.privacy.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.document.model import Table
    from clusterdp.mechanisms.draw import Question
    from clusterdp.outcomes.categories import Categories
    from clusterdp.precision.prediction import ExpectedVariance
    from clusterdp.precision.visible import ShownMetric, VisibleEffect
    from clusterdp.published.manifest import Manifest
    from clusterdp.spec.spec import Expected


# What is assumed where no outcome was declared to be likelier than another.
_UNIFORM = "No baseline was declared, so all values are assumed equally likely."
# The segment that a table of minimum detectable effects shows first.
_SHOWN_SEGMENT = 0.1


class Visible(NamedTuple):
    """What to expect of effects.

    Attributes:
        metrics: The metrics.
        epsilon: The ε of the release, as text.
        precisions: What to expect of effects on each metric.
        sights: All units, groups and segments.
        assumed: What was assumed of outcomes.
    """

    metrics: tuple[ShownMetric, ...]
    epsilon: str
    precisions: tuple[ExpectedVariance, ...]
    sights: list[VisibleEffect]
    assumed: str

    def mde(self) -> Table:
        """Minimum detectable effects on every metric: all units, groups and segments."""
        columns = mde_columns(self.sights, _SHOWN_SEGMENT)
        return mde_table(self.metrics, columns, f"ε = {self.epsilon}")

    def tables(self) -> list[list[tuple[str, ...]]]:
        """A table for each metric: a header, then a row for each target."""
        return [
            visible_rows(self.sights, metric, place) for place, metric in enumerate(self.metrics)
        ]

    def to_dict(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """The same as plain values, by sight and metric."""
        return {
            one.name: {
                metric.name: found.to_dict()
                for metric, found in zip(self.metrics, one.predictions, strict=True)
            }
            for one in self.sights
        }


def what_is_visible(
    manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
) -> Visible:
    """What to expect of effects, if outcomes are as the owner expected.

    Args:
        manifest: Of the release.
        layout: Its cells.
        channels: Those of the rows, question by question; None if there are no rows.
    """
    compared, terms = layout.compared(), manifest.terms
    scenarios = [
        Scenario(compared, space, _baseline(expected, space))
        for space, expected in zip(terms.spaces, manifest.expected, strict=True)
    ]
    precisions = tuple(
        one
        for question, scenario, channel in zip(terms.pairs, scenarios, channels, strict=True)
        for one in predict(
            question.mechanism, scenario, _noise(question, scenario, channel, layout)
        )
    )
    return Visible(
        metrics=tuple(metric for space in terms.spaces for metric in shown_metrics(space)),
        epsilon=rounded_up(manifest.guarantee.epsilon),
        precisions=precisions,
        sights=[
            *visible_targets(precisions, compared),
            *_true_clusters(manifest, precisions, layout),
        ],
        assumed=_assumed(manifest, scenarios) + _weighted(manifest, layout),
    )


def _true_clusters(
    manifest: Manifest, precisions: Sequence[ExpectedVariance], layout: Layout
) -> list[VisibleEffect]:
    """What can be seen in true clusters, where clusters are private."""
    if manifest.labels is None or manifest.true_cluster is None:
        return []
    return TrueClusters(manifest.true_cluster, manifest.labels).effects(precisions, layout)


def _weighted(manifest: Manifest, layout: Layout) -> str:
    """What is said of private clusters that have probabilities of arms of their own."""
    if manifest.labels is None or manifest.assignment is None:
        return ""
    weights = manifest.labels.inverse(layout.clusters) @ (1 / np.array(manifest.assignment))
    factor = inflation(weights, layout.sizes)
    return (
        f" Arms had different shares in private clusters, which multiplies variances by about "
        f"{factor:.3g}."
    )


def _baseline(expected: Expected | None, space: Categories) -> ExpectedOutcomes:
    """What outcomes were expected to be like."""
    if expected is None:
        return uniform_baseline(space)
    return ExpectedOutcomes(kinds=np.array(expected)[:, np.newaxis])


def _noise(
    question: Question, scenario: Scenario, channel: Channel | None, layout: Layout
) -> RowNoise | None:
    """The noise of rows in the published channel: to design one again takes long."""
    if channel is None:
        return None
    used: Any = replace(channel, groups=channel.groups[layout.complete])
    return RowNoise.from_channel(used, scenario, question.public_prior)


def _assumed(manifest: Manifest, scenarios: Sequence[Scenario]) -> str:
    """What was assumed of outcomes, in a line."""
    said: list[str] = []
    unknown: list[str] = []
    for space, scenario in zip(manifest.terms.spaces, scenarios, strict=True):
        if not scenario.baseline.is_declared:
            unknown += space.declared.names
            continue
        named = zip(shown_metrics(space), scenario.moments(), strict=True)
        said += [f"{metric.name} {metric.level(mean)}" for metric, (mean, _) in named]
    whose = "the pilot's means" if manifest.terms.has_pilot else "the owner's baselines"
    assumed = f"Assumes {whose}: {', '.join(said)}." if said else _UNIFORM
    if said and unknown:
        assumed += f" All values of {', '.join(unknown)} are assumed equally likely."
    assigned = scenarios[0].layout.assigned
    if assigned is not None:
        assumed += (
            f" Arms were assigned by {manifest.columns.randomization_unit}; "
            f"{100 * assigned.correlation:.3g}% of the variance is between its groups."
        )
    return assumed
