"""Effects on what is composed of several metrics: ratios, quantiles, distributions.

Each arm's means of all these metrics, in a segment, become one number with limits. The effect is
the difference of two arms' numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.intervals import ArmPair
from clusterdp.estimation.results import FEW_UNITS, Effect
from clusterdp.estimation.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.intervals import ArmValue
    from clusterdp.estimation.metric_effects import MetricRows, Part
    from clusterdp.estimation.segments import Segment


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
    first = rows[0]
    layout = first.wanted.layout
    for segment, counted in [((), first.rows.whole), *first.rows.segments]:
        parts = [one.part(segment, counted) for one in rows]
        for arm in layout.treatments:
            of = Target(name, layout.arms[arm], layout.arms[layout.control], segment)
            yield _compared(parts, [layout.control, arm], of)


def _compared(parts: list[Part], pair: list[int], of: Target) -> Compared:
    weights = parts[0].weigh(parts[0].moments.sizes, pair)
    n_control, n_treated = map(int, weights.sizes.sum(axis=0))
    if not (n_control and n_treated):
        return Compared(of, None, None, n_control, n_treated)
    found = [part.pair_means(pair, weights).means for part in parts]
    if not all(np.isfinite(one.sampling + one.privacy).all() for one in found):
        return Compared(of, None, None, n_control, n_treated)
    origins = np.array([part.whole.outputs.middle for part in parts])

    def estimates(place: int, n_units: int) -> ArmEstimates:
        degrees = min(float(one.degrees[place]) for one in found)
        return ArmEstimates(
            means=origins + np.array([one.means[place] for one in found]),
            sampling=np.array([one.sampling[place] for one in found]),
            privacy=np.array([one.privacy[place] for one in found]),
            degrees=degrees if min(degrees, n_units) < FEW_UNITS else math.inf,
            n_units=n_units,
        )

    return Compared(of, estimates(0, n_control), estimates(1, n_treated), n_control, n_treated)


def composed_effect(
    one: Compared, compose: Callable[[ArmEstimates], ArmValue], family: int
) -> Effect:
    """The difference of what two arms' means are composed to.

    Args:
        one: The arms.
        compose: From an arm's means to a number with limits.
        family: How many effects of segments are reported together.
    """
    family = family if one.of.segment else 1
    if one.control is None or one.treated is None:
        return Effect(
            of=one.of,
            effect=math.nan,
            std_error=math.nan,
            sampling_variance=math.nan,
            privacy_variance=math.nan,
            n_treated=one.n_treated,
            n_control=one.n_control,
            family_size=family,
        )
    pair = ArmPair(compose(one.treated), compose(one.control))
    sampling = pair.treated.sampling_variance + pair.control.sampling_variance
    privacy = pair.treated.privacy_variance + pair.control.privacy_variance
    of_control = pair.control.sampling_variance + pair.control.privacy_variance
    return Effect(
        of=one.of,
        effect=pair.difference,
        std_error=math.sqrt(sampling + privacy),
        sampling_variance=sampling,
        privacy_variance=privacy,
        n_treated=one.n_treated,
        n_control=one.n_control,
        family_size=family,
        control_mean=pair.control.value,
        control_std_error=math.sqrt(of_control),
        degrees=min(one.control.degrees, one.treated.degrees),
        arms=pair,
    )


def unbounded_note(name: str, segments: Sequence[Segment]) -> list[str]:
    """What to say of effects whose intervals have no bounds."""
    from clusterdp.estimation.formatting import segment_label

    if not segments:
        return []
    labels = ", ".join(dict.fromkeys(map(segment_label, segments)))
    return [f"{name}: no bounds in {labels}, as its denominator cannot be told from zero there"]
