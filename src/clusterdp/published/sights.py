"""What can be seen in a release, from what is published of it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.precision.expected import channel_unit_noise, expected_precision
from clusterdp.precision.sights import sight_rows, sights

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.layout import Layout
    from clusterdp.precision.sights import Sight
    from clusterdp.published.manifest import Manifest

# What is assumed where no outcome was declared to be likelier than another.
_UNIFORM = "if all outcomes were equally likely, because nothing was declared"


class Visible(NamedTuple):
    """What to expect of effects.

    Attributes:
        metrics: The names of the metrics.
        sights: Everyone, groups and segments.
        assumed: What was assumed of outcomes.
    """

    metrics: tuple[str, ...]
    sights: list[Sight]
    assumed: str

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """A table for each metric: a header, then a row for each sight."""
        return {name: sight_rows(self.sights, place) for place, name in enumerate(self.metrics)}

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """The same as plain values, by sight and metric."""
        return {
            one.name: {
                metric: {**found._asdict(), "detectable_effect": found.detectable_effect}
                for metric, found in zip(self.metrics, one.predictions, strict=True)
            }
            for one in self.sights
        }


def what_is_visible(manifest: Manifest, layout: Layout, channel: Channel | None) -> Visible:
    """What to expect of effects, if outcomes are as the owner expected.

    Args:
        manifest: Of the release.
        layout: Its cells.
        channel: That of its rows; None if there are none.
    """
    space, compared = manifest.outcomes.categories(), layout.compared()
    probs = _expected_probs(manifest, compared, space.n_categories)
    noise = assumed = None
    if channel is not None:
        # From the published channel: to design one again takes long.
        used: Any = replace(channel, groups=channel.groups[layout.complete])
        noise = channel_unit_noise(used, compared, space, probs)
        prior = manifest.mechanism.settled_rows(space).public_prior(space)
        assumed = channel_unit_noise(used, compared, space, prior[np.newaxis, np.newaxis])
        assumed = assumed.mean(axis=-1)
    precisions = expected_precision(
        manifest.mechanism, compared, space, probs, noise, assumed=assumed
    )
    return Visible(
        metrics=tuple(map(str, space.declared.metrics)),
        sights=sights(precisions, compared),
        assumed=_assumed(manifest, space),
    )


def _expected_probs(manifest: Manifest, layout: Layout, n_categories: int) -> FloatArray:
    """What outcomes were expected to be like; axes `[cluster, 1, category]`."""
    kinds = np.full((1, n_categories), 1 / n_categories)
    if manifest.expected is not None:
        kinds = np.array(manifest.expected)
    return kinds[np.arange(len(layout.clusters)) % len(kinds), np.newaxis]


def _assumed(manifest: Manifest, space: Categories) -> str:
    """What was assumed of outcomes, in a line."""
    assumed = _UNIFORM
    if manifest.expected is not None:
        # Kinds of clusters are made so that they average to what was declared.
        probs, values = np.array(manifest.expected).mean(axis=0), space.metric_values()
        means = values @ probs
        for place, one in space.of_observed().items():
            means[place], _ = one.moments(values, place, probs)
        named = zip(space.declared.metrics, means, strict=True)
        listed = ", ".join(f"{metric} with mean {mean:.4g}" for metric, mean in named)
        as_what = "the owner expected" if manifest.before_look is None else "the look showed them"
        assumed = f"if outcomes are as {as_what}: {listed}"
    by = manifest.columns.assigned_by
    if by is not None:
        assumed += f"; arms were assigned by {by}, so the more its groups differ, the larger"
    return assumed
