"""Effects on one metric from rows: overall, in segments, adjusted, and their differences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.estimation.effects.effect import Target, to_effect
from clusterdp.estimation.effects.findings import Check, Note, Weight
from clusterdp.estimation.effects.possible import FoldEffects, MetricRange, stands_out
from clusterdp.estimation.means import adjustment
from clusterdp.estimation.means.arms import profile_scores, to_means, weigh
from clusterdp.estimation.means.calibration import Functional, calibrate
from clusterdp.estimation.means.functions import Measured
from clusterdp.estimation.means.sums import NO_EFFECT
from clusterdp.estimation.means.weights import weigh_by_labels
from clusterdp.estimation.metrics.differences import Differences, SegmentEffect, compare_segments
from clusterdp.estimation.reading.clusters import group_notes
from clusterdp.estimation.reading.profiles import Counted, ProfileSums, spread_cells
from clusterdp.estimation.report.tables import segment_label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.means.arms import ArmMeans, GroupScores
    from clusterdp.estimation.means.calibration import Calibrated, Calibration
    from clusterdp.estimation.means.functions import CategoryFunction
    from clusterdp.estimation.means.sums import CellMoments, Estimator
    from clusterdp.estimation.means.weights import CellWeights
    from clusterdp.estimation.metrics.differences import Homogeneity
    from clusterdp.estimation.metrics.levels import ArmDistribution
    from clusterdp.estimation.metrics.observed import AttritionBounds
    from clusterdp.estimation.reading.clusters import LabelWeights
    from clusterdp.estimation.reading.covariates import RowsBySegment
    from clusterdp.estimation.reading.cuts import Segment
    from clusterdp.estimation.reading.profiles import Outputs, Profiles
    from clusterdp.estimation.reading.segments import RowCounts
    from clusterdp.estimation.report.results import Effect
    from clusterdp.published.release import ReleasedQuestion


class Wanted(NamedTuple):
    """What to estimate, whatever the metric.

    Attributes:
        layout: The cells, with the control to compare with.
        estimator: How cells are weighed.
        covariates: What to adjust for.
        use_sums: Whether rows are calibrated by published sums.
        holdout: The fold whose rows are used alone; None for all rows.
        differences: What segments are compared with; None if with nothing.
        level: The confidence level.
        labels: What units count by noisy labels, where clusters are private; else None.
    """

    layout: Layout
    estimator: Estimator
    covariates: tuple[str, ...]
    use_sums: bool
    holdout: int | None
    differences: Differences | None
    level: float
    labels: LabelWeights | None = None

    def measured(self, function: CategoryFunction, question: ReleasedQuestion) -> Measured:
        """What a question tells of a function of its category."""
        return Measured.of(
            function, question, self.layout, use_sums=self.use_sums, holdout=self.holdout
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """What was found, of one metric or of all.

    Attributes:
        effects: Effects.
        tests: Tests of homogeneity.
        notes: Remarks on them.
        distributions: Distributions of outcomes.
        bounds: Bounds for attrition.
        checks: Checks of the data.
        shares: The metrics that are shares of units.
        ranges: What metrics can be.
        folds: Effects in segments, fold by fold.
    """

    effects: list[Effect] = field(default_factory=list)
    tests: list[Homogeneity] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    distributions: list[ArmDistribution] = field(default_factory=list)
    bounds: list[AttritionBounds] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    shares: list[str] = field(default_factory=list)
    ranges: list[MetricRange] = field(default_factory=list)
    folds: list[FoldEffects] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Take in what was found of another metric."""
        for one in fields(self):
            getattr(self, one.name).extend(getattr(other, one.name))

    def check(self, question: str, notes: Sequence[Note], *, fine: str) -> None:
        """Take in what a check found; `fine` is what it says if that is nothing."""
        self.notes.extend(notes)
        self.checks.append(Check.of(question, notes, fine=fine))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricRows:
    """The rows of a release as a metric reads them.

    Attributes:
        metric: The name of the metric.
        wanted: What to estimate.
        rows: Counts of rows.
        outputs: What responses tell of the metric.
        calibration: By published sums.
        breakdowns: The columns of each breakdown whose groups have totals that are used.
    """

    metric: str
    wanted: Wanted
    rows: RowCounts
    outputs: Outputs
    calibration: Calibration
    breakdowns: frozenset[frozenset[str]]

    @classmethod
    def of(
        cls,
        measured: Measured,
        rows: RowCounts,
        wanted: Wanted,
        ridge: FloatArray | None = None,
    ) -> MetricRows:
        """The rows as they are read by a metric; `ridge` as in `calibrate`."""
        calibration = calibrate(
            measured.readings,
            rows.profiles,
            ProfileSums.of_rows(rows.whole, rows.profiles, measured.outputs),
            measured.noise,
            ridge,
        )
        return cls(
            metric=measured.name,
            wanted=wanted,
            rows=rows,
            outputs=measured.outputs,
            calibration=calibration,
            breakdowns=measured.breakdowns,
        )

    def estimate(self) -> Found:
        """All effects on the metric, each segment's together."""
        found = Found()
        compared: dict[tuple[Any, ...], list[SegmentEffect]] = {}
        for segment, counted in self.rows.parts:
            part = self.part(segment, counted)
            every = part.plain()
            found.notes.extend(part.notes(every) if segment else [])
            found.folds.extend(self._by_fold(segment, counted, every) if segment else [])
            if self.rows.covariates is not None and not part.empty_arms:
                every += part.adjusted(self.rows.covariates, counted)
            values = [one.to_value() for one in every]
            found.effects.extend(values)
            found.notes.extend(_interval_notes(values))
            for one in every:
                if segment and self.wanted.differences:
                    names = tuple(name for name, _ in segment)
                    compared.setdefault((names, one.of.arm, one.of.adjusted), []).append(one)
        if self.wanted.differences is not None:
            for segments in compared.values():
                effects, test = compare_segments(
                    segments, self.calibration, self.wanted.differences
                )
                found.effects.extend(effects)
                found.tests.extend([] if test is None else [test])
        return found

    def _by_fold(
        self, segment: Segment, counted: Counted, effects: list[SegmentEffect]
    ) -> list[FoldEffects]:
        """Effects of each arm in a segment, fold by fold; nothing where none stands out."""
        folds = self.rows.profiles.folds
        if folds is None or self.wanted.holdout is not None or not any(map(stands_out, effects)):
            return []
        of_rows, every = folds[counted.profiles], np.unique(folds)
        if len(np.unique(of_rows)) < len(every):
            return []
        parts = [
            self.part(segment, Counted(*(terms[of_rows == fold] for terms in counted)))
            for fold in every
        ]
        if any(part.is_group or part.empty_arms for part in parts):
            return []
        by_arm = zip(*(part.plain() for part in parts), strict=True)
        return [FoldEffects(tuple(one.to_value() for one in of_arm)) for of_arm in by_arm]

    def part(self, segment: Segment, counted: Counted) -> Part:
        """The rows of a segment, or of everyone."""
        places, found = np.unique(counted.profiles, return_inverse=True)
        profiles = self.rows.profiles.chosen(places)
        sums = ProfileSums.of_rows(counted._replace(profiles=found), profiles, self.outputs)
        return Part(self, segment, places, profiles, sums, sums.cell_moments(profiles))


def _interval_notes(effects: list[Effect]) -> list[Note]:
    """What to say of effects that are known, but not how well."""
    return [
        Note(
            f"{one.of.metric}{', adjusted' * one.of.adjusted} has no interval: what was published "
            "does not tell how uncertain it is. A release with more of epsilon for rows would",
            Weight.SCOPE,
            segment_label(one.of.segment) if one.of.segment else None,
        )
        for one in effects
        if math.isnan(one.std_error) and not math.isnan(one.effect)
    ]


class PairMeans(NamedTuple):
    """The means of control and of a treatment.

    Attributes:
        found: Calibrated.
        means: With their variances.
        scores: Of the groups that were assigned as a whole; None if units were.
    """

    found: Calibrated
    means: ArmMeans
    scores: tuple[GroupScores, ...] | None = None


class Part(NamedTuple):
    """The rows of a segment, or of everyone.

    Attributes:
        whole: What they are part of.
        segment: The segment.
        places: The profiles that they are in.
        profiles: These profiles.
        sums: Sums over them.
        moments: Moments of cells.
    """

    whole: MetricRows
    segment: Segment
    places: IntArray
    profiles: Profiles
    sums: ProfileSums
    moments: CellMoments

    @property
    def empty_arms(self) -> list[Any]:
        """The arms that have no unit which was asked."""
        return [
            self.whole.wanted.layout.arms[arm]
            for arm in np.flatnonzero(self.n_asked.sum(axis=0) == 0)
        ]

    @property
    def n_asked(self) -> IntArray:
        """How many units of each cell were asked; axes `[cluster, arm]`."""
        return self.moments.sizes if self.moments.asked is None else self.moments.asked

    def plain(self) -> list[SegmentEffect]:
        """Effects arm by arm."""
        return self._effects(self.moments.sizes, self.pair_means, is_adjusted=False)

    def pair_means(self, arms: list[int], weights: CellWeights) -> PairMeans:
        """The means of two arms, cells weighed as given."""
        profiles = self.profiles
        each = spread_cells(weights.of_units(), profiles, arms)
        found = self.whole.calibration.apply(Functional.of_rows(self.sums, each, self.places))
        # Cells are no strata where units count by their labels.
        known = None if self.segment or self.factors is not None else self.whole.calibration.cells
        if known is not None:
            known = known.of_arms(arms)
        both = to_means(found, self.moments.of_arms(arms), weights, known=known)
        if profiles.assigned is None:
            return PairMeans(found, both)
        rows, calibration = (self.sums, self.places), self.whole.calibration
        scores = tuple(profile_scores(profiles.assigned, *rows, one, calibration) for one in each)
        return PairMeans(found, both.between_groups(scores), scores)

    def adjusted(self, every: RowsBySegment, counted: Counted) -> list[SegmentEffect]:
        """Effects arm by arm, adjusted for covariates; `counted` are the rows of the segment."""
        profiles, n_slopes = self.whole.rows.profiles, len(every.given.regressors)
        known = adjustment.to_covariate_rows(
            every, self.segment, counted, profiles, self.whole.outputs
        )
        sums = known.covariate_sums(n_slopes)

        def means(arms: list[int], weights: CellWeights) -> PairMeans:
            plain = self.pair_means(arms, weights)
            rows, moments, explained = adjustment.adjusted_means(
                known, sums, weights, arms, len(profiles.cells), plain.found
            )
            found = self.whole.calibration.apply(rows)
            both = to_means(found, moments, weights, n_slopes, explained)
            return PairMeans(found, both.explained(plain.means, explained))

        return self._effects(known.sizes, means, is_adjusted=True)

    def _effects(
        self,
        sizes: IntArray,
        means: Callable[[list[int], CellWeights], PairMeans],
        *,
        is_adjusted: bool,
    ) -> list[SegmentEffect]:
        """Effects arm by arm: NaN where an arm has no units, or none that was asked."""
        layout, effects = self.whole.wanted.layout, []
        for arm in layout.treatments:
            pair = [layout.control, arm]
            weights = self.weigh(sizes, pair)
            arm_sizes = self.arm_sizes(weights)
            of = Target(
                self.whole.metric,
                layout.arms[arm],
                layout.arms[layout.control],
                self.segment,
                is_adjusted,
            )
            found, arrays, sampling, scores, group = None, NO_EFFECT, np.nan, None, None
            if self.are_known(pair, weights):
                found, both, scores = means(pair, weights)
                arrays = both.effects(layout.of_arms(pair), self.whole.outputs.middle)
                sampling = float(both.sampling.sum())
                if self.is_group:
                    group = (both.means, self.moments.of_arms(pair), weights)
            n_units = int(sizes.sum())
            effects.append(
                SegmentEffect(of, arrays, sampling, found, arm_sizes, n_units, scores, group)
            )
        return effects

    @property
    def is_group(self) -> bool:
        """Whether the segment is of a true cluster, whose units are not known one by one."""
        labels = self.whole.wanted.labels
        return labels is not None and labels.column in dict(self.segment)

    @property
    def factors(self) -> FloatArray | None:
        """What units count by given labels; None if cells are compared as they are."""
        labels = self.whole.wanted.labels
        return None if labels is None else labels.factors(self.segment)

    def are_known(self, arms: list[int], weights: CellWeights) -> bool:
        """Whether both arms have units, and some that were asked where arms are compared."""
        used = np.abs(weights.shares) > 0
        asked = np.where(used, self.n_asked[:, arms], 0).sum(axis=0)
        return bool(self.arm_sizes(weights).all() and asked.all())

    def arm_sizes(self, weights: CellWeights) -> IntArray:
        """Units of both arms; in a true cluster estimated, and zero if not above."""
        if not self.is_group or self.factors is None:
            return np.asarray(weights.sizes.sum(axis=0))
        counted = (weights.sizes * self.factors).sum(axis=0)
        return np.asarray(np.maximum(np.rint(counted), 0), dtype=np.int64)

    def weigh(self, sizes: IntArray, arms: list[int]) -> CellWeights:
        """Weights of the cells of some arms; `sizes` are of all arms."""
        wanted = self.whole.wanted
        if self.factors is not None:
            return weigh_by_labels(sizes, self.factors, arms)
        # A group that has totals of its own is calibrated best with the weights of these.
        as_totals = frozenset(name for name, _ in self.segment) in self.whole.breakdowns
        return weigh(sizes, wanted.layout, arms, wanted.estimator, as_totals=as_totals)

    def notes(self, effects: list[SegmentEffect]) -> list[Note]:
        """Remarks on the effects of a segment."""
        layout, name = self.whole.wanted.layout, segment_label(self.segment)
        if self.is_group:
            return group_notes(name, [one.to_value() for one in effects])
        if self.empty_arms:
            arms, metric = ", ".join(map(str, self.empty_arms)), self.whole.metric
            if (self.moments.sizes.sum(axis=0) > 0).all():
                text = f"no unit in arm {arms} was asked about {metric}, so it is not reported"
                return [Note(text, Weight.SCOPE, name)]
            return [Note(f"no units in arm {arms}, so no effect", Weight.SCOPE, name)]
        notes, sizes = [], self.moments.sizes
        there = (sizes.sum(axis=1) > 0) & layout.complete
        weights = [self.weigh(sizes, [layout.control, arm]) for arm in layout.treatments]
        n_pooled = max(int((one.pooled[:, 0] & there).sum()) for one in weights)
        if n_pooled and self.whole.wanted.estimator == "stratified" and self.factors is None:
            text = (
                "clusters with few units of the segment were pooled; units there are weighted by "
                "the inverse of their arm's share"
            )
            notes.append(Note(text, Weight.METHOD, name))
        lone = [str(layout.arms[arm]) for arm in np.flatnonzero(self.n_asked.sum(axis=0) == 1)]
        if lone:
            asked = "" if self.moments.asked is None else f" was asked about {self.whole.metric}"
            text = f"one unit in arm {', '.join(lone)}{asked}, so no interval"
            text += ", and no number is reported"
            notes.append(Note(text, Weight.SCOPE, name))
        degrees = min(to_effect(one.effect, one.of, one.arm_sizes).degrees for one in effects)
        if math.isfinite(degrees):
            text = "few units, or a few with most of the weight: intervals are by Student's t"
            notes.append(Note(text, Weight.METHOD, name))
        return notes
