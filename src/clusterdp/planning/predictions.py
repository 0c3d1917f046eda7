"""What standard errors to expect of a mechanism, metric by metric."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from clusterdp.statistics.counts import NoisyCounts
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario

# Two-sided 5% test, 80% power.
_DETECTABLE = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)


class Sample(NamedTuple):
    """How many clusters and draws of noise a prediction is made from."""

    n_clusters: int
    n_draws: int


# A channel for several metrics and more categories takes many seconds to design.
_MANY_CATEGORIES = 24
# More would change the third digit.
_ANY_CHANNEL = Sample(400, 8)
# Where every cell has a channel of its own to be designed, fewer must do; those of several metrics
# take longest.
_CHANNEL_PER_CELL, _JOINT_CHANNEL_PER_CELL = Sample(20, 2), Sample(2, 2)


class Prediction(NamedTuple):
    """What the standard error of an effect should be, and what of it privacy costs.

    Of several treatments, the least certain one.
    """

    std_error: float
    sampling_std_error: float
    privacy_std_error: float

    @classmethod
    def of(cls, sampling: FloatArray, privacy: FloatArray) -> Prediction:
        """From variances of every treatment; axes `[treatment]`."""
        total = sampling + privacy
        worst = int(np.argmax(total))
        return cls(math.sqrt(total[worst]), math.sqrt(sampling[worst]), math.sqrt(privacy[worst]))

    @property
    def detectable_effect(self) -> float:
        """The smallest effect that a two-sided 5% test finds with 80% probability."""
        return _DETECTABLE * self.std_error

    @property
    def detectable_without_privacy(self) -> float:
        """The same from true outcomes."""
        return _DETECTABLE * self.sampling_std_error


def predict(
    mechanism: Mechanism, scenario: Scenario, segment_share: float = 1.0, metric: int = 0
) -> Prediction:
    """The standard error to expect if outcomes are distributed like the reference.

    Args:
        mechanism: The mechanism.
        scenario: What is known.
        segment_share: The share of every cell that the effect is of.
        metric: Which metric.
    """
    layout, space, reference = scenario
    size = _sample_for(mechanism, space)
    chosen = layout.clusters_by_size(size.n_clusters)
    sample, probs = layout.of_clusters(chosen), reference.of_clusters(chosen)
    # Weights are n_c/n of the sample, which has fewer clusters than all.
    scale = (sample.n_units / layout.n_units) ** 2 * len(layout.clusters) / len(chosen)
    # Expected counts; they need not be whole.
    counts = cast("IntArray", sample.sizes[..., np.newaxis] * probs)
    # The seed is fixed so that candidates are compared under the same noise; no data is involved.
    excess = theory.excess_variance(
        counts,
        sample,
        space,
        mechanism,
        rng=np.random.default_rng(0),
        n_draws=size.n_draws,
        use="everything",
        segment_share=segment_share,
        metric=metric,
    ).value
    return Prediction.of(sampling_variances(scenario)[metric] / segment_share, scale * excess)


def predict_metrics(
    mechanism: Mechanism, scenario: Scenario, segment_share: float = 1.0
) -> tuple[Prediction, ...]:
    """The prediction of every metric."""
    metrics = range(len(scenario.space.metric_values()))
    return tuple(predict(mechanism, scenario, segment_share, metric) for metric in metrics)


def sampling_variances(scenario: Scenario) -> FloatArray:
    """The variances of effects from true outcomes; axes `[metric, treatment]`."""
    layout, space, reference = scenario
    everywhere = reference.of_clusters(np.arange(len(layout.clusters)))
    return np.stack(
        [theory.sampling_variance(everywhere, layout, values) for values in space.metric_values()]
    )


def objective_weights(scenario: Scenario) -> FloatArray:
    """How much the variance of each metric counts in what is minimised; axes `[metric]`."""
    layout, space, reference = scenario
    return space.metric_weights(reference.overall(layout) if reference.is_declared else None)


def weighted_variance(predictions: Sequence[Prediction], scenario: Scenario) -> float:
    """Σ_j w_j·Var_j over the metrics: what plans minimise."""
    variances = np.array([prediction.std_error**2 for prediction in predictions])
    return float(objective_weights(scenario) @ variances)


def is_joint(space: CategorySpace) -> bool:
    """Whether a space has several metrics, so that one channel serves them all."""
    return len(space.metric_values()) > 1


def takes_long(space: CategorySpace) -> bool:
    """Whether a channel for a space takes many seconds to design."""
    return is_joint(space) and space.n_categories > _MANY_CATEGORIES


def _sample_for(mechanism: Mechanism, space: CategorySpace) -> Sample:
    if not mechanism.designs_rows or mechanism.find(NoisyCounts) is None:
        return _ANY_CHANNEL
    return _JOINT_CHANNEL_PER_CELL if is_joint(space) else _CHANNEL_PER_CELL
