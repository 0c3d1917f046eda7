"""Effects in segments as tables with drawn intervals, which pages sort and filter."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from clusterdp.document.charts import bar_axis, interval_bar, interval_scale
from clusterdp.document.model import DrawnRow, DrawnTable, FilterTable
from clusterdp.estimation.effects.text import plain_label
from clusterdp.estimation.report.numbers import MetricNumbers
from clusterdp.estimation.report.sentences import arm_label, reported_overall
from clusterdp.estimation.report.tables import (
    cells_of,
    has_several_arms,
    level_text,
    to_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.estimation.effects.findings import Findings

# How many bytes the rows of all tables of a page may have, and one row without its names.
_MOST_BYTES, _ROW_BYTES = 380_000, 350
# A name that is longer is cut off.
_LONGEST = 70


def filter_tables(estimate: Findings) -> list[tuple[FilterTable, str]]:
    """Effects in segments, and differences between them; each with what is left out of it."""
    reported = [effect for effect in estimate.effects if effect.to_report and effect.of.segment]
    arms = tuple(dict.fromkeys(arm_label(estimate, effect.of.arm) for effect in reported))
    found, room = [], _MOST_BYTES
    for key, title, is_difference in (
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
            part = FilterTable(title, key, arms if has_several_arms(estimate) else (), drawn)
            found.append((part, _left_out(len(every) - len(kept), len(every))))
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


def _left_out(n_left_out: int, n_effects: int) -> str:
    if not n_left_out:
        return ""
    return (
        f"{n_left_out:,} of {n_effects:,} effects, in the smallest segments, are left out to keep "
        "this page small. --csv and --json have all."
    )


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
    names |= {
        "Holm p" if any(one.family_size > 1 for one in effects) else "p-value": "",
        "units": "",
    }
    cells = list(zip(*(cells_of(estimate, shown, name) for name in names), strict=True))
    numbers = MetricNumbers.from_effects(estimate, metric)
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
