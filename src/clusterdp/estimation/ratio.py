"""Ratios of two metrics' means in an arm, such as spend per visit.

By Fieller (1954) the interval of N/D holds every r for which N̂ − r·D̂ is within q standard errors
of zero: no ratio of estimates is taken to be normal. The variance of N̂ − rD̂ is a quadratic in r.
Its three coefficients follow from the variances of N̂, D̂ and N̂ − kD̂, k any number: all three metrics
are calibrated with the same coefficients, those that suit N − r₀D, r₀ the ratio under the public
prior. If D̂ is within q standard errors of zero the interval has no bounds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.calibration import public_ridge
from clusterdp.estimation.composed import compared_arms, composed_effect, unbounded_notes
from clusterdp.estimation.intervals import EVERYTHING, quantile
from clusterdp.estimation.metric_effects import Found, MetricRows

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.estimation.intervals import Limits
    from clusterdp.estimation.measured import CategoryFunction, Measured
    from clusterdp.estimation.metric_effects import Wanted
    from clusterdp.estimation.segments import RowCounts
    from clusterdp.published.release import Block

# The third metric is N − kD with |k| within these multiples of the ratio of both spans.
_LEAST_FACTOR, _MOST_FACTOR = 1e-2, 1e2


class Covariance(NamedTuple):
    """The covariance matrix of N̂ and D̂, or a part of it.

    Attributes:
        above: Var N̂.
        below: Var D̂.
        both: Cov(N̂, D̂).
    """

    above: float
    below: float
    both: float

    @classmethod
    def polarized(cls, variances: FloatArray, factor: float) -> Covariance:
        """From the variances of N̂, D̂ and N̂ − kD̂; what no covariance can be is cut off.

        Args:
            variances: The three of them.
            factor: k.
        """
        above, below, joint = np.maximum(variances, 0.0)
        return cls.bounded(above, below, (above + factor**2 * below - joint) / (2 * factor))

    @classmethod
    def bounded(cls, above: float, below: float, both: float) -> Covariance:
        """From estimates of all three; what no covariance can be is cut off."""
        above, below = max(float(above), 0.0), max(float(below), 0.0)
        most = math.sqrt(above * below)
        return cls(above, below, min(max(float(both), -most), most))

    def of_difference(self, ratio: float) -> float:
        """Var(N̂ − r·D̂)."""
        return max(self.above - 2 * ratio * self.both + ratio**2 * self.below, 0.0)


class ArmRatio(NamedTuple):
    """The ratio of two means of an arm, or of an arm's effects on two metrics.

    Attributes:
        above: N̂.
        below: D̂.
        sampling: What sampling adds to their covariances.
        privacy: What privacy adds to them.
        degrees: Degrees of freedom of both.
    """

    above: float
    below: float
    sampling: Covariance
    privacy: Covariance
    degrees: float

    @classmethod
    def of(cls, arm: ArmEstimates, factor: float) -> ArmRatio:
        """From an arm's means of N, D and N − kD."""
        return cls(
            above=float(arm.means[0]),
            below=float(arm.means[1]),
            sampling=Covariance.polarized(arm.sampling, factor),
            privacy=Covariance.polarized(arm.privacy, factor),
            degrees=arm.degrees,
        )

    @property
    def value(self) -> float:
        """N̂/D̂."""
        return self.above / self.below if self.below else math.nan

    @property
    def total(self) -> Covariance:
        """The covariances of sampling and privacy together."""
        return Covariance(*(sum(parts) for parts in zip(self.sampling, self.privacy, strict=True)))

    @property
    def bounds(self) -> Limits:
        """The estimate twice."""
        return self.value, self.value

    @property
    def sampling_variance(self) -> float:
        """What sampling adds to its variance, by linearisation."""
        return self._linearised(self.sampling)

    @property
    def privacy_variance(self) -> float:
        """What privacy adds to its variance, by linearisation."""
        return self._linearised(self.privacy)

    def limits(self, level: float) -> Limits:
        """Fieller's interval; everything where it has no bounds."""
        leading, middle, last = self._quadratic(level)
        if not leading > 0:
            return EVERYTHING
        reach = math.sqrt(max(middle**2 - leading * last, 0.0))
        return (middle - reach) / leading, (middle + reach) / leading

    def gap(self, level: float) -> Limits | None:
        """What Fieller's set leaves out between two rays; None if it is no such set."""
        leading, middle, last = self._quadratic(level)
        inside = middle**2 - leading * last
        if not (leading < 0 and inside > 0):
            return None
        reach = math.sqrt(inside)
        return (middle + reach) / leading, (middle - reach) / leading

    def _quadratic(self, level: float) -> tuple[float, float, float]:
        """The coefficients of (D² − q²V_D)r² − 2(ND − q²C)r + (N² − q²V_N) ≤ 0, without −2."""
        squared, total = quantile(level, self.degrees) ** 2, self.total
        return (
            self.below**2 - squared * total.below,
            self.above * self.below - squared * total.both,
            self.above**2 - squared * total.above,
        )

    def _linearised(self, part: Covariance) -> float:
        return part.of_difference(self.value) / self.below**2 if self.below else math.nan


class RatioRows(NamedTuple):
    """The rows of a release as a ratio reads them.

    Attributes:
        name: The name of the ratio.
        rows: As N, D and N − kD read them.
        factor: k.
        level: The confidence level that intervals without bounds are noted at.
    """

    name: str
    rows: tuple[MetricRows, MetricRows, MetricRows]
    factor: float
    level: float

    @classmethod
    def of(  # noqa: PLR0913 - the parts of a ratio and of a block
        cls,
        above: CategoryFunction,
        below: CategoryFunction,
        block: Block,
        rows: RowCounts,
        wanted: Wanted,
        *,
        name: str | None = None,
    ) -> RatioRows:
        """The ratio of the means of two functions of the category.

        Args:
            above: N.
            below: D.
            block: The block whose category they are of.
            rows: Its rows as counts.
            wanted: What to estimate.
            name: What the ratio is called; both names by default.
        """
        if above.combination is None or below.combination is None:
            # All three metrics are calibrated by the same sums.
            above, below = above.from_counts_alone(), below.from_counts_alone()
        prior = block.mechanism.settled_rows(block.space).public_prior(block.space)
        at_prior = float(prior @ above.values) / (float(prior @ below.values) or math.nan)

        def measured(function: CategoryFunction) -> Measured:
            return wanted.measured(function, block)

        both = [measured(one) for one in (above, below)]  # each is refused by its own name
        public = measured(above.minus(_bounded(at_prior, above, below), below))
        ridge = public_ridge(public.readings, rows.profiles, public.noise)
        first, second = (MetricRows.of(one, rows, wanted, ridge) for one in both)
        factor = _bounded(_overall_ratio(first, second), above, below)
        third = MetricRows.of(measured(above.minus(factor, below)), rows, wanted, ridge)
        return cls(
            name or f"{above.name}/{below.name}", (first, second, third), factor, wanted.level
        )

    def estimate(self) -> Found:
        """The effects on the ratio, overall and in every segment."""
        found, unbounded = Found(), []
        for one in compared_arms(self.rows, self.name):
            effect = composed_effect(one, lambda arm: ArmRatio.of(arm, self.factor))
            found.effects.append(effect)
            if math.isinf(effect.ci(self.level)[0]):
                unbounded.append(one.of.segment)
        found.notes.extend(unbounded_notes(self.name, unbounded))
        return found


def _overall_ratio(above: MetricRows, below: MetricRows) -> float:
    """The ratio of control, which decides nothing but where variances are compared."""
    for one in compared_arms([above, below], ""):
        if one.control is not None:
            return float(one.control.means[0] / (one.control.means[1] or math.nan))
        break
    return math.nan


def _bounded(ratio: float, above: CategoryFunction, below: CategoryFunction) -> float:
    """A ratio that is neither too near to zero nor too far from it, of the same sign."""
    unit = float(np.ptp(above.values) / np.ptp(below.values))
    if not math.isfinite(ratio):
        return unit
    size = float(np.clip(abs(ratio), _LEAST_FACTOR * unit, _MOST_FACTOR * unit))
    return math.copysign(size, ratio)
