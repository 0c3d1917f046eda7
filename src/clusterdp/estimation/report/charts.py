"""The forest plot: effects with their intervals, one below the other. It needs matplotlib.

Distributions of outcomes by arm, as a chart and a table.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._text import counted, shortest_decimal
from clusterdp.document._matplotlib import COLOURS, DASHES, MARKERS, new_figure, save_figure
from clusterdp.document.charts import Axis, ChartLine, Linear, line_chart
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.findings import ArmDistribution, Findings
from clusterdp.estimation.effects.text import plain_label, segment_label, short_label
from clusterdp.estimation.report.forest_table import largest, shown_scale
from clusterdp.estimation.report.headline import arm_label
from clusterdp.estimation.report.tables import effect_columns, has_several_arms
from clusterdp.privacy.accounting import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Rows of a panel; of more, those of the largest segments are drawn.
_MOST_ROWS = 150
# Letters of a row's label.
_LONGEST = 40
# Inches of a row, of a row where there are many, and of what a panel has beside its rows.
_ROW, _NARROW_ROW, _PANEL, _TITLE = 0.3, 0.2, 1.0, 0.5
_MANY_ROWS = 40
# Where numbers begin, as a share of the axis, and room for arrows before it.
_NUMBERS_AT = 1.04
_GREY = "#666666"
# Parts of the axis; the numbers of more of them would touch.
_MOST_TICKS = 6


class _Panel:
    """Effects on one metric, or differences between them.

    Attributes:
        effects: A row each.
        title: What they are.
        n_left_out: How many are not drawn.
        height: Inches of a row.
        inches: Inches of the panel.
    """

    def __init__(self, every: list[Effect], title: str) -> None:
        self.effects, self.title = largest(every, _MOST_ROWS, lambda _: 1), title
        self.n_left_out = len(every) - len(self.effects)
        self.height = _NARROW_ROW if len(self.effects) > _MANY_ROWS else _ROW
        self.inches = _PANEL + self.height * len(self.effects)


def forest_plot(estimate: Findings, path: str | Path | None = None) -> Figure:
    """A figure of all effects, a panel for each metric; written to a file if a path is given.

    Overall effects are on top, and dashed lines lead down from them. Thick bars are intervals of
    one effect. Thin bars are intervals that cover all effects of a family at once. Differences
    between segments have panels of their own.
    """
    path = None if path is None else Path(path)
    if not estimate.effects:
        raise ParameterError(
            "there are no effects to plot; ask for a metric beside distributions (metrics=...)"
        )
    found = _panels(estimate)
    figure = new_figure(path, (10, _TITLE + sum(panel.inches for panel in found)))
    ratios = [panel.inches for panel in found]
    figure.get_layout_engine().set(h_pad=0.12)  # type: ignore[union-attr,call-arg]  # constrained
    every = figure.subplots(len(found), squeeze=False, height_ratios=ratios)[:, 0]
    for axes, panel in zip(every, found, strict=True):
        _draw_panel(axes, panel, estimate)
    figure.suptitle(_verbatim(_title(estimate)), fontsize=11, x=0.01, ha="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def _panels(estimate: Findings) -> list[_Panel]:
    """Effects by metric, each with differences between them below, where there are any."""
    found = []
    for metric in estimate.metrics:
        effects = [effect for effect in estimate.effects if effect.of.metric == metric]
        for of_segments, title in ((False, "effect on {}"), (True, "differences of effects on {}")):
            rows = [one for one in effects if (one.of.against is not None) == of_segments]
            if rows:
                found.append(_Panel(rows, title.format(metric)))
    return found


def _draw_panel(axes: Axes, panel: _Panel, estimate: Findings) -> None:
    """The effects on one metric."""
    rows = panel.effects
    scale = shown_scale([row.simultaneous_ci(estimate.level) for row in rows])
    axes.set_xlim(scale.low, scale.high)
    axes.locator_params(axis="x", nbins=_MOST_TICKS)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(0, color="#888888", linewidth=1)
    arms = list(dict.fromkeys(str(effect.of.arm) for effect in estimate.effects))
    n_overall = sum(not row.of.segment for row in rows)
    for position, effect in enumerate(rows):
        place = arms.index(str(effect.of.arm)) % len(COLOURS)
        _draw_row(axes, position, effect, estimate.level, place)
        if not effect.of.segment and effect.to_report and n_overall < len(rows):
            axes.vlines(
                effect.effect,
                n_overall - 0.5,
                len(rows) - 0.4,
                color=COLOURS[place],
                linestyle=DASHES[place],
                linewidth=1,
            )
    if 0 < n_overall < len(rows):
        axes.axhline(n_overall - 0.5, color="#cccccc", linewidth=0.8)
    _set_texts(axes, panel, estimate)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)


def _draw_row(axes: Axes, position: int, effect: Effect, level: float, place: int) -> None:
    if math.isnan(effect.effect):
        axes.text(0, position, " too few units", va="center", color=_GREY, fontsize=9)
        return
    colour, (left, right) = COLOURS[place], axes.get_xlim()
    intervals = [(effect.simultaneous_ci(level), 1.2)] if effect.family_size > 1 else []
    for (low, high), width in [*intervals, (effect.ci(level), 3.0)]:
        axes.hlines(position, max(low, left), min(high, right), color=colour, linewidth=width)
        for is_beyond, end, marker in ((low < left, left, "<"), (high > right, right, ">")):
            if is_beyond:
                axes.plot(end, position, marker, color=colour, markersize=6, clip_on=False)
    if left <= effect.effect <= right:
        face = "white" if effect.of.adjusted else colour
        axes.plot(
            effect.effect,
            position,
            MARKERS[place],
            color=face,
            markersize=6.5,
            markeredgecolor=colour if effect.of.adjusted else "white",
        )


def _set_texts(axes: Axes, panel: _Panel, estimate: Findings) -> None:
    """Labels of rows at the left, numbers and units at the right, titles above and below."""
    rows, small = panel.effects, 9 if panel.height == _ROW else 7
    labels = [row.of.in_short(_LONGEST) for row in rows]
    if has_several_arms(estimate):
        arms = (short_label(row.of.arm, _LONGEST) for row in rows)
        labels = [f"{label} · {arm}" for label, arm in zip(labels, arms, strict=True)]
    axes.set_yticks(range(len(rows)), [_verbatim(label) for label in labels], fontsize=small)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if row.of.segment else "bold")
    level = f"{100 * estimate.level:.4g}%"
    columns = {one.name: one.cells for one in effect_columns(estimate, rows)}
    names = ("effect", f"{level} interval", "units")
    header, *numbers = _aligned([(name, *columns[name]) for name in names])
    texts: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "family": "monospace",
        "fontsize": small,
    }
    for position, line in enumerate(numbers):
        axes.text(_NUMBERS_AT, position, line, **texts)
    axes.text(_NUMBERS_AT, -1.0, header, color=_GREY, **texts)
    axes.set_title(_verbatim(panel.title), fontsize=10, loc="left", fontweight="bold")
    axes.set_xlabel(_verbatim(_below(panel, estimate)), fontsize=9, loc="left")


def _below(panel: _Panel, estimate: Findings) -> str:
    """What bars are, and what is not drawn."""
    rows = panel.effects
    against = f"against {estimate.treatment} = {rows[0].of.control}"
    text = f"{against}; {100 * estimate.level:.4g}% intervals"
    if any(row.family_size > 1 for row in rows):
        text += ", thin: all at once"
    if panel.n_left_out:
        n_effects = len(rows) + panel.n_left_out
        text += f"; the {len(rows)} of {n_effects:,} effects with the most units"
    return text


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Cells beside each other, each column as wide as its widest."""
    widths = [max(map(len, cells)) for cells in columns]
    return ["  ".join(map(str.rjust, row, widths)) for row in zip(*columns, strict=True)]


def _title(estimate: Findings) -> str:
    """What the figure shows, and where the numbers come from."""
    released = estimate.mechanism
    if estimate.guarantee is not None:
        released += f", ε = {rounded_up(estimate.guarantee.epsilon)}"
        if estimate.guarantee.delta:
            released += f", δ = {rounded_up(estimate.guarantee.delta)}"
    metrics = short_label(", ".join(estimate.metrics), 2 * _LONGEST)
    return f"Effect of {estimate.treatment} on {metrics}\n{estimate.origin.in_short()}; {released}"


def _verbatim(text: str) -> str:
    """Text that matplotlib shows as it is: a dollar does not start a formula."""
    return text.replace("$", r"\$")


# Lines that can be told apart.
_MOST_LINES = 4
# Segments with a table of their own.
_MOST_SEGMENTS = 50


# A table of texts: its caption, its header, and rows whose first cell says what they are of.
PageTable = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def distribution_parts(estimate: Findings) -> list[dict[str, object]]:
    """Every outcome whose distribution was asked for, in all arms."""
    outcomes = dict.fromkeys(one.outcome for one in estimate.distributions)
    return [_part(estimate, outcome) for outcome in outcomes]


def _part(estimate: Findings, outcome: str) -> dict[str, object]:
    """How an outcome is distributed in the arms: a chart and tables of everyone and of segments."""
    every = [one for one in estimate.distributions if one.outcome == outcome]
    overall = [one for one in every if not one.segment]
    arms = [arm_label(estimate, one.arm) for one in overall]
    name = plain_label(outcome)
    lines = [_steps(label, one) for label, one in zip(arms, overall, strict=True)][:_MOST_LINES]
    lowest = min(float(one.shares[0]) for one in overall)
    described = "; ".join(
        f"{label}: {one.shares[0]:.1%} at the lowest value"
        for label, one in zip(arms, overall, strict=True)
    )
    chart = line_chart(
        lines,
        Axis(name, Linear.over(overall[0].values.tolist())),
        Axis(
            "units at or below a value",
            Linear.over([lowest, 1.0]),
            lambda share: f"{100 * share:.4g}%",
        ),
        title=f"Distribution of {name} by arm",
        description=described,
    )
    segments = list(dict.fromkeys(one.segment for one in every if one.segment))
    n_more = len(segments) - _MOST_SEGMENTS
    missing = [f"the distributions in {counted(n_more, 'segment')} more"] if n_more > 0 else []
    missing += [f"the lines of {len(arms) - _MOST_LINES} arms"] if len(arms) > _MOST_LINES else []
    return {
        "outcome": name,
        "chart": chart,
        "caption": f"Share of units with {name} at or below a value. Intervals hold one by one.",
        "table": _table(estimate, f"Units with {name} at or below a value", overall),
        "segments": [
            _table(
                estimate,
                plain_label(segment_label(segment)),
                [one for one in every if one.segment == segment],
            )
            for segment in segments[:_MOST_SEGMENTS]
        ],
        "left_out": missing and f"Not shown: {' and '.join(missing)}; --json (to_dict) has all.",
    }


def _table(estimate: Findings, caption: str, of_arms: list[ArmDistribution]) -> PageTable:
    """The shares of some arms."""
    arms = (arm_label(estimate, one.arm) for one in of_arms)
    rows = [
        (
            shortest_decimal(value),
            *(
                f"{one.shares[place]:.2%} [{one.low[place]:.2%}, {one.high[place]:.2%}]"
                for one in of_arms
            ),
        )
        for place, value in enumerate(of_arms[0].values)
    ]
    return caption, (plain_label(of_arms[0].outcome), *arms), rows


def _steps(label: str, one: ArmDistribution) -> ChartLine:
    """A line that rises at every value but the first, where it begins."""
    return ChartLine(
        label, np.repeat(one.values, 2)[1:].tolist(), np.repeat(one.shares, 2)[:-1].tolist()
    )
