"""Ratios of two metrics' means in an arm, such as spend per visit.

By Fieller (1954) the interval of N/D holds every r for which N̂ − r·D̂ is within q standard errors
of zero: no ratio of estimates is taken to be normal. The variance of N̂ − rD̂ is a quadratic in r.
Its three coefficients follow from the variances of N̂, D̂ and N̂ − kD̂, k any number: all three metrics
are calibrated with the same coefficients, those that suit N − r₀D, r₀ the ratio under the public
prior. If D̂ is within q standard errors of zero the interval has no bounds.

At a small ε rows often do not tell the product of both metrics, nor how they covary. The variance
of N̂ − kD̂ is then no use. The covariance has bounds (see `shared_response.py`), and every r is
tested with the one that is worse: with the least if r > 0, with the largest if r < 0. It has
bounds, too, if N and D are of different questions (see `crossing.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.effects.intervals import EVERYTHING, quantile
from clusterdp.estimation.means.calibration import public_ridge
from clusterdp.estimation.metrics._composed import (
    compared_arms,
    composed_effect,
    paired_arms,
    unbounded_notes,
)
from clusterdp.estimation.metrics._covariance import Products, shared_rows, untold_note
from clusterdp.estimation.metrics.mean import Found, MetricRows
from clusterdp.estimation.reading.crossing import apart_covariances

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.effects.findings import Note
    from clusterdp.estimation.effects.intervals import Limits
    from clusterdp.estimation.means.functions import CategoryFunction
    from clusterdp.estimation.metrics._composed import ArmEstimates
    from clusterdp.estimation.metrics.parse import Source
    from clusterdp.estimation.report.results import Effect


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

    @classmethod
    def covarying(cls, arm: ArmEstimates, *, sampling: float, privacy: float = 0.0) -> ArmRatio:
        """From means of N and D, and what sampling and privacy add to their covariance."""
        return cls(
            above=float(arm.means[0]),
            below=float(arm.means[1]),
            sampling=Covariance.bounded(arm.sampling[0], arm.sampling[1], sampling),
            privacy=Covariance.bounded(arm.privacy[0], arm.privacy[1], privacy),
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


class RatioBounds(NamedTuple):
    """A ratio of which the covariance of N̂ and D̂ has bounds.

    Attributes:
        least: The ratio with the least covariance that is possible.
        most: The same with the largest one; the same ratio where the covariance is told.
    """

    least: ArmRatio
    most: ArmRatio

    @classmethod
    def of(cls, arm: ArmEstimates, factor: float) -> RatioBounds:
        """From means and k of `shared_rows`."""

        def ratio(plus: int, minus: int) -> ArmRatio:
            sampling, privacy = (
                float(part[plus] - part[minus]) / (4 * factor)
                for part in (arm.sampling, arm.privacy)
            )
            # What is too much for sampling is noise, which privacy has with the opposite sign.
            bounded = Covariance.bounded(arm.sampling[0], arm.sampling[1], sampling).both
            return ArmRatio.covarying(arm, sampling=bounded, privacy=privacy + sampling - bounded)

        return cls(ratio(2, 3), ratio(4, 5))

    @property
    def worse(self) -> ArmRatio:
        """The one with the larger error at the estimate."""
        return self.least if self.least.value > 0 else self.most

    @property
    def value(self) -> float:
        """N̂/D̂."""
        return self.worse.value

    @property
    def bounds(self) -> Limits:
        """The estimate twice."""
        return self.worse.bounds

    @property
    def sampling_variance(self) -> float:
        """What sampling adds to its variance, at worst."""
        return self.worse.sampling_variance

    @property
    def privacy_variance(self) -> float:
        """What privacy adds to its variance, at worst."""
        return self.worse.privacy_variance

    def limits(self, level: float) -> Limits:
        """The interval; everything where it has no bounds.

        Values above zero are tested with the least covariance, others with the largest.
        """
        above, below = self.least.limits(level), self.most.limits(level)
        low = below[0] if below[0] < 0 else above[0]
        return low, above[1] if above[1] > 0 else below[1]

    def gap(self, level: float) -> Limits | None:
        """What lies between two rays, if these are what is possible.

        Those above zero are left out by the least covariance, others by the largest. Both leave out
        zero, or none does; and then one of them has no gap on its side.
        """
        above, below = self.least.gap(level), self.most.gap(level)
        parts = [] if above is None or above[1] <= 0 else [(max(above[0], 0.0), above[1])]
        parts += [] if below is None or below[0] >= 0 else [(below[0], min(below[1], 0.0))]
        return (min(parts)[0], max(parts)[1]) if parts else None


class RatioRows(NamedTuple):
    """The rows of a release as a ratio reads them.

    Attributes:
        name: The name of the ratio.
        rows: As N, D and N − kD read them; or those of `shared_rows`.
        factor: k.
        level: The confidence level that intervals without bounds are noted at.
        untold: That rows do not tell how N and D covary; None if they do.
    """

    name: str
    rows: tuple[MetricRows, ...]
    factor: float
    level: float
    untold: Note | None = None

    @classmethod
    def of(
        cls,
        above: CategoryFunction,
        below: CategoryFunction,
        source: Source,
        *,
        name: str | None = None,
    ) -> RatioRows:
        """The ratio of the means of two functions of the category.

        Args:
            above: N.
            below: D.
            source: The question whose category they are of.
            name: What the ratio is called; both names by default.
        """
        question, rows, wanted = source.question, source.rows, source.wanted
        name = name or f"{above.name}/{below.name}"
        if above.combination is None or below.combination is None:
            # All three metrics are calibrated by the same sums.
            above, below = above.from_counts_alone(), below.from_counts_alone()
        prior = question.mechanism.settled_rows(question.space).public_prior(question.space)
        at_prior = float(prior @ above.values) / (float(prior @ below.values) or math.nan)
        ridge_of = above.minus(_bounded(at_prior, above, below), below)
        products = Products.told_by(source, above, below)
        if not products.is_told:
            shared = shared_rows(above, below, products, source, ridge_of)
            untold = untold_note(above.name, below.name, name)
            return cls(name, shared.rows, shared.factor, wanted.level, untold)
        both = [source.measured(one) for one in (above, below)]  # each is refused by its own name
        public = source.measured(ridge_of)
        ridge = public_ridge(public.readings, rows.profiles, public.noise)
        first, second = (MetricRows.of(one, rows, wanted, ridge) for one in both)
        factor = _bounded(_overall_ratio(first, second), above, below)
        joint = source.measured(above.minus(factor, below))
        third = MetricRows.of(joint, rows, wanted, ridge)
        return cls(name, (first, second, third), factor, wanted.level)

    def of_arm(self, arm: ArmEstimates) -> RatioBounds:
        """The ratio of an arm, from its means of all that `rows` are of."""
        if self.untold is not None:
            return RatioBounds.of(arm, self.factor)
        ratio = ArmRatio.of(arm, self.factor)
        return RatioBounds(ratio, ratio)

    def estimate(self) -> Found:
        """The effects on the ratio, overall and in every segment."""
        notes = [] if self.untold is None else [self.untold]
        pairs = compared_arms(self.rows, self.name)
        effects = [composed_effect(one, self.of_arm) for one in pairs]
        return _with_notes(effects, notes, self.name, self.level)


def ratios_apart(above: MetricRows, below: MetricRows, name: str) -> Found:
    """The effects on a ratio of means that different questions tell.

    Args:
        above: The rows as N reads them.
        below: The rows as D reads them.
        name: The name of the ratio.
    """
    effects = []
    for one in paired_arms([above, below], name):
        means = one.means()
        arms = one.compared(means)
        if arms.control is not None and arms.treated is not None:
            control, treated = np.stack(apart_covariances(one, means), axis=-1)
            arms = arms._replace(
                control=_covarying(arms.control, control), treated=_covarying(arms.treated, treated)
            )
        effects.append(composed_effect(arms, _apart))
    return _with_notes(effects, [], name, above.wanted.level)


def _covarying(arm: ArmEstimates, bounds: FloatArray) -> ArmEstimates:
    """An arm's means of N and D; after their variances their least and largest covariance."""
    return arm._replace(sampling=np.concatenate([arm.sampling, bounds]))


def _apart(arm: ArmEstimates) -> RatioBounds:
    """The ratio of an arm, from what `_covarying` gives."""
    return RatioBounds(*(ArmRatio.covarying(arm, sampling=float(by)) for by in arm.sampling[2:]))


def _with_notes(effects: list[Effect], notes: list[Note], name: str, level: float) -> Found:
    """Effects with notes on those that have no bounds."""
    unbounded = [one.of.segment for one in effects if math.isinf(one.ci(level)[0])]
    return Found(effects=effects, notes=[*notes, *unbounded_notes(name, unbounded)])


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
