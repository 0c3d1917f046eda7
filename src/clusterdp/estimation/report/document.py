"""An estimate as a page to share, and as a part of a notebook.

Both are made of the same parts, and of the same numbers as the text for terminals.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp._text import counted
from clusterdp._version import __version__
from clusterdp.document._svg import Svg
from clusterdp.document.charts import Interval, interval_axis, interval_chart
from clusterdp.document.markup import render
from clusterdp.document.text import Column
from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.effects.text import plain_label, short_label
from clusterdp.estimation.report import tables
from clusterdp.estimation.report.charts import PageTable, distribution_parts
from clusterdp.estimation.report.forest_table import panels
from clusterdp.estimation.report.headline import arm_label, headline
from clusterdp.privacy.accounting import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence


_PACKAGE = "clusterdp.estimation"
# Letters that fit into a line of a chart: a label and its numbers.
_CHART_LETTERS = 58
# Columns of the first table of a metric, beside intervals; the others are in a second one.
_FIRST = ("effect", "p-value", "arm mean", "control mean", "lift")
# The same in a notebook, which is narrower.
_NARROW = _FIRST[:-1]


def report_page(estimate: Findings) -> str:
    """A whole page: what was found, how sure it is, what was checked and how it was made."""
    return render(
        _PACKAGE,
        "report.html",
        **_shared(estimate),
        title=_title(estimate),
        origin=estimate.origin,
        arms=[_arm_in_words(estimate, arm, size) for arm, size in estimate.origin.arm_sizes],
        guarantee=estimate.guarantee,
        panels=panels(estimate),
        homogeneity=_table(
            "Do effects differ between segments?", tables.segment_test_columns(estimate)
        ),
        families=_families(estimate),
        checks=estimate.checks,
        estimator=estimate.estimator,
        mechanism=estimate.mechanism,
        level=f"{100 * estimate.level:.4g}%",
        citation=_citation(estimate),
        version=__version__,
    )


def notebook_part(estimate: Findings) -> str:
    """What a notebook shows: sentences, charts, tables with the rest folded, warnings and notes."""
    return render(
        _PACKAGE,
        "notebook.html",
        **_shared(estimate),
        heading=tables.heading(estimate),
        blocks=[
            _split(estimate, title or "Effects", columns, _NARROW)
            for title, columns in tables.effect_tables(estimate)
        ],
        remarks=[*tables.reported_lines(estimate), *tables.family_lines(estimate)],
    )


def _shared(estimate: Findings) -> dict[str, object]:
    """What both show."""
    return {
        "headline": headline(estimate),
        "metrics": [_metric_part(estimate, metric) for metric in estimate.metrics],
        "distributions": distribution_parts(estimate),
        "tests": tables.segment_test_lines(estimate),
        "bounds": tables.bound_lines(estimate),
        "reported": tables.reported_lines(estimate),
        "warnings": estimate.warnings,
        "notes": estimate.notes,
    }


def _title(estimate: Findings) -> str:
    treatment = plain_label(estimate.treatment)
    if estimate.effects:
        return f"Effect of {treatment} on {plain_label(', '.join(estimate.metrics))}"
    outcomes = dict.fromkeys(one.outcome for one in estimate.distributions)
    return f"Distribution of {plain_label(', '.join(outcomes))} by {treatment}"


def _arm_in_words(estimate: Findings, arm: object, size: int) -> str:
    is_control = any(effect.of.control == arm for effect in estimate.effects)
    return f"{arm_label(estimate, arm)} ({'control, ' if is_control else ''}{size:,} units)"


def _metric_part(estimate: Findings, metric: str) -> dict[str, object]:
    """The overall effects on a metric: a chart, if there are intervals, and tables of numbers."""
    every = [one for one in estimate.effects if one.of.metric == metric and one.of.against is None]
    overall = [one for one in every if not one.of.segment]
    numbers = _numbers(estimate, every, overall)
    labels = tuple(_row_label(estimate, effect) for effect in overall)
    label = Column(estimate.treatment, labels, is_label=True)
    name = plain_label(metric)
    return {
        "name": name,
        "chart": _chart(estimate, name, overall, numbers),
        "caption": _caption(estimate, metric),
        "tables": _split(estimate, f"Means and effects on {name}", [label, *numbers]),
    }


def _split(
    estimate: Findings, caption: str, columns: Sequence[Column], first_names: Sequence[str] = _FIRST
) -> tuple[PageTable, PageTable]:
    """A table of what most people read, and one of all other numbers."""
    wanted = (*first_names, f"{100 * estimate.level:.4g}% interval")
    first = [one for one in columns if one.is_label or one.name in wanted]
    rest = [one for one in columns if one.is_label or one.name not in wanted]
    return _table(caption, first), _table(f"{caption}: more numbers", rest)


def _numbers(estimate: Findings, every: Sequence[Effect], chosen: Sequence[Effect]) -> list[Column]:
    """The numbers of some effects, with as many decimals as in the table of all."""
    places = [every.index(effect) for effect in chosen]
    return [
        column._replace(cells=tuple(column.cells[place] for place in places))
        for column in tables.effect_columns(estimate, every)
        if not column.is_label
    ]


def _row_label(estimate: Findings, effect: Effect) -> str:
    """An arm; with a star if it is adjusted and to be reported."""
    adjusted = " (adjusted)" if effect.of.adjusted else ""
    is_chosen = effect.to_report and any(one.of.adjusted for one in estimate.effects)
    return f"{arm_label(estimate, effect.of.arm)}{adjusted}{' *' if is_chosen else ''}"


def _chart(
    estimate: Findings, name: str, effects: Sequence[Effect], columns: Sequence[Column]
) -> Svg | None:
    """The overall effects with their intervals; None if no arm has units enough."""
    cells = {column.name: column.cells for column in columns}
    level = f"{100 * estimate.level:.4g}% interval"
    intervals = []
    for place, effect in enumerate(effects):
        if math.isnan(effect.std_error):
            continue
        told = f"{cells['effect'][place]} {cells[level][place]}"
        label = short_label(_row_label(estimate, effect), _CHART_LETTERS - len(told))
        intervals.append(Interval(label, effect.effect, *effect.ci(estimate.level), told))
    if not intervals:
        return None
    title = f"Effects on {name}"
    return interval_chart(
        intervals,
        interval_axis(f"effect on {name}", intervals),
        reference=math.nan,
        title=title,
        description="; ".join(f"{one.label}: {one.told}" for one in intervals),
    )


def _caption(estimate: Findings, metric: str) -> str:
    """What a chart shows, and in which unit."""
    unit = (
        " Values are shares of units: 0.01 is one percentage point."
        if metric in estimate.origin.shares
        else ""
    )
    control = arm_label(estimate, estimate.effects[0].of.control)
    return (
        f"Effects against {control}, with {100 * estimate.level:.4g}% intervals. A bar that "
        f"reaches over the line at 0 is no clear effect.{unit}"
    )


def _families(estimate: Findings) -> tuple[PageTable, list[str]] | None:
    """Overall effects as judged together; None where each stands alone."""
    if not any(effect.family_size > 1 for effect in estimate.effects):
        return None
    every = [effect for effect in estimate.effects if effect.of.against is None]
    overall = [effect for effect in every if not effect.of.segment]
    level = f"{100 * estimate.level:.4g}%"
    wanted = ("effect", f"{level} interval", f"{level} all at once", "p-value", "Holm", "BH")
    columns = [one for one in _numbers(estimate, every, overall) if one.name in wanted]
    labels = tuple(f"{plain_label(one.of.metric)}: {_row_label(estimate, one)}" for one in overall)
    label = Column("effect on", labels, is_label=True)
    table = _table("Overall effects, judged together", [label, *columns])
    return table, tables.family_lines(estimate)


def _table(caption: str, columns: Sequence[Column]) -> PageTable:
    """Columns as a table; labels are in one column, where there are several."""
    labels = [column for column in columns if column.is_label]
    numbers = [column for column in columns if not column.is_label]
    header = (" · ".join(column.name for column in labels), *(column.name for column in numbers))
    rows = [
        (" · ".join(column.cells[row] for column in labels), *(one.cells[row] for one in numbers))
        for row in range(len(columns[0].cells))
    ]
    return caption, header, rows


def _citation(estimate: Findings) -> str:
    data = "" if estimate.origin.data is None else f", from “{estimate.origin.data}”"
    units = counted(estimate.origin.n_units, "unit")
    cost = ""
    if estimate.guarantee is not None:
        cost = (
            f", released under label differential privacy with ε = "
            f"{rounded_up(estimate.guarantee.epsilon)} and δ = "
            f"{rounded_up(estimate.guarantee.delta)}"
        )
    return f"{_title(estimate)}{data} ({units}{cost}). Estimated with clusterdp {__version__}."
