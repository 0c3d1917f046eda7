"""Drawn intervals of effects: tables that pages sort and filter, and the forest plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.document._matplotlib import interval_figure
from clusterdp.document.charts import bar_axis, interval_bar
from clusterdp.document.model import DrawnRow, DrawnTable, FilterTable
from clusterdp.document.scales import IntervalPanel, interval_scale
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, plain_label, short_label
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.report.sentences import budget_text, reported_overall, title
from clusterdp.estimation.report.tables import (
    MetricNumbers,
    arm_label,
    cells_of,
    has_several_arms,
    is_scaled,
    is_significant,
    level_text,
    scaled_header,
    to_interval,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How many bytes the rows of all tables of a page may have, and one row without its names.
_MOST_BYTES, _ROW_BYTES = 380_000, 350
# A name that is longer is cut off.
_LONGEST = 70


def filter_tables(estimate: Findings) -> list[tuple[FilterTable, str]]:
    """Effects in segments, and differences between them; each with what is left out of it."""
    reported = [effect for effect in estimate.effects if effect.to_report and effect.of.segment]
    arms = tuple(dict.fromkeys(arm_label(estimate, effect.of.arm) for effect in reported))
    found, room = [], _MOST_BYTES
    for key, heading, is_difference in (
        ("segments", "Effects by segment", False),
        ("differences", "Differences between segments", True),
    ):
        every = [one for one in reported if (one.of.against is not None) == is_difference]
        kept = largest(every, room, _weight)
        room -= sum(map(_weight, kept))
        drawn = [
            _table(estimate, metric, [one for one in kept if one.of.metric == metric])
            for metric in dict.fromkeys(effect.of.metric for effect in kept)
        ]
        if every:
            part = FilterTable(heading, key, arms if has_several_arms(estimate) else (), drawn)
            n_left_out = len(every) - len(kept)
            text = (
                f"{n_left_out:,} of {len(every):,} effects, in the smallest segments, are left out "
                "to keep this page small. --csv and --json have all."
            )
            found.append((part, text if n_left_out else ""))
    return found


def largest(effects: Sequence[Effect], room: int, weight: Callable[[Effect], int]) -> list[Effect]:
    """Effects in the segments with the most units, in the order given.

    Args:
        effects: Of which all or none of a segment are taken.
        room: What they may weigh together.
        weight: What one of them weighs.
    """
    by_label: dict[str, list[Effect]] = {}
    for effect in effects:
        by_label.setdefault(effect.of.label, []).append(effect)
    kept: set[str] = set()
    for label in sorted(by_label, key=lambda name: -max(map(_n_units, by_label[name]))):
        room -= sum(map(weight, by_label[label]))
        if room < 0:
            break
        kept.add(label)
    return [effect for effect in effects if effect.of.label in kept]


def _weight(effect: Effect) -> int:
    names = escape(effect.of.in_short(_LONGEST) + str(effect.of.arm))
    return _ROW_BYTES + len(names.encode())


def _table(estimate: Findings, metric: str, effects: Sequence[Effect]) -> DrawnTable:
    """The effects on a metric, below those on all units."""
    is_difference = effects[0].of.against is not None
    overall = [
        effect
        for effect in reported_overall(estimate)
        if effect.of.metric == metric and not is_difference
    ]
    shown = [*overall, *effects]
    percent = level_text(estimate)
    names = {"difference" if is_difference else "effect": "", "CI": f"{percent} CI"}
    if is_scaled(estimate, shown):
        names |= {"scaled": scaled_header(shown, estimate.scale), "scaled CI": f"{percent} CI"}
    names |= {
        "Holm p" if any(one.family_size > 1 for one in effects) else "p-value": "",
        "units": estimate.origin.units,
    }
    if any(one.shrunken is not None for one in effects):
        names = {"shrunken": "", "shrunken CI": f"{percent} CI", "rank": "", "effect": "plain"}
        names |= {"units": estimate.origin.units}
    cells = list(zip(*(cells_of(estimate, shown, name) for name in names), strict=True))
    numbers = MetricNumbers(estimate, metric)
    intervals = [to_interval(effect, numbers, estimate.level) for effect in shown]
    scale = interval_scale([(one.low, one.high) for one in intervals])
    references = {
        effect.of.arm: one.estimate for effect, one in zip(overall, intervals, strict=False)
    }
    rows = [
        DrawnRow(
            effect.of.in_short(_LONGEST),
            arm_label(estimate, effect.of.arm),
            "" if math.isnan(effect.effect) else f"{effect.effect:.6g}",
            _n_units(effect),
            interval_bar(
                interval,
                scale,
                references.get(effect.of.arm, math.nan) if effect.of.segment else math.nan,
            ),
            texts,
        )
        for effect, interval, texts in zip(shown, intervals, cells, strict=True)
    ]
    header = tuple(written or name for name, written in names.items())
    name = plain_label(metric) + (f", in {numbers.unit}" if numbers.unit else "")
    split = len(overall)
    return DrawnTable(name, header, bar_axis(scale), rows[:split], rows[split:])


def _n_units(effect: Effect) -> int:
    return effect.n_treated + effect.n_control


# Rows of a panel; of more, those of the largest segments are drawn.
_MOST_ROWS = 150
# Letters of a row's label.
_LONGEST_LABEL = 40


def forest_plot(estimate: Findings, path: str | Path | None = None) -> Figure:
    """A figure of all effects, a panel for each metric; written to a file if a path is given.

    Overall effects are on top, and dashed lines lead down from them. Thick bars are intervals of
    one effect. Thin bars are simultaneous intervals of a multiple-testing family. Differences
    between segments have panels of their own.
    """
    if not estimate.effects:
        raise ParameterError("There are no effects to plot. Add a metric (metrics=...).")
    found = []
    for metric in estimate.metrics:
        effects = [effect for effect in estimate.effects if effect.of.metric == metric]
        for of_segments, name in ((False, "effect on {}"), (True, "differences of effects on {}")):
            rows = [one for one in effects if (one.of.against is not None) == of_segments]
            if rows:
                found.append(_panel(estimate, rows, name.format(plain_label(metric))))
    return interval_figure(found, _plot_title(estimate), None if path is None else Path(path))


def _panel(estimate: Findings, every: list[Effect], name: str) -> IntervalPanel:
    """Effects on one metric, or differences between them."""
    effects, level = largest(every, _MOST_ROWS, lambda _: 1), estimate.level
    percent = level_text(estimate)
    numbers = MetricNumbers(estimate, effects[0].of.metric)
    effect_name = "effect" if effects[0].of.against is None else "difference"
    names = {effect_name: effect_name, "CI": f"{percent} CI", "units": estimate.origin.units}
    are_shrunken = any(one.shrunken is not None for one in effects)
    if are_shrunken:
        names = {"shrunken": "shrunken", "rank": "rank", **names}
    columns = [(written, *cells_of(estimate, effects, name)) for name, written in names.items()]
    widths = [max(map(len, cells)) for cells in columns]
    rows = zip(*columns, strict=True)
    header, *texts = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    arms = list(dict.fromkeys(str(effect.of.arm) for effect in estimate.effects))
    several = has_several_arms(estimate)
    drawn = [to_interval(effect, numbers, level) for effect in effects]
    intervals = [
        interval._replace(
            label=effect.of.in_short(_LONGEST_LABEL)
            + (f" · {short_label(effect.of.arm, _LONGEST_LABEL)}" if several else ""),
            told=text,
            outer=to_interval(effect, numbers, effect.simultaneous_level(level))[2:4]
            if effect.family_size > 1 and not are_shrunken
            else interval.outer,
            series=arms.index(str(effect.of.arm)),
            is_main=not effect.of.segment,
            is_reference=effect.to_report and not effect.of.segment,
            is_hollow=effect.of.adjusted,
            is_muted=not is_significant(effect, level),
        )
        for effect, interval, text in zip(effects, drawn, texts, strict=True)
    ]
    control = plain_label(effects[0].of.control)
    caption = f"vs {control}{' (control)' * (control != 'control')}, {percent} CI"
    caption += f" in {numbers.unit}" if numbers.unit else ""
    if are_shrunken:
        caption += ", thick: shrunken, thin and gray: plain"
    elif any(one.outer is not None for one in intervals):
        caption += f", thin: simultaneous {percent} CI"
    if any(one.is_muted for one in intervals):
        caption += ", gray: not significantly different from zero"
    if len(effects) < len(every):
        caption += f", {len(effects)} of {len(every):,} effects: the largest segments"
    return IntervalPanel(name, caption, header, intervals)


def _plot_title(estimate: Findings) -> str:
    """What the figure shows, and where the numbers come from."""
    what = short_label(title(estimate), 2 * _LONGEST_LABEL)
    return f"{what}\n{estimate.origin.in_short()}, {budget_text(estimate)}"
