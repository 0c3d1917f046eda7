"""How an outcome is distributed over its levels, in an arm: tail shares with errors.

S_k is the share of units whose released level is k or higher. For finite outcomes that is the share
of units with at least the k-th value. A number y is rounded at random to one of the grid points
next to it, R, and shares are of R:

- y ≥ g_k implies R ≥ g_k. So P(y ≥ g_k) ≤ S_k.
- R ≥ g_{k+1} implies y > g_k. So P(y > g_k) ≥ S_{k+1}.

So where g_k < v < g_{k+1}, P(y ≥ v) ≤ P(y > g_k) ≤ S_k and P(y > v) ≥ P(y ≥ g_{k+1}) ≥ S_{k+2}. At
a cut there is no lattice point between g_k and g_{k+1}, nothing is rounded from one to the other,
and P(y > g_k) = P(y ≥ g_{k+1}) = S_{k+1}.

Shares of a number beyond a value that is no cut, and means of functions of a number: bounds.

Intervals hold both bounds.

With grid points l < c ≤ u next to the value c, d the lattice point before c, and R the number after
rounding to the grid, four means of R bound the share of units with y ≥ c:

    P(R > u) ≤ P(y ≥ c) ≤ P(R ≥ l),
    P(R ≥ u) − w·P(R = l) ≤ P(y ≥ c) ≤ P(R ≥ u) + x·P(R = u),

with w = (d − l)/(u − d) and x = (u − c)/(c − l). The first line: R > u only if y > u, and y ≥ c
only if R ≥ l. The second: given y between l and u, R is u with probability t = (y − l)/(u − l).
So the mean of the lower bound is t − w(1 − t), which increases in y, is zero at d and one at u;
below l it is at most zero, from u on it is one. That of the upper bound is t(1 + x), which is one
at c; it is never below zero, and from u on it is at least one. At a cut d = l and c = u: both
bounds of the second line are P(R ≥ u). Which bound is used follows from the grid alone: that of
the second line if its factor is at most one. (P(R ≥ u) by itself is no bound: part of the units
between l and c are rounded up.)

A function f of y is not that of R, either: f(R) has the mean of what is linear between grid points
and equal to f at them. Let e be how far f is above that at most, between two grid points. With e_g
the larger one of both sides of g, f(R) + e_R has a mean of at least f(y), and likewise from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp._text import shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, Segment
from clusterdp.estimation.effects.findings import ArmDistribution
from clusterdp.estimation.effects.intervals import ArmPair, Limits, quantile, within
from clusterdp.estimation.effects.notes import Note, Weight, likelihood_notes
from clusterdp.estimation.means.functions import CategoryFunction, question_of, take_call
from clusterdp.estimation.metrics._composed import ArmEstimates, compared_arms
from clusterdp.estimation.metrics.base import MetricFindings, QuestionRows
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Threshold, quoted

# No share counts for this much more than another when shares are made monotone.
_LEAST_WEIGHT = 1e-9
_TINY = 1e-30


class Levels:
    """The levels of an outcome, in order.

    Attributes:
        outcome: Its name.
        values: The values of levels, increasing; axes `[level]`.
        divided: Whether nothing lies between a level and the next; axes `[level − 1]`. So it is
            for finite outcomes, and for a number at cuts.
        step: The distance of two lattice points of a number; 0 for finite outcomes.
        functions: 1{level ≥ k} for each level but the first.

    Args:
        outcome: The name of an outcome.
        space: The categories of a release.

    Raises:
        ParameterError: If the outcome may be missing.
    """

    def __init__(self, outcome: str, space: Categories) -> None:
        if outcome in space.declared.missing:
            raise ParameterError(
                f"{outcome!r} may be missing, so only its mean and response rate are estimated. "
                f"Fix: ask for {outcome!r}."
            )
        one = space.outcome(outcome)
        self.outcome, self.values, self.step = outcome, one.numbers(), 0.0
        self.divided = np.ones(len(self.values) - 1, dtype=np.bool_)
        if one.grid is not None:
            self.step, self.divided = float(one.grid.number.unit), np.diff(one.grid.points) == 1
        self.functions = tuple(
            CategoryFunction.from_values(
                f"{quoted(outcome)}>={shortest_decimal(self.values[level])}",
                (space.levels[one.axis] >= level).astype(np.float64),
                space,
            )
            for level in range(1, len(self.values))
        )


class ArmLevels:
    """Tail shares of an arm.

    Attributes:
        levels: The levels.
        arm: Estimates of S_k for each level but the first.
        likelihood: The same by maximum likelihood; None where that is not used.
        tails: S_0 = 1, S_1, …, and 0 after the last: the most likely shares; or the unbiased ones
            made monotone, the more exact estimates moved less. Axes `[level + 1]`.
    """

    def __init__(self, levels: Levels, arm: ArmEstimates) -> None:
        self.levels, self.arm, self.likelihood = levels, arm, arm.likelihood
        shares = _monotone(arm) if arm.likelihood is None else arm.likelihood.shares
        self.tails = np.concatenate([[1.0], np.clip(shares, 0.0, 1.0), [0.0]])

    def limits(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Confidence limits of each of `tails`, between 0 and 1; not monotone by themselves."""
        errors = quantile(level, self.arm.degrees) * np.sqrt(self.arm.variances)
        if self.likelihood is None:
            means = np.clip(self.arm.means, 0.0, 1.0)
            low = np.clip(self.arm.means - errors, 0.0, means)
            high = np.clip(self.arm.means + errors, means, 1.0)
        else:
            low, high = self.likelihood.intervals(self.arm.means, errors, level)
        return np.concatenate([[1.0], low, [0.0]]), np.concatenate([[1.0], high, [0.0]])

    def distribution(self, arm: Any, segment: Segment, level: float) -> ArmDistribution:
        """P(y ≤ g_k), which lies between 1 − S_k and 1 − S_{k+1}; at cuts it is the latter."""
        tails, (low, high) = self.tails, self.limits(level)
        known = np.append(self.levels.divided, [True])

        def most(terms: FloatArray) -> FloatArray:
            """P(y > g_k) at most."""
            return np.where(known, terms[1:], terms[:-1])

        # Limits are widened until they increase: each then covers as before.
        upper = np.maximum.accumulate(1 - low[1:])
        lower = np.minimum.accumulate((1 - most(high))[::-1])[::-1]
        shares = 1 - (tails[1:] + most(tails)) / 2
        return ArmDistribution(
            outcome=self.levels.outcome,
            arm=arm,
            segment=segment,
            values=self.levels.values,
            shares=shares,
            low=np.minimum(lower, shares),
            high=np.maximum(upper, shares),
            is_likelihood=self.likelihood is not None,
        )


def _monotone(arm: ArmEstimates) -> FloatArray:
    """The nearest monotone shares."""
    from scipy.optimize import isotonic_regression

    variances = arm.variances
    weights = 1 / np.maximum(variances, _LEAST_WEIGHT * variances.max() + _TINY)
    return np.asarray(isotonic_regression(arm.means, weights=weights, increasing=False).x)


@dataclass(frozen=True, slots=True, eq=False)
class DistributionEstimator:
    """The distribution of an outcome in every arm, of the question at some index."""

    name: str
    question: int
    levels: Levels

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dist(rounds)",)

    @classmethod
    def from_text(
        cls, parser: Parser, spaces: Sequence[Categories]
    ) -> DistributionEstimator | None:
        """The distribution of an outcome, such as `dist(rounds)`."""
        call = take_call(parser)
        if call is None or call[0] != "dist":
            return None
        name, outcome = f"dist({quoted(call[1])})", call[1]
        question = question_of([outcome], name, spaces)
        return cls(name, question, Levels(outcome, spaces[question]))

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """The distributions, overall and in every segment; there are no effects on them."""
        rows = questions[self.question]
        data = rows.read(*self.levels.functions)
        found: dict[tuple[Any, Segment], ArmDistribution] = {}
        for one in compared_arms(data, self.levels.outcome):
            one.add_likelihoods(rows, self.levels.functions)
            for arm, estimates in ((one.of.control, one.control), (one.of.arm, one.treated)):
                key = (arm, one.of.segment)
                if estimates is not None and key not in found:
                    arm_levels = ArmLevels(self.levels, estimates)
                    found[key] = arm_levels.distribution(*key, rows.request.level)
        n_likely = sum(one.is_likelihood for one in found.values())
        notes = likelihood_notes(self.name, n_likely, len(found))
        if n_likely < max(len(found), 1):
            notes.extend(rows.noise_notes(self.name, [one.decoded for one in data]))
        return MetricFindings(
            notes=notes, distributions=list(found.values()), outcomes=[self.levels.outcome]
        )


# Bounds of a difference that are closer than this share of what they span are not wide.
_WIDE = 0.1
# Bounds that differ by less than this share of what they span are the same.
_SAME = 1e-9


class ArmBounds:
    """A mean of an arm that is known up to bounds.

    Attributes:
        value: Half way between the bounds.
        bounds: The estimated bounds; half way between both where noise has them in the wrong order.
        variances: What sampling and privacy add to the variance of the bound that is known less
            well.

    Args:
        arm: Estimates of both bounds, the lower one first.
    """

    def __init__(self, arm: ArmEstimates) -> None:
        self._arm, self.value = arm, float(arm.means.mean())
        low, high = map(float, arm.means)
        self.bounds = min(low, self.value), max(high, self.value)
        worst = int(arm.variances.argmax())
        self.variances = max(float(arm.sampling[worst]), 0.0), float(arm.privacy[worst])

    def limits(self, level: float) -> Limits:
        """From the lower limit of the lower bound to the upper limit of the upper one."""
        reach = quantile(level, self._arm.degrees) * np.sqrt(self._arm.variances)
        low, high = self.bounds
        return low - float(reach[0]), high + float(reach[1])


class BoundsEstimator(NamedTuple):
    """A share, or the mean of a function of a number, that is known up to bounds.

    Attributes:
        name: The metric.
        question: The index of its question.
        functions: What bounds its mean from below and from above.
        why: Why it is not known.
        remedy: What would make it known.
        possible: The least and the largest value of the metric.
        is_share: Whether it is a share of units.
    """

    name: str
    question: int
    functions: tuple[CategoryFunction, CategoryFunction]
    why: str
    remedy: str
    possible: tuple[float, float]
    is_share: bool

    @classmethod
    def from_comparison(
        cls, comparison: Threshold, question: int, space: Categories
    ) -> BoundsEstimator:
        """The bounds of a comparison by `>=`, `>`, `<=` or `<`."""
        grid = space.grid(comparison.outcome)
        levels = space.levels[space.outcome(comparison.outcome).axis]
        (first,) = comparison.cuts(grid.number)  # the first step beyond the value
        upper = int(np.searchsorted(grid.points, first))  # the place of u; that of l is before it
        low, high = (grid.points[place] for place in (upper - 1, upper))
        lost, gained = (first - 1 - low) / (high - first + 1), (high - first) / (first - low)
        above, at_low, at_high = levels >= upper, levels == upper - 1, levels == upper
        shares = [
            above - lost * at_low if lost <= 1 else above - 1.0 * at_high,
            above + gained * at_high if gained <= 1 else above + 1.0 * at_low,
        ]
        if comparison.sign in {"<", "<="}:
            shares = [1 - shares[1], 1 - shares[0]]
        functions = [CategoryFunction.from_values(str(comparison), one, space) for one in shares]
        before, beyond = (f"{float(grid.values[place]):.5g}" for place in (upper - 1, upper))
        name = str(comparison)
        why = f"{comparison.outcome} was rounded between {before} and {beyond}"
        threshold = shortest_decimal(comparison.threshold)
        declared = f"{quoted(comparison.outcome)} {comparison.sign} {threshold}"
        remedy = f'Ask the owner for metrics = ["{declared}"].'
        both = functions[0], functions[1]
        return cls(name, question, both, why, remedy, (0.0, 1.0), is_share=True)

    @classmethod
    def from_function(
        cls,
        name: str,
        outcome: str,
        function: Callable[[FloatArray], FloatArray],
        question: int,
        space: Categories,
    ) -> BoundsEstimator:
        """The bounds of the mean of a function of a number, which takes and gives arrays."""
        grid = space.grid(outcome)
        number = grid.number
        above, below = np.zeros((2, len(grid.points)))
        every = np.asarray(function(np.array([float(one) for one in grid.values])), np.float64)
        least, most = every.min(), every.max()
        for low, (first, last) in enumerate(pairwise(grid.points)):
            inside = np.arange(first, last + 1)
            steps = np.asarray(number.first_multiple + inside, np.float64)
            values = function(steps * float(number.unit))
            line = every[low] + (inside - first) / (last - first) * (every[low + 1] - every[low])
            off, ends = values - line, slice(low, low + 2)
            above[ends] = np.maximum(above[ends], off.max())
            below[ends] = np.maximum(below[ends], -off.min())
            least, most = min(least, values.min()), max(most, values.max())
        levels = space.levels[space.outcome(outcome).axis]
        bounds = [
            CategoryFunction.from_values(name, one[levels], space)
            for one in (every - below, every + above)
        ]
        why = f"numbers were rounded to {len(grid.points)} grid points"
        remedy = "Ask the owner for a threshold (metrics)."
        both, possible = (bounds[0], bounds[1]), (float(least), float(most))
        return cls(name, question, both, why, remedy, possible, is_share=False)

    @property
    def is_exact(self) -> bool:
        """Whether both bounds are the same but for rounding errors."""
        low, high = (one.values for one in self.functions)
        return bool(np.abs(high - low).max() <= _SAME * max(np.ptp(low), np.ptp(high)))

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """Effects on the mean, overall and in every segment."""
        rows = questions[self.question]
        data = rows.read(*self.functions)
        effects = [one.composed_effect(ArmBounds) for one in compared_arms(data, self.name)]
        overall = [
            one.interval
            for one in effects
            if isinstance(one.interval, ArmPair) and not one.of.segment
        ]
        start = f"{self.name} is known only within bounds, because {self.why}."
        text = "The estimate is the midpoint; the CI covers both bounds."
        # In segments bounds are as wide, and noise is larger: what is shown of a metric is
        # decided by overall effects.
        if any(self._is_left_open(pair, rows.request.level) for pair in overall):
            ends = " and ".join(map(self._written, overall[0].control.bounds))
            start = f"{self.name} is not answerable from this release, because {self.why}."
            text = f"In control it is anywhere between {ends}. {self.remedy}"
            effects = [_without_estimate(one) for one in effects]
        found = MetricFindings(effects=effects, notes=[Note(f"{start} {text}", Weight.SCOPE)])
        found.note_outcomes(rows, *self.functions)
        found.describe(self.name, np.array(self.possible), is_share=self.is_share)
        found.notes.extend(rows.means_alone_notes(self.name))
        found.notes.extend(rows.noise_notes(self.name, [one.decoded for one in data]))
        return found

    def _is_left_open(self, pair: ArmPair, level: float) -> bool:
        """Whether bounds of a difference are wide, and make its interval wider than noise does.

        Narrow ones answer a question, however many units there are.
        """
        (low, high), (least, most) = pair.bounds, pair.ci(level)
        span = self.possible[1] - self.possible[0]
        return high - low > max(_WIDE * span, (most - least) / 2)

    def _written(self, mean: float) -> str:
        """A mean as far as it is possible: a share in percent, other means in three digits."""
        mean = within(mean, self.possible)
        return f"{mean:.0%}" if self.is_share else f"{mean:.3g}"


def _without_estimate(effect: Effect) -> Effect:
    """The bounds of an effect alone: half way between them is no estimate."""
    if not isinstance(effect.interval, ArmPair):
        return effect
    return replace(
        effect,
        effect=math.nan,
        bounds=effect.interval.bounds,
        control_mean=None,
        control_std_error=None,
        treated_mean=None,
        treated_std_error=None,
    )
