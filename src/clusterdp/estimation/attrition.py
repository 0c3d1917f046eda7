"""Bounds on the effect on those who would be observed in either arm (Lee, 2009).

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
from clusterdp.estimation.composed import compared_arms
from clusterdp.estimation.intervals import quantile
from clusterdp.estimation.measured import CategoryFunction, Measured
from clusterdp.estimation.metric_effects import MetricRows

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.estimation.metric_effects import Wanted
    from clusterdp.estimation.ratio import ArmRatio, RatioRows
    from clusterdp.estimation.segments import RowCounts
    from clusterdp.estimation.target import Target
    from clusterdp.published.release import Block


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
    ratio: RatioRows, block: Block, rows: RowCounts, wanted: Wanted, place: int
) -> list[AttritionBounds]:
    """Bounds on each treatment's overall effect on an outcome that may be missing.

    Args:
        ratio: Its mean among those observed.
        block: The block of the outcome.
        rows: Its rows as counts.
        wanted: What was estimated.
        place: The place of the outcome.
    """
    values = block.space.outcome_values()[place]
    levels = np.unique(values[~np.isnan(values)]).tolist()
    tails = {}
    for sign, level in itertools.product((-1, 1), levels):
        tail = np.nan_to_num(np.maximum(sign * (values - level), 0.0))
        told = _measured(tail, block, wanted) if tail.any() else None
        if told is not None:
            tails[sign, level] = MetricRows.of(told, rows, wanted)
    from_ends = len(levels) > 2 and not {level for _, level in tails} & set(levels[1:-1])
    found = []
    # R·y times R is R·y, so that rows tell how both covary, and no covariance is worse.
    for one in compared_arms([*ratio.rows, *tails.values()], ratio.name):
        if one.of.segment or one.control is None or one.treated is None:
            break
        control, treated = (
            _Arm(ratio.of_arm(arm.first(len(ratio.rows))).worse, _tails(tails, levels, arm))
            for arm in (one.control, one.treated)
        )
        found.append(_bounds(one.of, control, treated, wanted.level, from_ends=from_ends))
    return found


def _measured(values: FloatArray, block: Block, wanted: Wanted) -> Measured | None:
    """A function of the category as rows tell it; None if they do not."""
    function = CategoryFunction.of("a tail", values, block.space)
    try:
        return wanted.measured(function, block)
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
