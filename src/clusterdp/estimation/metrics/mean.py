"""Effects on the mean of a metric: overall, in segments, adjusted, and their differences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.effects.text import segment_label
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.metrics._functions import (
    is_exact,
    metric_function,
    naming_observed,
    question_of,
)
from clusterdp.estimation.metrics.base import (
    MetricData,
    MetricEstimator,
    MetricFindings,
    QuestionRows,
    SegmentData,
    SegmentEffect,
)
from clusterdp.estimation.metrics.differences import compare_segments
from clusterdp.estimation.metrics.levels import BoundsEstimator
from clusterdp.estimation.metrics.observed import ObservedMeanEstimator
from clusterdp.estimation.reading.profiles import ResponseCounts
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Metric, Threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

# Effects below this many standard errors are not compared between folds: only those stand out that
# rows were chosen for.
_STANDS_OUT = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class MeanEstimator:
    """The mean of a function of the category, of the question at some index."""

    question: int
    function: CategoryFunction

    EXAMPLES: ClassVar[tuple[str, ...]] = ("rounds", "rounds>=10", "visit*spend")

    @classmethod
    def from_text(cls, parser: Parser, spaces: Sequence[Categories]) -> MetricEstimator | None:
        """The mean of a metric, which of a comparison is a share."""
        metric = parser.metric()
        if parser.kind() is not None:
            return None
        question = question_of(naming_observed(metric, spaces).outcomes, str(metric), spaces)
        return declared_mean(metric, question, spaces[question])

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """Effects on the mean."""
        rows = questions[self.question]
        (data,) = rows.read(self.function)
        found = mean_effects(data)
        found.notes.extend(rows.noise_notes(data.decoded.name, [data.decoded]))
        found.means.append((rows, self.function))
        is_share = self.function.is_share(rows.question.space)
        found.describe(data.decoded.name, self.function.values, is_share=is_share)
        return found


def declared_mean(metric: Metric, question: int, space: Categories) -> MetricEstimator:
    """The mean of a metric: of everyone, of those with an outcome observed, or its bounds."""
    metric = metric.with_missing(space.declared.missing)
    if metric.valued & set(space.declared.missing):
        function = metric_function(metric, space)
        return ObservedMeanEstimator.from_metric(metric, function, question, space)
    factor, *others = metric.factors
    if not others and isinstance(factor, Threshold) and factor.sign not in {"==", "!="}:
        metric.check_factors(space.declared.spaces)
        if not is_exact(factor, space):  # a number was rounded across the threshold
            return BoundsEstimator.from_comparison(factor, question, space)
    return MeanEstimator(question, metric_function(metric, space))


def mean_effects(data: MetricData) -> MetricFindings:
    """All effects on a mean, each segment's together."""
    found, covariates, differences = (
        MetricFindings(),
        data.rows.covariates,
        data.request.differences,
    )
    compared: dict[tuple[Any, ...], list[SegmentEffect]] = {}
    for segment, counted in data.rows.parts:
        part = SegmentData(data, segment, counted)
        every = part.plain_effects()
        if segment:
            plain = [one.value for one in every]
            found.notes.extend(part.notes(plain))
            found.folds.extend(_by_fold(part, counted, plain))
        if covariates is not None and not part.empty_arms:
            every += part.adjusted_effects(covariates)
        values = [one.value for one in every]
        found.effects.extend(values)
        found.notes.extend(_interval_notes(values))
        if segment and differences:
            for one in every:
                names = tuple(name for name, _ in segment)
                compared.setdefault((names, one.of.arm, one.of.adjusted), []).append(one)
    if differences is not None:
        for segments in compared.values():
            effects, test = compare_segments(segments, data.calibration, differences)
            found.effects.extend(effects)
            found.tests.extend([] if test is None else [test])
    return found


def _by_fold(
    part: SegmentData, counted: ResponseCounts, effects: list[Effect]
) -> list[list[Effect]]:
    """Effects of each arm in a segment, fold by fold; nothing where none stands out."""
    whole, folds = part.whole, part.whole.rows.profiles.folds
    stand_out = any(abs(one.effect) > _STANDS_OUT * one.std_error for one in effects)
    if folds is None or whole.request.fold is not None or not stand_out:
        return []
    of_rows, every = folds[counted.profiles], np.unique(folds)
    if len(np.unique(of_rows)) < len(every):
        return []
    parts = [
        SegmentData(
            whole, part.segment, ResponseCounts(*(terms[of_rows == fold] for terms in counted))
        )
        for fold in every
    ]
    if any(one.is_true_cluster or one.empty_arms for one in parts):
        return []
    by_arm = zip(*(one.plain_effects() for one in parts), strict=True)
    return [[one.value for one in of_arm] for of_arm in by_arm]


def _interval_notes(effects: list[Effect]) -> list[Note]:
    """What to say of effects that are known, but not how well; and of those that are not known.

    Of segments with too few units, their check tells.
    """
    unknown = [
        Note(f"{one.of.metric} is not reported: an arm has too few units.", Weight.SCOPE)
        for one in effects
        if math.isnan(one.effect) and not one.of.segment and not one.of.adjusted
    ]
    return unknown + [
        Note(
            f"{one.of.metric}{', adjusted,' * one.of.adjusted} has no CI: this release does not "
            "identify its variance. Ask the owner for a release with more of ε for rows.",
            Weight.SCOPE,
            segment_label(one.of.segment) if one.of.segment else None,
        )
        for one in effects
        if math.isnan(one.std_error) and not math.isnan(one.effect)
    ]
