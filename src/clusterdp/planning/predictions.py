"""What standard errors to expect of a mechanism, metric by metric, if the reference is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from clusterdp.precision.expected import expected_precision, mean_weights
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario
    from clusterdp.planning.purpose import Purpose
    from clusterdp.precision.expected import Precision
    from clusterdp.precision.prediction import Prediction


class Sample(NamedTuple):
    """How many clusters and draws of noise the noise of rows is averaged over."""

    n_clusters: int
    n_draws: int


# A channel for several metrics and more categories takes many seconds to design.
_MANY_CATEGORIES = 24
# More would change the third digit.
_ANY_CHANNEL = Sample(400, 8)
# Where every cell has a channel of its own to be designed, fewer must do; those of several metrics
# take longest.
_CHANNEL_PER_CELL, _JOINT_CHANNEL_PER_CELL = Sample(20, 2), Sample(2, 2)


def expect(mechanism: Mechanism, scenario: Scenario) -> tuple[Precision, ...]:
    """What to expect of every metric if outcomes are distributed like the reference."""
    noise = unit_noise(mechanism, scenario) if mechanism.releases_rows else None
    return expect_with(mechanism, scenario, noise)


def expect_with(
    mechanism: Mechanism, scenario: Scenario, noise: FloatArray | None
) -> tuple[Precision, ...]:
    """The same with the noise of rows at hand; axes `[metric, arm]`, None without rows."""
    layout, space, reference = scenario
    everywhere = reference.of_clusters(np.arange(len(layout.clusters)))
    return expected_precision(mechanism, layout, space, everywhere, noise)


def unit_noise(mechanism: Mechanism, scenario: Scenario) -> FloatArray:
    """The noise variance of a unit's row, averaged over an arm; axes `[metric, arm]`.

    Clusters count as they do in the mean of an arm.
    """
    layout, space, reference = scenario
    size = _sample_for(mechanism, scenario)
    chosen = layout.clusters_by_size(size.n_clusters)
    sample, probs = layout.of_clusters(chosen), reference.of_clusters(chosen)
    counts = cast("IntArray", sample.sizes[..., np.newaxis] * probs)  # expected; need not be whole
    rng = np.random.default_rng(0)  # the same noise for every candidate; no data is involved
    made = without_sums(mechanism, space)
    n_draws = size.n_draws if made.statistics else 1
    draws = [theory.unit_noise(counts, sample, space, made, rng) for _ in range(n_draws)]
    weights = mean_weights(sample)
    return np.asarray((np.mean(draws, axis=0) * weights).sum(axis=1) / weights.sum(axis=0))


def without_sums(mechanism: Mechanism, space: CategorySpace) -> Mechanism:
    """The same rows, with the counts that they are made of and no other statistic."""
    counts = mechanism.find(NoisyCounts)
    return replace(
        mechanism,
        statistics=() if counts is None else (counts,),
        rows=mechanism.settled_rows(space),
    )


def predict(
    mechanism: Mechanism, scenario: Scenario, segment_share: float = 1.0, metric: int = 0
) -> Prediction:
    """The standard error to expect of one metric; of everyone, or of a segment.

    Args:
        mechanism: The mechanism.
        scenario: What is known.
        segment_share: The share of every cell that the effect is of.
        metric: Which metric.
    """
    return predict_metrics(mechanism, scenario, segment_share)[metric]


def predict_metrics(
    mechanism: Mechanism, scenario: Scenario, segment_share: float = 1.0
) -> tuple[Prediction, ...]:
    """The prediction of every metric."""
    return tuple(of_share(one, segment_share) for one in expect(mechanism, scenario))


def of_share(precision: Precision, segment_share: float) -> Prediction:
    """Of a segment; of everyone where the segment is everyone, or there are none."""
    segment = precision.segment(segment_share) if segment_share < 1 else None
    return precision.overall if segment is None else segment


def of_purpose(
    precision: Precision, purpose: Purpose, layout: Layout
) -> tuple[tuple[float, Prediction], ...]:
    """The effects that a purpose is about, each with its weight; of everyone without rows.

    Groups of a breakdown count by their share of the units. Groups that lack an arm are left out.
    """
    if purpose.kind != "breakdowns" or precision.by_rows is None:
        return ((1.0, of_share(precision, purpose.share)),)
    sizes = layout.breakdowns[purpose.place].sizes
    first = 1 + sum(len(one.sizes) for one in layout.breakdowns[: purpose.place])
    present = np.flatnonzero((sizes > 0).all(axis=1)).tolist()
    shares = sizes[present].sum(axis=1) / sizes[present].sum()
    return tuple(
        (float(share), precision.of_target(first + group))
        for share, group in zip(shares, present, strict=True)
    )


def purpose_variance(
    precisions: Sequence[Precision], purpose: Purpose, scenario: Scenario
) -> float:
    """Σ_j w_j·Var_j over the metrics, by which a purpose is judged."""
    variances = [
        sum(share * one.std_error**2 for share, one in of_purpose(metric, purpose, scenario.layout))
        for metric in precisions
    ]
    return float(objective_weights(scenario) @ variances)


def objective_weights(scenario: Scenario) -> FloatArray:
    """How much the variance of each metric counts in what is minimised; axes `[metric]`."""
    layout, space, reference = scenario
    return space.metric_weights(reference.overall(layout) if reference.is_declared else None)


def is_joint(space: CategorySpace) -> bool:
    """Whether a space has several metrics, so that one channel serves them all."""
    return len(space.metric_values()) > 1


def takes_long(space: CategorySpace) -> bool:
    """Whether a channel for a space takes many seconds to design."""
    return is_joint(space) and space.n_categories > _MANY_CATEGORIES


def _sample_for(mechanism: Mechanism, scenario: Scenario) -> Sample:
    counts, space = mechanism.find(NoisyCounts), scenario.space
    if counts is None or not mechanism.designs_rows:
        return _ANY_CHANNEL
    sample = _JOINT_CHANNEL_PER_CELL if is_joint(space) else _CHANNEL_PER_CELL
    if counts.scope == "population":  # all are counted together, and arms share a channel
        return sample._replace(n_clusters=len(scenario.layout.clusters))
    return sample
