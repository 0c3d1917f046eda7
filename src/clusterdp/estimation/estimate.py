"""The analyst's half: effects with intervals, from a release alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation import segments as cutting
from clusterdp.estimation.effect_values import to_effect
from clusterdp.estimation.metric_effects import Found, MetricRows, Wanted
from clusterdp.estimation.moments import contrast_effects
from clusterdp.estimation.profiling import Profiling
from clusterdp.estimation.results import FEW_UNITS, Effect, Estimate, check_level
from clusterdp.estimation.sample_ratio import sample_ratio_notes
from clusterdp.estimation.target import Target
from clusterdp.experiment.category_space import Ends
from clusterdp.published.folder import read_release
from clusterdp.published.release import Release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.estimation.moments import EffectArrays, Estimator, Use
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
    differences: bool = False,
    holdout: int | None = None,
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
        differences: Also compare each segment with the rest of its dimension, and test whether all
            have the same effect.
        holdout: Use the rows of this fold alone, with the sums of this fold alone. Segments may
            then be chosen by looking at the other folds.
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
    if holdout is not None and (isinstance(holdout, bool) or not isinstance(holdout, int)):
        raise ParameterError(f"holdout must be the number of a fold, got {holdout!r}")
    if not isinstance(differences, bool):
        raise ParameterError(f"differences must be True or False, got {differences!r}")
    layout = release.layout if control is None else release.layout.with_control(control)
    ratio_notes = sample_ratio_notes(layout, shares)
    notes = [*release.notes, *_clipping_notes(release), *_group_notes(release)]
    dimensions = cutting.parse_dimensions(by, release)
    covariates = cutting.parse_names("adjust", adjust)
    if segments is not None and not dimensions and not covariates:
        raise ParameterError(
            "segments has columns to cut by, and no cut was asked for: give by=... (--by)"
        )
    wanted = Wanted(
        layout=layout,
        estimator=estimator,
        covariates=covariates,
        use_sums=use == "everything",
        holdout=holdout,
        differences=differences,
    )
    if covariates and release.columns.assigned_by is not None:
        raise ParameterError(
            "arms were assigned to groups, where adjusted effects have no right intervals: leave "
            "out adjust (--adjust)"
        )
    if differences and not dimensions:
        raise ParameterError("differences are between segments: give by=... (--by)")
    if release.units is not None:
        cuts = cutting.Cuts(segments, on, dimensions, covariates)
        found = _from_rows(release, cuts, wanted)
    elif use == "rows" or dimensions or covariates or segments is not None or holdout is not None:
        raise ParameterError(
            f"{release.mechanism_names} publishes no rows; leave out use, segments, by, adjust and "
            "holdout"
        )
    else:
        found = _from_statistics(release, wanted)
    notes += [note for note in dict.fromkeys(found.notes) if note not in notes]
    overall = [effect for effect in found.effects if not effect.of.segment]
    return Estimate(
        effects=(*overall, *(effect for effect in found.effects if effect.of.segment)),
        treatment=release.columns.arm,
        estimator=estimator,
        mechanism=release.mechanism_names,
        guarantee=release.guarantee,
        level=level,
        notes=(*notes, *layout_notes(layout, estimator), *ratio_notes),
        tests=tuple(found.tests),
    )


def _group_notes(release: Release) -> list[str]:
    """What standard errors are of, where arms were assigned to groups."""
    if release.columns.assigned_by is None:
        return []
    note = (
        f"arms were assigned by {release.columns.assigned_by}: standard errors are of how its "
        "groups differ, never of how units do"
    )
    return [note]


def _from_rows(release: Release, cuts: cutting.Cuts, wanted: Wanted) -> Found:
    """Effects on every metric, from rows and what was published beside them."""
    profiling = Profiling.for_sums(release, use_sums=wanted.use_sums, holdout=wanted.holdout)
    read = cutting.read_rows(release, cuts, profiling)
    found = Found([], [], [])
    if wanted.holdout is not None:
        n_held = int(read[0].profiles.sizes.sum())
        found.notes.append(
            f"fold {wanted.holdout} alone: {n_held:,} of {release.layout.n_units:,} units"
        )
    n_metrics = sum(len(block.space.declared.metrics) for block in release.blocks)
    for block, rows in zip(release.blocks, read, strict=True):
        for place in range(len(block.space.declared.metrics)):
            made = MetricRows.of(block, rows, wanted, place, n_metrics)
            effects, tests, remarks = made.estimate()
            found.effects.extend(effects)
            found.tests.extend(tests)
            found.notes.extend(remarks)
    if read[0].n_unmatched:
        found.notes.append(
            f"{read[0].n_unmatched:,} of {release.layout.n_units:,} released units are not in the "
            "segments table; they count overall and in no segment"
        )
    return found


def _from_statistics(release: Release, wanted: Wanted) -> Found:
    """Overall effects from a release without rows."""
    layout, found = wanted.layout, Found([], [], [])
    if wanted.estimator == "unstratified":
        raise ParameterError("a release without rows has stratified effects only")
    for block in release.blocks:
        for place, metric in enumerate(block.space.declared.metrics):
            contrasts = block.statistics[0].contrasts(layout, place)
            arrays = contrast_effects(contrasts, layout, Ends.of(block.space, place))
            found.notes.extend([_NO_SPREAD] if arrays.degrees is None else [])
            found.effects.extend(overall_effects(arrays, layout, str(metric)))
    return found


def overall_effects(arrays: EffectArrays, layout: Layout, metric: str) -> list[Effect]:
    """Effects on everyone as values, arm by arm."""
    arms, sizes = layout.arms, layout.sizes.sum(axis=0)
    return [
        to_effect(
            arrays,
            Target(metric, arms[arm], arms[layout.control]),
            sizes[[layout.control, arm]],
            position=position,
        )
        for position, arm in enumerate(layout.treatments)
    ]


def _clipping_notes(release: Release) -> list[str]:
    """What effects on numbers are effects on."""
    return [
        f"{name}, clipped to {number.low:g}..{number.high:g}"
        for block in release.blocks
        for name, number in block.space.declared.numbers.items()
    ]


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


def layout_notes(layout: Layout, estimator: Estimator) -> tuple[str, ...]:
    """Remarks on estimates from cells of these sizes."""
    notes = []
    compared = layout.compared().sizes
    n_single = int((compared == 1).sum())
    if n_single and estimator == "stratified":
        notes.append(
            f"cells with one unit: {n_single}; their variance is taken from the rest of their arm, "
            "which errs on the wide side"
        )
    n_left_out = layout.n_units - int(compared.sum())
    if n_left_out and estimator == "stratified":
        n_clusters = len(layout.clusters) - len(compared)
        notes.append(
            f"{n_clusters:,} of {len(layout.clusters):,} clusters have no unit in some arm, so no "
            f"effect can be compared there; their {n_left_out:,} units are left out"
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
