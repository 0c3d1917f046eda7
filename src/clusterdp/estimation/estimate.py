"""The analyst's half: effects with intervals, from a release alone."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation import adjustment, cell_weights
from clusterdp.estimation import moments as estimators
from clusterdp.estimation import segments as cutting
from clusterdp.estimation.calibration import read_cells
from clusterdp.estimation.formatting import segment_label
from clusterdp.estimation.results import FEW_UNITS, Effect, Estimate, check_level
from clusterdp.estimation.sample_ratio import sample_ratio_notes
from clusterdp.estimation.target import Target
from clusterdp.published.folder import read_release
from clusterdp.published.release import Release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.adjustment import CovariateRows
    from clusterdp.estimation.calibration import CellReadings
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.moments import CellMoments, EffectArrays, Estimator, Use
    from clusterdp.estimation.segments import RowCounts, Segment
    from clusterdp.experiment.layout import Layout

_NO_SPREAD = "the release holds no estimate of the sampling variance; the largest possible is used"


def estimate(  # noqa: PLR0913 - what to estimate, all by name
    release: Release | str | os.PathLike[str],
    *,
    control: Any = None,
    estimator: Estimator = "stratified",
    use: Use = "everything",
    segments: Any = None,
    on: str | None = None,
    by: Sequence[str | Sequence[str]] | str | None = None,
    adjust: Sequence[str] | str = (),
    shares: dict[Any, float] | None = None,
    level: float = 0.95,
) -> Estimate:
    """Average effects from a release, each arm against control.

    Args:
        release: A published folder, or a release from `release` or `read_release`.
        control: The arm to compare with; the release's own by default.
        estimator: "stratified" compares within clusters and weights clusters by size;
            "unstratified" compares overall means.
        use: "everything" combines rows with noisy sums and counts of their cells, if the release
            has them; "rows" uses rows alone, which is valid too and less precise.
        segments: The analyst's own table. It is joined to the rows by unit id.
        on: The column of ids in that table; by default named as in the release.
        by: Columns to cut by, kept or joined. Several in one entry are crossed: `["tier",
            "tier,region"]`.
        adjust: Numeric columns, kept or joined, to adjust for. Adjusted effects are listed beside
            the others.
        shares: The planned share of each arm, for the check of sample ratios.
        level: The confidence level of the intervals that are shown.

    Raises:
        ParameterError: If an argument is of another type or out of its range.
        FormatError: If the folder is not a release, or was damaged or edited.
        DataError: If the analyst's table does not fit the release.
    """
    release = _open(release)
    _check_choice("estimator", estimator, ("stratified", "unstratified"))
    _check_choice("use", use, ("everything", "rows"))
    check_level(level)
    if on is not None and not isinstance(on, str):
        raise ParameterError(f"on must be the name of a column, got {on!r}")
    layout = release.layout if control is None else release.layout.with_control(control)
    ratio_notes = sample_ratio_notes(layout, shares)
    notes = [*release.notes, *_clipping_notes(release)]
    dimensions = cutting.parse_dimensions(by, release)
    covariates = cutting.parse_names("adjust", adjust)
    if segments is not None and not dimensions and not covariates:
        raise ParameterError(
            "segments has columns to cut by, and no cut was asked for: give by=... (--by)"
        )
    rows = None
    if release.units is not None:
        rows = cutting.read_rows(release, segments, on, dimensions, covariates)
    elif use == "rows" or dimensions or covariates or segments is not None:
        raise ParameterError(
            f"{release.mechanism.name} publishes no rows; leave out use, segments, by and adjust"
        )
    effects: list[Effect] = []
    for place, metric in enumerate(release.space.declared.metrics):
        how = _How(release, layout, estimator, covariates, str(metric), place, use)
        found, remarks = _metric_effects(rows, how)
        effects += found
        notes += [note for note in remarks if note not in notes]
    overall = [effect for effect in effects if not effect.of.segment]
    return Estimate(
        effects=(*overall, *(effect for effect in effects if effect.of.segment)),
        treatment=release.columns.arm,
        estimator=estimator,
        mechanism=release.mechanism.name,
        guarantee=release.guarantee,
        level=level,
        notes=(*notes, *layout_notes(layout, estimator), *ratio_notes),
    )


def _clipping_notes(release: Release) -> list[str]:
    """What effects on numbers are effects on."""
    numbers = release.space.declared.numbers.items()
    return [f"{name}, clipped to {number.low:g}..{number.high:g}" for name, number in numbers]


def _open(release: Any) -> Release:
    if isinstance(release, str | os.PathLike):
        return read_release(os.fspath(release))
    if not isinstance(release, Release):
        raise ParameterError(
            "release must be a Release or the path of a published folder, "
            f"got {type(release).__name__}"
        )
    return release


def _check_choice(parameter: str, value: Any, choices: tuple[str, str]) -> None:
    if value not in choices:
        raise ParameterError(f'{parameter} must be "{choices[0]}" or "{choices[1]}", got {value!r}')


class _How(NamedTuple):
    """How the effects on a metric are estimated."""

    release: Release
    layout: Layout
    estimator: Estimator
    covariates: tuple[str, ...]
    metric: str
    place: int
    use: Use

    def readings(self) -> CellReadings | None:
        """What noisy statistics estimate for every cell; None for rows alone."""
        if self.use == "rows":
            return None
        release = self.release
        return read_cells(
            release.mechanism, self.layout, release.space, release.statistics, self.place
        )

    def moments(self, counts: IntArray) -> CellMoments:
        """Moments of the metric, from counts by cell and response."""
        assert self.release.channel is not None  # noqa: S101 - there are rows
        return estimators.row_moments(counts, self.release.channel, self.place)


def _metric_effects(rows: RowCounts | None, how: _How) -> tuple[list[Effect], list[str]]:
    """Effects on a metric, overall, adjusted and in segments; with notes about them."""
    layout, readings = how.layout, how.readings()
    arrays = estimators.estimate_effects(
        layout,
        how.release.space,
        how.estimator,
        moments=None if rows is None else how.moments(rows.whole),
        statistics=how.release.statistics,
        readings=readings,
        metric=how.place,
    )
    notes = [_NO_SPREAD] if arrays.degrees is None else []
    effects = to_effects(arrays, layout, layout.sizes.sum(axis=0), metric=how.metric)
    if rows is not None:
        more, remarks = _segment_effects(rows, how, readings)
        effects, notes = effects + more, notes + remarks
    return effects, notes


def _segment_effects(
    rows: RowCounts, how: _How, readings: CellReadings | None
) -> tuple[list[Effect], list[str]]:
    """Adjusted effects and those of segments, with notes about them."""
    layout, notes = how.layout, []
    whole = how.moments(rows.whole)
    if rows.n_unmatched:
        notes.append(
            f"{rows.n_unmatched:,} of {layout.n_units:,} released units are not in the segments "
            "table; they count overall and in no segment"
        )
    n_metrics = len(how.release.space.declared.metrics)
    family = max(1, len(rows.segments) * len(layout.treatments) * n_metrics)
    effects: list[Effect] = []
    for segment, counts in [((), rows.whole), *rows.segments]:
        used = moments = how.moments(counts)
        if readings is not None:
            used = estimators.calibrated(moments, whole, readings)
        cut = _Cut(layout, how.estimator, how.metric, segment, family if segment else 1)
        if segment:
            plain = cut.effects(moments.sizes, _Plain(used))
            effects += plain
            notes += _segment_notes(moments, cut, plain)
        if rows.covariates is not None and not cutting.empty_arms(moments, layout):
            known = adjustment.to_covariate_rows(
                rows.covariates, how.release, how.covariates, segment, how.place
            )
            effects += cut.effects(known.sizes, _Adjusted(known, used, moments.privacy))
            n_lost = int(moments.sizes.sum() - known.sizes.sum())
            if n_lost and not segment:
                notes.append(f"{n_lost:,} units lack a covariate; adjusted effects leave them out")
    return effects, notes


class _Plain(NamedTuple):
    """Cell moments as they are."""

    moments: CellMoments
    n_slopes: int = 0

    def of_arms(self, arms: list[int], _: CellWeights) -> CellMoments:
        return self.moments.of_arms(arms)


class _Adjusted(NamedTuple):
    """Cell moments after adjustment, with the same calibration as without."""

    rows: CovariateRows
    used: CellMoments
    privacy: FloatArray

    @property
    def n_slopes(self) -> int:
        return int(self.rows.covariates.shape[1])

    def of_arms(self, arms: list[int], weights: CellWeights) -> CellMoments:
        adjusted = adjustment.adjusted_moments(self.rows, weights, arms, self.privacy[:, arms])
        used = self.used.of_arms(arms)
        if used.saved is None:
            return adjusted
        # Units without covariates are left out, so cells have fewer units.
        per_unit = used.privacy + used.sizes * used.saved
        privacy = np.maximum(per_unit - adjusted.sizes * used.saved, 0.0)
        return replace(adjusted, shifts=used.shifts, saved=used.saved, privacy=privacy)


class _Cut(NamedTuple):
    """A segment, and how its effects are estimated."""

    layout: Layout
    estimator: Estimator
    metric: str
    segment: Segment
    family: int

    def weigh(self, sizes: IntArray, arms: list[int]) -> CellWeights:
        """Weights of the cells of some arms; `sizes` are of all arms."""
        if self.estimator == "unstratified":
            return cell_weights.weigh_units_alike(sizes, arms)
        return cell_weights.weigh_cells(sizes, self.layout, arms)

    def effects(self, sizes: IntArray, moments: _Plain | _Adjusted) -> list[Effect]:
        """Effects arm by arm: NaN where an arm has no units."""
        effects = []
        for arm in self.layout.treatments:
            pair = [self.layout.control, arm]
            two_arms, arm_sizes = self.layout.of_arms(pair), sizes[:, pair].sum(axis=0)
            arrays = estimators.NO_EFFECT
            if arm_sizes.all():
                weights = self.weigh(sizes, pair)
                arrays = cell_weights.weighted_effects(
                    moments.of_arms(pair, weights), weights, two_arms, moments.n_slopes
                )
            effects += to_effects(
                arrays,
                two_arms,
                arm_sizes,
                metric=self.metric,
                segment=self.segment,
                family=self.family,
                is_adjusted=moments.n_slopes > 0,
            )
        return effects


def to_effects(  # noqa: PLR0913 - assembles values from their parts
    arrays: EffectArrays,
    layout: Layout,
    arm_sizes: IntArray,
    *,
    metric: str,
    segment: Segment = (),
    family: int = 1,
    is_adjusted: bool = False,
) -> list[Effect]:
    """Effects of one release as values, each with the degrees of freedom that its interval needs.

    Args:
        arrays: Without axes of replicates.
        layout: Arms and control.
        arm_sizes: Units by arm.
        metric: The metric that they are on.
        segment: The segment that they are of.
        family: How many effects are reported together.
        is_adjusted: Whether covariates were adjusted for.
    """
    effects = []
    for position, arm in enumerate(layout.treatments):
        variance = float(arrays.variances[position])
        # An estimated part can fall outside the whole by chance; it is shown within it.
        privacy = min(max(float(arrays.privacy_variances[position]), 0.0), variance)
        control_mean = control_error = None
        if arrays.control_means is not None and arrays.control_variances is not None:
            control_mean = float(arrays.control_means)
            control_error = math.sqrt(float(arrays.control_variances))
        degrees = math.inf if arrays.degrees is None else float(arrays.degrees[position])
        n_least = min(int(arm_sizes[arm]), int(arm_sizes[layout.control]))
        effects.append(
            Effect(
                of=Target(
                    metric, layout.arms[arm], layout.arms[layout.control], segment, is_adjusted
                ),
                effect=float(arrays.effects[position]),
                std_error=math.sqrt(variance),
                sampling_variance=variance - privacy,
                privacy_variance=privacy,
                n_treated=int(arm_sizes[arm]),
                n_control=int(arm_sizes[layout.control]),
                family_size=family,
                control_mean=control_mean,
                control_std_error=control_error,
                degrees=degrees if min(n_least, degrees) < FEW_UNITS else math.inf,
            )
        )
    return effects


def _segment_notes(moments: CellMoments, cut: _Cut, effects: list[Effect]) -> list[str]:
    layout = cut.layout
    name = segment_label(cut.segment)
    empty = cutting.empty_arms(moments, layout)
    if empty:
        return [f"{name}: no units in arm {', '.join(map(str, empty))}, so no effect"]
    notes = []
    there = moments.sizes.sum(axis=1) > 0
    weights = [cut.weigh(moments.sizes, [layout.control, arm]) for arm in layout.treatments]
    n_pooled = max(int((one.pooled[:, 0] & there).sum()) for one in weights)
    if n_pooled and cut.estimator == "stratified":
        notes.append(
            f"{name}: clusters with few units of the segment were pooled ({n_pooled}); units there "
            "are weighted by the inverse of their arm's share"
        )
    arm_sizes = moments.sizes.sum(axis=0)
    lone = [str(layout.arms[arm]) for arm in np.flatnonzero(arm_sizes == 1)]
    if lone:
        notes.append(f"{name}: one unit in arm {', '.join(lone)}, so no interval")
    degrees = min(effect.degrees for effect in effects)
    if math.isfinite(degrees):
        notes.append(
            f"{name}: few units, or a few with most of the weight: intervals are by Student's t "
            f"with {degrees:.0f} degrees of freedom or more"
        )
    return notes


def layout_notes(layout: Layout, estimator: Estimator) -> tuple[str, ...]:
    """Remarks on estimates from cells of these sizes."""
    notes = []
    n_single = int((layout.sizes == 1).sum())
    if n_single and estimator == "stratified":
        notes.append(
            f"cells with one unit: {n_single}; their variance is taken from the rest of their arm, "
            "which errs on the wide side"
        )
    if layout.sizes.sum(axis=0).min() < FEW_UNITS:
        notes.append(f"an arm has fewer than {FEW_UNITS} units: intervals are by Student's t")
    shares = layout.sizes / layout.sizes.sum(axis=1, keepdims=True)
    if estimator == "unstratified" and np.ptp(shares, axis=0).max() > 1 / np.sqrt(layout.n_units):
        notes.append(
            "arms have different shares in different clusters: if assignment was by cluster, the "
            "unstratified estimate mixes the effect with differences between clusters"
        )
    return tuple(notes)
