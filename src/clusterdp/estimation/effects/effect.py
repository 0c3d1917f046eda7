"""What an effect is of.

Arrays of effects as values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.estimation.report.results import FEW_UNITS, Effect
from clusterdp.estimation.report.tables import segment_label, shortened

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.means.sums import EffectArrays
    from clusterdp.estimation.reading.cuts import Segment


class Target(NamedTuple):
    """What an effect is of: a metric of an arm against control, in a segment.

    Attributes:
        metric: An outcome, or a function of outcomes.
        arm: The treatment arm.
        control: The control arm.
        segment: Columns and values that define the segment; empty for everyone.
        adjusted: Whether covariates were adjusted for.
        against: What the segment's effect is compared with; None if with nothing.
    """

    metric: str
    arm: Any
    control: Any
    segment: Segment = ()
    adjusted: bool = False
    against: str | None = None

    def is_named_by(self, parts: tuple[Any, ...]) -> bool:
        """Whether these name it: each its metric, its arm or its segment, which may be left out."""
        text = {self.metric, str(self.arm), self.label}
        named = all(part == self.arm or str(part) in text for part in parts)
        return named and (self.label == "overall" or self.label in map(str, parts))

    @property
    def label(self) -> str:
        """The segment in words."""
        return self._worded(segment_label(self.segment), self.against)

    def in_short(self, longest: int) -> str:
        """The same in one line, with names of so many letters at most."""
        against = None if self.against is None else shortened(self.against, longest)
        return self._worded(shortened(segment_label(self.segment), longest), against)

    def _worded(self, segment: str, against: str | None) -> str:
        text = segment if against is None else f"{segment} vs {against}"
        return f"{text} (adjusted)" if self.adjusted else text


def to_effect(
    arrays: EffectArrays, of: Target, arm_sizes: IntArray, *, position: int = 0
) -> Effect:
    """One effect as a value, with the degrees of freedom that its interval needs.

    Where units are too few for an interval, no number is reported. Where the variance is infinite,
    as it cannot be estimated, the effect has no standard error.

    Args:
        arrays: Without axes of replicates.
        of: What the effect is of.
        arm_sizes: Units of control and of the treatment.
        position: Which effect of the arrays.
    """
    variance = float(arrays.variances[position])
    # An estimated part can fall outside the whole by chance; it is shown within it.
    privacy = min(max(float(arrays.privacy_variances[position]), 0.0), variance)
    degrees = math.inf if arrays.degrees is None else float(arrays.degrees[position])
    n_control, n_treated = (int(size) for size in arm_sizes)
    few = min(n_control, n_treated, degrees) < FEW_UNITS
    effect = float(arrays.effects[position])
    control = _mean(arrays.control_means, arrays.control_variances, ())
    treated = _mean(arrays.treated_means, arrays.treated_variances, (position,))
    if math.isnan(variance):
        effect, privacy, control, treated = math.nan, math.nan, (None, None), (None, None)
    if math.isinf(variance):
        variance = math.nan  # what privacy adds to it is known
        control, treated = (control[0], None), (treated[0], None)
    return Effect(
        of=of,
        effect=effect,
        std_error=math.sqrt(variance),
        sampling_variance=variance - privacy,
        privacy_variance=privacy,
        n_treated=n_treated,
        n_control=n_control,
        treated_mean=treated[0],
        treated_std_error=treated[1],
        control_mean=control[0],
        control_std_error=control[1],
        degrees=degrees if few else math.inf,
    )


def _mean(
    means: FloatArray | None, variances: FloatArray | None, place: tuple[int, ...]
) -> tuple[float | None, float | None]:
    """An arm's mean and its standard error, if there are any."""
    if means is None or variances is None:
        return None, None
    return float(means[place]), math.sqrt(float(variances[place]))
