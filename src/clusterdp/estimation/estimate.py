"""The analyst's half: effects with intervals, from a release alone."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Target, to_effect
from clusterdp.estimation.effects.families import (
    VARYING,
    mark_reported,
    parse_family,
    with_families,
)
from clusterdp.estimation.effects.findings import (
    Note,
    Origin,
    Weight,
    arms_check,
    call_text,
    file_name,
    segment_size_check,
    sorted_notes,
)
from clusterdp.estimation.effects.intervals import quantile
from clusterdp.estimation.effects.possible import (
    MetricRange,
    fold_notes,
    range_notes,
    within_ranges,
)
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.means.sums import contrast_effects
from clusterdp.estimation.metrics.exposure import Exposure
from clusterdp.estimation.metrics.mean import Found, Wanted
from clusterdp.estimation.metrics.observed import attrition_notes, missing_notes, tells_attrition
from clusterdp.estimation.metrics.parse import Source, parse_metrics
from clusterdp.estimation.metrics.sample_ratio import (
    check_weighted,
    estimate_share_notes,
    question_notes,
    scope_notes,
    segment_ratio_notes,
)
from clusterdp.estimation.reading import segments as cutting
from clusterdp.estimation.reading.clusters import LabelWeights
from clusterdp.estimation.reading.covariate_balance import (
    balance_notes,
    difference_notes,
    report_plain,
)
from clusterdp.estimation.reading.crossing import AskedExposure
from clusterdp.estimation.reading.cuts import Cuts, parse_dimensions, parse_names
from clusterdp.estimation.reading.profiles import Profiling
from clusterdp.estimation.report.results import Effect, Estimate, check_level
from clusterdp.estimation.report.tables import segment_label
from clusterdp.outcomes.space import Ends
from clusterdp.published.folder import read_release
from clusterdp.published.release import Release
from clusterdp.published.rows import n_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.means.sums import EffectArrays, Estimator, Use
    from clusterdp.estimation.metrics.differences import Differences
    from clusterdp.estimation.metrics.parse import Asked
    from clusterdp.estimation.reading.profiles import Profiles

_NO_SPREAD = "the release holds no estimate of the sampling variance; the largest possible is used"


def estimate(  # noqa: PLR0913 - what to estimate, all by name
    release: Release | str | os.PathLike[str],
    *,
    metrics: Any = None,
    control: Any = None,
    estimator: Estimator = "stratified",
    use: Use = "everything",
    segments: Any = None,
    on: str | None = None,
    by: Sequence[str | Sequence[str]] | str | None = None,
    adjust: Sequence[str] | str = (),
    exposure: str | None = None,
    differences: Differences | None = None,
    family: Sequence[str] | str = VARYING,
    holdout: int | None = None,
    shares: dict[Any, float] | None = None,
    level: float = 0.95,
) -> Estimate:
    """Average effects from a release, each arm against control.

    Args:
        release: A published folder, or a release from `release` or `read_release`.
        metrics: What to measure, every declared metric by default. A text or a list of them:
            `rounds` (the mean), `rounds>=10` (a share), `p90(rounds)`, `median(rounds)`,
            `dist(rounds)` (the distribution in every arm), `spend/visit` (a ratio of means). Or a
            mapping of a name to values by category, for the mean of any function; or to an outcome
            and a function of arrays, `{"log": ("spend", numpy.log1p)}`.
        control: The arm to compare with; the release's own by default.
        estimator: "stratified" compares within clusters and weights clusters by size;
            "unstratified" compares overall means.
        use: "everything" combines rows with noisy sums and counts of their cells, if the release
            has them; "rows" uses rows alone, which is valid too and less precise.
        segments: The analyst's own table, or the path of its file. It is joined to the rows by unit
            id.
        on: The column of ids in that table; by default named as in the release.
        by: Columns to cut by, kept or joined. Several in one entry are crossed: `["tier",
            "tier,region"]`.
        adjust: Columns, kept or joined, that were known before treatment, to adjust for (CUPED):
            numbers or categories. Adjusted effects are listed beside the others, and `to_report`
            says which of the two to report.
        exposure: Whether units were exposed to what their arm offers: an outcome declared as 0,1,
            or a column of 0 and 1, kept or joined. Beside the effect on each mean stands that on
            those exposed (CACE), with Anderson and Rubin's interval.
        differences: "rest" also compares each segment with the rest of its dimension, "pairs" with
            each other one; both test whether all have the same effect.
        family: What effects that are judged together differ in: some of "arms", "segments" and
            "metrics". P-values of Holm and of Benjamini and Hochberg, and simultaneous intervals,
            hold for all effects of a family.
        holdout: Use the rows of this fold alone, with the sums of this fold alone. Segments may
            then be chosen by looking at the other folds.
        shares: The planned share of each arm, for the check of sample ratios; by default as the
            owner declared them.
        level: The confidence level of the intervals that are shown.

    Raises:
        ParameterError: If an argument is of another type or out of its range.
        FormatError: If the folder is not a release, or was damaged or edited.
        DataError: If the analyst's table does not fit the release.
    """
    given = dict(locals())
    release = open_release(release)
    if isinstance(segments, str | os.PathLike):
        given["segments"] = file_name(segments)
    _check_choice("estimator", estimator, ("stratified", "unstratified"))
    _check_choice("use", use, ("everything", "rows"))
    check_level(level)
    if on is not None and not isinstance(on, str):
        raise ParameterError(f"on must be the name of a column, got {on!r}")
    if holdout is not None and (isinstance(holdout, bool) or not isinstance(holdout, int)):
        raise ParameterError(f"holdout must be the number of a fold, got {holdout!r}")
    if differences is not None:
        _check_choice("differences", differences, ("rest", "pairs"))
    varying = parse_family(family)
    layout = release.layout if control is None else release.layout.with_control(control)
    labels = LabelWeights.of(release)
    ratio_notes = estimate_share_notes(layout, shares, labels, release.columns.assigned_by)
    asked = parse_metrics(metrics, [question.space for question in release.questions])
    dimensions = parse_dimensions(by, release)
    covariates = parse_names("adjust", adjust)
    exposed = _parse_exposure(exposure, release, [*dimensions, covariates])
    if segments is not None and not dimensions and not covariates and exposed is None:
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
        level=level,
        labels=labels,
    )
    check_weighted(labels, release, wanted, dimensions, exposed)
    if covariates and release.columns.assigned_by is not None:
        raise ParameterError(
            "arms were assigned to groups, where adjusted effects have no right intervals: leave "
            "out adjust (--adjust)"
        )
    if differences and not dimensions:
        raise ParameterError("differences are between segments: give by=... (--by)")
    cut = bool(dimensions or covariates or exposed)
    if release.units is not None:
        cuts = Cuts(segments, on, dimensions, covariates, exposed, labels)
        found = _from_rows(release, cuts, wanted, asked)
    elif use == "rows" or any(one is not None for one in (metrics, segments, holdout)) or cut:
        raise ParameterError(
            f"{release.mechanism_names} publishes no rows; leave out metrics, use, segments, by, "
            "adjust, exposure and holdout"
        )
    else:
        found = _from_statistics(release, wanted)
    effects = within_ranges(sorted(found.effects, key=_kind), found.ranges)
    found.check("Are means possible?", range_notes(effects), fine="they are")
    notes = [*ratio_notes, *found.notes, *_group_notes(release, effects, level)]
    notes += scope_notes(layout, estimator, labels)
    missing = [note for one in release.questions for note in missing_notes(one.space.declared)]
    counted_as = [note for one in release.questions for note in one.space.declared.label_notes]
    scope = (*_asked_notes(release), *_clipping_notes(release), *counted_as, *missing)
    scope = (*scope, *release.notes)
    notes += [Note(text, Weight.SCOPE) for text in scope]
    warnings, remarks = sorted_notes(notes)
    return Estimate(
        effects=with_families(effects, varying),
        treatment=release.columns.arm,
        estimator=estimator,
        mechanism=release.mechanism_names,
        guarantee=release.guarantee,
        origin=Origin.of(
            release.provenance.title or file_name(given["release"]),
            layout,
            found.shares,
            call_text(estimate, given),
        ),
        level=level,
        family=varying,
        warnings=warnings,
        notes=remarks,
        tests=tuple(found.tests),
        distributions=tuple(found.distributions),
        bounds=tuple(found.bounds),
        adjusted_for=covariates,
        checks=(arms_check(layout, ratio_notes), *found.checks, *segment_size_check(effects)),
    )


def _parse_exposure(
    exposure: Any, release: Release, others: list[tuple[str, ...]]
) -> AskedExposure | None:
    """What units were exposed to, if that is asked for; `others` are cut by or adjusted for."""
    if exposure is None:
        return None
    if any(exposure in names for names in others):
        raise ParameterError(
            f"exposure {exposure!r} follows treatment, so effects are not cut by it, nor adjusted "
            "for it; leave it out of by and adjust (--by, --adjust)"
        )
    return AskedExposure.parse(exposure, [question.space for question in release.questions])


def _kind(effect: Effect) -> tuple[bool, bool]:
    """The order of effects: overall, in segments, differences between segments."""
    return bool(effect.of.segment), effect.of.against is not None


def _group_notes(release: Release, effects: list[Effect], level: float) -> list[Note]:
    """What standard errors are of if arms were assigned to groups, and why intervals are wide."""
    if release.columns.assigned_by is None:
        return []
    text = (
        f"arms were assigned by {release.columns.assigned_by}: standard errors are of how its "
        "groups differ, never of how units do"
    )
    overall = [one for one in effects if not one.of.segment and math.isfinite(one.degrees)]
    if overall:
        widest = min(overall, key=lambda one: one.degrees)
        text += (
            f". Groups are few, so that {level:.0%} intervals reach up to "
            f"{quantile(level, widest.degrees):.3g} standard errors; privacy is "
            f"{widest.privacy_share:.0%} of the variance"
        )
    return [Note(text)]


def _from_rows(
    release: Release, cuts: Cuts, wanted: Wanted, asked: list[tuple[int, Asked]]
) -> Found:
    """Effects on every metric, from rows and what was published beside them."""
    profiling = Profiling.for_sums(release, use_sums=wanted.use_sums, holdout=wanted.holdout)
    read = cutting.read_rows(release, cuts, profiling)
    sources = [Source(*pair, wanted) for pair in zip(release.questions, read, strict=True)]
    rows = read[0]  # what follows is public, and the same in every question
    found = Found()
    if wanted.holdout is not None:
        n_held = int(rows.profiles.sizes.sum())
        text = f"fold {wanted.holdout} alone: {n_held:,} of {release.layout.n_units:,} units"
        found.notes.append(Note(text, Weight.SCOPE))
    if wanted.differences == "pairs":
        _check_pairs(rows)
    if len(release.questions) > 1:
        _check_questions(release, read, found)
    _check_joined(release, rows, found, wanted.labels)
    exposure = None if cuts.exposure is None else Exposure.of(cuts.exposure, sources)
    _estimate_asked(
        [(one, sources[place]._replace(exposure=exposure, others=sources)) for place, one in asked],
        found,
    )
    if exposure is not None:
        found.add(exposure.effects(found.effects))
    if rows.segments and release.layout.folds > 1 and wanted.holdout is None:
        n_segments = sum(bool(one.of.segment) for one in found.effects)
        found.check(
            "Do segments have the same effects in all folds?",
            fold_notes(found.folds, n_segments),
            fine="they do, as far as can be seen",
        )
    for declared in (question.space.declared for question in release.questions):
        if tells_attrition(declared, found.effects):
            found.check(
                f"Do arms differ in whose {' and '.join(declared.missing)} is missing?",
                attrition_notes(declared, found.effects),
                fine="not as far as can be seen",
            )
    if rows.covariates is not None:
        found.effects[:] = mark_reported(found.effects, len(rows.covariates.given.regressors))
        suspect = [*balance_notes(rows.covariates), *difference_notes(found.effects)]
        fine = "they do not, as far as can be seen"
        found.check("Do covariates follow from treatment?", suspect, fine=fine)
        if suspect:
            found.effects[:] = report_plain(found.effects)
    return found


def _estimate_asked(asked: list[tuple[Asked, Source]], found: Found) -> None:
    """Estimate each metric. One that cannot be is left out, unless it is the only one.

    Raises:
        ParameterError: If none can be estimated.
    """
    refused = []
    for one, source in asked:
        try:
            found.add(one.estimate(source))
        except ParameterError as error:
            refused.append(error)
    if len(refused) == len(asked):
        raise refused[0]
    found.notes.extend(Note(f"left out: {error}", Weight.WARNING) for error in refused)


def _check_questions(release: Release, read: list[cutting.RowCounts], found: Found) -> None:
    """Check that questions were asked of as many units as published, in all arms alike."""
    profiles, arms = read[0].profiles, release.layout.arms
    asked = []
    for question, rows in zip(release.questions, read, strict=True):
        counts = np.where(rows.whole.responses < n_outputs(question), rows.whole.counts, 0)
        asked.append(np.bincount(profiles.arms[rows.whole.profiles], counts, len(arms)))
    shares = np.array([question.mechanism.asked_share for question in release.questions])
    found.check(
        "Are questions asked alike in all arms?",
        question_notes(
            np.stack(asked).astype(np.int64),
            np.bincount(profiles.arms, profiles.sizes, len(arms)).astype(np.int64),
            shares,
            [question.name for question in release.questions],
            arms,
        ),
        fine=f"they are, as far as can be seen, of {', '.join(f'{one:.1%}' for one in shares)}",
    )


def _check_joined(
    release: Release, rows: cutting.RowCounts, found: Found, labels: LabelWeights | None
) -> None:
    """Check segments and covariates: shares of arms, ids, values."""
    parts = []
    if release.columns.assigned_by is None and (labels is None or labels.probs is None):
        parts = _segment_sizes(rows, None if labels is None else labels.column)
    if parts:
        found.check(
            "Do arms have their shares in segments?",
            segment_ratio_notes(parts, _cell_sizes(rows.profiles)),
            fine="they do, as far as can be seen",
        )
    if rows.joined is not None:
        found.check(
            "Do the ids of the segments table match?",
            rows.joined,
            fine="every released unit is in it, with a value in each column",
        )
    if rows.covariates is not None:
        found.check(
            "Are covariates complete?",
            rows.covariates.given.notes(),
            fine="every unit has all of them",
        )


def _check_pairs(rows: cutting.RowCounts) -> None:
    """Raise a ParameterError if segments have more pairs than anyone reads."""
    sizes = Counter(tuple(name for name, _ in segment) for segment, _ in rows.segments)
    n_pairs = sum(math.comb(size, 2) for size in sizes.values())
    if n_pairs > cutting.MOST_SEGMENTS:
        raise ParameterError(
            f'differences="pairs" makes {n_pairs:,} pairs of segments, and at most '
            f'{cutting.MOST_SEGMENTS:,} are compared: use differences="rest" (--differences rest)'
        )


def _segment_sizes(rows: cutting.RowCounts, private: str | None) -> list[tuple[str, IntArray]]:
    """Segments, and units without a value, with the units of their cells; no true clusters."""

    def cell_sizes(places: IntArray, counts: IntArray) -> IntArray:
        return _cell_sizes(rows.profiles, np.bincount(places, counts, len(rows.profiles.cells)))

    known = (pair for pair in rows.segments if private not in dict(pair[0]))
    parts = [(segment_label(segment), one) for segment, one in known]
    parts += [(f"no {' or '.join(names)}", one) for names, one in rows.without]
    return [(name, cell_sizes(one.profiles, one.counts)) for name, one in parts]


def _cell_sizes(profiles: Profiles, sizes: IntArray | None = None) -> IntArray:
    """The units of cells, from those of profiles; everyone's by default."""
    return profiles.sum_cells(profiles.sizes if sizes is None else sizes).astype(np.int64)


def _from_statistics(release: Release, wanted: Wanted) -> Found:
    """Overall effects from a release without rows."""
    layout, found = wanted.layout, Found()
    if wanted.estimator == "unstratified":
        raise ParameterError("a release without rows has stratified effects only")
    for question in release.questions:
        for place, metric in enumerate(question.space.declared.metrics):
            contrasts = question.statistics[0].contrasts(layout, place)
            arrays = contrast_effects(contrasts, layout, Ends.of(question.space, place))
            function = CategoryFunction.declared(str(metric), question.space, place)
            found.shares.extend([function.name] * function.is_share(question.space))
            if question.space.declared.observed_place(place) is None:
                found.ranges.append(MetricRange.of(function.name, function.values))
            found.notes.extend([Note(_NO_SPREAD)] if arrays.degrees is None else [])
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


def _asked_notes(release: Release) -> list[str]:
    """Of how many units each question was asked, where there are several."""
    if release.units is None or len(release.questions) == 1:
        return []
    shares = ", ".join(
        f"{one.name} {one.mechanism.asked_share:.0%} of units" for one in release.questions
    )
    return [f"each person's row answers one question ({shares}); totals are of everyone"]


def _clipping_notes(release: Release) -> list[str]:
    """What effects on numbers are effects on, where no note of the release says so."""
    return [
        f"{name}, clipped to {number.low:g}..{number.high:g}"
        for question in release.questions
        for name, number in question.space.declared.numbers.items()
        if not any(note.startswith(f"{name} was clipped") for note in release.notes)
    ]


def open_release(release: Any) -> Release:
    """A release as it is, or from the path of its folder."""
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
