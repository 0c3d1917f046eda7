"""Effects on what is composed of several metrics: ratios, quantiles, distributions.

Each arm's means of all these metrics, in a segment, become one number with limits. The effect is
the difference of two arms' numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.estimation.effects.effect import FEW_UNITS, Effect
from clusterdp.estimation.effects.intervals import ArmPair, ArmValue, EffectInterval
from clusterdp.estimation.metrics.base import ArmPairMeans, MetricData, SegmentData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Composed = TypeVar("Composed", bound=ArmValue)


class ArmEstimates(NamedTuple):
    """An arm's means of several metrics; axes `[metric]`.

    Attributes:
        means: The means.
        sampling: Their estimated variances of sampling; they can be negative by chance.
        privacy: Their estimated variances of privacy.
        degrees: Degrees of freedom of the variances; infinite where there are many units.
        n_units: How many units the arm has.
    """

    means: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    degrees: float
    n_units: int

    def first(self, n_metrics: int) -> ArmEstimates:
        """Those of the first metrics."""
        return self._replace(
            means=self.means[:n_metrics],
            sampling=self.sampling[:n_metrics],
            privacy=self.privacy[:n_metrics],
        )

    def minus(self, other: ArmEstimates) -> ArmEstimates:
        """Differences to the means of another arm, which are independent."""
        return ArmEstimates(
            means=self.means - other.means,
            sampling=other.sampling + self.sampling,
            privacy=other.privacy + self.privacy,
            degrees=min(other.degrees, self.degrees),
            n_units=other.n_units + self.n_units,
        )

    @property
    def variances(self) -> FloatArray:
        """Of sampling and privacy together."""
        return np.asarray(np.maximum(self.sampling, 0.0) + self.privacy)


class ArmComparison:
    """A treatment beside control in a segment, as several metrics read the rows of both.

    Attributes:
        of: What effects are of.
        pair: The indices of both arms.
        parts: The rows of the segment, by metric.
        weights: Of the cells of both arms, the same for every metric.
        means: The means of both arms, by metric; none where an arm is empty or shows no spread.
        n_control: Units of control.
        n_treated: Units of the treatment.
        control: The means of control; None without any.
        treated: Those of the treatment.

    Args:
        name: What is composed of the metrics.
        parts: The rows of the segment, by metric.
        arm: The index of the treatment.
    """

    def __init__(self, name: str, parts: list[SegmentData], arm: int) -> None:
        first = parts[0]
        self.parts, self.of = parts, first.target(name, arm)
        self.pair = pair = [first.whole.request.layout.control, arm]
        self.weights = weights = first.weigh(pair)
        self.n_control, self.n_treated = map(int, first.arm_sizes(weights))
        self.means: list[ArmPairMeans] = []
        self.control: ArmEstimates | None = None
        self.treated: ArmEstimates | None = None
        if all(part.are_known(pair, weights) for part in parts):
            means = [part.pair_means(pair, weights) for part in parts]
            if all(np.isfinite(one.means.sampling + one.means.privacy).all() for one in means):
                self.means = means
                self.control, self.treated = (self._estimates(place) for place in (0, 1))

    def _estimates(self, place: int) -> ArmEstimates:
        """The means of control (0) or of the treatment (1)."""
        origins = np.array([part.whole.decoded.outputs.middle for part in self.parts])
        every, n_units = [one.means for one in self.means], (self.n_control, self.n_treated)[place]
        # Of a share that is near 0 or 1 few events are known; others may be known well.
        degrees = min(
            float((one.means.degrees if one.scores is None else one.means.effective_degrees)[place])
            for one in self.means
        )
        return ArmEstimates(
            means=origins + np.array([one.means[place] for one in every]),
            sampling=np.array([one.sampling[place] for one in every]),
            privacy=np.array([one.privacy[place] for one in every]),
            degrees=degrees if min(degrees, n_units) < FEW_UNITS else math.inf,
            n_units=n_units,
        )

    def effect(self, value: float, sampling: float, privacy: float, **others: Any) -> Effect:
        """An effect of the treatment, from its number and the parts of its variance."""
        return Effect(
            of=self.of,
            effect=value,
            std_error=math.sqrt(sampling + privacy),
            sampling_variance=sampling,
            privacy_variance=privacy,
            n_treated=self.n_treated,
            n_control=self.n_control,
            **others,
        )

    def no_effect(self) -> Effect:
        """Of arms that show none."""
        return self.effect(math.nan, math.nan, math.nan)

    def composed_effect(
        self,
        compose: Callable[[ArmEstimates], Composed],
        compare: Callable[[Composed, Composed], EffectInterval] = ArmPair,
    ) -> Effect:
        """The difference of what two arms' means are composed to.

        Args:
            compose: From an arm's means to a number with limits.
            compare: From the numbers of treatment and control to the interval of their difference.
        """
        if self.control is None or self.treated is None:
            return self.no_effect()
        treated, control = compose(self.treated), compose(self.control)
        return self.effect(
            treated.value - control.value,
            treated.sampling_variance + control.sampling_variance,
            treated.privacy_variance + control.privacy_variance,
            treated_mean=treated.value,
            treated_std_error=math.sqrt(treated.sampling_variance + treated.privacy_variance),
            control_mean=control.value,
            control_std_error=math.sqrt(control.sampling_variance + control.privacy_variance),
            degrees=min(self.control.degrees, self.treated.degrees),
            interval=compare(treated, control),
        )


def compared_arms(data: Sequence[MetricData], name: str) -> Iterator[ArmComparison]:
    """Each treatment beside control, overall and in every segment.

    Args:
        data: The rows as each metric reads them, calibrated alike.
        name: What is composed of the metrics.
    """
    for counted in zip(*(one.rows.parts for one in data), strict=True):
        parts = [SegmentData(one, *each) for one, each in zip(data, counted, strict=True)]
        for arm in data[0].request.layout.treatments:
            yield ArmComparison(name, parts, arm)
