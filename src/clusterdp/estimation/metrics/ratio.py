"""Ratios of two metrics' means in an arm, such as spend per visit.

By Fieller (1954) the interval of N/D holds every r for which N̂ − r·D̂ is within q standard errors
of zero: no ratio of estimates is taken to be normal. The variance of N̂ − rD̂ is a quadratic in r.
Its three coefficients follow from the variances of N̂, D̂ and N̂ − kD̂, k any number: all three metrics
are calibrated with the same coefficients, those that suit N − r₀D, r₀ the ratio under the public
prior. If D̂ is within q standard errors of zero the interval has no bounds.

At a small ε rows often do not show the product of both metrics, nor how they covary. The variance
of N̂ − kD̂ is then no use. The covariance has bounds (see `_composed.py`), and every r is
tested with the one that is worse: with the least if r > 0, with the largest if r < 0. It has
bounds, too, if N and D are of different questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.estimation.effects.effect import Effect, segment_label
from clusterdp.estimation.effects.intervals import Limits, quantile, ratio_set
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.means.functions import (
    CategoryFunction,
    DecodedFunction,
    metric_function,
    naming_observed,
    question_of,
)
from clusterdp.estimation.metrics._composed import (
    ArmComparison,
    ArmEstimates,
    apart_covariances,
    compared_arms,
    question_product,
    shared_data,
    unidentified_note,
)
from clusterdp.estimation.metrics.base import MetricData, MetricFindings, QuestionRows
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Metric, Threshold

# The third metric is N − kD with |k| within these multiples of the ratio of both spans.
_LEAST_FACTOR, _MOST_FACTOR = 1e-2, 1e2


class Covariance(NamedTuple):
    """The covariance matrix of N̂ and D̂, or a part of it.

    Attributes:
        above: Var N̂.
        below: Var D̂.
        least: The least that Cov(N̂, D̂) can be.
        most: The largest; the same where the covariance is identified.
    """

    above: float
    below: float
    least: float
    most: float

    @classmethod
    def cut_off(cls, above: float, below: float, both: tuple[float, float]) -> Covariance:
        """From estimates of both variances and of bounds; what no covariance can be is cut off."""
        above, below = max(float(above), 0.0), max(float(below), 0.0)
        most = math.sqrt(above * below)
        return cls(above, below, *(min(max(float(one), -most), most) for one in both))

    def of_difference(self, ratio: float) -> float:
        """Var(N̂ − r·D̂), at worst."""
        both = self.least if ratio > 0 else self.most
        return max(self.above - 2 * ratio * both + ratio**2 * self.below, 0.0)


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
    def polarized(cls, arm: ArmEstimates, factor: float) -> Self:
        """From an arm's means of N, D and N − kD, and perhaps others."""
        both = []
        for part in (arm.sampling, arm.privacy):
            above, below, joint = np.maximum(part[:3], 0.0).tolist()
            both.append((above + factor**2 * below - joint) / (2 * factor))
        by_sampling, by_privacy = ((one, one) for one in both)
        return cls.covarying(arm, by_sampling, by_privacy)

    @classmethod
    def covarying(cls, arm: ArmEstimates, sampling: Limits, privacy: Limits = (0.0, 0.0)) -> Self:
        """From means of N and D, and bounds of what sampling and privacy add to their covariance.

        Args:
            arm: The means.
            sampling: The least and the largest that sampling adds.
            privacy: The same of privacy; nothing where the noise of both is independent.
        """
        above, below = arm.means[:2].tolist()
        by_sampling = Covariance.cut_off(arm.sampling[0], arm.sampling[1], sampling)
        by_privacy = Covariance.cut_off(arm.privacy[0], arm.privacy[1], privacy)
        return cls(above, below, by_sampling, by_privacy, arm.degrees)

    @classmethod
    def from_shared(cls, arm: ArmEstimates, factor: float) -> Self:
        """From means and k of `shared_data`."""
        sampling, privacy = (
            tuple(((part[[2, 4]] - part[[3, 5]]) / (4 * factor)).tolist())
            for part in (arm.sampling, arm.privacy)
        )
        # What is too much for sampling is noise, which privacy has with the opposite sign.
        held = Covariance.cut_off(arm.sampling[0], arm.sampling[1], sampling)[2:]
        left = (more + all_ - one for more, all_, one in zip(privacy, sampling, held, strict=True))
        return cls.covarying(arm, held, tuple(left))

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
    def variances(self) -> tuple[float, float]:
        """What sampling and privacy add to its variance, by linearisation and at worst."""
        by_sampling, by_privacy = (
            part.of_difference(self.value) for part in (self.sampling, self.privacy)
        )
        scale = self.below**2 or math.nan
        return by_sampling / scale, by_privacy / scale

    def limits(self, level: float) -> Limits:
        """Fieller's interval; everything where it has no bounds.

        Values above zero are tested with the least covariance, others with the largest.
        """
        (above, _), (below, _) = self._sets(level)
        low = below[0] if below[0] < 0 else above[0]
        return low, above[1] if above[1] > 0 else below[1]

    def gap(self, level: float) -> Limits | None:
        """What lies between two rays, if these are what is possible.

        Those above zero are left out by the least covariance, others by the largest. Both leave out
        zero, or none does; and then one of them has no gap on its side.
        """
        (_, above), (_, below) = self._sets(level)
        parts = [] if above is None or above[1] <= 0 else [(max(above[0], 0.0), above[1])]
        parts += [] if below is None or below[0] >= 0 else [(below[0], min(below[1], 0.0))]
        return (min(parts)[0], max(parts)[1]) if parts else None

    def _sets(self, level: float) -> list[tuple[Limits, Limits | None]]:
        """Fieller's sets by the least covariance, and by the largest."""
        reach, total = quantile(level, self.degrees), self.total
        return [
            ratio_set(self.above, self.below, (total.above, total.below, both), reach)
            for both in (total.least, total.most)
        ]


class RatioData:
    """The rows of a question as a ratio of two means reads them.

    Attributes:
        name: The name of the ratio.
        data: The rows as N, D and N − kD read them; or those of `shared_data`.
        factor: k.
        is_told: Whether rows identify how N and D covary.

    Args:
        name: What the ratio is called.
        above: N.
        below: D.
        source: The question whose category both use.
    """

    def __init__(
        self, name: str, above: CategoryFunction, below: CategoryFunction, source: QuestionRows
    ) -> None:
        self.name, self._names = name, (above.name, below.name)
        self._level, question = source.request.level, source.question
        if above.combination is None or below.combination is None:
            # All three metrics are calibrated by the same sums.
            above, below = above.from_counts_alone(), below.from_counts_alone()
        prior = question.mechanism.settled_rows(question.space).public_prior(question.space)
        at_prior = float(prior @ above.values) / (float(prior @ below.values) or math.nan)
        ridge_of = above.minus(_bounded(at_prior, above, below), below)
        products = question_product(source, above, below)
        self.is_told = products[0] is products[1]
        self.data: list[MetricData]
        if not self.is_told:
            self.data, self.factor = shared_data(above, below, products, source, ridge_of)
            return
        both = [source.decode(one) for one in (above, below)]  # each is refused by its own name
        ridge = source.decode(ridge_of).ridge

        def read(decoded: DecodedFunction) -> MetricData:
            return MetricData(decoded, source.rows, source.request, ridge)

        self.data = [read(one) for one in both]
        # The ratio of control only decides where variances are compared.
        control = next(compared_arms(self.data, "")).control
        means = (math.nan, math.nan) if control is None else control.means
        self.factor = _bounded(float(means[0] / (means[1] or math.nan)), above, below)
        self.data.append(read(source.decode(above.minus(self.factor, below))))

    def of_arm(self, arm: ArmEstimates) -> ArmRatio:
        """The ratio of an arm, from its means of all that `data` has."""
        read = ArmRatio.polarized if self.is_told else ArmRatio.from_shared
        return read(arm, self.factor)

    def estimate(self) -> MetricFindings:
        """The effects on the ratio, overall and in every segment."""
        arms = compared_arms(self.data, self.name)
        found = _findings(
            self.name, [one.composed_effect(self.of_arm) for one in arms], self._level
        )
        if not self.is_told:
            found.notes.insert(0, unidentified_note(*self._names, self.name))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class RatioEstimator:
    """The ratio of two means.

    Attributes:
        name: What it is called.
        above: The function of the category that is divided.
        below: The one that it is divided by.
        questions: The indices of the questions that identify both.
    """

    name: str
    above: CategoryFunction
    below: CategoryFunction
    questions: tuple[int, int]

    EXAMPLES: ClassVar[tuple[str, ...]] = ("spend/visit",)

    @classmethod
    def from_text(cls, parser: Parser, spaces: Sequence[Categories]) -> RatioEstimator | None:
        """A ratio of two metrics."""
        above = parser.metric()
        if parser.kind() != "/":
            return None
        parser.take("/")
        below = parser.metric()
        parser.end()
        name = f"{_within(above)}/{_within(below)}"
        above, below = (naming_observed(one, spaces) for one in (above, below))
        first, second = (question_of(one.outcomes, name, spaces) for one in (above, below))
        return cls(
            name,
            metric_function(above, spaces[first]),
            metric_function(below, spaces[second]),
            (first, second),
        )

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """Effects on the ratio."""
        source, other = (questions[index] for index in self.questions)
        if source is other:
            found = RatioData(self.name, self.above, self.below, source).estimate()
        else:
            found = self._estimate_apart(source, other)
        found.notes.extend(source.means_alone_notes(self.name))
        found.note_outcomes(source, self.above)
        found.note_outcomes(other, self.below)
        return found

    def _estimate_apart(self, source: QuestionRows, other: QuestionRows) -> MetricFindings:
        """Effects where different questions identify the two means."""
        effects = []
        for one in compared_arms([*source.read(self.above), *other.read(self.below)], self.name):
            bounds = np.stack(apart_covariances(one), axis=-1) if one.means else np.zeros((2, 2))

            def compose(
                arm: ArmEstimates, one: ArmComparison = one, bounds: FloatArray = bounds
            ) -> ArmRatio:
                return ArmRatio.covarying(arm, tuple(bounds[int(arm is one.treated)].tolist()))

            effects.append(one.composed_effect(compose))
        found = _findings(self.name, effects, source.request.level)
        found.notes.append(
            Note(
                f"{self.name} combines outcomes of different questions, which no unit answered "
                "together. Its CI is conservative. Ask the owner to put them in one question.",
                Weight.SCOPE,
            )
        )
        return found


def _findings(name: str, effects: list[Effect], level: float) -> MetricFindings:
    """Effects on a ratio, with notes on those that have no bounds."""
    text = f"the denominator of {name} may be zero, so its CI holds every possible value."
    notes = [
        Note(text, Weight.SCOPE, segment_label(one.of.segment))
        for one in effects
        if math.isinf(one.ci(level)[0])
    ]
    return MetricFindings(effects=effects, notes=notes)


def _within(metric: Metric) -> str:
    """A metric as it stands in a ratio: a comparison is in parentheses."""
    lone = len(metric.factors) == 1 and isinstance(metric.factors[0], Threshold)
    return f"({metric})" if lone else str(metric)


def _bounded(ratio: float, above: CategoryFunction, below: CategoryFunction) -> float:
    """A ratio that is neither too near to zero nor too far from it, of the same sign."""
    unit = float(np.ptp(above.values) / np.ptp(below.values))
    if not math.isfinite(ratio):
        return unit
    size = float(np.clip(abs(ratio), _LEAST_FACTOR * unit, _MOST_FACTOR * unit))
    return math.copysign(size, ratio)
