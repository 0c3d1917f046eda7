"""Effects on the mean of a metric: overall, in segments, adjusted, and their differences.

Estimates of several segments are calibrated by the same sums, so their errors are correlated. A
difference is a weighted sum over rows like any other effect, and has a variance of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.effects.effect import (
    REST,
    Effect,
    EffectArrays,
    EffectTarget,
    segment_label,
    to_effect,
)
from clusterdp.estimation.effects.findings import SegmentTest, benjamini_hochberg
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.effects.shrinkage import (
    MANY_SEGMENTS,
    ShrunkenEffect,
    possible_ranks,
    shrink,
)
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import (
    CategoryFunction,
    is_exact,
    metric_function,
    naming_observed,
    question_of,
)
from clusterdp.estimation.metrics.base import (
    ArmPairMeans,
    MetricData,
    MetricEstimator,
    MetricFindings,
    QuestionRows,
    SegmentData,
    SegmentEffect,
)
from clusterdp.estimation.metrics.levels import BoundsEstimator
from clusterdp.estimation.metrics.observed import ObservedMeanEstimator
from clusterdp.estimation.reading.profiles import ResponseCounts
from clusterdp.estimation.reading.request import Differences
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Metric, Threshold
from clusterdp.statistics.base import CovariateMoments

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
        found = mean_effects(data, _covariate_of(rows, data.decoded.name))
        found.notes.extend(rows.noise_notes(data.decoded.name, [data.decoded]))
        found.means.append((rows, self.function))
        found.note_outcomes(rows, self.function)
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


def mean_effects(data: MetricData, owned: CovariateMoments | None = None) -> MetricFindings:
    """All effects on a mean, each segment's together.

    Args:
        data: The rows.
        owned: The owner's covariate, which overall effects are adjusted by; None without.
    """
    found, covariates = MetricFindings(), data.rows.covariates
    compared: dict[tuple[Any, ...], list[SegmentEffect]] = {}
    for segment, counted in data.rows.parts:
        part = SegmentData(data, segment, counted)
        every = part.effects()
        if segment:
            plain = [one.value for one in every]
            found.notes.extend(part.notes(plain))
            found.folds.extend(_by_fold(part, counted, plain))
        if covariates is not None and not part.empty_arms:
            every += part.effects(covariates)
        if owned is not None and not segment:
            every = _adjusted_by_owner(part, every, owned)
            found.owner_covariates.append((data.decoded.name, owned.column))
        values = [one.value for one in every]
        found.effects.extend(values)
        found.notes.extend(_interval_notes(values))
        if segment:
            for one in every:
                names = tuple(name for name, _ in segment)
                compared.setdefault((names, one.value.of.arm, one.value.of.adjusted), []).append(
                    one
                )
    for segments in compared.values():
        found.add(
            compare_segments(
                segments, data.calibration, data.request.differences, data.request.level
            )
        )
    return found


def _covariate_of(rows: QuestionRows, metric: str) -> CovariateMoments | None:
    """The owner's covariate of a metric, where overall effects are adjusted by it.

    It covers all units of one folder, each cluster by its size, and arms as released.
    """
    request = rows.request
    if (
        rows.folders
        or not request.use_sums
        or request.fold is not None
        or request.estimator != "stratified"
        or request.covariates
        or request.merged is not None
    ):
        return None
    found = (one.covariate_moments(metric) for one in rows.question.statistics)
    return next((one for one in found if one is not None), None)


def _adjusted_by_owner(
    part: SegmentData, plain: list[SegmentEffect], owned: CovariateMoments
) -> list[SegmentEffect]:
    """Overall effects, and adjusted ones; of both, the one with the smaller standard error counts.

    Which one that is depends on variances alone.
    """
    from clusterdp.estimation.means.owner_covariates import adjusted_by_owner  # of few releases

    layout, found = part.whole.request.layout, []
    for arm, one in zip(layout.treatments, plain, strict=True):
        if one.means is None:
            found.append(one)
            continue
        pair = [layout.control, arm]
        weights = part.weigh(pair)
        squares = (weights.of_units() ** 2 * part.moments.of_arms(pair).sizes).sum(axis=-2)
        arrays = adjusted_by_owner(
            one.arrays, one.means.means, squares, owned, pair, layout.of_arms(pair)
        )
        of = one.value.of._replace(adjusted=True)
        value = to_effect(arrays, of, part.arm_sizes(weights))
        is_better = value.std_error < one.value.std_error
        found += [
            one._replace(value=replace(one.value, to_report=not is_better)),
            one._replace(value=replace(value, to_report=is_better), arrays=arrays),
        ]
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
    by_arm = zip(*(one.effects() for one in parts), strict=True)
    return [[one.value for one in of_arm] for of_arm in by_arm]


def _interval_notes(effects: list[Effect]) -> list[Note]:
    """What to say of effects that are known, but not how well; and of those that are not known.

    Segments with too few units have a check of their own.
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


# The target of a difference, the weights of segments in it, and units of both arms.
_Difference = tuple[EffectTarget, FloatArray, IntArray]


class SegmentErrors(NamedTuple):
    """Effects of segments of one dimension, and the parts of their variances.

    Attributes:
        effects: Axes `[segment]`.
        sampling: Covariances of sampling; axes `[segment, segment]`. Segments have no units in
            common, but may have groups that were assigned as a whole.
        privacy: Covariances of privacy; axes `[segment, segment]`.
        known: The part of `privacy` that is known; axes the same.
        degrees: Degrees of freedom; axes `[segment]`.
        by_sums: What the noise of each published sum, in standard deviations, does to the effects;
            axes `[segment, sum]`.
    """

    effects: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    known: FloatArray
    degrees: FloatArray
    by_sums: FloatArray

    @classmethod
    def from_segments(
        cls, segments: Sequence[SegmentEffect], calibration: Calibration
    ) -> SegmentErrors:
        """The errors of some segments of an arm."""
        privacy, known = np.zeros((2, len(segments), len(segments)))
        means = [one.means for one in segments if one.means is not None]
        calibrated = [one.found for one in means]
        for arm in (0, 1):
            together, sums = calibration.covariances(
                coefficients=np.stack([one.coefficients[arm] for one in calibrated]),
                noise_sums=np.stack([one.noise_sums[arm] for one in calibrated]),
            )
            privacy, known = privacy + together, known + sums
        variances = np.array([one.arrays.privacy_variances[0] for one in segments])
        np.fill_diagonal(privacy, variances)
        return cls(
            effects=np.array([one.arrays.effects[0] for one in segments]),
            sampling=_sampling(means),
            privacy=privacy,
            known=known,
            degrees=np.concatenate([one.arrays.degrees for one in segments]),
            by_sums=np.sqrt(calibration.sums.variances)
            * np.stack([one.coefficients[1] - one.coefficients[0] for one in calibrated]),
        )

    @property
    def covariances(self) -> FloatArray:
        """Of the effects; axes `[segment, segment]`."""
        sampling = self.sampling.copy()
        np.fill_diagonal(sampling, np.maximum(np.diag(sampling), 0.0))
        return np.asarray(sampling + self.privacy)

    @property
    def variances(self) -> FloatArray:
        """Of each segment's effect."""
        return np.diag(self.covariances)

    def combine(self, weights: FloatArray) -> EffectArrays:
        """A weighted sum of the effects."""
        privacy = max(
            float(weights @ self.privacy @ weights), float(weights @ self.known @ weights)
        )
        parts = weights**2 * self.variances
        return EffectArrays(
            effects=np.array([weights @ self.effects]),
            variances=np.array([max(float(weights @ self.sampling @ weights), 0.0) + privacy]),
            privacy_variances=np.array([privacy]),
            degrees=np.array([parts.sum() ** 2 / (parts**2 / self.degrees).sum()]),
        )


def _sampling(means: Sequence[ArmPairMeans]) -> FloatArray:
    """Covariances of sampling between segments, from the means of both arms in each."""
    found = np.zeros((len(means), len(means)))
    for of_arm in zip(*(one.scores for one in means if one.scores is not None), strict=True):
        # A segment may lack the last groups.
        longest = max(len(one.scores) for one in of_arm)
        padded = np.stack([np.pad(one.scores, (0, longest - len(one.scores))) for one in of_arm])
        found += padded @ padded.T
    np.fill_diagonal(found, [one.means.sampling.sum() for one in means])
    return found


def compare_segments(
    segments: Sequence[SegmentEffect],
    calibration: Calibration,
    between: Differences | None,
    level: float,
) -> MetricFindings:
    """Differences between the segments of a dimension, and a test that all effects are the same.

    Of many segments also shrunken effects, and the test without being asked. Segments without an
    effect or a standard error are left out.
    """
    found = MetricFindings()
    segments = [one for one in segments if 0 < one.arrays.variances[0] < np.inf]
    are_many = len(segments) >= MANY_SEGMENTS and segments[0].value.interval is None
    if len(segments) < 2 or not (between or are_many):
        return found
    errors = SegmentErrors.from_segments(segments, calibration)
    if between:
        compared = {"rest": _against_rest, "pairs": _in_pairs}[between](segments)
        found.effects.extend(_difference(errors, one) for one in compared)
    if are_many:
        found.shrunken.extend(_shrink(segments, errors, level))
        found.notes.append(
            Note(
                f"Shrunken effects of {MANY_SEGMENTS} or more segments are moved towards their "
                f"mean, the more the noisier they are. On average {level:.0%} of their CIs cover. "
                "Ranks are places that a segment can have; they hold for all segments together."
            )
        )
    found.tests.append(_same_effects(errors, segments[0].value.of))
    return found


def _shrink(
    segments: Sequence[SegmentEffect], errors: SegmentErrors, level: float
) -> Iterator[tuple[EffectTarget, ShrunkenEffect]]:
    """Shrunken effects of the segments of a dimension."""
    effects, reaches = shrink(errors.effects, errors.covariances, errors.degrees, level)
    simultaneous = 1 - (1 - level) / len(segments)
    limits = np.array([one.value.ci(simultaneous) for one in segments])
    from_rest = [_difference(errors, one) for one in _against_rest(segments)]
    p_values = benjamini_hochberg(np.array([one.p_value for one in from_rest]))
    for one, effect, reach, ranks, rest, p_value in zip(
        segments, effects, reaches, possible_ranks(limits), from_rest, p_values, strict=True
    ):
        yield (
            one.value.of,
            ShrunkenEffect(
                effect=float(effect),
                low=float(effect - reach),
                high=float(effect + reach),
                ranks=(int(ranks[0]), int(ranks[1])),
                rest_p_value=float(p_value),
                is_above_rest=rest.effect > 0,
            ),
        )


def _difference(errors: SegmentErrors, difference: _Difference) -> Effect:
    of, weights, sizes = difference
    return to_effect(errors.combine(weights), of, sizes)


def _against_rest(segments: Sequence[SegmentEffect]) -> Iterator[_Difference]:
    """Each segment against the mean effect of the others, weighted by their units.

    Of two segments, the first alone: the second one against the rest is the same question.
    """
    sizes = np.array([one.n_units for one in segments])
    for place, one in enumerate(segments if len(segments) > 2 else segments[:1]):
        rest = np.where(np.arange(len(segments)) == place, 0, sizes)
        weights = -rest / rest.sum()
        weights[place] = 1.0
        yield one.value.of._replace(against=REST), weights, _arm_sizes(one)


def _in_pairs(segments: Sequence[SegmentEffect]) -> Iterator[_Difference]:
    """Each segment against each that comes after it."""
    axes = np.eye(len(segments))
    for (one, axis), (other, other_axis) in combinations(zip(segments, axes, strict=True), 2):
        of = one.value.of._replace(against=segment_label(other.value.of.segment))
        yield of, axis - other_axis, _arm_sizes(one) + _arm_sizes(other)


def _arm_sizes(one: SegmentEffect) -> IntArray:
    return np.array([one.value.n_control, one.value.n_treated])


def _same_effects(errors: SegmentErrors, of: EffectTarget) -> SegmentTest:
    """Wald's test that the effects of all segments are the same, by an F distribution.

    Variances are estimated, and with few units badly: Welch's (1951) correction. The sum of squares
    of normal errors has the cumulants S − 1, 2(S − 1) and 8(S − 1). Noise of published sums has
    longer tails, of Laplace's at most. With q_j what the square of sum j's noise counts, 3Σ q² is
    added to the second cumulant, and 36Σ q² + 30Σ q³ to the third. A chi-squared variable that is
    shifted and scaled has these three, with 8κ₂³/κ₃² degrees of freedom.
    """
    n_segments = len(errors.effects)
    contrasts = np.eye(n_segments)[1:] - np.eye(n_segments)[0]
    covariances = contrasts @ errors.covariances @ contrasts.T
    weights = contrasts.T @ np.linalg.solve(covariances, contrasts)
    distance = errors.effects @ weights @ errors.effects
    counted = ((weights @ errors.by_sums) * errors.by_sums).sum(axis=0)
    variance = 2 * (n_segments - 1) + 3 * (counted**2).sum()
    third = 8 * (n_segments - 1) + 36 * (counted**2).sum() + 30 * (counted**3).sum()
    free = 8 * variance**3 / third**2
    shares = 1 / errors.variances / (1 / errors.variances).sum()
    spread = ((1 - shares) ** 2 / errors.degrees).sum()
    squared = n_segments**2 - 1
    welch = distance / (1 + 2 * (n_segments - 2) / squared * spread)
    return SegmentTest(
        metric=of.metric,
        arm=of.arm,
        control=of.control,
        by=tuple(name for name, _ in of.segment),
        adjusted=of.adjusted,
        statistic=max(1 + (welch - (n_segments - 1)) * math.sqrt(2 / (free * variance)), 0.0),
        n_segments=n_segments,
        effect_degrees=free,
        degrees=squared / (3 * spread),
    )
