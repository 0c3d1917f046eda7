"""Arrays of effects as values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.estimation.results import FEW_UNITS, Effect

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.moments import EffectArrays
    from clusterdp.estimation.target import Target


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
