"""Quantiles of an outcome in an arm, with intervals that hold every value not rejected.

By Woodruff (1952), no distribution of estimated quantiles is needed: v is the q-quantile if
P(y > v) ≤ 1 − q < P(y ≥ v). It is rejected if the lower limit of the first share is above 1 − q, or
the upper limit of the second below it. Each value is tested by itself, so the true one is rejected
as rarely as limits say. The interval reaches from the least to the largest value that is left. On
numbers, shares are bounded by those at grid points; see `levels.py`.

Two arms' quantiles are compared value by value.

A quantile jumps. Next to a jump, limits do not show how a quantile is spread between them, and
limits that are combined as of normal numbers miss: if half of each arm has one star and half has
five, the difference of medians is 4, 0 or −4, however far √2 times an arm's interval reaches.

So values are combined, not limits. A value of an arm is z standard errors away, its *reach*, if its
interval begins to hold it there. Two arms' values are held together if z₁² + z₀² is at most a
radius: as both arms are independent, that is a profile likelihood. The interval reaches from the
least difference of two values that are held together to the largest one. Where quantiles are near
normal, that is the interval of a difference of normal numbers.

At a jump z is the positive part of a normal number: noise in one direction has no effect. If both
arms are at one, z₁² + z₀² exceeds c with probability P(χ²₁ > c)/2 + P(χ²₂ > c)/4 (Chernoff, 1954).
The radius is that which this exceeds rarely enough. It is √4.23 at 95%, where normal numbers need
√3.84.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp._text import exact, shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.intervals import EffectInterval, Limits, quantile
from clusterdp.estimation.effects.notes import likelihood_notes
from clusterdp.estimation.means.functions import question_of, take_call
from clusterdp.estimation.metrics._composed import ArmEstimates, compared_arms
from clusterdp.estimation.metrics.base import MetricFindings, QuestionRows
from clusterdp.estimation.metrics.levels import ArmLevels, Levels
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import quoted

_PERCENT = re.compile(r"p(\d+(?:\.\d+)?)")
# The square of a radius that no level needs.
_FARTHEST = 1e4


class Reaches:
    """How far values of an arm are away, in the order of that; axes `[value]`.

    Attributes:
        values: The values.
        reaches: z, as of normal numbers.

    Args:
        values: The values in any order, one of them at zero.
        reaches: Their z.
    """

    def __init__(self, values: FloatArray, reaches: FloatArray) -> None:
        order = np.argsort(reaches, kind="stable")
        self.values, self.reaches = values[order], reaches[order]
        # The least and the largest of all values that are no farther away.
        self._least = np.minimum.accumulate(self.values)
        self._most = np.maximum.accumulate(self.values)

    def within(self, radii: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least and the largest value that is no farther away than each radius."""
        last = np.searchsorted(self.reaches, radii, side="right") - 1
        return self._least[last], self._most[last]


class QuantilePair(EffectInterval):
    """The quantiles of two arms, independent of each other."""

    def __init__(self, treated: ArmQuantile, control: ArmQuantile) -> None:
        difference = treated.value - control.value
        self._relative = difference / control.value if control.value else math.nan
        self._treated, self._control = treated.reaches(), control.reaches()

    def ci(self, level: float) -> Limits:
        """The least and the largest difference of two values that are held together."""
        values, (least, most) = self._held(level)
        return float((values - most).min()), float((values - least).max())

    def lift(self, level: float) -> tuple[float, float, float] | None:
        """The difference relative to control, with limits; None unless control is above zero."""
        values, (least, most) = self._held(level)
        if least.min() <= 0:
            return None
        ratios = np.concatenate([values / least, values / most])
        return self._relative, float(ratios.min()) - 1, float(ratios.max()) - 1

    @property
    def p_value(self) -> float:
        """One minus the highest level at which the interval does not hold zero."""
        above = _nearest(self._treated, self._control)
        below = _nearest(self._control, self._treated)
        return _exceeded(max(above, below))

    def _held(self, level: float) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Values of treatment, and the least and the largest of control held with each."""
        left = _squared_radius(level) - self._treated.reaches**2
        return self._treated.values[left >= 0], self._control.within(np.sqrt(left[left >= 0]))


def _nearest(first: Reaches, second: Reaches) -> float:
    """The least z₁² + z₀² of two values, the first no less than the second."""
    order = np.argsort(second.values, kind="stable")
    nearest = np.minimum.accumulate(second.reaches[order])
    last = np.searchsorted(second.values[order], first.values, side="right") - 1
    found = first.reaches[last >= 0] ** 2 + nearest[last[last >= 0]] ** 2
    return float(found.min(initial=np.inf))


def _exceeded(squared: float) -> float:
    """How often z₁² + z₀² is at least this, if both quantiles are at a jump."""
    if squared == 0:
        return 1.0
    return math.erfc(math.sqrt(squared / 2)) / 2 + math.exp(-squared / 2) / 4


@functools.cache
def _squared_radius(level: float) -> float:
    """What z₁² + z₀² exceeds with the probability that a level leaves."""
    from scipy.optimize import brentq

    least = 1e-12  # below that, half of all cases are: they have no distance at all
    if _exceeded(least) <= 1 - level:
        return 0.0
    return float(brentq(lambda one: _exceeded(one) - (1 - level), least, _FARTHEST))


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
        values = levels.values
        if not levels.step:
            return float(values[np.argmax(below >= self.share)])
        places = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2, values[-1:]])
        shares = np.concatenate([[0.0], below[:-1], [1.0]])
        nearest = np.round(np.interp(self.share, shares, places) / levels.step) * levels.step
        return float(np.clip(nearest, *self.bounds))

    @property
    def variances(self) -> tuple[float, float]:
        """The parts of the variance that sampling and privacy cost.

        They are in proportion to those of the share next to the quantile.
        """
        low, high = self.limits(_LEVEL)
        variance = ((high - low) / 2 / quantile(_LEVEL)) ** 2
        estimates = self.arm.arm
        nearest = int(np.abs(estimates.means - (1 - self.share)).argmin())
        total = estimates.variances[nearest]
        by_privacy = float(estimates.privacy[nearest] / total) if total else 0.0
        return variance * (1 - by_privacy), variance * by_privacy

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
        at_least = self._as_normal(_needed(rest - shares[:-1], errors[:-1]))
        above = self._as_normal(_needed(shares[1:] - rest, errors[1:]))
        if (likelihood := self.arm.likelihood) is not None:
            far = likelihood.distances(np.full_like(likelihood.shares, rest)) / likelihood.OWN_REACH
            is_below = likelihood.shares < rest
            at_least[1:] = np.maximum(at_least[1:], np.where(is_below, far, 0.0))
            above[:-1] = np.maximum(above[:-1], np.where(is_below, 0.0, far))
        places = np.flatnonzero(~levels.divided)
        neighbor = np.maximum(at_least[places], above[places + 1])
        values, needed = _between(levels, shares, errors, rest, places)
        needed = self._as_normal(needed)
        found = np.concatenate([np.maximum(at_least, above), np.maximum(neighbor, needed).ravel()])
        return Reaches(
            np.concatenate([levels.values, values.ravel(), self.bounds]),
            np.concatenate([found, [0.0, 0.0]]),
        )

    def _as_normal(self, errors: FloatArray) -> FloatArray:
        """Standard errors off, as those of a normal number that is exceeded as rarely."""
        from scipy.special import ndtri, stdtr

        if (likelihood := self.arm.likelihood) is not None:
            errors = errors / likelihood.UNBIASED_REACH
        degrees = self.arm.arm.degrees
        return errors if math.isinf(degrees) else np.asarray(-ndtri(stdtr(degrees, -errors)))

    def _kept(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Values that limits of tail shares do not reject, the least and the largest among them."""
        levels, rest = self.arm.levels, 1 - self.share
        at_least, above = high[:-1] >= rest, low[1:] <= rest
        # Between a level and the next one: only numbers are there, and not at cuts.
        between = at_least[:-1] & above[1:] & ~levels.divided
        gaps = _kept_between(levels, low, high, rest, np.flatnonzero(between))
        return np.concatenate([levels.values[at_least & above], gaps])


@dataclass(frozen=True, slots=True, eq=False)
class QuantileEstimator:
    """A quantile of an outcome: the least value that a share of units do not exceed.

    Attributes:
        name: What it is called.
        question: The index of the question of the outcome.
        levels: The levels of the outcome.
        share: q.
    """

    name: str
    question: int
    levels: Levels
    share: float

    EXAMPLES: ClassVar[tuple[str, ...]] = ("p90(rounds)", "median(rounds)")

    @classmethod
    def from_text(cls, parser: Parser, spaces: Sequence[Categories]) -> QuantileEstimator | None:
        """A quantile of an outcome, such as `p90(rounds)` or `median(rounds)`.

        Raises:
            ParameterError: If it is no quantile between the ends.
        """
        call = take_call(parser)
        if call is None:
            return None
        name, outcome = call
        percent = _PERCENT.fullmatch("p50" if name == "median" else name)
        if percent is None:
            return None
        share = float(exact(float(percent[1])) / 100)
        if not 0 < share < 1:
            raise ParameterError(
                f"A quantile must be above p0 and below p100, got p{100 * share:g}. Fix: use p99, "
                "or a share such as rounds>=10."
            )
        name = quantile_name(outcome, share)
        question = question_of([outcome], name, spaces)
        return cls(name, question, Levels(outcome, spaces[question]), share)

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """Effects on the quantile, overall and in every segment."""

        def compose(arm: ArmEstimates) -> ArmQuantile:
            return ArmQuantile(ArmLevels(self.levels, arm), self.share)

        rows = questions[self.question]
        data = rows.read(*self.levels.functions)
        arms = list(compared_arms(data, self.name))
        for one in arms:
            one.add_likelihoods(rows, self.levels.functions)
        effects = [one.composed_effect(compose, QuantilePair) for one in arms]
        found = MetricFindings(effects=effects, notes=rows.means_alone_notes(self.name))
        estimates = [each for one in arms for each in (one.control, one.treated) if each]
        n_likely = sum(one.likelihood is not None for one in estimates)
        found.notes.extend(likelihood_notes(self.name, n_likely, len(estimates)))
        if n_likely < max(len(estimates), 1):
            found.notes.extend(rows.noise_notes(self.name, [one.decoded for one in data]))
        found.describe(self.name, self.levels.values)
        found.outcomes.append(self.levels.outcome)
        return found


def quantile_name(outcome: str, share: float) -> str:
    """What a quantile is called: `p90(rounds)`, or `median(rounds)`."""
    percent = f"p{shortest_decimal(float(exact(share) * 100))}"
    return f"{'median' if share == 0.5 else percent}({quoted(outcome)})"


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
        places: The levels before the gaps; shares next to these do not reject them.
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
