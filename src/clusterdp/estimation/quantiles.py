"""Quantiles of an outcome in an arm, with intervals that hold every value not rejected.

By Woodruff (1952), no distribution of estimated quantiles is needed: v is the q-quantile if
P(y > v) ≤ 1 − q < P(y ≥ v). It is rejected if the lower limit of the first share is above 1 − q, or
the upper limit of the second below it. Each value is tested by itself, so the true one is rejected
as rarely as limits say. The interval reaches from the least to the largest value that is left. On
numbers, shares are bounded by those at grid points; see `levels.py`. Two arms' quantiles are
compared in `quantile_pairs.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.composed import compared_arms, composed_effect
from clusterdp.estimation.intervals import quantile
from clusterdp.estimation.levels import ArmLevels
from clusterdp.estimation.metric_effects import Found
from clusterdp.estimation.quantile_pairs import QuantilePair, Reaches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.estimation.intervals import Limits
    from clusterdp.estimation.levels import Levels
    from clusterdp.estimation.metric_effects import MetricRows

# Standard errors are those that a normal interval at this level would be as long with.
_LEVEL = 0.95
# A value this near to a bound, in steps of the lattice, is on it.
_SAME = 1e-6
# At so many points between two levels of a number differences are found.
_N_BETWEEN = 31


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
        mean of P(y ≤ v) over v from g_k to g_{k+1}, so it counts as that half way. What cannot be
        is moved to the nearest bound.
        """
        levels, below = self.arm.levels, 1 - self.arm.tails[1:]
        first = int(np.argmax(below >= self.share))
        if not levels.step:
            return float(levels.values[first])
        places, shares = _half_way(levels.values, below)
        nearest = np.round(np.interp(self.share, shares, places) / levels.step) * levels.step
        return float(np.clip(nearest, *self.bounds))

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
        kept = self._kept(self.arm.tails, self.arm.tails)
        return float(kept.min()), float(kept.max())

    def limits(self, level: float) -> Limits:
        """From the least to the largest value that is not rejected, `bounds` among them."""
        every = np.concatenate([self._kept(*self.arm.limits(level)), self.bounds])
        return float(every.min()), float(every.max())

    def reaches(self) -> Reaches:
        """The values, and from how many standard errors on limits hold each of them.

        Between two levels of a number there are many values, and 31 of them stand for all.
        """
        levels, estimates, rest = self.arm.levels, self.arm.arm, 1 - self.share
        shares = np.concatenate([[1.0], estimates.means, [0.0]])
        errors = np.concatenate([[0.0], np.sqrt(estimates.variances), [0.0]])
        at_least = _needed(rest - shares[:-1], errors[:-1])
        above = _needed(shares[1:] - rest, errors[1:])
        places = np.flatnonzero(~levels.divided)
        beside = np.maximum(at_least[places], above[places + 1])
        values, needed = _between(levels, shares, errors, rest, places)
        found = np.concatenate([np.maximum(at_least, above), np.maximum(beside, needed).ravel()])
        return Reaches.of(
            np.concatenate([levels.values, values.ravel(), self.bounds]),
            np.concatenate([_as_normal(found, estimates.degrees), [0.0, 0.0]]),
        )

    def _kept(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Values that limits of tail shares do not reject, the least and the largest among them."""
        levels, rest = self.arm.levels, 1 - self.share
        at_least, above = high[:-1] >= rest, low[1:] <= rest
        # Between a level and the next one: only numbers are there, and not at cuts.
        between = at_least[:-1] & above[1:] & ~levels.divided
        gaps = _kept_between(levels, low, high, rest, np.flatnonzero(between))
        return np.concatenate([levels.values[at_least & above], gaps])

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

    arms = compared_arms(rows, name)
    effects = [composed_effect(one, compose, QuantilePair.of) for one in arms]
    return Found(effects=effects)


def _kept_between(
    levels: Levels, low: FloatArray, high: FloatArray, rest: float, places: IntArray
) -> FloatArray:
    """The least and the largest kept value in gaps between two levels of a number.

    Rounding is known, so S_{k+1} is the mean of P(y ≥ v) over the lattice points v after g_k, up to
    g_{k+1}. A share λ of the way from g_k, this is at least λP(y ≥ v) + (1 − λ)S_{k+2}, and at most
    λS_k + (1 − λ)P(y > v). So v is no quantile unless λ·rest + (1 − λ)S_{k+2} ≤ S_{k+1} and
    S_{k+1} ≤ λS_k + (1 − λ)rest. Limits take the place of shares: two estimates together are
    rarely further off than the limits of both allow, however they are correlated.

    Args:
        levels: The levels.
        low: Lower limits of tail shares.
        high: Upper limits of tail shares.
        rest: 1 − q.
        places: The levels before the gaps; shares beside these do not reject them.
    """
    before, after = high[places] - rest, rest - low[places + 2]
    below, above = low[places + 1] - rest, high[places + 1] - low[places + 2]
    # Where a denominator is zero, the condition holds for every share of the way.
    least = np.divide(below, before, out=np.zeros_like(before), where=before > 0)
    most = np.divide(above, after, out=np.ones_like(after), where=after > 0)
    starts = levels.values[places]
    n_steps = np.round((levels.values[places + 1] - starts) / (levels.step or 1.0))
    first = np.maximum(np.ceil(least * n_steps - _SAME), 1)
    last = np.minimum(np.floor(most * n_steps + _SAME), n_steps - 1)
    ends = np.stack([first, last])[:, first <= last]
    return np.asarray(starts[first <= last] + levels.step * ends).ravel()


def _between(
    levels: Levels, shares: FloatArray, errors: FloatArray, rest: float, places: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Values in gaps between two levels of a number, and how many standard errors keep each.

    The conditions of `_kept_between`, where limits are so many standard errors off, and do not
    leave 0 to 1; axes `[value, gap]`.
    """
    n_steps = np.round(np.diff(levels.values)[places] / (levels.step or 1.0))
    steps = np.round(np.outer(np.arange(1, _N_BETWEEN + 1) / (_N_BETWEEN + 1), n_steps))
    steps = np.clip(steps, 1, n_steps - 1)
    way = steps / n_steps
    (before, share, after), (of_before, error, of_after) = (
        (terms[places], terms[places + 1], terms[places + 2]) for terms in (shares, errors)
    )
    needed = np.max(
        [
            _needed(way * rest + (1 - way) * after - share, error + (1 - way) * of_after),
            _needed(way * rest - share, error),
            _needed(share - way * before - (1 - way) * rest, error + way * of_before),
            _needed(share - way - (1 - way) * rest, error),
        ],
        axis=0,
    )
    return levels.values[places] + levels.step * steps, needed


def _needed(excess: FloatArray, errors: FloatArray) -> FloatArray:
    """How many standard errors cover an excess; infinitely many if there is no error."""
    excess = np.maximum(excess, 0.0)
    errors = np.broadcast_to(errors, excess.shape)
    never = np.where(excess > 0, np.inf, 0.0)
    return np.divide(excess, errors, out=never, where=errors > 0)


def _as_normal(reaches: FloatArray, degrees: float) -> FloatArray:
    """Standard errors of Student's t as those of a normal number that are exceeded as rarely."""
    from scipy.special import ndtri, stdtr

    return reaches if math.isinf(degrees) else np.asarray(-ndtri(stdtr(degrees, -reaches)))


def _half_way(values: FloatArray, below: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where the distribution of a number is known, and what it is there."""
    places = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2, values[-1:]])
    return places, np.concatenate([[0.0], below[:-1], [1.0]])
