"""The analyst's half: effects with honest intervals from a release alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.channels.statistics import ContrastSummary
from clusterdp.errors import ParameterError
from clusterdp.estimation import adjustment, cell_weights
from clusterdp.estimation import moments as estimators
from clusterdp.estimation import segments as cutting
from clusterdp.estimation.calibration import know_cells
from clusterdp.estimation.results import FEW_UNITS, Effect, Estimate
from clusterdp.estimation.sample_ratio import sample_ratio_notes
from clusterdp.published.row_counts import collect_rows, count_released
from clusterdp.rows.encoding import DEBIASED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.adjustment import CovariateRows
    from clusterdp.estimation.calibration import CellKnowledge
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.moments import CellMoments, EffectArrays, Estimator, Source
    from clusterdp.estimation.segments import JoinedUnits, Segment
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.release import Release


def estimate(  # noqa: PLR0913 - what to estimate, all by name
    release: Release,
    *,
    control: Any = None,
    estimator: Estimator = "stratified",
    source: Source = "everything",
    segments: Any = None,
    on: str | None = None,
    by: Sequence[str | Sequence[str]] | str | None = None,
    adjust: Sequence[str] | str = (),
    shares: dict[str, float] | None = None,
    level: float = 0.95,
) -> Estimate:
    """Average effects from a release, each arm against control.

    Args:
        release: From `release` or `read_release`.
        control: The arm to compare with; the release's own by default.
        estimator: "stratified" compares within clusters and weighs them by size; "unstratified"
            compares overall means.
        source: "everything" combines rows with what noisy sums or counts tell of their cells;
            "rows" uses rows alone, which is valid too and less precise.
        segments: The analyst's own table, joined to the rows by unit id.
        on: The column of ids in that table; by default named as in the release.
        by: Columns to cut by, kept or joined. Several in one entry are crossed: `["tier",
            "tier,region"]`.
        adjust: Numeric columns, kept or joined, to adjust for; adjusted effects stand beside the
            others.
        shares: The share of units each arm was meant to have, for the check of sample ratios.
        level: The confidence level that intervals are shown at.
    """
    if estimator not in ("stratified", "unstratified"):
        raise ParameterError(f'estimator must be "stratified" or "unstratified", got {estimator!r}')
    if source not in ("everything", "rows"):
        raise ParameterError(f'source must be "everything" or "rows", got {source!r}')
    if source == "rows" and release.units is None:
        raise ParameterError(f"{release.mechanism.name} publishes no rows to estimate from")
    layout = release.layout if control is None else release.layout.with_control(control)
    notes = [*release.notes, *_summary_notes(release, layout)]
    dimensions = cutting.parse_dimensions(by, release)
    covariates = (adjust,) if isinstance(adjust, str) else tuple(adjust)
    if release.units is None and (dimensions or covariates or segments is not None):
        raise ParameterError(f"{release.mechanism.name} publishes no rows to cut or adjust")
    knowledge = None
    if source == "everything":
        knowledge = know_cells(release.mechanism, layout, release.summary, release.sums)
    arrays = estimators.estimate_effects(
        layout,
        estimator,
        summary=release.summary,
        channel=release.channel,
        released_counts=None if release.units is None else count_released(release),
        knowledge=knowledge,
    )
    effects = to_effects(arrays, layout, layout.sizes.sum(axis=0))
    if dimensions or covariates or segments is not None:
        joined = cutting.join_segments(release, segments, on)
        more, remarks = _joined_effects(
            joined,
            release,
            layout,
            estimator,
            dimensions=dimensions,
            covariates=covariates,
            knowledge=knowledge,
        )
        effects += more
        notes += remarks
    return Estimate(
        effects=tuple(effects),
        outcome=release.columns.outcome,
        treatment=release.columns.arm,
        estimator=estimator,
        source=release.mechanism.name,
        guarantee=release.guarantee,
        level=level,
        notes=(*notes, *layout_notes(layout, estimator), *sample_ratio_notes(layout, shares)),
    )


def _joined_effects(  # noqa: PLR0913 - one step of `estimate`
    joined: JoinedUnits,
    release: Release,
    layout: Layout,
    estimator: Estimator,
    *,
    dimensions: list[tuple[str, ...]],
    covariates: tuple[str, ...],
    knowledge: CellKnowledge | None,
) -> tuple[list[Effect], list[str]]:
    """Adjusted and segment effects, and what is to be said about them."""
    notes = []
    if joined.n_unmatched:
        notes.append(
            f"{joined.n_unmatched:,} of {layout.n_units:,} released units are not in the segments "
            "table; they count overall and in no segment"
        )
    cutting.check_dimensions(joined.rows, dimensions, release)
    assert release.channel is not None  # noqa: S101 - the caller has rows
    whole = estimators.row_moments(count_released(release), release.channel)
    found: list[tuple[Segment, CellMoments]] = [((), whole)] if covariates else []
    cut = [pair for dim in dimensions for pair in cutting.segment_moments(joined, release, dim)]
    family = max(1, len(cut) * len(layout.treatments))
    effects: list[Effect] = []
    for segment, moments in [*found, *cut]:
        used = moments
        if knowledge is not None:
            used = estimators.calibrated(moments, whole, knowledge)
        cut_by = _Cut(layout, estimator, segment, family if segment else 1)
        if segment:
            plain = cut_by.effects(moments.sizes, _Plain(used))
            effects += plain
            notes += _segment_notes(moments, cut_by, plain)
        if covariates and not cutting.empty_arms(moments, layout):
            rows = _covariate_rows(joined, release, segment, covariates, moments)
            effects += cut_by.effects(rows.sizes, _Adjusted(rows, used, moments.privacy))
            n_lost = int(moments.sizes.sum() - rows.sizes.sum())
            if n_lost and not segment:
                notes.append(
                    f"{n_lost:,} units lack a covariate; adjusted effects are of the others"
                )
    return effects, notes


class _Plain(NamedTuple):
    """Cell moments as they are."""

    moments: CellMoments
    n_slopes: int = 0

    def of_arms(self, arms: list[int], _: CellWeights) -> CellMoments:
        return self.moments.of_arms(arms)


class _Adjusted(NamedTuple):
    """Cell moments after adjustment, with the calibration of the others."""

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
        # Units without covariates are missing.
        per_unit = used.privacy + used.sizes * used.saved
        privacy = np.maximum(per_unit - adjusted.sizes * used.saved, 0.0)
        return replace(adjusted, shifts=used.shifts, saved=used.saved, privacy=privacy)


class _Cut(NamedTuple):
    """A segment, and how its effects are estimated."""

    layout: Layout
    estimator: Estimator
    segment: Segment
    family: int

    def weigh(self, sizes: IntArray, arms: list[int]) -> CellWeights:
        """Weights of the cells of some arms; `sizes` are of all arms."""
        if self.estimator == "unstratified":
            return cell_weights.weigh_units_alike(sizes, arms)
        return cell_weights.weigh_cells(sizes, self.layout, arms)

    def effects(self, sizes: IntArray, source: _Plain | _Adjusted) -> list[Effect]:
        """Effects arm by arm: NaN where an arm has no units."""
        effects = []
        for arm in self.layout.treatments:
            pair = [self.layout.control, arm]
            two_arms, arm_sizes = self.layout.of_arms(pair), sizes[:, pair].sum(axis=0)
            arrays = estimators.NO_EFFECT
            if arm_sizes.all():
                weights = self.weigh(sizes, pair)
                arrays = cell_weights.weighted_effects(
                    source.of_arms(pair, weights), weights, two_arms, source.n_slopes
                )
            effects += to_effects(
                arrays,
                two_arms,
                arm_sizes,
                segment=self.segment,
                family=self.family,
                is_adjusted=source.n_slopes > 0,
            )
        return effects


def _covariate_rows(
    joined: JoinedUnits,
    release: Release,
    segment: Segment,
    covariates: tuple[str, ...],
    moments: CellMoments,
) -> CovariateRows:
    import polars as pl

    rows = adjustment.read_covariates(joined.rows, release, covariates)
    for name, value in segment:
        rows = rows.filter(pl.col(name) == value)
    columns = release.columns
    needed = rows.select(columns.cluster, columns.arm, DEBIASED, *covariates)
    collected = collect_rows(needed)
    adjustment.check_enough(len(collected), int(moments.sizes.sum()), covariates)
    return adjustment.to_covariate_rows(collected, release, covariates)


def to_effects(  # noqa: PLR0913 - assembles values from their parts
    arrays: EffectArrays,
    layout: Layout,
    arm_sizes: IntArray,
    *,
    segment: Segment = (),
    family: int = 1,
    is_adjusted: bool = False,
) -> list[Effect]:
    """Effects of one release as values, each with the degrees of freedom that its interval needs.

    Args:
        arrays: Without axes of replicates.
        layout: Arms and control.
        arm_sizes: Units by arm.
        segment: The segment that they are of.
        family: How many effects are told together.
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
                arm=layout.arms[arm],
                control=layout.arms[layout.control],
                effect=float(arrays.effects[position]),
                std_error=math.sqrt(variance),
                sampling_variance=variance - privacy,
                privacy_variance=privacy,
                n_treated=int(arm_sizes[arm]),
                n_control=int(arm_sizes[layout.control]),
                segment=segment,
                adjusted=is_adjusted,
                family_size=family,
                control_mean=control_mean,
                control_std_error=control_error,
                degrees=degrees if min(n_least, degrees) < FEW_UNITS else math.inf,
            )
        )
    return effects


def _summary_notes(release: Release, layout: Layout) -> list[str]:
    if not isinstance(release.summary, ContrastSummary):
        return []
    if layout.control != release.layout.control:
        raise ParameterError(
            f"{release.mechanism.name} published contrasts against "
            f"{release.layout.arms[release.layout.control]!r}; no other control is possible"
        )
    return ["the release does not tell sampling variance; its largest possible is charged"]


def _segment_notes(moments: CellMoments, cut: _Cut, effects: list[Effect]) -> list[str]:
    layout = cut.layout
    name = ", ".join(f"{column}={value}" for column, value in cut.segment)
    empty = cutting.empty_arms(moments, layout)
    if empty:
        return [f"{name}: no units in arm {', '.join(map(str, empty))}, so no effect"]
    notes = []
    there = moments.sizes.sum(axis=1) > 0
    weights = [cut.weigh(moments.sizes, [layout.control, arm]) for arm in layout.treatments]
    n_pooled = max(int((one.pooled[:, 0] & there).sum()) for one in weights)
    if n_pooled and cut.estimator == "stratified":
        notes.append(
            f"{name}: {n_pooled} clusters with few units of the segment were pooled; units there "
            "are weighed by the inverse of their arm's share"
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
    """What a reader should know of estimates from such cells."""
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
