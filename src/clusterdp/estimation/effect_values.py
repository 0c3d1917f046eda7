"""Arrays of effects as values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.estimation.results import FEW_UNITS, Effect

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.estimation.moments import EffectArrays
    from clusterdp.estimation.target import Target


def to_effect(
    arrays: EffectArrays, of: Target, arm_sizes: IntArray, *, position: int = 0, family: int = 1
) -> Effect:
    """One effect as a value, with the degrees of freedom that its interval needs.

    Args:
        arrays: Without axes of replicates.
        of: What the effect is of.
        arm_sizes: Units of control and of the treatment.
        position: Which effect of the arrays.
        family: How many effects are reported together.
    """
    variance = float(arrays.variances[position])
    # An estimated part can fall outside the whole by chance; it is shown within it.
    privacy = min(max(float(arrays.privacy_variances[position]), 0.0), variance)
    control_mean = control_error = None
    if arrays.control_means is not None and arrays.control_variances is not None:
        control_mean = float(arrays.control_means)
        control_error = math.sqrt(float(arrays.control_variances))
    degrees = math.inf if arrays.degrees is None else float(arrays.degrees[position])
    n_control, n_treated = (int(size) for size in arm_sizes)
    few = min(n_control, n_treated, degrees) < FEW_UNITS
    return Effect(
        of=of,
        effect=float(arrays.effects[position]),
        std_error=math.sqrt(variance),
        sampling_variance=variance - privacy,
        privacy_variance=privacy,
        n_treated=n_treated,
        n_control=n_control,
        family_size=family,
        control_mean=control_mean,
        control_std_error=control_error,
        degrees=degrees if few else math.inf,
    )
