"""What can be seen in a release, from what is published of it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.cells.assignment import inflation
from clusterdp.outcomes.space import metric_moments
from clusterdp.precision.prediction import expected_variances
from clusterdp.precision.row_noise import channel_unit_noise
from clusterdp.precision.visible import TrueClusters, visible_rows, visible_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.precision.prediction import ExpectedVariance
    from clusterdp.precision.visible import VisibleEffect
    from clusterdp.published.manifest import Manifest
    from clusterdp.spec.spec import Expected


# What is assumed where no outcome was declared to be likelier than another.
_UNIFORM = "if all outcomes were equally likely, because nothing was declared"


class Visible(NamedTuple):
    """What to expect of effects.

    Attributes:
        metrics: The names of the metrics.
        precisions: What to expect of effects on each metric.
        sights: Everyone, groups and segments.
        assumed: What was assumed of outcomes.
    """

    metrics: tuple[str, ...]
    precisions: tuple[ExpectedVariance, ...]
    sights: list[VisibleEffect]
    assumed: str

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """A table for each metric: a header, then a row for each sight."""
        return {name: visible_rows(self.sights, place) for place, name in enumerate(self.metrics)}

    def to_dict(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """The same as plain values, by sight and metric."""
        return {
            one.name: {
                metric: found.to_dict()
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
    compared = layout.compared()
    spaces = manifest.terms.spaces
    questions = zip(manifest.terms.mechanisms, spaces, manifest.expected, channels, strict=True)
    precisions = tuple(one for question in questions for one in _precisions(layout, *question))
    return Visible(
        metrics=tuple(str(metric) for space in spaces for metric in space.declared.metrics),
        precisions=precisions,
        sights=[
            *visible_targets(precisions, compared),
            *_true_clusters(manifest, precisions, layout),
        ],
        assumed=_assumed(manifest, spaces, compared) + _weighted(manifest, layout),
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
    return f"; arms had other shares in other private clusters, so about {factor:.3g} times as much"


def _precisions(
    layout: Layout,
    mechanism: Mechanism,
    space: Categories,
    expected: Expected | None,
    channel: Channel | None,
) -> tuple[ExpectedVariance, ...]:
    """What to expect of the metrics of a question."""
    compared = layout.compared()
    probs = _expected_probs(expected, compared, space.n_categories)
    noise = assumed = None
    if channel is not None:
        # From the published channel: to design one again takes long.
        used: Any = replace(channel, groups=channel.groups[layout.complete])
        noise = channel_unit_noise(used, compared, probs)
        prior = mechanism.settled_rows(space).public_prior(space)
        assumed = channel_unit_noise(used, compared, prior[np.newaxis, np.newaxis])
        assumed = assumed.mean(axis=-1)
    return expected_variances(mechanism, compared, space, probs, noise, assumed=assumed)


def _expected_probs(expected: Expected | None, layout: Layout, n_categories: int) -> FloatArray:
    """What outcomes were expected to be like; axes `[cluster, 1, category]`."""
    kinds = np.full((1, n_categories), 1 / n_categories)
    if expected is not None:
        kinds = np.array(expected)
    return kinds[np.arange(len(layout.clusters)) % len(kinds), np.newaxis]


def _assumed(manifest: Manifest, spaces: Sequence[Categories], layout: Layout) -> str:
    """What was assumed of outcomes, in a line."""
    said: list[str] = []
    unknown: list[str] = []
    for space, expected in zip(spaces, manifest.expected, strict=True):
        if expected is None:
            unknown += space.declared.names
            continue
        weights = layout.sizes.sum(axis=1) / layout.n_units
        by_cluster = _expected_probs(expected, layout, space.n_categories)[:, 0]
        moments = metric_moments(space, weights @ by_cluster)
        named = zip(space.declared.metrics, moments, strict=True)
        said += [f"{metric} with mean {mean:.4g}" for metric, (mean, _) in named]
    as_what = "the look showed them" if manifest.terms.has_look else "the owner declared them"
    assumed = f"if outcomes are as {as_what}: {', '.join(said)}" if said else _UNIFORM
    if said and unknown:
        assumed += f"; all outcomes of {', '.join(unknown)} equally likely"
    by = manifest.columns.assigned_by
    if layout.assigned is not None:
        share = f"{100 * layout.assigned.correlation:.3g}%"
        assumed += (
            f"; arms were assigned by {by}, and {share} of the variance is between its groups"
        )
    return assumed
