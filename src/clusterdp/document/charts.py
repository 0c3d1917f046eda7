"""Charts: lines over an axis, and estimates with their intervals.

What a chart shows is described here, and drawn here for pages; `_matplotlib.py` draws the same
descriptions as figures. Lines have their names at their ends and differ in dashes too, so that a
page printed in gray can be read. Colors are the style sheet's, by class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.document._svg import drawing, element, text
from clusterdp.document.scales import Interval, Scale, interval_scale, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from markupsafe import Markup


# In units of the drawing: a phone shows them a quarter smaller, a desk a third larger.
_WIDTH, _PLOT_HEIGHT = 520.0, 260.0
_RIGHT, _FOOT = 24.0, 48.0
# About the width of a letter, of a bold one too, also where a phone shows it larger.
_LETTER, _BOLD_LETTER = 8.2, 10.4
# Of names at the ends of lines: letters that fit, and their distance from a line.
_LONGEST_NAME, _AT_END = 18, 8.0
# Of a bar that shows how sure a reader can become.
_SURE_HEIGHT, _SURE_TOP, _SURE_BAR = 76.0, 28.0, 24.0
# Where a plot of lines begins, below the title of its axis.
_TOP = 30.0
# What is left free for the numbers of an axis, and where estimates have their labels above them.
_AT_NUMBERS, _AT_LABELS = 66.0, 18.0
# Of a row in a chart of estimates: its label, then its interval.
_ROW, _LABEL, _INTERVAL_AT, _RADIUS = 46.0, 20.0, 30.0, 4.5
# The same next to each other, on screens with room: the drawing, where intervals end, a row, and
# the letters of a label.
_WIDE, _WIDE_RIGHT, _WIDE_ROW, _WIDE_FOOT, _WIDE_LETTERS = 736.0, 530.0, 28.0, 50.0, 36
_DASHES = ("none", "7 4", "2 4", "9 3 2 3")
# Of intervals in tables: their size, what is left free at both sides, and their middle.
_BAR_WIDTH, _BAR_HEIGHT, _BAR_SIDE, _BAR_MIDDLE = 280.0, 22.0, 12.0, 11.0
_BAR_AXIS = 18.0
# Intervals that are as many times longer than the median end in an arrow, if they reach further.
_TOO_LONG = 6.0
# Of the numbers at a mark: their distance from it, and their size.
_BESIDE, _ABOVE, _NUMBER, _TEXT_HEIGHT = 8.0, 6.0, 70.0, 18.0


class ChartLine(NamedTuple):
    """A line of a chart.

    Attributes:
        name: What it shows.
        xs: Where its points are, from left to right.
        ys: What they are; a point that is not finite interrupts the line.
        limits: What they are at best, drawn as a thin line; the gap to it is shaded.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    limits: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a chart.

    Attributes:
        title: What it shows, with the unit.
        scale: Where numbers stand.
        write: How they are written.
    """

    title: str
    scale: Scale
    write: Callable[[float], str] = short


class Mark(NamedTuple):
    """Where a point of every line stands, and its number next to it, in units of the drawing.

    Attributes:
        x: Of all points, from the left.
        ys: Of each, from the top.
        label_x: Of all numbers.
        label_ys: Of each; they do not overlap.
        anchor: Which end of a number is at its place.
    """

    x: float
    ys: tuple[float, ...]
    label_x: float
    label_ys: tuple[float, ...]
    anchor: str


def line_chart(  # noqa: PLR0913 - what is drawn, by name
    lines: Sequence[ChartLine],
    x: Axis,
    y: Axis,
    *,
    title: str,
    description: str,
    gap: str = "",
    marked: tuple[int, Mapping[str, str]] | None = None,
) -> Markup:
    """Lines over an axis, each with its name at its end.

    Args:
        lines: At most four, which readers can distinguish.
        x: The axis below.
        y: The axis at the left.
        title: What the chart shows.
        description: What is to be seen in it, for readers who do not see it.
        gap: What the shaded gap between a line and its limit is, if lines have limits.
        marked: The point that is marked on every line, in a group `mark` that a script can move;
            and the numbers there, by what a script finds each by, its attribute `data-slot`. By
            default none. `mark_places` has places for others.
    """
    right, bottom = _right(lines), _TOP + _PLOT_HEIGHT
    known = [[one for one in line.ys if math.isfinite(one)] for line in lines]
    ends = [_down(y.scale, ys[-1:] or [math.nan])[0] for ys in known]
    parts = [text(y.title, 0, 14, class_="axis")]
    for place, written in zip(_down(y.scale, y.scale.ticks()), y.scale.ticks(), strict=True):
        parts += [
            element("line", x1=_AT_NUMBERS, x2=right, y1=place, y2=place, class_="grid"),
            text(y.write(written), _AT_NUMBERS - 8, place + 5, text_anchor="end", class_="axis"),
        ]
    parts += _x_axis(x, bottom, _AT_NUMBERS, right)
    drawn = zip(lines, _DASHES, _apart([one + _ABOVE for one in ends], bottom), strict=False)
    for place, (line, dash, end) in enumerate(drawn):
        xs, ys = _across(x.scale, line.xs, _AT_NUMBERS, right), _down(y.scale, line.ys)
        path = _path(xs, ys)
        inner = [element("path", d=path, fill="none", stroke_dasharray=dash, class_="line")]
        if line.limits:
            least = _down(y.scale, line.limits)
            inner[:0] = [element("path", d=_path(xs, least), fill="none", class_="limit")]
            if np.isfinite([*ys, *least]).all():
                around = chain(zip(xs, ys, strict=True), reversed([*zip(xs, least, strict=True)]))
                area = "L".join(f"{one:.1f} {other:.1f}" for one, other in around)
                inner[:0] = [element("path", d=f"M{area}Z", class_="gap")]
        if math.isfinite(end):
            name = _shortened(line.name, _LONGEST_NAME)
            inner.append(text(name, right + _AT_END, end + 4, class_="end"))
        parts.append(element("g", "".join(inner), class_=f"s{place}"))
    if gap:
        parts += _drawn_gap(gap, lines, x, y)
    if marked is not None:
        point, numbers = marked
        parts.append(_drawn_mark(mark_places(lines, x, y)[point], numbers))
    return drawing(parts, _WIDTH, bottom + _FOOT, title, description)


def _drawn_gap(gap: str, lines: Sequence[ChartLine], x: Axis, y: Axis) -> list[Markup]:
    """What the shaded gaps are, written where it is furthest from the lines around it."""
    grid, width = np.linspace(_AT_NUMBERS + _AT_END, _right(lines), 60), _LETTER * len(gap)
    found = [(0.0, 0.0, 0.0)]
    for line in lines:
        xs = _across(x.scale, line.xs, _AT_NUMBERS, _right(lines))
        ends = [np.interp(grid, xs, _down(y.scale, ys)) for ys in (line.ys, line.limits) if ys]
        for left in grid[grid + width <= grid[-1]] if len(ends) > 1 else ():
            around = (left <= grid) & (grid <= left + width)
            high, low = float(ends[0][around].max()), float(ends[1][around].min())
            found.append((low - high, -float(left), (low + high) / 2))
    room, left, level = max(one for one in found if not math.isnan(one[0]))
    return [text(gap, -left, level + 5, class_="cost")] if room else []


def _right(lines: Sequence[ChartLine]) -> float:
    """Where the plot ends, so that names of lines fit."""
    longest = max(min(len(line.name), _LONGEST_NAME) for line in lines)
    return _WIDTH - 2 * _AT_END - _BOLD_LETTER * longest


def sure_chart(written: str) -> Markup:
    """A bar from 0 to 100%: how sure a reader is before, and can be after, as `89%`."""
    left, right, bottom = 0.5, _WIDTH - 0.5, _SURE_TOP + _SURE_BAR
    before, after = (left + (right - left) * place for place in (0.5, float(written[:-1]) / 100))
    parts = [
        element(
            "rect", x=left, y=_SURE_TOP, width=right - left, height=_SURE_BAR, rx=4, class_="track"
        ),
        element(
            "rect", x=left, y=_SURE_TOP, width=before - left, height=_SURE_BAR, class_="before"
        ),
        element(
            "rect", x=before, y=_SURE_TOP, width=after - before, height=_SURE_BAR, class_="after"
        ),
        text("0%", left, 18, class_="axis"),
        text("50% before", before, 18, text_anchor="middle"),
        text("100%", right, 18, text_anchor="end", class_="axis"),
        text(f"at most {written} after", after, bottom + 20, text_anchor="end", class_="cost"),
    ]
    title = "How sure a reader can become"
    told = f"From 50% before reading the release to at most {written} after it."
    return drawing(parts, _WIDTH, _SURE_HEIGHT, title, told)


def mark_places(lines: Sequence[ChartLine], x: Axis, y: Axis) -> list[Mark]:
    """Where the points of lines stand in their chart; all lines have them at the same places."""
    right = _right(lines)
    across = _across(x.scale, lines[0].xs, _AT_NUMBERS, right)
    found = []
    for at, *ys in zip(across, *(_down(y.scale, line.ys) for line in lines), strict=True):
        label = (at + _BESIDE, "start") if at + _NUMBER <= right else (at - _BESIDE, "end")
        found.append(Mark(at, tuple(ys), label[0], _apart(ys, _TOP + _PLOT_HEIGHT), label[1]))
    return found


def _apart(ys: Sequence[float], bottom: float) -> tuple[float, ...]:
    """Places of texts above their points, moved where they would overlap or leave the drawing."""
    found, lowest = dict.fromkeys(range(len(ys)), 0.0), bottom
    for place in sorted(found, key=lambda one: -ys[one]):
        found[place] = min(ys[place] - _ABOVE, lowest)
        lowest = found[place] - _TEXT_HEIGHT
    highest = _TEXT_HEIGHT
    for place in sorted(found, key=lambda one: found[one]):
        found[place] = max(found[place], highest)
        highest = found[place] + _TEXT_HEIGHT
    return tuple(found.values())


def _drawn_mark(mark: Mark, numbers: Mapping[str, str]) -> Markup:
    """A line from the top to the axis, then dots, then their numbers, in the order of lines."""
    parts = [element("line", x1=mark.x, x2=mark.x, y1=_TOP, y2=_TOP + _PLOT_HEIGHT)]
    parts += [
        element("circle", cx=mark.x, cy=level, r=_RADIUS, class_=f"s{place}")
        for place, level in enumerate(mark.ys)
    ]
    parts += [
        text(written, mark.label_x, level, text_anchor=mark.anchor, data_slot=slot)
        for (slot, written), level in zip(numbers.items(), mark.label_ys, strict=True)
    ]
    return element("g", "".join(parts), class_="mark")


def interval_chart(
    intervals: Sequence[Interval], x: Axis, *, reference: float, title: str, description: str
) -> Markup:
    """Estimates below each other, each a dot with its interval.

    There are two drawings, of which the style sheet shows one: for wide screens, labels and texts
    stand at the sides of intervals; for narrow ones, above them.

    Args:
        intervals: From the top.
        x: The axis below. What lies beyond it is cut off, with an arrow.
        reference: Where a dashed line stands, such as at the overall effect.
        title: What the chart shows.
        description: What is to be seen in it, for readers who do not see it.
    """
    wide = _wide_intervals(intervals, x, reference)
    narrow = _narrow_intervals(intervals, x, reference)
    bottom = _WIDE_ROW * len(intervals) + _WIDE_FOOT
    drawn = drawing(wide, _WIDE, bottom, title, description)
    bottom = _ROW * len(intervals) + 6 + _FOOT
    slim = drawing(narrow, _WIDTH, bottom, title, description)
    return element("div", drawn, class_="wide") + element("div", slim, class_="narrow")


def _wide_intervals(intervals: Sequence[Interval], x: Axis, reference: float) -> list[Markup]:
    """Rows of a label, an interval and its text."""
    letters = max((min(len(one.label), _WIDE_LETTERS) for one in intervals), default=0)
    told = max((len(one.told) for one in intervals), default=0)
    right = min(_WIDE_RIGHT, _WIDE - _LETTER * (told + 2))
    span, bottom = (_LETTER * (letters + 3), right), _WIDE_ROW * len(intervals) + 4
    parts = _x_axis(x, bottom, *span)
    for value, kind in ((reference, "reference"), (0.0, "zero")):
        if 0 <= x.scale.places([value])[0] <= 1:
            (at,) = _across(x.scale, [value], *span)
            parts.append(element("line", x1=at, x2=at, y1=0, y2=bottom, class_=kind))
    for row, one in enumerate(intervals):
        level = _WIDE_ROW * (row + 0.5)
        parts += [
            text(_shortened(one.label, _WIDE_LETTERS), 0, level + 5),
            text(one.told, _WIDE, level + 5, text_anchor="end", class_="told"),
            *_drawn_interval(one, x.scale, level, *span),
        ]
    return parts


def _narrow_intervals(intervals: Sequence[Interval], x: Axis, reference: float) -> list[Markup]:
    """Labels with texts, each above its interval."""
    span = _AT_LABELS, _WIDTH - _RIGHT
    parts = _x_axis(x, _ROW * len(intervals) + 6, *span)
    for value, kind in ((reference, "reference"), (0.0, "zero")):
        if 0 <= x.scale.places([value])[0] <= 1:
            (at,) = _across(x.scale, [value], *span)
            parts += [_between_labels(at, row, kind) for row in range(len(intervals))]
    for row, one in enumerate(intervals):
        top = _ROW * row
        letters = int(_WIDTH / _LETTER) - len(one.told)
        parts += [
            text(_shortened(one.label, letters), 0, top + 14),
            text(one.told, _WIDTH, top + 14, text_anchor="end", class_="told"),
            *_drawn_interval(one, x.scale, top + _INTERVAL_AT, *span),
        ]
    return parts


def _between_labels(at: float, row: int, kind: str) -> Markup:
    """The part of a vertical line that is next to an interval, below its label."""
    return element(
        "line", x1=at, x2=at, y1=_ROW * row + _LABEL, y2=_ROW * (row + 1) + 6, class_=kind
    )


def interval_axis(title: str, intervals: Sequence[Interval]) -> Axis:
    """An axis that holds zero and all intervals, but those that would make others too small."""
    return Axis(title, interval_scale([(one.low, one.high) for one in intervals]))


def _drawn_interval(
    one: Interval, scale: Scale, level: float, left: float, right: float
) -> list[Markup]:
    """A dot with its whiskers, between two places of a drawing; only what is known of both."""
    if np.isnan([one.low, one.high]).any():
        return []
    places = scale.places([one.low, one.high, one.estimate])
    low, high, dot = _across(scale, [one.low, one.high, one.estimate], left, right)
    muted = " muted" if one.is_muted else ""
    whisker = f"whisker{muted}"
    parts = [element("line", x1=low, x2=high, y1=level, y2=level, class_=whisker)]
    for at, place, inward in ((low, places[0], 7), (high, places[1], -7)):
        ends = f"M{at:.1f} {level - 5:.1f}V{level + 5:.1f}"
        if not 0 <= place <= 1:
            tip = at + inward
            ends = f"M{tip:.1f} {level - 5:.1f}L{at:.1f} {level:.1f}L{tip:.1f} {level + 5:.1f}"
        parts.append(element("path", d=ends, class_=whisker, fill="none"))
    if 0 <= places[2] <= 1:
        parts.append(element("circle", cx=dot, cy=level, r=_RADIUS, class_=f"dot{muted}"))
    return parts


def _shortened(label: str, n_letters: int) -> str:
    """A label that leaves room for what stands at the other end of its line.

    It is cut in the middle: many labels begin with the same metric, and arms are at the end.
    """
    if len(label) <= n_letters:
        return label
    n_first = max(n_letters - 1, 2) // 2
    return f"{label[:n_first]}…{label[n_first + 1 - max(n_letters, 3) :]}"


def interval_bar(one: Interval, scale: Scale, reference: float) -> Markup:
    """An interval in a table, with its dot, zero, and a reference, if that is a number."""
    lines = [("z", 0.0), *([] if math.isnan(reference) else [("o", reference)])]
    parts = [
        element("path", class_=kind, d=f"M{_on_bar(scale, [value])[0]:.0f} 0V{_BAR_HEIGHT:g}")
        for kind, value in lines
    ]
    if not math.isnan(one.low):
        numbers = [one.low, one.high, one.estimate]
        places, (low, high, dot) = scale.places(numbers), _on_bar(scale, numbers)
        line = f"M{low:.0f} {_BAR_MIDDLE:g}H{high:.0f}"
        for is_beyond, end, inward in ((places[0] < 0, low, 6), (places[1] > 1, high, -6)):
            if is_beyond:
                line += f"M{end + inward:.0f} 6L{end:.0f} {_BAR_MIDDLE:g}L{end + inward:.0f} 16"
        muted = " m" if one.is_muted else ""
        if one.outer is not None:
            start, end = _on_bar(scale, one.outer)
            wider = f"M{start:.0f} {_BAR_MIDDLE:g}H{end:.0f}"
            parts.append(element("path", d=wider, class_="w m"))
        parts.append(element("path", d=line, class_=f"w{muted}"))
        if 0 <= places[2] <= 1:
            parts.append(element("path", class_=f"d{muted}", d=f"M{dot:.0f} {_BAR_MIDDLE:g}h0"))
    return _unnamed_drawing(parts, _BAR_HEIGHT)


def bar_axis(scale: Scale) -> Markup:
    """The numbers of an axis above bars: zero, its last and its first, where they do not touch."""
    ticks = scale.ticks()
    parts: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for tick in dict.fromkeys([min(ticks, key=abs), ticks[-1], ticks[0]]):
        half = _BOLD_LETTER * len(short(tick)) / 2
        # So that it stays within the drawing.
        at = min(max(_on_bar(scale, [tick])[0], half), _BAR_WIDTH - half)
        if all(abs(at - other) >= half + width for other, width in taken):
            taken.append((at, half))
            parts.append(text(short(tick), at, 13, text_anchor="middle"))
    return _unnamed_drawing(parts, _BAR_AXIS)


def _on_bar(scale: Scale, values: Sequence[float]) -> list[float]:
    return _across(scale, values, _BAR_SIDE, _BAR_WIDTH - _BAR_SIDE)


def _unnamed_drawing(parts: Sequence[str], height: float) -> Markup:
    """A drawing of what a table says in numbers too."""
    box = f"0 0 {_BAR_WIDTH:g} {height:g}"
    return element("svg", "".join(parts), viewBox=box, aria_hidden="true")


def _x_axis(x: Axis, bottom: float, left: float, right: float = _WIDTH - _RIGHT) -> list[Markup]:
    parts: list[Markup] = [element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis")]
    ticks = x.scale.ticks()
    for at, written in zip(_across(x.scale, ticks, left, right), map(x.write, ticks), strict=True):
        inside = max(at, _LETTER / 2 * len(written))
        parts += [
            element("line", x1=at, x2=at, y1=bottom, y2=bottom + 5, class_="axis"),
            text(written, inside, bottom + 20, text_anchor="middle"),
        ]
    middle = (left + right) / 2
    parts.append(text(x.title, middle, bottom + 41, text_anchor="middle", class_="axis"))
    return parts


def _across(
    scale: Scale, values: Sequence[float], left: float, right: float = _WIDTH - _RIGHT
) -> list[float]:
    """Places on an axis from `left` to `right`, those beyond an end at that end."""
    return [float(one) for one in left + (right - left) * np.clip(scale.places(values), 0, 1)]


def _down(scale: Scale, values: Sequence[float]) -> list[float]:
    """Places from the top; what is not finite stays so."""
    return [float(one) for one in _TOP + _PLOT_HEIGHT * (1 - scale.places(values))]


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    """A line through points that are finite."""
    found = ["M"] + ["L" if np.isfinite(before) else "M" for before, _ in pairwise(ys)]
    return "".join(
        f"{step}{x:.1f} {y:.1f}" for step, x, y in zip(found, xs, ys, strict=True) if np.isfinite(y)
    )
