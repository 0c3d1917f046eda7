"""Shares of units by maximum likelihood, from the responses of an arm.

A response is s with the probability Σ_y Q(s|y)·p(y), Q the published channel. The likelihood

    ℓ(p) = Σ_s n_s·log Σ_y Q(s|y)·p(y)

is concave, and largest at one distribution p, whose shares lie between 0 and 1. Units count by the
weights that they have in the mean of the arm, so p is that of all units, for any shares of arms
within clusters. Counts are scaled to as many units as would show as much (Kish).

**Where it is used.** Shares of one outcome have a likelihood that is hardly more precise than the
nearest monotone shares, unless these lose a part of what responses show. They do where true
outcomes are not like those that the channel was designed for: the likelihood is used if the
variance of unbiased shares is above `LEAST_GAIN` times its own, both at the estimated distribution.
Else monotone shares are as good, and next to 0 or 1 they are better: of many shares that are nearly
zero a likelihood has none below, and their sum is too large. In a question of several outcomes the
others show more of a share than its own levels do, so a channel that was designed for them has
the likelihood always.

**Intervals.** −2 log of the likelihood ratio of a share is χ² with one degree of freedom if no
share is at its end. Next to ends it is not: its 95% quantile was up to 7 in simulations. So a share
is in the interval if it is in that of the unbiased share at a level of 96%, and if the ratio is
below χ² at 99.9%. Where unbiased shares are noisy the second is shorter, by up to two thirds.

The optimum is found by a primal-dual interior point method, of many problems at once.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from clusterdp._arrays import BoolArray, FloatArray
from clusterdp.estimation.effects.intervals import quantile

# From this ratio of variances on, of all shares together, the likelihood is used.
LEAST_GAIN = 1.1
# Sums that take off less of the noise of rows are not used.
_LEAST_SAVED = 0.01
# Directions with a smaller share of the information are not identified.
_SMALLEST = 1e-10
# The optimum is found when the likelihood of a unit is as near as this to it.
_TOLERANCE = 1e-10
# Of the whole curvature, what each category has at least.
_LEAST_CURVATURE = 1e-13
_MOST_STEPS = 60
# How far a step goes to the nearest end, and how much smaller q·z becomes.
_TO_THE_END, _SMALLER = 0.99, 0.1
# Shares next to 0 and 1 at which a ratio is taken.
_LEAST_SHARE = 1e-9
# Steps to a limit: the root of the ratio is nearly linear in the share.
_LIMIT_STEPS = 7


class MostLikely(NamedTuple):
    """The most likely distributions; axes `[problem, ...]`.

    Attributes:
        probs: The distributions; axes `[problem, category]`.
        likelihoods: The log-likelihood of a unit.
    """

    probs: FloatArray
    likelihoods: FloatArray


class KnownShares(NamedTuple):
    """Shares that published sums show, apart from responses; axes `[known]`.

    Attributes:
        inside: The categories of each share, as 0 and 1; axes `[known, category]`.
        values: The shares, which may lie outside 0 to 1.
        precisions: The inverse of their variances, by unit.
    """

    inside: FloatArray
    values: FloatArray
    precisions: FloatArray

    @classmethod
    def none(cls, n_categories: int) -> KnownShares:
        """No such shares."""
        return cls(np.zeros((0, n_categories)), np.zeros(0), np.zeros(0))

    @property
    def curvature(self) -> FloatArray:
        """What they add to the information; axes `[category, category]`."""
        return self.inside.T * self.precisions @ self.inside


def most_likely(
    observed: FloatArray,
    channel: FloatArray,
    known: KnownShares,
    inside: BoolArray | None = None,
    shares: FloatArray | None = None,
) -> MostLikely:
    """The distribution under which responses are most likely, in each of several problems.

    Args:
        observed: The share of each output among responses; axes `[problem, output]`.
        channel: Q; axes `[output, category]`.
        known: Shares that are known as normal numbers.
        inside: The categories whose probabilities add up to a known share; axes `[problem,
            category]`. None if nothing is known.
        shares: The known shares, above 0 and below 1; axes `[problem]`.
    """
    n_problems, n_categories = len(observed), channel.shape[1]
    groups = np.ones((n_problems, 1, n_categories))
    sums = np.ones((n_problems, 1))
    if inside is not None and shares is not None:
        groups = np.stack([~inside, inside], axis=1).astype(np.float64)
        sums = np.stack([1 - shares, shares], axis=1)
    per_category = sums / groups.sum(axis=2)
    probs = (groups * per_category[..., np.newaxis]).sum(axis=1)
    # At the optimum the slope of each category is the multiplier of its group, less what holds it
    # at zero: slopes + holds = multipliers, probs·holds = 0.
    multipliers = np.ones_like(sums)
    pulled = (known.values * known.precisions) @ known.inside
    by_sums, identity = known.curvature, np.eye(n_categories)
    slopes = (observed / (probs @ channel.T)) @ channel + pulled - probs @ by_sums
    holds = np.maximum(1 - slopes, 0.1)
    for _ in range(_MOST_STEPS):
        expected = probs @ channel.T
        slopes = (observed / expected) @ channel + pulled - probs @ by_sums
        off = slopes + holds - (groups * multipliers[..., np.newaxis]).sum(axis=1)
        gap = (probs * holds).sum(axis=1)
        if max(gap.max(), np.abs((probs * off).sum(axis=1)).max(), 0.0) < _TOLERANCE:
            break
        target = (_SMALLER * gap / n_categories)[:, np.newaxis]
        curvature = channel.T * (observed / expected**2)[:, np.newaxis, :] @ channel
        curvature = curvature + by_sums
        # Few outputs show some categories the same. What holds one of them can be lost in rounding.
        least = _LEAST_CURVATURE * np.trace(curvature, axis1=-2, axis2=-1)[..., np.newaxis]
        curvature = curvature + identity * np.maximum(holds / probs, least)[..., np.newaxis]
        right = (off - holds + target / probs)[..., np.newaxis]
        solved = np.linalg.solve(curvature, np.concatenate([right, groups.swapaxes(1, 2)], axis=2))
        raised = np.linalg.solve(groups @ solved[..., 1:], groups @ solved[..., :1])
        moved = (solved[..., :1] - solved[..., 1:] @ raised)[..., 0]
        held = target / probs - holds - holds / probs * moved
        probs = probs + _step(probs, moved) * moved
        step = _step(holds, held)
        holds, multipliers = holds + step * held, multipliers + step * raised[..., 0]
    logs = np.log(np.maximum(probs @ channel.T, np.finfo(np.float64).tiny))
    off = (probs @ known.inside.T - known.values) ** 2 @ known.precisions
    return MostLikely(probs, (observed * logs).sum(axis=1) - off / 2)


def _step(values: FloatArray, moves: FloatArray) -> FloatArray:
    """How much of a move keeps all values above zero; axes `[problem, 1]`."""
    lengths = np.divide(-values, moves, out=np.full_like(values, np.inf), where=moves < 0)
    return np.asarray(np.minimum(1.0, _TO_THE_END * lengths.min(axis=1))[:, np.newaxis])


class UnbiasedShares(NamedTuple):
    """The same shares without bias; axes `[share]`.

    Attributes:
        read: What outputs count as in the shares; axes `[share, output]`.
        means: The estimates, calibrated by published sums.
        variances: Their estimated variances.
        saved: The share of the noise of rows that calibration takes off.
    """

    read: FloatArray
    means: FloatArray
    variances: FloatArray
    saved: FloatArray


class ShareLikelihood:
    """Shares of an arm's units by maximum likelihood.

    Attributes:
        OWN_REACH: How far limits of the likelihood reach, as a multiple of normal ones at a level.
        UNBIASED_REACH: The same of limits of unbiased shares.
        probs: The most likely distribution; axes `[category]`.
        shares: The most likely shares; axes `[share]`.

    Args:
        counts: Responses by output, scaled to as many units as they show; axes `[output]`.
        channel: Q; axes `[output, category]`.
        inside: The categories of each share; axes `[share, category]`.
        unbiased: The same shares without bias.
    """

    # 99.9% and 96%, at a level of 95%.
    OWN_REACH: ClassVar[float] = 3.2905 / 1.96
    UNBIASED_REACH: ClassVar[float] = 2.0537 / 1.96

    def __init__(
        self, counts: FloatArray, channel: FloatArray, inside: BoolArray, unbiased: UnbiasedShares
    ) -> None:
        used = channel.any(axis=1)
        self._channel, self._inside, self._n_units = channel[used], inside, float(counts.sum())
        self._observed = counts[used] / self._n_units
        self._read = unbiased.read[:, used]
        self._known = self._shares_of_sums(unbiased)
        found = most_likely(self._observed[np.newaxis], self._channel, self._known)
        self._most, self.probs = float(found.likelihoods[0]), found.probs[0]
        self.shares = np.clip(inside @ self.probs, 0.0, 1.0)

    def _shares_of_sums(self, unbiased: UnbiasedShares) -> KnownShares:
        """What published sums show of shares: with rows, as much as calibrated shares."""
        rows = self._read @ self._observed
        of_rows = (self._read**2 @ self._observed - rows**2) / self._n_units
        places = np.flatnonzero(unbiased.saved > _LEAST_SAVED)
        places = places[unbiased.variances[places] < of_rows[places]]
        calibrated, before = 1 / unbiased.variances[places], 1 / of_rows[places]
        added = calibrated - before
        values = (unbiased.means[places] * calibrated - rows[places] * before) / added
        return KnownShares(self._inside[places].astype(np.float64), values, added / self._n_units)

    def is_used(self, *, is_designed: bool) -> bool:
        """Whether it is used instead of unbiased shares.

        Args:
            is_designed: Whether the channel was designed for what is measured.
        """
        is_joint = len(self.probs) > len(self.shares) + 1
        return (is_designed and is_joint) or self.gain > LEAST_GAIN

    @property
    def gain(self) -> float:
        """The variances of unbiased shares over those of the likelihood, both as if it were true.

        Published sums show the same in both.
        """
        expected = self._channel @ self.probs
        variances = self._read**2 @ expected - (self._read @ expected) ** 2
        apart = self._channel[:, 1:] - self._channel[:, :1]  # as the first category is the rest
        information = (apart.T / expected) @ apart
        slopes = self._inside[:, 1:].astype(np.float64) - self._inside[:, :1]
        known = self._known.inside[:, 1:] - self._known.inside[:, :1]
        information = information + known.T * self._known.precisions @ known
        inverse = np.linalg.pinv(information, rcond=_SMALLEST, hermitian=True)
        least = np.einsum("sc,cd,sd->s", slopes, inverse, slopes)
        precisions = np.zeros(len(slopes))
        for inside, precision in zip(self._known.inside, self._known.precisions, strict=True):
            precisions[(self._inside == inside).all(axis=1)] = precision
        return float((variances / (1 + variances * precisions)).sum() / least.sum())

    def distances(self, shares: FloatArray) -> FloatArray:
        """How far shares are from the most likely ones, as of normal numbers; axes `[share]`.

        That is the root of −2 log of the likelihood ratio.
        """
        return self._distances(self._inside, shares)

    def _distances(self, inside: BoolArray, shares: FloatArray) -> FloatArray:
        near = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
        observed = np.broadcast_to(self._observed, (len(shares), len(self._observed)))
        found = most_likely(observed, self._channel, self._known, inside, near)
        return np.sqrt(2 * self._n_units * np.maximum(self._most - found.likelihoods, 0.0))

    def intervals(
        self, means: FloatArray, errors: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """Confidence limits of shares, the most likely ones among them.

        Args:
            means: Unbiased shares; axes `[share]`.
            errors: How far their intervals reach at the level.
            level: The level.
        """
        wide, reach = self.UNBIASED_REACH * errors, self.OWN_REACH * quantile(level)
        low = np.minimum(np.clip(means - wide, 0.0, 1.0), self.shares)
        high = np.maximum(np.clip(means + wide, 0.0, 1.0), self.shares)
        return self.limits(low, reach), self.limits(high, reach)

    def limits(self, ends: FloatArray, reach: float) -> FloatArray:
        """Limits of shares: `ends`, moved to where shares are `reach` away, if they are farther.

        Args:
            ends: Limits on one side of the shares; axes `[share]`.
            reach: The largest distance.
        """
        far = self._distances(self._inside, ends)
        limits = np.asarray(ends, np.float64).copy()
        places = np.flatnonzero(far > reach)
        if not len(places):
            return limits
        # The distance is nearly linear between the share (0) and the end: false position.
        inside, near, start = self._inside[places], self.shares[places], np.zeros(len(places))
        end, at_end = limits[places], far[places]
        for _ in range(_LIMIT_STEPS):
            middle = near + (reach - start) / (at_end - start) * (end - near)
            found = self._distances(inside, middle)
            is_far = found > reach
            near, start = np.where(is_far, near, middle), np.where(is_far, start, found)
            end, at_end = np.where(is_far, middle, end), np.where(is_far, found, at_end)
        limits[places] = near + (reach - start) / (at_end - start) * (end - near)
        return limits
