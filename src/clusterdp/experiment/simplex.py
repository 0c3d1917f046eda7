"""Distributions nearest to noisy frequencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray


def nearest_distribution(frequencies: FloatArray) -> FloatArray:
    """Euclidean projection onto the simplex, which takes noise away from rare outcomes.

    Args:
        frequencies: Any numbers; axes `[..., outcome]`.
    """
    # A constant changes nothing, and neither does what lies more than 1 below the largest.
    lowered = np.maximum(frequencies - frequencies.max(axis=-1, keepdims=True), -1.0)
    falling = -np.sort(-lowered, axis=-1)
    above = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, frequencies.shape[-1] + 1)
    n_kept = (falling > above).sum(axis=-1, keepdims=True)
    taken = np.take_along_axis(above, n_kept - 1, axis=-1)
    return np.asarray(np.maximum(lowered - taken, 0.0))
