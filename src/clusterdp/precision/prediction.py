"""The standard error that is expected of an effect, and what of it privacy costs."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

# What is shown in place of a detectable effect that is larger than any effect can be.
UNSEEN = "cannot be seen"
# Two-sided 5% test, 80% power.
_DETECTABLE = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)


class Prediction(NamedTuple):
    """What the standard error of an effect should be, and what of it privacy costs.

    Of several treatments, the least certain one.

    Attributes:
        std_error: The standard error.
        sampling_std_error: The same from true outcomes.
        privacy_std_error: What privacy adds, in squares.
        largest_effect: The largest effect that is possible: the range of the metric.
    """

    std_error: float
    sampling_std_error: float
    privacy_std_error: float
    largest_effect: float = math.inf

    @classmethod
    def of(
        cls, sampling: FloatArray, privacy: FloatArray, largest_effect: float = math.inf
    ) -> Prediction:
        """From variances of every treatment; axes `[treatment]`."""
        total = sampling + privacy
        worst = int(np.argmax(total))
        return cls(
            math.sqrt(total[worst]),
            math.sqrt(sampling[worst]),
            math.sqrt(privacy[worst]),
            largest_effect,
        )

    @property
    def detectable_effect(self) -> float:
        """The smallest effect that a two-sided 5% test finds with 80% probability."""
        return _DETECTABLE * self.std_error

    @property
    def detectable_without_privacy(self) -> float:
        """The same from true outcomes."""
        return _DETECTABLE * self.sampling_std_error

    @property
    def is_visible(self) -> bool:
        """Whether some possible effect can be detected."""
        return self.detectable_effect <= self.largest_effect

    @property
    def is_visible_without_privacy(self) -> bool:
        """The same from true outcomes."""
        return self.detectable_without_privacy <= self.largest_effect
