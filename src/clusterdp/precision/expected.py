"""What to expect of effects, from a mechanism and public numbers: of everyone, groups, segments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.experiment.category_space import Ends
from clusterdp.precision.cells import arm_cells, level_noises
from clusterdp.precision.level_noise import calibrated_variances
from clusterdp.precision.prediction import Prediction
from clusterdp.statistics.contrasts import NoisyContrasts

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.category_space import CategorySpace, OfObserved
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism

# Of more clusters than this, some stand for all where each takes long; it changes the third digit.
_CLUSTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Precision:
    """Variances that are expected of effects on one metric.

    Targets are everyone, then the groups of each breakdown; everyone alone where no rows are
    published.

    Attributes:
        sampling: Of effects from true outcomes; axes `[target, treatment]`.
        privacy: What privacy adds; axes `[target, treatment]`.
        by_rows: What privacy adds for everyone by rows alone, axes `[treatment]`; None if no rows
            are published.
        largest_effect: The largest effect that is possible: the range of the metric.
    """

    sampling: FloatArray
    privacy: FloatArray
    by_rows: FloatArray | None
    largest_effect: float = math.inf

    @property
    def overall(self) -> Prediction:
        """Of the overall effect."""
        return self.of_target(0)

    def of_target(self, target: int) -> Prediction:
        """Of everyone (0), or of a group."""
        return Prediction.of(self.sampling[target], self.privacy[target], self.largest_effect)

    def segment(self, share: float) -> Prediction | None:
        """Of a segment with this share of every cell; None if no rows are published.

        Calibration moves a segment as it moves everyone, and only rows tell the two apart.
        """
        if self.by_rows is None:
            return None
        privacy = self.privacy[0] + (1 / share - 1) * self.by_rows
        return Prediction.of(self.sampling[0] / share, privacy, self.largest_effect)


def expected_precision(  # noqa: PLR0913 - the parts of a release, and what is thought of it
    mechanism: Mechanism,
    layout: Layout,
    space: CategorySpace,
    probs: FloatArray,
    unit_noise: FloatArray | None,
    *,
    assumed: FloatArray | None = None,
) -> tuple[Precision, ...]:
    """What to expect of effects on each metric.

    Args:
        mechanism: What is published.
        layout: What is public.
        space: The categories of outcomes.
        probs: What outcomes are thought to be like; axes `[cluster or 1, arm or 1, category]`.
        unit_noise: The noise variance of a unit's row, axes `[metric, arm]`; None without rows.
        assumed: The same as far as it is public, axes `[metric]`; by default that of the
            mechanism's own channel, which then is designed.
    """
    metrics = range(len(space.metric_values()))
    ends = [Ends.of(space, metric) for metric in metrics]
    if unit_noise is None:
        alone = [_by_statistics(mechanism, layout, space, probs, one) for one in metrics]
        return _within(alone, ends)
    cells = arm_cells(layout, mechanism.total_weights(layout))
    assumed = public_unit_noise(mechanism, space) if assumed is None else assumed
    found = []
    for metric in metrics:
        noises = level_noises(mechanism, layout, space, metric)
        privacy = np.stack(
            [
                calibrated_variances(*arm, np.asarray(assumed[metric]))
                for arm in zip(cells, noises, unit_noise[metric], strict=True)
            ],
            axis=-1,
        )
        by_rows = unit_noise[metric] * [arm.by_rows for arm in cells]
        found.append(
            Precision(
                sampling=against_control(
                    sampling_variances(layout, probs, space.metric_values()[metric]), layout
                ),
                privacy=against_control(privacy, layout),
                by_rows=against_control(by_rows, layout),
            )
        )
    for place, one in space.of_observed().items():
        found[place] = _of_those_observed(found, place, one, layout, space, probs)
    return _within(found, ends)


def _within(found: list[Precision], ends: list[Ends]) -> tuple[Precision, ...]:
    """What to expect of metrics, with the largest effects that their ends allow."""
    pairs = zip(found, ends, strict=True)
    return tuple(replace(one, largest_effect=own.span) for one, own in pairs)


def _of_those_observed(  # noqa: PLR0913, PLR0917 - what is expected, and what it is made of
    found: list[Precision],
    place: int,
    one: OfObserved,
    layout: Layout,
    space: CategorySpace,
    probs: FloatArray,
) -> Precision:
    """What to expect of a mean N/D among those observed, by linearisation: (N − θD)/E[D].

    θ and E[D] are those of all clusters together. The noise of privacy on N and D counts as
    independent.
    """
    values = space.metric_values()
    overall = probs.mean(axis=(0, 1))
    share = float(overall @ values[one.observed])
    mean = float(overall @ values[place]) / share
    linear = (values[place] - mean * values[one.observed]) / share
    above, below = found[place], found[one.observed]

    def both(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.asarray((first + mean**2 * second) / share**2)

    by_rows = None
    if above.by_rows is not None and below.by_rows is not None:
        by_rows = both(above.by_rows, below.by_rows)
    return Precision(
        sampling=against_control(sampling_variances(layout, probs, linear), layout),
        privacy=both(above.privacy, below.privacy),
        by_rows=by_rows,
    )


def sampling_variances(layout: Layout, probs: FloatArray, values: FloatArray) -> FloatArray:
    """Variances of means from true outcomes: of arms, then of groups; axes `[target, arm]`.

    Args:
        layout: What is public.
        probs: The distributions of outcomes; axes `[cluster or 1, arm or 1, category]`.
        values: Of the categories.
    """
    means = (probs @ values)[..., np.newaxis]
    spread = (probs * (values - means) ** 2).sum(axis=-1)
    everyone = (mean_weights(layout) * spread).sum(axis=0)
    with np.errstate(divide="ignore"):
        inverse = [one.sizes.sum(axis=0) / one.sizes for one in layout.breakdowns]
    return np.concatenate([everyone[np.newaxis], *(everyone * one for one in inverse)])


def mean_weights(layout: Layout) -> FloatArray:
    """What a unit's variance counts for in the mean of an arm: (n_c/n)²/n_ac; `[cluster, arm]`."""
    shares = layout.sizes.sum(axis=1, keepdims=True) / layout.n_units
    return np.asarray(shares**2 / layout.sizes)


def against_control(per_arm: FloatArray, layout: Layout) -> FloatArray:
    """Variances of effects from those of means; last axis `[arm]`, then `[treatment]`."""
    return np.asarray(per_arm[..., list(layout.treatments)] + per_arm[..., [layout.control]])


def public_unit_noise(mechanism: Mechanism, space: CategorySpace) -> FloatArray:
    """The noise variance of a unit as far as it is public; axes `[metric]`.

    It is of a channel that is made without statistics, and decides how rows are weighed against
    sums.
    """
    rows = mechanism.settled_rows(space)
    channel, prior = rows.public_channel(space), rows.public_prior(space)
    metrics = range(len(space.metric_values()))
    return np.array([channel.noise_variance(metric)[0] @ prior for metric in metrics])


def channel_unit_noise(
    channel: Channel, layout: Layout, space: CategorySpace, probs: FloatArray
) -> FloatArray:
    """The noise variance of a unit's row in a channel; axes `[metric, arm]`.

    Averaged over clusters as they count in the mean of an arm.

    Args:
        channel: The channel of every cell.
        layout: What is public.
        space: The categories of outcomes.
        probs: What outcomes are thought to be like; axes `[cluster or 1, arm or 1, category]`.
    """
    weights = mean_weights(layout)
    per_unit = [
        (probs * channel.noise_variance(metric)[channel.groups]).sum(axis=-1)
        for metric in range(len(space.metric_values()))
    ]
    return np.stack([(weights * one).sum(axis=0) / weights.sum(axis=0) for one in per_unit])


def _by_statistics(
    mechanism: Mechanism, layout: Layout, space: CategorySpace, probs: FloatArray, metric: int
) -> Precision:
    """What to expect of a metric where statistics alone are published."""
    everyone = replace(layout, breakdowns=())
    values = space.metric_values()[metric]
    sampling = sampling_variances(everyone, probs, values)
    if mechanism.find(NoisyContrasts) is not None:
        sampling = _largest_sampling(everyone, Ends.of(space, metric).span)
    chosen = layout.clusters_by_size(_CLUSTERS)
    some = layout.of_clusters(chosen)
    noise = mechanism.statistics[0].contrast_variance(some, space, metric)
    shares = some.sizes.sum(axis=1, keepdims=True) / layout.n_units
    stand_for = len(layout.clusters) / len(chosen)
    return Precision(
        sampling=against_control(sampling, layout),
        privacy=stand_for * (shares**2 * noise).sum(axis=0, keepdims=True),
        by_rows=None,
    )


def _largest_sampling(layout: Layout, span: float) -> FloatArray:
    """The largest possible variances of means, which estimates from contrasts alone print.

    Contrasts do not tell how outcomes spread. In an interval it is at most span²/4 (Popoviciu).
    """
    sizes = layout.sizes.sum(axis=1, keepdims=True)
    largest = span**2 / 4 * sizes / np.maximum(sizes - 1, 1)
    return np.asarray((mean_weights(layout) * largest).sum(axis=0, keepdims=True))
