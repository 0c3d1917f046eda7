"""An estimate as a document: a page to share, and a part of a notebook.

Both have the same parts, and the same numbers as the text for terminals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from clusterdp._text import counted
from clusterdp._version import __version__
from clusterdp.document.charts import Axis, ChartLine, interval_axis, interval_chart, line_chart
from clusterdp.document.markup import render
from clusterdp.document.model import (
    Chart,
    Code,
    Document,
    Items,
    Paragraph,
    Part,
    Section,
    Table,
    strong,
)
from clusterdp.document.scales import Interval, Linear
from clusterdp.document.text import Column
from clusterdp.estimation.effects.effect import Effect, plain_label
from clusterdp.estimation.effects.findings import ArmDistribution, Findings
from clusterdp.estimation.effects.intervals import quantile
from clusterdp.estimation.effects.looks import nominal_level
from clusterdp.estimation.report import sentences, tables
from clusterdp.estimation.report.forest import filter_tables
from clusterdp.estimation.report.tables import MetricNumbers, lift_ci_text, lift_text

_DOCUMENT = "clusterdp.document"
# Lines that can be distinguished in a chart.
_MOST_LINES = 4
# Segments whose distributions have a table of their own.
_MOST_SEGMENTS = 50
# Boundaries of more standard errors are not drawn.
_MOST_REACH = 8.0


def report_page(estimate: Findings) -> str:
    """A whole page: what was found, how sure it is, what was checked and how it was made."""
    filters = [part for part, _ in filter_tables(estimate)]
    return render(_DOCUMENT, "filtered.html", document=report_document(estimate), filters=filters)


def notebook_part(estimate: Findings) -> str:
    """What a notebook shows: the answer, a figure, tables with the rest folded, notes."""
    parts = [*_summary(estimate), *_overall(estimate), *_distributions(estimate)]
    parts += [part for section in _segments(estimate) for part in section.parts]
    notes = [*estimate.notes, *estimate.method]
    return render(_DOCUMENT, "notebook.html", parts=[*parts, *_listed(notes)])


def report_document(estimate: Findings) -> Document:
    """What was found, how sure it is, what was checked and how it was made."""
    overall, distributions = _overall(estimate), _distributions(estimate)
    sections = [
        Section("", _summary(estimate)),
        Section("Overall effects", overall, "effects"),
        Section("Distributions", distributions, "distributions"),
        *_segments(estimate),
        Section("Looks", _looks(estimate), "looks"),
        Section("Checks", _checks(estimate), "checks"),
        Section("Method and limits", _method(estimate), "method"),
        Section("Cite and repeat", _origin(estimate), "cite"),
    ]
    footer = f"clusterdp {__version__}."
    if estimate.guarantee is not None:
        footer = f"{estimate.guarantee.statement(estimate.origin.unit).formal} {footer}"
    shown = [section for section in sections if section.parts]
    return Document(sentences.title(estimate), shown, footer)


def _summary(estimate: Findings) -> list[Part]:
    """The answer for managers, for lawyers and for analysts; and what may make it wrong."""
    parts: list[Part] = [Paragraph(" ".join(sentences.lead(estimate)), "lead")]
    if not estimate.effects:
        parts = [Paragraph(f"{sentences.heading(estimate)}.", "lead")]
    warned = [f"{strong('Warning:')} {text}" for text in estimate.warnings]
    if estimate.guarantee is None:
        start = strong("These numbers are true outcomes and are not private.")
        warned.insert(0, f"{start} Do not share them.")
    else:
        text = "Computed from a published release only: no raw data was used. The release has "
        stated = estimate.guarantee.statement(estimate.origin.unit)
        parts.append(Paragraph(f"{text}{stated.budget}."))
    arms = (
        f"{tables.arm_label(estimate, arm)} ({size:,})" for arm, size in estimate.origin.arm_sizes
    )
    units = estimate.origin.units
    about = f"{estimate.origin.in_short()}. {units.capitalize()} per arm: {', '.join(arms)}."
    return [
        *parts,
        *(Paragraph(text, "box warned") for text in warned),
        Paragraph(about, "soft"),
    ]


def _overall(estimate: Findings) -> list[Part | Section]:
    """A figure and a table of overall effects; all other columns are folded."""
    effects = [one for one in estimate.effects if not one.of.segment]
    if not effects:
        return []
    reported = sentences.reported_overall(estimate)
    parts: list[Part | Section] = [*_figure(estimate, reported)]
    control = tables.arm_label(estimate, reported[0].of.control)
    parts.append(_table(f"Effects vs {control}", tables.first_columns(estimate, reported)))
    found = [
        *sentences.significance(estimate),
        sentences.privacy_sentence(estimate),
        sentences.adjusted_sentence(estimate),
    ]
    parts.append(Paragraph(" ".join(filter(None, found))))
    parts += _listed(sentences.bound_sentences(estimate))
    decided = [*sentences.verdict_sentences(estimate), *sentences.best_sentences(estimate)]
    parts += _listed(decided)
    more: list[Part | Section] = []
    if any(not one.to_report for one in effects):
        columns = tables.first_columns(estimate, effects)
        more.append(_table("With and without adjustment", columns))
    names = ("Precision", "Multiple testing")
    every = zip(names, tables.more_columns(estimate, effects), strict=False)
    more += [_table(name, columns) for name, columns in every]
    correction = sentences.correction_sentence(estimate)
    more += [Paragraph(correction)] if correction else []
    return [*parts, Section("All columns", more, is_folded=True)]


def _figure(estimate: Findings, effects: Sequence[Effect]) -> list[Chart]:
    """Overall effects of all metrics as lift; without any lift, a figure for each metric."""
    lifted = [one for one in effects if one.lift(estimate.level)]
    what = sentences.title(estimate).removeprefix("Effect of ")
    if lifted:
        intervals = [_lift_interval(estimate, one) for one in lifted]
        chart = _interval_chart(estimate, intervals, "lift in %", f"Lift of {what}")
        absent = dict.fromkeys(one.of.metric for one in effects if not one.lift(estimate.level))
        if absent:
            names = ", ".join(map(plain_label, absent))
            text = f"{chart.caption} In the table only, because their lift is unknown: {names}."
            chart = chart._replace(caption=text)
        return [chart]
    charts = []
    for metric in estimate.metrics:
        numbers = MetricNumbers(estimate, metric)
        intervals = [
            tables.to_interval(one, numbers, estimate.level, _label(estimate, one))
            for one in effects
            if one.of.metric == metric and not math.isnan(one.std_error)
        ]
        axis = f"effect on {plain_label(metric)}" + (f" in {numbers.unit}" if numbers.unit else "")
        charts += [_interval_chart(estimate, intervals, axis, axis)] if intervals else []
    return charts


def _label(estimate: Findings, effect: Effect) -> str:
    name = plain_label(effect.of.metric)
    several = tables.has_several_arms(estimate)
    return f"{name} · {tables.arm_label(estimate, effect.of.arm)}" if several else name


def _lift_interval(estimate: Findings, effect: Effect) -> Interval:
    """The lift of an effect that has one, in percent."""
    level = estimate.level
    ratio, low, high = effect.lift(level) or (math.nan,) * 3
    told = f"{lift_text(effect, level)} {lift_ci_text(effect, level)}"
    is_muted = not tables.is_significant(effect, level)
    label = _label(estimate, effect)
    return Interval(label, 100 * ratio, 100 * low, 100 * high, told, is_muted=is_muted)


def _interval_chart(estimate: Findings, intervals: list[Interval], axis: str, title: str) -> Chart:
    is_muted = any(one.is_muted for one in intervals)
    caption = f"Dots: estimates; lines: {tables.level_text(estimate)} CIs."
    if axis.startswith("lift"):
        caption = f"Lift: the effect relative to the mean of control. {caption}"
    caption += " Gray: not significantly different from zero." if is_muted else ""
    x = interval_axis(axis, intervals)
    ends = x.scale.places([end for one in intervals for end in (one.low, one.high)])
    caption += " Arrows: the CI goes on." if any(not 0 <= end <= 1 for end in ends) else ""
    drawing = interval_chart(
        intervals,
        x,
        reference=math.nan,
        title=title,
        description="; ".join(f"{one.label}: {one.told}" for one in intervals),
    )
    return Chart(drawing, caption)


def _table(title: str, columns: Sequence[Column]) -> Table:
    """Columns as a table; labels are in one column, where there are several."""
    names = [column for column in columns if column.is_label]
    numbers = [column for column in columns if not column.is_label]
    header = (" · ".join(column.name for column in names), *(column.name for column in numbers))
    rows = [
        (" · ".join(column.cells[row] for column in names), *(one.cells[row] for one in numbers))
        for row in range(len(columns[0].cells))
    ]
    return Table(title, [header, *rows])


def _distributions(estimate: Findings) -> list[Part | Section]:
    """How outcomes are distributed in the arms: a chart and a table, segments folded."""
    parts: list[Part | Section] = []
    for outcome in dict.fromkeys(one.outcome for one in estimate.distributions):
        overall = [
            one for one in estimate.distributions if one.outcome == outcome and not one.segment
        ]
        (_, rows), *segments = tables.distribution_tables(estimate, outcome)
        title = (
            f"{estimate.origin.units.capitalize()} with {plain_label(outcome)} at or below a value"
        )
        parts += [_distribution_chart(estimate, overall), Table(title, rows)]
        folded: list[Part | Section] = [
            Table(segment, each) for segment, each in segments[:_MOST_SEGMENTS]
        ]
        if len(segments) > _MOST_SEGMENTS:
            n_more = counted(len(segments) - _MOST_SEGMENTS, "segment")
            folded.append(Paragraph(f"{n_more} more: see --json.", "soft"))
        if folded:
            heading = f"Distribution of {plain_label(outcome)} in segments"
            parts.append(Section(heading, folded, is_folded=True))
    return parts


def _distribution_chart(estimate: Findings, overall: Sequence[ArmDistribution]) -> Chart:
    name = plain_label(overall[0].outcome)
    arms = [tables.arm_label(estimate, one.arm) for one in overall]
    lines = [
        # A line rises at every value but the first, where it begins.
        ChartLine(
            arm, np.repeat(one.values, 2)[1:].tolist(), np.repeat(one.shares, 2)[:-1].tolist()
        )
        for arm, one in zip(arms, overall, strict=True)
    ]
    lowest = min(float(one.shares[0]) for one in overall)
    drawing = line_chart(
        lines[:_MOST_LINES],
        Axis(name, Linear.over(overall[0].values.tolist())),
        Axis(
            f"{estimate.origin.units} at or below a value",
            Linear.over([lowest, 1.0]),
            lambda share: f"{100 * share:.4g}%",
        ),
        title=f"Distribution of {name} by arm",
        description="; ".join(
            f"{arm}: {one.shares[0]:.1%} at the lowest value"
            for arm, one in zip(arms, overall, strict=True)
        ),
    )
    return Chart(drawing, f"Share of {estimate.origin.units} with {name} at or below a value.")


def _segments(estimate: Findings) -> list[Section]:
    """Effects in segments, and differences between them with their tests."""
    sections = []
    for part, left_out in filter_tables(estimate):
        are_shrunken = part.key == "segments" and any(one.shrunken for one in estimate.effects)
        about = [
            "Dots: estimates; bars: CIs; gray: not significantly different from zero.",
            "Effects are shrunken; the plain CI is a gray bar behind." if are_shrunken else "",
            f"Dashed: the effect on all {estimate.origin.units}." if part.key == "segments" else "",
            "" if are_shrunken else sentences.family_sentence(estimate),
            left_out,
        ]
        parts: list[Part | Section] = [Paragraph(" ".join(filter(None, about)))]
        if part.key == "segments":
            reported = [one for one in estimate.effects if one.to_report]
            parts = [*_listed(sentences.many_sentences(estimate, reported)), *parts]
        if part.key == "differences":
            parts.append(Table("Heterogeneity tests", tables.heterogeneity_rows(estimate)))
        sections.append(Section(part.title, [*parts, part], part.key))
    return sections


def _looks(estimate: Findings) -> list[Part | Section]:
    """The boundary that effects must cross to be significant, at every look."""
    if estimate.look is None:
        return []
    alpha = 1 - estimate.level
    kind, places, reaches = estimate.look.boundary(alpha)
    now = quantile(nominal_level(estimate.look, estimate.level))
    shown = reaches <= _MOST_REACH
    single = np.full(int(shown.sum()), quantile(estimate.level))
    lines = [
        ChartLine("over all looks", places[shown].tolist(), reaches[shown].tolist()),
        ChartLine("a single look", places[shown].tolist(), single.tolist()),
    ]
    drawing = line_chart(
        lines,
        Axis(kind, Linear.over([float(places[0]), float(places[-1])], least=1.0)),
        Axis("SEs from zero", Linear.over([0.0, *reaches[shown].tolist()])),
        title="How far from zero an effect is significant",
        description=f"{now:.2f} standard errors now.",
    )
    rows = [("effect", "SEs from zero", "needed now")]
    for one in sentences.reported_overall(estimate):
        if one.interval is None and one.std_error > 0:
            distance = abs(one.effect) / one.std_error
            rows.append((_label(estimate, one), f"{distance:.2f}", f"{now:.2f}"))
    caption = f"An effect beyond the upper line is significant. Now that is {now:.2f} SEs."
    return [Paragraph(estimate.look.in_words(alpha)), Chart(drawing, caption), Table("Now", rows)]


def _checks(estimate: Findings) -> list[Part]:
    """One line if all checks passed; otherwise what was found."""
    found = [check for check in estimate.checks if check.verdict != "passed"]
    passed = ", ".join(one.name.lower() for one in estimate.checks if one.verdict == "passed")
    if not found:
        n_checks = len(estimate.checks)
        few = {1: "The check", 2: "Both checks"}
        named = few.get(n_checks, f"All {n_checks} checks")
        return [Paragraph(f"{named} passed: {passed}.")] if n_checks else []
    items = [f"{strong(one.name)} ({one.verdict}): {' '.join(one.found)}" for one in found]
    return [Items([*items, *([f"Passed: {passed}."] if passed else [])])]


def _method(estimate: Findings) -> list[Part]:
    level = tables.level_text(estimate)
    how = "Means of arms are compared over all clusters together."
    if estimate.estimator == "stratified":
        how = "Arms are compared within clusters, and clusters are weighted by size."
    checked = {text for one in estimate.checks if one.verdict != "passed" for text in one.found}
    texts = [
        *(note for note in estimate.notes if note not in checked),
        how,
        (
            f"A {level} CI covers the true effect in {level} of experiments like this one. It "
            "includes sampling and privacy noise. It does not cover errors in assignment or "
            "logging."
        ),
        (
            "“No clear effect” means not significantly different from zero. The CI shows which "
            "effects are possible."
        ),
    ]
    if estimate.segment_columns:
        texts.append(
            "Effects in segments are valid if segments were chosen without looking at outcomes, "
            "and by what was known before treatment."
        )
    return [Items([*texts, *estimate.method])]


def _origin(estimate: Findings) -> list[Part]:
    data = "" if estimate.origin.data is None else f", from “{estimate.origin.data}”"
    units = counted(estimate.origin.n_units, estimate.origin.unit)
    citation = (
        f"{sentences.title(estimate)}{data} ({units}, {sentences.budget_text(estimate)}). "
        f"Estimated with clusterdp {__version__}."
    )
    return [Paragraph(citation), Code("Made by", estimate.origin.made_by)]


def _listed(texts: Sequence[str]) -> list[Part]:
    return [Items(list(texts))] if texts else []
