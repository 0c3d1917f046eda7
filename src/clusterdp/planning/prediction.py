"""What standard errors to expect of a mechanism, metric by metric, if the reference is right.

The noise of a unit's row at any ε, interpolated between the few channels that are designed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from clusterdp.channels.base import ASKED_TOTAL, LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.outcomes.reference import QUICK_CATEGORIES
from clusterdp.planning.expected import cell_reference
from clusterdp.precision.prediction import expected_variances
from clusterdp.precision.row_noise import unit_noise
from clusterdp.statistics.counts import NoisyCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.planning.expected import Scenario
    from clusterdp.precision.prediction import ExpectedVariance, Prediction
    from clusterdp.spec.purpose import Purpose


class Sample(NamedTuple):
    """How many clusters and draws of noise the noise of rows is averaged over."""

    n_clusters: int
    n_draws: int


# More would change the third digit.
_ANY_CHANNEL = Sample(400, 8)
# Where every cell has a channel of its own to be designed, fewer must do; those of several metrics
# take longest.
_CHANNEL_PER_CELL, _JOINT_CHANNEL_PER_CELL = Sample(20, 2), Sample(2, 2)


def expect(mechanism: Mechanism, scenario: Scenario) -> tuple[ExpectedVariance, ...]:
    """What to expect of every metric if outcomes are distributed like the reference."""
    noise = asked_noise(mechanism, scenario) if mechanism.releases_rows else None
    return expect_with(mechanism, scenario, noise)


def expect_with(
    mechanism: Mechanism,
    scenario: Scenario,
    noise: FloatArray | None,
    assumed: FloatArray | None = None,
) -> tuple[ExpectedVariance, ...]:
    """The same with the noise of rows at hand, axes `[metric, arm]`; see `expected_variances`."""
    layout, space, reference = scenario
    everywhere = reference.of_clusters(np.arange(len(layout.clusters)))
    return expected_variances(mechanism, layout, space, everywhere, noise, assumed=assumed)


def asked_noise(mechanism: Mechanism, scenario: Scenario) -> FloatArray:
    """The noise variance of the row of a unit that is asked, averaged over an arm; `[metric, arm]`.

    Clusters count as they do in the mean of an arm.
    """
    layout, space, reference = scenario
    size = _sample_for(mechanism, scenario)
    chosen = layout.clusters_by_size(size.n_clusters)
    sample = asked_layout(mechanism, layout.of_clusters(chosen))
    probs = reference.of_clusters(chosen)
    counts = cast("IntArray", sample.sizes[..., np.newaxis] * probs)  # expected; need not be whole
    rng = np.random.default_rng(0)  # the same noise for every candidate; no data is involved
    made = without_sums(mechanism, space)
    n_draws = size.n_draws if made.statistics else 1
    draws = [unit_noise(counts, sample, space, made, rng) for _ in range(n_draws)]
    return sample.arm_averages(np.mean(draws, axis=0))


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


def of_share(precision: ExpectedVariance, segment_share: float) -> Prediction:
    """Of a segment; of everyone where the segment is everyone, or there are none."""
    segment = precision.segment(segment_share) if segment_share < 1 else None
    return precision.overall if segment is None else segment


def of_purpose(
    precision: ExpectedVariance, purpose: Purpose, layout: Layout
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
    precisions: Sequence[ExpectedVariance], purpose: Purpose, scenario: Scenario
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


def asked_layout(mechanism: Mechanism, layout: Layout) -> Layout:
    """The cells of those who are asked, as large as is expected; counts are of these."""
    if mechanism.asked == ASKED_TOTAL:
        return layout
    sizes = np.maximum(np.rint(mechanism.asked_share * layout.sizes), 1).astype(np.int64)
    return dataclasses.replace(layout, sizes=sizes, breakdowns=())


def _sample_for(mechanism: Mechanism, scenario: Scenario) -> Sample:
    counts, space = mechanism.find(NoisyCounts), scenario.space
    if counts is None or not mechanism.designs_rows:
        return _ANY_CHANNEL
    sample = _JOINT_CHANNEL_PER_CELL if is_joint(space) else _CHANNEL_PER_CELL
    if counts.scope == "population":  # all are counted together, and arms share a channel
        return sample._replace(n_clusters=len(scenario.layout.clusters))
    return sample


# Channels are made at powers of these: those that are designed, those whose design takes a second
# or more, and others. The variance of a unit is then known to 1.5%, and to 6%. Below this ε the
# noise of designed ones goes with Warner's.
_STEP_DESIGNED, _STEP_SLOW, _STEP, _AS_WARNER = math.sqrt(2), 2.0, 1.15, 0.25
_CLUSTERS, _CLUSTERS_PER_CELL, _JOINT_CLUSTERS_PER_CELL, _DRAWS = 64, 6, 1, 4
# Where a channel is known so near in ε, measured in steps, it is enough.
_NEAR = 0.02


class RowNoise:
    """The average noise variance of a unit that is asked in every metric, for any ε of the rows.

    What is interpolated, linearly in log ε, is the logarithm of its ratio to Warner's
    e^ε/(e^ε − 1)². The ratio changes slowly: both fall with ε² at first and then with e^ε.
    """

    def __init__(self, like: Mechanism, scenario: Scenario) -> None:
        layout, space, reference = scenario
        counted = like.find(NoisyCounts) is not None
        per_cell = like.designs_rows and counted
        self._like, self._rows, self._space = like, like.settled_rows(space), space
        chosen = layout.clusters_by_size(_n_clusters(like, scenario))
        self._layout = asked_layout(like, layout.of_clusters(chosen))
        probs = reference.of_clusters(chosen)
        self._counts = cast("IntArray", self._layout.sizes[..., np.newaxis] * probs)
        self._n_draws = _DRAWS if counted and not per_cell else 1
        designed = _STEP_SLOW if space.n_categories > QUICK_CATEGORIES else _STEP_DESIGNED
        self._step = math.log(designed if like.designs_rows else _STEP)
        least = _AS_WARNER if like.designs_rows else SMALLEST_ROW_EPSILON
        self._least = math.ceil(math.log(least) / self._step)
        self._known: dict[int, FloatArray] = {}

    def __call__(self, epsilon: float) -> FloatArray:
        """The noise variance at an ε; axes `[metric]`."""
        place = max(math.log(epsilon) / self._step, self._least)
        most = math.floor(math.log(LARGEST_ROW_EPSILON) / self._step)
        below = min(math.floor(place + _NEAR), most - 1)
        part = place - below
        logs = self._log_ratio(below)
        if abs(part) > _NEAR:
            logs = (1 - part) * logs + part * self._log_ratio(below + 1)
        return np.asarray(warner(epsilon) * np.exp(logs))

    def _log_ratio(self, power: int) -> FloatArray:
        """The logarithm of the ratio where a channel is designed; axes `[metric]`."""
        if power not in self._known:
            epsilon = math.exp(power * self._step)
            weights = self._layout.mean_weights
            noise = (self._unit_noise(epsilon) * weights).sum(axis=(1, 2)) / weights.sum()
            self._known[power] = np.log(noise / warner(epsilon))
        return self._known[power]

    def _unit_noise(self, epsilon: float) -> FloatArray:
        """The noise variance of a unit in every cell; axes `[metric, cluster, arm]`."""
        rows = self._rows.at_epsilon(epsilon, self._space)
        made = replace(self._like, rows=rows)
        rng = np.random.default_rng(0)  # the same noise for every candidate; no data
        draws = [
            unit_noise(self._counts, self._layout, self._space, made, rng)
            for _ in range(self._n_draws)
        ]
        return np.asarray(np.mean(draws, axis=0))


def public_scenario(mechanism: Mechanism, scenario: Scenario) -> Scenario:
    """The same where outcomes are as the public prior of a mechanism's rows."""
    prior = mechanism.settled_rows(scenario.space).public_prior(scenario.space)
    return scenario._replace(reference=cell_reference(prior[np.newaxis, np.newaxis]))


def warner(epsilon: float | FloatArray) -> FloatArray:
    """The noise variance of Warner's randomized response to 0 or 1: e^ε/(e^ε − 1)²."""
    return np.asarray(np.exp(epsilon) / np.expm1(epsilon) ** 2)


def _n_clusters(like: Mechanism, scenario: Scenario) -> int:
    counts = like.find(NoisyCounts)
    if counts is None or not like.designs_rows:
        return _CLUSTERS
    if counts.scope == "population":
        return len(scenario.layout.clusters)  # all that are counted together; arms share a channel
    return _JOINT_CLUSTERS_PER_CELL if is_joint(scenario.space) else _CLUSTERS_PER_CELL
