"""Effects in segments as tables with drawn intervals, which pages sort and filter."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.document._svg import Svg, element, text
from clusterdp.document.charts import Linear, Scale, short
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
# Of the drawn intervals: their size, what is left free at both sides, and the radius of a dot.
_WIDTH, _HEIGHT, _SIDE, _MIDDLE = 200.0, 22.0, 12.0, 11.0
_AXIS_HEIGHT = 18.0
# Intervals that are as many times longer than the median end in an arrow, if they reach further.
_TOO_LONG = 6.0
# What a number at an axis takes, at most.
_TICK_WIDTH = 50.0

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
    scale = shown_scale([effect.ci(estimate.level) for effect in shown])
    references = {effect.of.arm: effect.effect for effect in overall}
    rows = [
        {
            "label": effect.of.in_short(_LONGEST),
            "arm": arm_label(estimate, effect.of.arm),
            "effect": "" if math.isnan(effect.effect) else f"{effect.effect:.6g}",  # to sort by
            "n_units": _n_units(effect),
            "bar": _bar(effect, estimate.level, scale, references.get(effect.of.arm, math.nan)),
            "cells": tuple(columns[name][place] for name in header),
        }
        for place, effect in enumerate(shown)
    ]
    return {
        "metric": plain_label(metric),
        "header": header,
        "axis": _axis(scale),
        "overall": rows[: len(overall)],
        "rows": rows[len(overall) :],
    }


def _n_units(effect: Effect) -> int:
    return effect.n_treated + effect.n_control


def shown_scale(intervals: Sequence[tuple[float, float]]) -> Linear:
    """An axis that holds zero and all intervals, but those that would make others too small."""
    ends = np.array(intervals)
    lengths = ends[:, 1] - ends[:, 0]
    known = np.isfinite(lengths)
    if not known.any():
        return Linear.over([0.0])
    shown = ends[known & (lengths <= _TOO_LONG * np.median(lengths[known]))]
    return Linear.over([0.0, *shown.ravel().tolist()])


def _across(scale: Scale) -> Callable[[float], float]:
    """Where a number is drawn; beyond an end of the axis, at that end."""

    def place(value: float) -> float:
        (at,) = scale.places([value])
        return _SIDE + (_WIDTH - 2 * _SIDE) * min(max(float(at), 0.0), 1.0)

    return place


def _axis(scale: Scale) -> Svg:
    """The numbers of an axis: its first, its last and zero."""
    at, ticks = _across(scale), scale.ticks()
    zero, ends = min(ticks, key=abs), (ticks[0], ticks[-1])
    is_apart = min(abs(at(zero) - at(end)) for end in ends) > _TICK_WIDTH
    chosen = [*ends, *([zero] if is_apart else [])]
    parts = [text(short(tick), at(tick), 13, text_anchor=_anchor(at(tick))) for tick in chosen]
    return _drawn(parts, _AXIS_HEIGHT)


def _anchor(place: float) -> str:
    """Which end of a text is at a place, so that it stays within the drawing."""
    if place < _WIDTH / 4:
        return "start"
    return "middle" if place < 3 * _WIDTH / 4 else "end"


def _drawn(parts: Sequence[str], height: float) -> Svg:
    """A drawing of what the table says in numbers too."""
    box = f"0 0 {_WIDTH:g} {height:g}"
    return element("svg", "".join(parts), viewBox=box, aria_hidden="true")


def _bar(effect: Effect, level: float, scale: Scale, reference: float) -> Svg:
    """An interval with its dot, zero, and the overall effect."""
    at, (low, high) = _across(scale), effect.ci(level)
    lines = [("z", 0.0)] + (
        [("o", reference)] if effect.of.segment and not math.isnan(reference) else []
    )
    parts = [
        element("path", class_=kind, d=f"M{at(value):.0f} 0V{_HEIGHT:g}") for kind, value in lines
    ]
    if not math.isnan(low):
        parts.append(element("path", d=_whisker(low, high, scale)))
        (place,) = scale.places([effect.effect])
        if 0 <= place <= 1:
            parts.append(element("path", class_="d", d=f"M{at(effect.effect):.0f} {_MIDDLE:g}h0"))
    return _drawn(parts, _HEIGHT)


def _whisker(low: float, high: float, scale: Scale) -> str:
    """The line of an interval; an end that is beyond the axis is an arrow."""
    at, (first, last) = _across(scale), scale.places([low, high])
    line = f"M{at(low):.0f} {_MIDDLE:g}H{at(high):.0f}"
    for is_beyond, end, inward in ((first < 0, at(low), 6), (last > 1, at(high), -6)):
        if is_beyond:
            line += f"M{end + inward:.0f} 6L{end:.0f} {_MIDDLE:g}L{end + inward:.0f} 16"
    return line
