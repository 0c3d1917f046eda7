"""What every metric is estimated from, and what is found.

A metric is estimated by a `MetricEstimator` from the rows of questions (`QuestionRows`). These are
read as functions of the category (`MetricData`), segment by segment (`SegmentData`): an arm's mean
is a sum over rows with public weights, calibrated by published sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, Protocol

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import (
    NO_EFFECT,
    Effect,
    EffectArrays,
    EffectTarget,
    Segment,
    segment_label,
    to_effect,
)
from clusterdp.estimation.effects.findings import ArmDistribution, AttritionBounds, SegmentTest
from clusterdp.estimation.effects.intervals import TrueClusterInterval
from clusterdp.estimation.effects.notes import DataCheck, Note, Weight
from clusterdp.estimation.effects.shrinkage import ShrunkenEffect
from clusterdp.estimation.means.arms import ArmMeans, GroupScores, profile_scores, to_means
from clusterdp.estimation.means.calibration import CalibratedSums, Calibration
from clusterdp.estimation.means.functions import CategoryFunction, DecodedFunction
from clusterdp.estimation.means.responses import CellMoments, ProfileSums
from clusterdp.estimation.means.sums import WeightedSums
from clusterdp.estimation.means.weights import CellWeights, by_inverse_variance, weigh
from clusterdp.estimation.reading.clusters import inverted_cluster_notes
from clusterdp.estimation.reading.covariates import RowsBySegment
from clusterdp.estimation.reading.profiles import ResponseCounts, spread_cells
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.estimation.reading.segments import RowCounts
from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.grammar import parse_metric


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricFindings:
    """What was found, of one metric or of all.

    Attributes:
        effects: Effects.
        tests: Tests that segments have the same effect.
        notes: Remarks on them.
        distributions: Distributions of outcomes.
        bounds: Bounds for attrition.
        checks: Checks of the data.
        shares: The metrics that are shares of units.
        ranges: Metrics with the least and the largest value that they can have.
        folds: Effects in segments that stand out, each fold by fold.
        means: The functions whose means effects are on, with the question of each.
        outcomes: The outcomes that metrics are functions of.
        owner_covariates: Metrics that are adjusted by a covariate of the owner, with its column.
        shrunken: Effects of many segments, shrunken.
    """

    effects: list[Effect] = field(default_factory=list)
    tests: list[SegmentTest] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    distributions: list[ArmDistribution] = field(default_factory=list)
    bounds: list[AttritionBounds] = field(default_factory=list)
    checks: list[DataCheck] = field(default_factory=list)
    shares: list[str] = field(default_factory=list)
    ranges: list[tuple[str, tuple[float, float]]] = field(default_factory=list)
    folds: list[list[Effect]] = field(default_factory=list)
    means: list[tuple[QuestionRows, CategoryFunction]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    owner_covariates: list[tuple[str, str]] = field(default_factory=list)
    shrunken: list[tuple[EffectTarget, ShrunkenEffect]] = field(default_factory=list)

    def add(self, other: MetricFindings) -> None:
        """Take in what was found of another metric."""
        for one in fields(self):
            getattr(self, one.name).extend(getattr(other, one.name))

    def check(self, name: str, notes: Sequence[Note], *, passed: str) -> None:
        """Take in what a check found: notes, or `passed` without any."""
        self.notes.extend(notes)
        self.checks.append(DataCheck.from_notes(name, notes, passed=passed))

    def note_outcomes(self, rows: QuestionRows, *functions: CategoryFunction) -> None:
        """Take in the outcomes that some functions of the category of a question change with."""
        space = rows.question.space
        self.outcomes.extend(name for one in functions for name in one.outcomes(space))

    def describe(self, name: str, values: FloatArray, *, is_share: bool = False) -> None:
        """Take in what values a metric can have, and whether it is a share of units."""
        self.ranges.append((name, (float(values.min()), float(values.max()))))
        self.shares.extend([name] * is_share)


class MetricEstimator(Protocol):
    """A metric that can be estimated."""

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """Its effects, from all questions of a release.

        Raises:
            ParameterError: If the rows do not identify it.
        """


class QuestionRows(NamedTuple):
    """The rows of a question, which metrics are estimated from.

    Attributes:
        question: What is published of some outcomes, rows among it.
        rows: These rows as counts.
        request: What to estimate, for any metric.
        folders: The same question of each folder, where several are estimated together; then
            `question` is that of the first.
        folder: What the folder is called; nothing where there is one.
    """

    question: ReleasedQuestion
    rows: RowCounts
    request: EstimateRequest
    folders: tuple[QuestionRows, ...] = ()
    folder: str = ""

    def decode(self, function: CategoryFunction) -> DecodedFunction:
        """What the question shows about a function of its category.

        Raises:
            ParameterError: If it does not identify it, or that of another folder does not.
        """
        if not self.folders:
            return DecodedFunction.from_question(function, self.question, self.request)
        from clusterdp.estimation.means.pooled import pooled_function  # of several folders only

        parts = [rows.decode(own) for rows, own in self.of_folders(function)]
        return pooled_function(parts, [one.request.layout.n_units for one in self.folders])

    def of_folders(
        self, function: CategoryFunction
    ) -> Iterator[tuple[QuestionRows, CategoryFunction]]:
        """The question of each folder, and the function of its categories."""
        for one in self.folders:
            try:
                yield one, function.in_space(self.question.space, one.question.space)
            except ParameterError as error:
                raise ParameterError(f"{error} in {one.folder}.") from None

    def read(self, *functions: CategoryFunction) -> list[MetricData]:
        """The rows as some functions read them."""
        return [MetricData(self.decode(one), self.rows, self.request) for one in functions]

    def noise_notes(self, name: str, decoded: Sequence[DecodedFunction]) -> list[Note]:
        """That a metric is mostly privacy noise, as far as that is public."""
        size = max(int(self.request.layout.sizes.sum(axis=0).min()), 1)
        noise = [one.noise for one in decoded if not one.readings]
        declare = _remedy(name, decoded[0].name, self.question.space)
        errors = [math.sqrt(one.variance / size) / (one.ends.span or math.inf) for one in noise]
        text = ""
        if any(one.is_unseen(np.array(1 / size)) for one in noise):
            text = f"{name}: a few rows have most of its noise, so SEs are upper bounds. {declare}"
        if is_noise := max(errors, default=0.0) > 1:
            text = (
                f"{name} is mostly privacy noise: an arm's mean has noise of about "
                f"{max(errors):.2g} times the metric's range. {declare}"
            )
        return [Note(text, Weight.WARNING if is_noise else Weight.SCOPE)] if text else []

    def means_alone_notes(self, name: str, *, is_exposed: bool = False) -> list[Note]:
        """A note that what was asked for exists for means only."""
        asked = {
            "differences between segments": self.request.differences,
            "adjusted effects": self.request.covariates,
            "complier effects": self.request.exposure and not is_exposed,
        }
        what = " and ".join(one for one, is_asked in asked.items() if is_asked)
        return (
            [
                Note(
                    f"{what.capitalize()} exist for means only. {name} is shown without.",
                    Weight.SCOPE,
                )
            ]
            if what
            else []
        )


class ArmPairMeans(NamedTuple):
    """The means of control and of a treatment.

    Attributes:
        found: Calibrated.
        means: With their variances.
        scores: Of the groups that were assigned as a whole; None if units were.
    """

    found: CalibratedSums
    means: ArmMeans
    scores: tuple[GroupScores, ...] | None = None


class SegmentEffect(NamedTuple):
    """The effect of an arm in one segment, with what covariances need.

    Attributes:
        value: The effect.
        arrays: The same with its variances, as arrays.
        means: The means of control and of the treatment; None where an arm has no unit.
        n_units: Units of all arms.
    """

    value: Effect
    arrays: EffectArrays
    means: ArmPairMeans | None
    n_units: int


class MetricData:
    """The rows of a release as a metric reads them.

    Attributes:
        decoded: The metric, as responses and published sums identify it.
        rows: Counts of rows.
        request: What to estimate.
        calibration: By published sums.

    Args:
        decoded: The metric.
        rows: Counts of rows.
        request: What to estimate.
        ridge: As of `Calibration`.
    """

    def __init__(
        self,
        decoded: DecodedFunction,
        rows: RowCounts,
        request: EstimateRequest,
        ridge: FloatArray | None = None,
    ) -> None:
        self.decoded, self.rows, self.request = decoded, rows, request
        whole = ProfileSums.from_rows(rows.whole, rows.profiles, decoded.outputs)
        ridge = decoded.ridge if ridge is None else ridge
        self.calibration = Calibration(decoded.readings, rows.profiles, whole, decoded.noise, ridge)


class SegmentData:
    """The rows of a segment, or of everyone, as a metric reads them.

    Attributes:
        whole: What they are part of.
        segment: The segment.
        places: The profiles that they are in.
        profiles: These profiles.
        sums: Sums over them.
        moments: Moments of cells.
        n_asked: How many units of each cell were asked; axes `[cluster, arm]`.
        empty_arms: The arms that have no unit which was asked.
        is_true_cluster: Whether the segment is a true cluster, whose units are not known one by
            one.
        factors: What units count by given labels; None if cells are compared as they are.

    Args:
        whole: What they are part of.
        segment: The segment.
        counted: Its rows.
    """

    def __init__(self, whole: MetricData, segment: Segment, counted: ResponseCounts) -> None:
        self.whole, self.segment, self._counted = whole, segment, counted
        self.places, found = np.unique(counted.profiles, return_inverse=True)
        self.profiles = whole.rows.profiles.chosen(self.places)
        self.sums = ProfileSums.from_rows(
            counted._replace(profiles=found), self.profiles, whole.decoded.outputs
        )
        self.moments = self.sums.cell_moments(self.profiles)
        asked = self.moments.asked
        self.n_asked: IntArray = self.moments.sizes if asked is None else asked
        arms = whole.request.layout.arms
        self.empty_arms = [arms[arm] for arm in np.flatnonzero(self.n_asked.sum(axis=0) == 0)]
        self.is_true_cluster = whole.request.inversion.column in dict(segment)
        self.factors = whole.request.inversion.factors(segment)

    def arm_responses(self, arm: int, weights: FloatArray) -> FloatArray:
        """The responses of an arm's units that were asked, by output; axes `[output]`.

        Scaled to as many units as would show as much if all had the same weight (Kish).

        Args:
            arm: The index of the arm.
            weights: What its units count in each cluster; axes `[cluster]`.
        """
        profiles, n_outputs = self.whole.rows.profiles, self.whole.decoded.outputs.values.shape[-1]
        entries, responses, n_units = self._counted
        used = (profiles.arms[entries] == arm) & (responses < n_outputs)
        each, counts = weights[profiles.clusters[entries[used]]], n_units[used]
        summed = np.bincount(responses[used], each * counts, n_outputs)
        squared = float((each**2 * counts).sum())
        return np.asarray(summed * (summed.sum() / squared if squared else 0.0))

    def pair_means(self, arms: list[int], weights: CellWeights) -> ArmPairMeans:
        """The means of two arms, cells weighed as given."""
        profiles, calibration = self.profiles, self.whole.calibration
        each = spread_cells(weights.of_units(), profiles, arms)
        found = calibration.apply(WeightedSums.from_rows(self.sums, each, self.places))
        # Cells are no strata where units count by their labels.
        is_cut = self.segment or self.factors is not None
        known = None if is_cut else calibration.known_cells(arms)
        both = to_means(found, self.moments.of_arms(arms), weights, known=known)
        if profiles.assigned is None:
            return ArmPairMeans(found, both)
        scores = tuple(
            profile_scores(profiles.assigned, self.sums, self.places, one, calibration)
            for one in each
        )
        return ArmPairMeans(found, both.between_groups(scores), scores)

    def _adjusted_means(
        self, every: RowsBySegment
    ) -> Callable[[list[int], CellWeights], ArmPairMeans]:
        """What gives the means of two arms, adjusted for covariates; as `pair_means` does."""
        profiles, n_slopes = self.whole.rows.profiles, len(every.regressors)
        pieces = every.pieces(self.segment, self._counted)
        from clusterdp.estimation.means import adjustment  # of few estimates

        known = adjustment.CovariateRows(
            self._counted, profiles, self.whole.decoded.outputs, pieces
        )
        sums = known.covariate_sums(n_slopes)

        def means(arms: list[int], weights: CellWeights) -> ArmPairMeans:
            plain = self.pair_means(arms, weights)
            rows, moments, explained = adjustment.adjusted_means(
                known, sums, weights, arms, len(profiles.cells), plain.found
            )
            found = self.whole.calibration.apply(rows)
            both = to_means(found, moments, weights, n_slopes, explained)
            return ArmPairMeans(found, both.explained(plain.means, explained))

        return means

    def effects(self, covariates: RowsBySegment | None = None) -> list[SegmentEffect]:
        """Effects arm by arm: NaN where an arm has no units, or none that was asked.

        Args:
            covariates: What they are adjusted for; None for plain ones.
        """
        layout, effects, n_units = self.whole.request.layout, [], int(self.moments.sizes.sum())
        means = self.pair_means if covariates is None else self._adjusted_means(covariates)
        for arm in layout.treatments:
            pair = [layout.control, arm]
            weights, of = self.weigh(pair), self.target(self.whole.decoded.name, arm)
            found, arrays = None, NO_EFFECT
            if self.are_known(pair, weights):
                found = means(pair, weights)
                middle = self.whole.decoded.outputs.middle
                arrays = found.means.effects(layout.of_arms(pair), middle)
            of = of._replace(adjusted=covariates is not None)
            value = to_effect(arrays, of, self.arm_sizes(weights))
            if found is not None and self.is_true_cluster:
                moments = self.moments.of_arms(pair)
                interval = _true_cluster_interval(value, found.means.means, moments, weights)
                value = replace(value, interval=interval)
            effects.append(SegmentEffect(value, arrays, found, n_units))
        return effects

    def target(self, metric: str, arm: int) -> EffectTarget:
        """What an effect of an arm describes."""
        layout = self.whole.request.layout
        return EffectTarget(metric, layout.arms[arm], layout.arms[layout.control], self.segment)

    def are_known(self, arms: list[int], weights: CellWeights) -> bool:
        """Whether both arms have units, and some that were asked where arms are compared."""
        used = np.abs(weights.shares) > 0
        asked = np.where(used, self.n_asked[:, arms], 0).sum(axis=0)
        return bool(self.arm_sizes(weights).all() and asked.all())

    def arm_sizes(self, weights: CellWeights) -> IntArray:
        """Units of both arms; in a true cluster estimated, and zero if not above."""
        if not self.is_true_cluster or self.factors is None:
            return np.asarray(weights.sizes.sum(axis=0))
        counted = (weights.sizes * self.factors).sum(axis=0)
        return np.asarray(np.maximum(np.rint(counted), 0), dtype=np.int64)

    def weigh(self, arms: list[int]) -> CellWeights:
        """Weights of the cells of some arms."""
        request = self.whole.request
        # A group that has totals of its own is calibrated best with the weights of these.
        as_totals = frozenset(name for name, _ in self.segment) in self.whole.decoded.breakdowns

        def weights(sizes: IntArray) -> CellWeights:
            return weigh(
                sizes,
                request.layout,
                arms,
                request.estimator,
                as_totals=as_totals,
                factors=self.factors,
            )

        whole = weights(self.moments.sizes)
        if not request.by_precision:
            return whole
        parts = []
        for own in np.split(np.arange(len(whole.sizes)), self.profiles.starts[1:]):
            sizes = np.zeros_like(self.moments.sizes)
            sizes[own] = self.moments.sizes[own]
            part = weights(sizes)
            if self.are_known(arms, part):
                variance = float(self.pair_means(arms, part).means.variances.sum())
                parts.append((part, variance))
        return by_inverse_variance(whole, parts)

    def notes(self, effects: list[Effect]) -> Iterator[Note]:
        """Remarks on the effects of a segment."""
        request, name = self.whole.request, segment_label(self.segment)
        layout, metric, sizes = request.layout, self.whole.decoded.name, self.moments.sizes
        if self.is_true_cluster:
            yield from inverted_cluster_notes(name, effects)
            return
        if self.empty_arms:
            arms, text = ", ".join(map(str, self.empty_arms)), "not reported: no units in arm {}."
            if (sizes.sum(axis=0) > 0).all():
                text = f"{metric} is not reported: no unit in arm {{}} answered it."
            yield Note(text.format(arms), Weight.SCOPE, name)
            return
        there = (sizes.sum(axis=1) > 0) & layout.complete
        weights = [self.weigh([layout.control, arm]) for arm in layout.treatments]
        n_pooled = max(int((one.pooled[:, 0] & there).sum()) for one in weights)
        if n_pooled and request.estimator == "stratified" and self.factors is None:
            yield Note(
                "clusters with few units of the segment are pooled, with inverse probability "
                "weights.",
                segment=name,
            )
        lone = [str(layout.arms[arm]) for arm in np.flatnonzero(self.n_asked.sum(axis=0) == 1)]
        if lone:
            asked = "" if self.moments.asked is None else f" answered {metric}"
            where = f"arm {', '.join(lone)}{asked}"
            yield Note(f"not reported: only one unit in {where}.", Weight.SCOPE, name)
        if math.isfinite(min(one.degrees for one in effects)):
            yield Note(
                "few units, or a few with most of the weight: CIs use Student's t.", segment=name
            )


def _remedy(name: str, decoded: str, space: Categories) -> str:
    """What would make a metric more precise: that the owner declares it, where that is possible."""
    try:
        parse_metric(decoded).check(space.declared.spaces)
    except ParameterError:
        return "Ask for a product or a threshold, which the owner can declare."
    if decoded != name and ">=" in decoded:  # one of many shares, as of a quantile
        return "Ask the owner to declare a threshold."
    return f'Ask the owner to declare it (--metric "{decoded}").'


def _true_cluster_interval(
    value: Effect, means: FloatArray, moments: CellMoments, weights: CellWeights
) -> TrueClusterInterval:
    """The interval of an effect in a true cluster.

    Args:
        value: The effect, with its standard error, and with arms' estimated units.
        means: Of control and the treatment, as distances from the middle.
        moments: Of the cells of both arms.
        weights: Of the same cells.
    """
    each = weights.of_units() ** 2 * moments.sizes
    leans, spreads = (each * (moments.means - means)).sum(axis=0), each.sum(axis=0)
    treated = value.n_treated / (value.n_treated + value.n_control)
    control = 1 - treated
    lean = float(control * leans[1] - treated * leans[0])
    spread = float(control**2 * spreads[1] + treated**2 * spreads[0])
    # A sum of squares is nowhere below zero; what was estimated of it can be, by chance.
    sampling = max(value.sampling_variance, lean**2 / spread)
    return TrueClusterInterval(
        effect=value.effect,
        variance=sampling + value.privacy_variance,
        lean=lean,
        spread=spread,
        degrees=value.degrees,
    )
