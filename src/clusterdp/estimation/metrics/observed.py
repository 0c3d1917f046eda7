"""Effects on outcomes that may be missing: of those observed, and what attrition may do to them.

A metric of such an outcome is measured as R·f, R whether it was observed. Its mean among those
observed is the ratio E[R·f]/E[R] of each arm.

Bounds on the effect on those who would be observed in either arm (Lee, 2009).

If treatment moves who is observed in one direction only, the arm with the smaller share observed,
π, has observed exactly those who are observed in either arm. They are the share π of everyone in
the other arm, too, but not known there. At worst they have its lowest, or its highest, outcomes.
So the effect on those observed, where neither arm is trimmed, lies between both bounds. The mean
of the lowest is the largest of

    t − E[R·(t − y)₊]/π    over all t,

and every t gives a bound that holds, only a wider one (Rockafellar and Uryasev, 2000); that of the
highest likewise. For a fixed t a bound is linear in means over π, so its error is known. The limit
is the best one over t, each at a level that makes all of them hold together (Bonferroni); and the
bound is that of the same t, so that it is not chosen for its error.

E[R·(t − y)₊] is decoded from rows where their channel tells it. With t at an end it is linear in y,
and always told. With t a grid point it is linear between grid points, so that rounding a number at
random to one of them keeps its mean.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.findings import Note, Weight
from clusterdp.estimation.effects.intervals import quantile
from clusterdp.estimation.effects.possible import MetricRange
from clusterdp.estimation.means.functions import CategoryFunction, Measured
from clusterdp.estimation.metrics._composed import paired_arms
from clusterdp.estimation.metrics.mean import MetricRows
from clusterdp.estimation.metrics.ratio import RatioRows
from clusterdp.outcomes.metric import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.effects.effect import Target
    from clusterdp.estimation.metrics._composed import ArmEstimates
    from clusterdp.estimation.metrics.mean import Found, Wanted
    from clusterdp.estimation.metrics.parse import Source
    from clusterdp.estimation.metrics.ratio import ArmRatio
    from clusterdp.estimation.reading.segments import RowCounts
    from clusterdp.estimation.report.results import Effect
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.metric import Metric
    from clusterdp.published.release import ReleasedQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class AttritionBounds:
    """Bounds on the overall effect on those who would be observed in either arm.

    They hold if treatment moves who is observed in one direction only.

    Attributes:
        of: What effect they bound.
        low: The lower bound, estimated.
        high: The upper bound, estimated.
        limits: What the effect lies between, at `level`.
        level: The confidence level of the limits.
        trimmed: The arm of which a part counts: that with more observed.
        trimmed_share: The share of its observed that is left out.
        from_ends: Whether only the declared ends of the outcome were used, as rows do not tell how
            it is distributed.
        widened: Whether noise had the bounds in another order, or the effect on those observed
            outside. That effect lies between the true bounds, so they were moved to hold it.
    """

    of: Target
    low: float
    high: float
    limits: tuple[float, float]
    level: float
    trimmed: Any
    trimmed_share: float
    from_ends: bool
    widened: bool

    def to_dict(self) -> dict[str, Any]:
        """Everything about these bounds as plain values."""
        return {
            "metric": self.of.metric,
            "arm": self.of.arm,
            "control": self.of.control,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "limit_low": self.limits[0],
            "limit_high": self.limits[1],
            "trimmed": self.trimmed,
            "trimmed_share": self.trimmed_share,
            "from_ends": self.from_ends,
            "widened": self.widened,
        }


class _Tail(NamedTuple):
    """A mean of R·(y − t)₊, or of R·(t − y)₊, in an arm.

    Attributes:
        threshold: t.
        mean: The mean.
        variance: Its variance.
    """

    threshold: float
    mean: float
    variance: float


class _Arm(NamedTuple):
    """What is told of an arm.

    Attributes:
        ratio: The means of R·y and of R.
        tails: Those above thresholds (1) and below them (−1).
    """

    ratio: ArmRatio
    tails: dict[int, list[_Tail]]


class _Bound(NamedTuple):
    """A bound and its limit."""

    value: float
    limit: float


def attrition_bounds(
    ratio: RatioRows, question: ReleasedQuestion, rows: RowCounts, wanted: Wanted, place: int
) -> list[AttritionBounds]:
    """Bounds on each treatment's overall effect on an outcome that may be missing.

    Args:
        ratio: Its mean among those observed.
        question: The question of the outcome.
        rows: Its rows as counts.
        wanted: What was estimated.
        place: The place of the outcome.
    """
    values = question.space.outcome_values()[place]
    levels = np.unique(values[~np.isnan(values)]).tolist()
    tails = {}
    for sign, level in itertools.product((-1, 1), levels):
        tail = np.nan_to_num(np.maximum(sign * (values - level), 0.0))
        told = _measured(tail, question, wanted) if tail.any() else None
        if told is not None:
            tails[sign, level] = MetricRows.of(told, rows, wanted)
    from_ends = len(levels) > 2 and not {level for _, level in tails} & set(levels[1:-1])
    found = []
    # R·y times R is R·y, so that rows tell how both covary, and no covariance is worse.
    for pair in paired_arms([*ratio.rows, *tails.values()], ratio.name):
        if pair.of.segment:
            break
        one = pair.compared(pair.means())
        if one.control is None or one.treated is None:
            break
        control, treated = (
            _Arm(ratio.of_arm(arm.first(len(ratio.rows))).worse, _tails(tails, levels, arm))
            for arm in (one.control, one.treated)
        )
        found.append(_bounds(one.of, control, treated, wanted.level, from_ends=from_ends))
    return found


def _measured(values: FloatArray, question: ReleasedQuestion, wanted: Wanted) -> Measured | None:
    """A function of the category as rows tell it; None if they do not."""
    function = CategoryFunction.of("a tail", values, question.space)
    try:
        return wanted.measured(function, question)
    except ParameterError:
        return None


def _tails(
    told: Collection[tuple[int, float]], levels: list[float], arm: ArmEstimates
) -> dict[int, list[_Tail]]:
    """The tails of an arm, those that are zero among them."""
    tails = {-1: [_Tail(levels[0], 0.0, 0.0)], 1: [_Tail(levels[-1], 0.0, 0.0)]}
    first = len(arm.means) - len(told)
    for (sign, level), mean, variance in zip(
        told, arm.means[first:], arm.variances[first:], strict=True
    ):
        tails[sign].append(_Tail(level, float(mean), float(variance)))
    return tails


def _bounds(
    of: Target, control: _Arm, treated: _Arm, level: float, *, from_ends: bool
) -> AttritionBounds:
    """The bounds of one treatment."""
    more = treated.ratio.below > control.ratio.below
    trimmed, kept = (treated, control) if more else (control, treated)
    low, high = (
        _best(trimmed, kept.ratio, level, sign=1 if more else -1, side=side) for side in (-1, 1)
    )
    effect = treated.ratio.value - control.ratio.value
    return AttritionBounds(
        of=of,
        low=min(low.value, effect),
        high=max(high.value, effect),
        limits=(min(low.limit, effect), max(high.limit, effect)),
        level=level,
        trimmed=of.arm if more else of.control,
        trimmed_share=1 - kept.ratio.below / trimmed.ratio.below,
        from_ends=from_ends,
        widened=low.value > effect or high.value < effect,
    )


def _best(trimmed: _Arm, kept: ArmRatio, level: float, *, sign: int, side: int) -> _Bound:
    """The bound whose limit is best.

    Args:
        trimmed: The arm with more observed.
        kept: The other one, with means B of R·y and π of R.
        level: The confidence level of both limits together.
        sign: 1 if the treatment is trimmed, −1 if control is.
        side: −1 for the lower bound, 1 for the upper one.
    """
    tails = trimmed.tails[sign * side]
    if not (kept.below > 0 and trimmed.ratio.below > 0):
        return _Bound(math.nan, side * math.inf)
    degrees = min(kept.degrees, trimmed.ratio.degrees)
    reach = quantile(1 - (1 - level) / len(tails), degrees)
    found = []
    for tail in tails:
        # ±(t + (±T − B)/π); the error of π enters by what is divided by it.
        shift = (sign * side * tail.mean - kept.above) / kept.below
        of_kept = kept.sampling.of_difference(-shift) + kept.privacy.of_difference(-shift)
        error = math.sqrt(tail.variance + of_kept) / kept.below
        value = sign * (tail.threshold + shift)
        found.append(_Bound(value, value + side * reach * error))
    return min(found, key=lambda bound: side * bound.limit)


# The level of the test that arms have the same share observed.
_LEVEL = 0.01


class AskedOfObserved(NamedTuple):
    """The mean of a metric among those with an outcome observed.

    Attributes:
        name: The name of the metric.
        above: The metric, 0 where the outcome is missing.
        below: Whether it was observed.
        outcome: The place of the outcome, if the metric is the outcome itself.
    """

    name: str
    above: CategoryFunction
    below: CategoryFunction
    outcome: int | None

    @classmethod
    def of(cls, metric: Metric, function: CategoryFunction, space: Categories) -> AskedOfObserved:
        """A metric of an outcome that may be missing.

        Args:
            metric: The metric.
            function: The same as a function of the category.
            space: The categories.

        Raises:
            ParameterError: If it uses several such outcomes.
        """
        declared = space.declared
        declared.check_missing(metric)
        (name,) = metric.valued & set(declared.missing)
        place = len(declared.outcomes) + declared.missing.index(name)
        below = CategoryFunction.declared(name + OBSERVED, space, place)
        if metric != declared.metrics[declared.names.index(name)]:
            return cls(str(metric), function, below, None)
        # R·y is R·(y − middle) and middle·R.
        outcome = declared.names.index(name)
        above = function.minus(-declared.outcomes[outcome].middle, below)
        return cls(str(metric), above, below, outcome)

    def estimate(self, source: Source) -> Found:
        """Effects on the mean, with bounds for attrition of an outcome itself."""
        ratio = RatioRows.of(self.above, self.below, source, name=self.name)
        found = ratio.estimate()
        found.notes.extend(source.notes_on(self.name))
        found.shares.extend([self.name] * self.above.is_share(source.question.space))
        values = self.above.values[self.below.values > 0]
        found.ranges.append(MetricRange.of(self.name, values))
        if self.outcome is not None:
            parts = source.question, source.rows, source.wanted
            found.bounds.extend(attrition_bounds(ratio, *parts, self.outcome))
        return found


def missing_notes(declared: DeclaredOutcomes) -> list[str]:
    """What effects on outcomes that may be missing are of."""
    return [f"{name}, of those observed" for name in declared.missing]


def tells_attrition(declared: DeclaredOutcomes, effects: Iterable[Effect]) -> bool:
    """Whether effects on who is observed are among these effects."""
    shares = {name + OBSERVED for name in declared.missing}
    return any(one.of.metric in shares for one in effects)


def attrition_notes(declared: DeclaredOutcomes, effects: Iterable[Effect]) -> list[Note]:
    """Warnings where the share observed differs between arms, overall.

    Args:
        declared: The declared outcomes.
        effects: All effects.
    """
    shares = {name + OBSERVED: name for name in declared.missing}
    return [
        Note(
            f"attrition: {one.of.metric} differs between {one.of.arm} and {one.of.control} (p = "
            f"{one.p_value:.2g}), so the effect on {shares[one.of.metric]} of those observed may "
            "be due to who is observed; its bounds allow for that",
            Weight.WARNING,
        )
        for one in effects
        if one.of.metric in shares and one.of.label == "overall" and one.p_value < _LEVEL
    ]
