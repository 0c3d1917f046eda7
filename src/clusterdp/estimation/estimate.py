"""The analyst's half: effects with intervals, from a release alone."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from clusterdp._text import counted
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import (
    Effect,
    Estimator,
    Use,
    segment_label,
)
from clusterdp.estimation.effects.findings import (
    VARYING,
    call_text,
    file_name,
    mark_reported,
    parse_family,
    with_families,
)
from clusterdp.estimation.effects.intervals import SCALES, Scale, check_level, quantile
from clusterdp.estimation.effects.looks import Look, nominal_level, parse_look
from clusterdp.estimation.effects.margins import best_arms, margin_verdicts, read_margins
from clusterdp.estimation.effects.notes import (
    Note,
    Weight,
    arms_check,
    between_notes,
    fold_notes,
    look_notes,
    range_notes,
    scale_notes,
    segment_size_check,
    sorted_notes,
)
from clusterdp.estimation.metrics.base import (
    MetricEstimator,
    MetricFindings,
    QuestionRows,
)
from clusterdp.estimation.metrics.exposure import Exposure
from clusterdp.estimation.metrics.observed import attrition_notes, missing_notes
from clusterdp.estimation.metrics.parse import parse_metrics
from clusterdp.estimation.metrics.sample_ratio import (
    balance_notes,
    difference_notes,
    question_notes,
    scope_notes,
    segment_ratio_notes,
)
from clusterdp.estimation.opened import ReadFolders
from clusterdp.estimation.reading import segments as cutting
from clusterdp.estimation.reading.clusters import ClusterInversion
from clusterdp.estimation.reading.folders import FOLDER
from clusterdp.estimation.reading.request import (
    Differences,
    EstimateRequest,
    dimension_columns,
    parse_column_names,
    parse_dimensions,
)
from clusterdp.estimation.report.results import Estimate
from clusterdp.published.notes import clip_notes
from clusterdp.published.release import Release
from clusterdp.published.rows import n_outputs

# Arguments that have few values.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "estimator": ("stratified", "unstratified"),
    "use": ("everything", "rows"),
    "differences": ("rest", "pairs", None),
    "folder_weights": ("size", "precision"),
    "scale": SCALES,
}


def estimate(  # noqa: PLR0913 - what to estimate, all by name
    release: Release | str | os.PathLike[str] | Sequence[Release | str | os.PathLike[str]],
    *,
    metrics: Any = None,
    control: Any = None,
    arms: Any = None,
    estimator: Estimator = "stratified",
    use: Use = "everything",
    answers: Any = None,
    followups: Any = None,
    segments: Any = None,
    on: str | None = None,
    by: Sequence[str | Sequence[str]] | str | None = None,
    adjust: Sequence[str] | str = (),
    exposure: str | None = None,
    differences: Differences | None = None,
    family: Sequence[str] | str = VARYING,
    fold: int | None = None,
    shares: dict[Any, float] | None = None,
    level: float = 0.95,
    margins: Any = None,
    equivalence: Any = None,
    scale: Scale = "difference",
    lower_is_better: Sequence[str] | str = (),
    folder_weights: Literal["size", "precision"] = "size",
    look: str | None = None,
    anytime: int | None = None,
) -> Estimate:
    """Average effects from a release, or from several together, each arm against control.

    Args:
        release: A published folder, or a release from `release` or `read_release`. A list of
            several is estimated together: folders of one experiment about different units.
        metrics: What to measure, every declared metric by default. A text or a list of them:
            `rounds` (the mean), `rounds>=10` (a share), `p90(rounds)`, `median(rounds)`,
            `dist(rounds)` (the distribution in every arm), `spend/visit` (a ratio of means). Or a
            mapping of a name to values by outcome, for the mean of any function; or to an outcome
            and a function of arrays, `{"log": ("spend", numpy.log1p)}`.
        control: The arm to compare with; the release's own by default.
        arms: Arms that are compared as one, the union of their units: `{"email": ["mens",
            "womens"]}`.
        estimator: "stratified" compares within clusters and weights clusters by size;
            "unstratified" compares overall means.
        use: "everything" combines rows with noisy sums and counts of their cells, if the release
            has them; "rows" uses rows only, which is valid too and less precise.
        answers: Folders that the owner answered follow-ups with: noisy totals, used like those of a
            declared breakdown. See `ask`.
        followups: The folders of these follow-ups, which have the labels. Those next to an answer
            are found without.
        segments: The analyst's own table, or the path of its file. It is joined to the rows by unit
            id.
        on: The column of ids in that table; by default named as in the release.
        by: Columns to segment by, published or joined. Several in one entry are crossed: `["tier",
            "tier,region"]`. Several folders can be segmented by "folder".
        adjust: Columns, published or joined, measured before treatment, to adjust for (CUPED):
            numbers or categories. Adjusted effects are listed next to the others, and `to_report`
            marks which of the two to report.
        exposure: Treatment received: an outcome declared as 0,1, or a column of 0 and 1, published
            or joined. Adds the complier effect (CACE) on each mean, with Anderson and Rubin's
            interval.
        differences: "rest" compares each segment with the rest of its dimension, "pairs" compares
            all pairs; both test for heterogeneity.
        family: What a multiple-testing family covers: some of "arms", "segments" and "metrics".
            Holm and BH p-values and simultaneous intervals are for a whole family.
        fold: Use rows and sums of this fold only, so that segments can be chosen in the others.
        shares: The planned share of each arm, for the SRM check; by default as the owner declared
            them.
        level: The confidence level of the intervals that are shown.
        margins: What overall effects should be above, by metric: `{"visit": -0.002}` asks whether
            an arm is not worse than control by more, and `0.002` whether it is better by more. Each
            verdict is a one-sided test at 1 − level.
        equivalence: Which differences do not matter, by metric: `{"visit": 0.002}` asks whether an
            overall effect lies within ±0.002, by two such tests.
        scale: What tables show effects as: "difference", "ratio" of means (the risk ratio of a
            share), "odds" (the odds ratio of a share), or "lift". Values have all of them.
        lower_is_better: Metrics of which the lowest mean is the best, for the probability that an
            arm is the best.
        folder_weights: How several folders count: by "size", their numbers of units, or by
            "precision", the inverse of the variance of each folder's effect.
        look: Which of how many planned looks this is, such as "3/8": intervals and p-values then
            hold over all of them.
        anytime: For any number of looks: at how many units intervals are to be shortest. Every
            look needs the same number.

    Raises:
        ParameterError: If an argument has another type or is out of its range.
        FormatError: If the folder is not a release, or was damaged or edited.
        DataError: If the analyst's table does not fit the release, or folders share units.
    """
    given = dict(locals())
    if isinstance(segments, str | os.PathLike):
        given["segments"] = file_name(segments)
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            *others, last = (f'"{one}"' for one in choices if one is not None)
            raise ParameterError(
                f"{name} must be {', '.join(others)} or {last}, got {given[name]!r}"
            )
    check_level(level)
    if on is not None and not isinstance(on, str):
        raise ParameterError(f"on must be the name of a column, got {on!r}")
    varying = parse_family(family)
    limits = read_margins("margins", margins or ())
    no_difference = read_margins("equivalence", equivalence or ())
    folders = ReadFolders.open(release)
    release = folders.releases[0]
    covariates = parse_column_names("adjust", adjust)
    groups: tuple[str, ...] = ()
    of_answers: list[Note] = []
    if answers or followups:
        from clusterdp.estimation.reading import answers as later  # few estimates have any

        for name, places in (("answers", answers), ("followups", followups)):
            given[name] = [file_name(one) for one in later.folder_paths(name, places)] or None
        used = [*dimension_columns(parse_dimensions(by, release)), *covariates]
        used += [exposure] if exposure else []
        release, segments, groups, of_answers = later.with_answers(
            folders.only(), answers, followups, segments, on, used, use=use
        )
        folders, on = ReadFolders(folders.names, [release]), None
    which = parse_look(look, anytime, sum(one.layout.n_units for one in folders.releases))
    folders.ask(
        EstimateRequest(
            layout=release.layout,
            estimator=estimator,
            use_sums=use == "everything",
            fold=fold,
            level=nominal_level(which, level),
            table=segments,
            on=on,
            differences=differences,
            covariates=covariates,
            groups=groups,
            by_precision=folder_weights == "precision",
        ),
        by=by,
        control=control,
        exposure=exposure,
        arms=arms,
    )
    request = folders.request
    ratio_notes = folders.share_notes(shares)
    found = _find(folders, metrics, rows_only=use == "rows")
    effects = _shown(found, which)
    found.check("Allowed values", range_notes(effects), passed="all means are possible")
    notes = [*ratio_notes, *found.notes, *_group_notes(release, effects, level)]
    shown = set(found.outcomes)
    notes += [*scope_notes(request), *folders.notes(lambda one: _scope_notes(one, shown))]
    notes += [*between_notes(effects, FOLDER), *scale_notes(effects, scale, level)]
    notes += look_notes(which, level, len(folders.names), has_tests=bool(found.tests))
    notes += of_answers
    sorted_by_weight = sorted_notes(notes)
    return Estimate(
        effects=with_families(effects, varying),
        verdicts=margin_verdicts(effects, limits, no_difference, level),
        best=best_arms(effects, parse_column_names("lower_is_better", lower_is_better)),
        treatment=release.columns.arm,
        estimator=estimator,
        mechanism=", ".join(dict.fromkeys(one.mechanism_names for one in folders.releases)),
        guarantee=folders.guarantee,
        origin=folders.origin(found.shares, call_text(estimate, given)),
        level=level,
        family=varying,
        warnings=sorted_by_weight[Weight.WARNING],
        notes=sorted_by_weight[Weight.SCOPE],
        method=sorted_by_weight[Weight.METHOD],
        tests=tuple(found.tests),
        distributions=tuple(found.distributions),
        bounds=tuple(replace(one, level=level) for one in found.bounds),
        look=which,
        scale=scale,
        adjusted_for=request.covariates,
        owner_covariates=tuple(found.owner_covariates),
        checks=(
            arms_check(request.released, ratio_notes),
            *found.checks,
            *segment_size_check(effects, release.provenance.unit),
        ),
    )


def _find(folders: ReadFolders, metrics: Any, *, rows_only: bool) -> MetricFindings:
    """Effects on every metric, from rows or, where none are published, from statistics.

    Raises:
        ParameterError: If rows are needed, and none are published.
    """
    release = folders.releases[0]
    estimators = parse_metrics(metrics, [question.space for question in release.questions])
    if release.units is not None:
        return _from_rows(folders, estimators)
    if rows_only or metrics is not None or folders.request.is_of_rows:
        raise ParameterError(
            f"{release.mechanism_names} publishes no rows, only overall effects. Fix: leave out "
            "metrics, arms, use, segments, by, adjust, exposure and fold."
        )
    from clusterdp.estimation.without_rows import statistics_effects  # few releases have none

    return statistics_effects(release, folders.request)


def _shown(found: MetricFindings, look: Look | None) -> list[Effect]:
    """Effects with what follows from all of them: overall, in segments, then their differences."""
    found.effects.sort(key=lambda one: (bool(one.of.segment), one.of.against is not None))
    ranges, shrunken = dict(found.ranges), dict(found.shrunken)
    return [
        replace(
            one,
            possible=ranges.get(one.of.metric),
            is_share=one.of.metric in found.shares,
            shrunken=shrunken.get(one.of),
            look=look,
        )
        for one in found.effects
    ]


def _group_notes(release: Release, effects: list[Effect], level: float) -> list[Note]:
    """How arms assigned to groups affect standard errors, and why intervals are wide."""
    if release.columns.randomization_unit is None:
        return []
    text = (
        f"Standard errors are cluster-robust: {release.columns.randomization_unit} is the "
        "randomization unit."
    )
    weight = Weight.METHOD
    overall = [one for one in effects if not one.of.segment and math.isfinite(one.degrees)]
    if overall:
        widest, weight = min(overall, key=lambda one: one.degrees), Weight.SCOPE
        text += (
            f" There are few groups, so {level:.0%} CIs reach up to "
            f"{quantile(level, widest.degrees):.3g} SEs. Privacy is "
            f"{widest.privacy_variance_share:.0%} of the variance."
        )
    return [Note(text, weight)]


def _from_rows(folders: ReadFolders, estimators: list[MetricEstimator]) -> MetricFindings:
    """Effects on every metric, from rows and what was published next to them."""
    release, request = folders.releases[0], folders.request
    every, questions = folders.read()
    rows = questions[0].rows  # what follows is public, and the same in every question
    found = MetricFindings()
    if request.fold is not None:
        units = counted(request.layout.n_units, release.provenance.unit)
        held = f"{int(rows.profiles.sizes.sum()):,} of {units}"
        found.notes.append(Note(f"Fold {request.fold} only: {held}.", Weight.SCOPE))
    if request.differences == "pairs":
        _check_pairs(rows)
    if len(release.questions) > 1:
        arms = request.layout.arms
        pairs = zip(folders.releases, every, strict=True)
        asked = [_question_shares(*pair, arms) for pair in pairs]
        shares = dict.fromkeys(shares for _, shares in asked)
        suspect = folders.named([notes for notes, _ in asked])
        found.check("Questions", suspect, passed=f"asked equally in all arms ({'; '.join(shares)})")
    _check_joined(release, rows, found, request.inversion)
    exposure = None if request.exposure is None else Exposure(request.exposure, questions)
    _estimate_metrics(estimators, questions, exposure, found)
    if exposure is not None:
        found.add(exposure.effects(found.effects))
    if rows.segments and request.layout.folds > 1 and request.fold is None:
        n_segments = sum(bool(one.of.segment) for one in found.effects)
        found.check(
            "Folds",
            fold_notes(found.folds, n_segments, found.shares),
            passed="effects in segments agree between folds",
        )
    for declared in (question.space.declared for question in release.questions):
        if (attrition := attrition_notes(declared, found.effects)) is not None:
            found.check(
                f"Attrition in {' and '.join(declared.missing)}",
                attrition,
                passed="no difference in response rates found",
            )
    if rows.covariates is not None:
        suspect = [*balance_notes(rows.covariates), *difference_notes(found.effects, found.shares)]
        found.check("Covariate balance", suspect, passed="no sign that they depend on treatment")
        found.effects[:] = mark_reported(
            found.effects, math.inf if suspect else len(rows.covariates.regressors)
        )
    return found


def _estimate_metrics(
    estimators: list[MetricEstimator],
    questions: list[QuestionRows],
    exposure: Exposure | None,
    found: MetricFindings,
) -> None:
    """Estimate each metric. One that cannot be is left out, unless it is the only one.

    Raises:
        ParameterError: If none can be estimated.
    """
    refused = []
    for one in estimators:
        try:
            of_metric = one.estimate(questions)
            if exposure is not None:
                for rows, function in of_metric.means:
                    of_metric.add(exposure.effects_with(function, rows))
            found.add(of_metric)
        except ParameterError as error:
            refused.append(error)
    if len(refused) == len(estimators):
        raise refused[0]
    found.notes.extend(Note(f"Not estimated: {error}", Weight.WARNING) for error in refused)


def _question_shares(
    release: Release, read: list[cutting.RowCounts], arms: tuple[Any, ...]
) -> tuple[list[Note], str]:
    """Whether questions were asked of as many units as published, and equally in all arms.

    And the shares of units that they were asked of.
    """
    asked = [
        rows.whole.cell_sizes(rows.profiles, n_outputs(question)).sum(axis=0)
        for question, rows in zip(release.questions, read, strict=True)
    ]
    shares = np.array([question.mechanism.asked_share for question in release.questions])
    notes = question_notes(
        np.stack(asked),
        read[0].whole.cell_sizes(read[0].profiles).sum(axis=0),
        shares,
        [question.name for question in release.questions],
        arms,
    )
    return notes, ", ".join(f"{one:.1%}" for one in shares)


def _check_joined(
    release: Release,
    rows: cutting.RowCounts,
    found: MetricFindings,
    inversion: ClusterInversion,
) -> None:
    """Check segments and covariates: shares of arms, ids, values."""
    parts = [  # true clusters are not known
        (segment_label(of), one) for of, one in rows.segments if inversion.column not in dict(of)
    ]
    parts += [(f"no {' or '.join(names)}", one) for names, one in rows.without]
    if parts and inversion.probs is None and release.columns.randomization_unit is None:
        sizes = [(name, one.cell_sizes(rows.profiles)) for name, one in parts]
        found.check(
            "Sample ratio in segments",
            segment_ratio_notes(sizes, rows.whole.cell_sizes(rows.profiles)),
            passed="no mismatch found",
        )
    if rows.joined is not None:
        found.check(
            "Segments table",
            rows.joined,
            passed="it has every released unit, and a value in each column",
        )
    if rows.covariates is not None:
        found.check(
            "Covariates",
            rows.covariates.notes(),
            passed="no values are missing",
        )


def _check_pairs(rows: cutting.RowCounts) -> None:
    """Raise a ParameterError if segments have more pairs than anyone reads."""
    sizes = Counter(tuple(name for name, _ in segment) for segment, _ in rows.segments)
    n_pairs = sum(math.comb(size, 2) for size in sizes.values())
    if n_pairs > cutting.MOST_SEGMENTS:
        raise ParameterError(
            f'differences="pairs" makes {n_pairs:,} pairs of segments. The limit is '
            f'{cutting.MOST_SEGMENTS:,}. Fix: use differences="rest" (--differences rest).'
        )


def _scope_notes(release: Release, shown: set[str]) -> list[Note]:
    """What effects on the shown outcomes cover: who was asked, what was clipped or is missing."""
    units = release.provenance.units
    questions = [one for one in release.questions if not shown.isdisjoint(one.space.declared.names)]
    texts, method = [], []
    if release.units is not None and len(release.questions) > 1:
        shares = ", ".join(
            f"{one.name} {one.mechanism.asked_share:.0%} of {units}" for one in questions
        )
        start = f"Each {release.provenance.unit} answers one question"
        method.append(Note(f"{start} ({shares}). Totals cover all {units}.", Weight.METHOD))
    every = [question.space.declared for question in questions]
    ends = [
        (name, number.low, number.high)
        for declared in every
        for name, number in declared.numbers.items()
        if name in shown
    ]
    clipped = [one for one in release.remarks if one.clipped and one.clipped[0] in shown]
    texts += clip_notes([*ends, *(one.clipped for one in clipped if one.clipped)])
    texts += [
        note for declared in every for name, note in declared.label_notes.items() if name in shown
    ]
    texts += [note for declared in every for note in missing_notes(declared, shown, units)]
    texts += [
        one.text
        for one in release.remarks
        if one.is_of_effects
        and one not in clipped
        and (one.outcomes is None or not shown.isdisjoint(one.outcomes))
    ]
    return [*(Note(text, Weight.SCOPE) for text in texts), *method]
