"""The standard error that is expected of an effect, and what of it privacy costs."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

# Two-sided 5% test, 80% power.
_DETECTABLE = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)


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
