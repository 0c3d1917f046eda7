"""Effects in segments as tables with drawn intervals, which pages sort and filter."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from clusterdp.document.charts import Interval, bar_axis, interval_bar, interval_scale
from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.effects.text import plain_label
from clusterdp.estimation.report.headline import arm_label
from clusterdp.estimation.report.tables import effect_columns, has_several_arms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# What the rows of all tables of a page may weigh, and one row beside what it is of.
_MOST_BYTES, _ROW_BYTES = 380_000, 330
# A name that is longer is cut off.
_LONGEST = 70

_ABOUT_SEGMENTS = (
    "A dot is an effect and a bar its interval. The dashed line is the effect on everyone."
)
_ABOUT_DIFFERENCES = "By how much the effect in a segment exceeds the one that it is compared with."


def panels(estimate: Findings) -> list[dict[str, object]]:
    """Effects in segments, and differences between them, where there are any.

    A panel has tables, one for each metric, that are sorted and filtered together: by arms, if
    there are several.
    """
    reported = [effect for effect in estimate.effects if effect.to_report and effect.of.segment]
    effects = [effect for effect in reported if effect.of.against is None]
    differences = [effect for effect in reported if effect.of.against is not None]
    several = has_several_arms(estimate)
    arms = dict.fromkeys(arm_label(estimate, effect.of.arm) for effect in reported)
    found: list[dict[str, object]] = []
    room = _MOST_BYTES
    for key, title, about, every in (
        ("segments", "Effects by segment", _ABOUT_SEGMENTS, effects),
        ("differences", "Differences between segments", _ABOUT_DIFFERENCES, differences),
    ):
        kept = largest(every, room, _weight)
        room -= sum(map(_weight, kept))
        tables = [
            _table(estimate, metric, [one for one in kept if one.of.metric == metric])
            for metric in dict.fromkeys(effect.of.metric for effect in kept)
        ]
        left_out = _left_out(len(every) - len(kept), len(every))
        if every:
            found.append(
                {
                    "key": key,
                    "title": title,
                    "about": about,
                    "arms": tuple(arms) if several else (),
                    "tables": tables,
                    "left_out": left_out,
                }
            )
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
        f"{n_left_out:,} of {n_effects:,} effects are left out to keep this page small: those in "
        "the smallest segments. --csv and --json (to_polars, to_dict) have all."
    )


def _table(estimate: Findings, metric: str, effects: list[Effect]) -> dict[str, object]:
    """The effects on a metric, with those on everyone above effects in segments."""
    overall = [
        effect
        for effect in estimate.effects
        if not effect.of.segment
        and effect.to_report
        and effect.of.metric == metric
        and effects[0].of.against is None
    ]
    shown = [*overall, *effects]
    columns = {one.name: one.cells for one in effect_columns(estimate, shown)}
    percent = f"{100 * estimate.level:.4g}% interval"
    header = tuple(
        name for name in ("effect", percent, "p-value", "Holm", "units") if name in columns
    )
    scale = interval_scale([effect.ci(estimate.level) for effect in shown])
    references = {effect.of.arm: effect.effect for effect in overall}
    rows = [
        {
            "label": effect.of.in_short(_LONGEST),
            "arm": arm_label(estimate, effect.of.arm),
            "effect": "" if math.isnan(effect.effect) else f"{effect.effect:.6g}",  # to sort by
            "n_units": _n_units(effect),
            "bar": interval_bar(
                Interval("", effect.effect, *effect.ci(estimate.level), ""),
                scale,
                references.get(effect.of.arm, math.nan) if effect.of.segment else math.nan,
            ),
            "cells": tuple(columns[name][place] for name in header),
        }
        for place, effect in enumerate(shown)
    ]
    return {
        "metric": plain_label(metric),
        "header": header,
        "axis": bar_axis(scale),
        "overall": rows[: len(overall)],
        "rows": rows[len(overall) :],
    }


def _n_units(effect: Effect) -> int:
    return effect.n_treated + effect.n_control
