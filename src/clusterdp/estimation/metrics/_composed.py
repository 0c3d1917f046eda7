"""Effects on what is composed of several metrics: ratios, quantiles, distributions.

Each arm's means of all these metrics, in a segment, become one number with limits. The effect is
the difference of two arms' numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from clusterdp.estimation.effects.effect import Target
from clusterdp.estimation.effects.findings import Note, Weight
from clusterdp.estimation.effects.intervals import ArmPair, ArmValue
from clusterdp.estimation.report.results import FEW_UNITS, Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.effects.intervals import EffectInterval
    from clusterdp.estimation.means.weights import CellWeights
    from clusterdp.estimation.metrics.mean import MetricRows, PairMeans, Part
    from clusterdp.estimation.reading.cuts import Segment


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


class Compared(NamedTuple):
    """A treatment beside control in a segment; None for both where one shows no spread."""

    of: Target
    control: ArmEstimates | None
    treated: ArmEstimates | None
    n_control: int
    n_treated: int


def compared_arms(rows: Sequence[MetricRows], name: str) -> Iterator[Compared]:
    """Each treatment beside control, overall and in every segment.

    Args:
        rows: The rows as each metric reads them, calibrated alike.
        name: What is composed of the metrics.
    """
    return (one.compared(one.means()) for one in paired_arms(rows, name))


class PairedArms(NamedTuple):
    """The rows of control and a treatment in a segment, as each metric reads them.

    Attributes:
        of: What effects are of.
        pair: The places of both arms.
        parts: The rows of the segment, by metric.
        weights: Of the cells of both arms, the same for every metric.
    """

    of: Target
    pair: list[int]
    parts: list[Part]
    weights: CellWeights

    def means(self) -> list[PairMeans]:
        """The means of both arms, by metric; none where an arm is empty or shows no spread."""
        if not all(part.are_known(self.pair, self.weights) for part in self.parts):
            return []
        found = [part.pair_means(self.pair, self.weights) for part in self.parts]
        known = all(np.isfinite(one.means.sampling + one.means.privacy).all() for one in found)
        return found if known else []

    def compared(self, found: list[PairMeans]) -> Compared:
        """Both arms, from their means."""
        n_control, n_treated = map(int, self.parts[0].arm_sizes(self.weights))
        if not found:
            return Compared(self.of, None, None, n_control, n_treated)
        origins = np.array([part.whole.outputs.middle for part in self.parts])
        every = [one.means for one in found]
        # Of a share that is near 0 or 1 few events are known; others may be known well.
        known = [
            one.means.degrees if one.scores is None else one.means.effective_degrees
            for one in found
        ]

        def estimates(place: int, n_units: int) -> ArmEstimates:
            degrees = min(float(one[place]) for one in known)
            return ArmEstimates(
                means=origins + np.array([one.means[place] for one in every]),
                sampling=np.array([one.sampling[place] for one in every]),
                privacy=np.array([one.privacy[place] for one in every]),
                degrees=degrees if min(degrees, n_units) < FEW_UNITS else math.inf,
                n_units=n_units,
            )

        control, treated = estimates(0, n_control), estimates(1, n_treated)
        return Compared(self.of, control, treated, n_control, n_treated)


def paired_arms(rows: Sequence[MetricRows], name: str) -> Iterator[PairedArms]:
    """The rows of each treatment beside control; arguments as of `compared_arms`."""
    layout = rows[0].wanted.layout
    for counted in zip(*(one.rows.parts for one in rows), strict=True):
        parts = [one.part(*each) for one, each in zip(rows, counted, strict=True)]
        for arm in layout.treatments:
            pair, segment = [layout.control, arm], parts[0].segment
            of = Target(name, layout.arms[arm], layout.arms[layout.control], segment)
            yield PairedArms(of, pair, parts, parts[0].weigh(parts[0].moments.sizes, pair))


def composed_effect(
    one: Compared,
    compose: Callable[[ArmEstimates], Composed],
    compare: Callable[[Composed, Composed], EffectInterval] = ArmPair,
) -> Effect:
    """The difference of what two arms' means are composed to.

    Args:
        one: The arms.
        compose: From an arm's means to a number with limits.
        compare: From the numbers of treatment and control to the interval of their difference.
    """
    if one.control is None or one.treated is None:
        return no_effect(one)
    treated, control = compose(one.treated), compose(one.control)
    sampling = treated.sampling_variance + control.sampling_variance
    privacy = treated.privacy_variance + control.privacy_variance
    of_treated, of_control = (
        arm.sampling_variance + arm.privacy_variance for arm in (treated, control)
    )
    return Effect(
        of=one.of,
        effect=treated.value - control.value,
        std_error=math.sqrt(sampling + privacy),
        sampling_variance=sampling,
        privacy_variance=privacy,
        n_treated=one.n_treated,
        n_control=one.n_control,
        treated_mean=treated.value,
        treated_std_error=math.sqrt(of_treated),
        control_mean=control.value,
        control_std_error=math.sqrt(of_control),
        degrees=min(one.control.degrees, one.treated.degrees),
        interval=compare(treated, control),
    )


def no_effect(one: Compared) -> Effect:
    """Of arms that show none."""
    return Effect(
        of=one.of,
        effect=math.nan,
        std_error=math.nan,
        sampling_variance=math.nan,
        privacy_variance=math.nan,
        n_treated=one.n_treated,
        n_control=one.n_control,
    )


def unbounded_notes(name: str, segments: Sequence[Segment]) -> list[Note]:
    """What to say of effects whose intervals have no bounds."""
    from clusterdp.estimation.report.tables import segment_label

    text = f"{name} has no bounds, as its denominator cannot be told from zero"
    return [Note(text, Weight.SCOPE, segment_label(segment)) for segment in segments]
