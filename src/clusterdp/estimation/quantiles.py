"""Quantiles of an outcome in an arm, with intervals that hold every value not rejected.

By Woodruff (1952), no distribution of estimated quantiles is needed: v is the q-quantile if
P(y > v) ≤ 1 − q < P(y ≥ v). It is rejected if the lower limit of the first share is above 1 − q, or
the upper limit of the second below it. Each value is tested by itself, so the true one is rejected
as rarely as limits say. The interval reaches from the least to the largest value that is left. On
numbers, shares are bounded by those at grid points; see `levels.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.composed import compared_arms, composed_effect
from clusterdp.estimation.intervals import quantile
from clusterdp.estimation.levels import ArmLevels
from clusterdp.estimation.metric_effects import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.estimation.intervals import Limits
    from clusterdp.estimation.levels import Levels
    from clusterdp.estimation.metric_effects import MetricRows

# Standard errors are those that a normal interval at this level would be as long with.
_LEVEL = 0.95


class ArmQuantile(NamedTuple):
    """A quantile of an outcome in an arm.

    Attributes:
        arm: Tail shares of the arm.
        share: q.
    """

    arm: ArmLevels
    share: float

    @property
    def value(self) -> float:
        """The estimate: the inverse of the monotone distribution.

        Between grid points that of a number is taken to be linear. The share of R ≤ g_k is the
        mean of P(y ≤ v) over v from g_k to g_{k+1}, so it counts as that half way.
        """
        levels, below = self.arm.levels, 1 - self.arm.tails[1:]
        first = int(np.argmax(below >= self.share))
        if not levels.step:
            return float(levels.values[first])
        places, shares = _half_way(levels.values, below)
        return float(np.round(np.interp(self.share, shares, places) / levels.step) * levels.step)

    @property
    def sampling_variance(self) -> float:
        """The part of the variance that sampling cost."""
        return self._variance() * (1 - self._privacy_share())

    @property
    def privacy_variance(self) -> float:
        """The part of the variance that privacy cost."""
        return self._variance() * self._privacy_share()

    @property
    def bounds(self) -> Limits:
        """The values that would not be rejected if the estimated shares were exact."""
        return self._kept(self.arm.tails, self.arm.tails)

    def limits(self, level: float) -> Limits:
        """From the least to the largest value that is not rejected, `bounds` among them."""
        low, high = self.arm.limits(level)
        (first, last), (least, most) = self.bounds, self._kept(low, high)
        return min(first, least), max(last, most)

    def _kept(self, low: FloatArray, high: FloatArray) -> Limits:
        """The values that limits of tail shares do not reject, and the estimate."""
        levels, rest = self.arm.levels, 1 - self.share
        at_least, above = high[:-1] >= rest, low[1:] <= rest
        kept = [levels.values[at_least & above], np.array([self.value])]
        # Between a level and the next one: only numbers are there, and not at cuts.
        between = at_least[:-1] & above[1:] & ~levels.divided
        kept += [levels.values[:-1][between] + levels.step]
        kept += [levels.values[1:][between] - levels.step]
        every = np.concatenate(kept)
        return float(every.min()), float(every.max())

    def _variance(self) -> float:
        low, high = self.limits(_LEVEL)
        return ((high - low) / 2 / quantile(_LEVEL)) ** 2

    def _privacy_share(self) -> float:
        """That of the variance of the share next to the quantile."""
        estimates = self.arm.arm
        nearest = int(np.abs(estimates.means - (1 - self.share)).argmin())
        total = estimates.variances[nearest]
        return float(estimates.privacy[nearest] / total) if total else 0.0


def quantile_effects(rows: Sequence[MetricRows], levels: Levels, share: float, name: str) -> Found:
    """Effects on a quantile, overall and in every segment.

    Args:
        rows: As each of `levels.functions` reads them.
        levels: The levels of the outcome.
        share: q.
        name: What the quantile is called.
    """

    def compose(arm: ArmEstimates) -> ArmQuantile:
        return ArmQuantile(ArmLevels.of(levels, arm), share)

    effects = [composed_effect(one, compose, rows[0].family) for one in compared_arms(rows, name)]
    return Found(effects, [], [])


def _half_way(values: FloatArray, below: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where the distribution of a number is known, and what it is there."""
    places = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2, values[-1:]])
    return places, np.concatenate([[0.0], below[:-1], [1.0]])
