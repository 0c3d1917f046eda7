"""The forest plot: effects with their intervals, one below the other. It needs matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp._figures import COLOURS, new_figure, save_figure
from clusterdp.errors import ParameterError
from clusterdp.estimation.formatting import interval_text
from clusterdp.privacy.accounting import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp.estimation.results import Effect, Estimate


def forest_plot(estimate: Estimate, path: str | Path | None = None) -> Figure:
    """A figure of all effects, a panel for each metric; written to a file if a path is given.

    Overall effects are on top. Thick bars are intervals of one effect. Thin bars are intervals that
    cover all effects of a family at once.
    """
    path = None if path is None else Path(path)
    if not estimate.effects:
        raise ParameterError(
            "there are no effects to plot; ask for a metric beside distributions (metrics=...)"
        )
    arms = list(dict.fromkeys(str(effect.of.arm) for effect in estimate.effects))
    by_metric = [
        [effect for effect in estimate.effects if effect.of.metric == metric]
        for metric in estimate.metrics
    ]
    heights = [1 + len(rows) for rows in by_metric]
    figure = new_figure(path, (9, 1.2 + 0.36 * sum(heights)))
    panels = figure.subplots(len(by_metric), squeeze=False, height_ratios=heights)[:, 0]
    for axes, rows in zip(panels, by_metric, strict=True):
        _draw_panel(axes, rows, estimate, arms)
    panels[0].set_title(_title(estimate), fontsize=11, loc="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_panel(axes: Axes, rows: list[Effect], estimate: Estimate, arms: list[str]) -> None:
    """The effects on one metric."""
    axes.axvline(0, color="#888888", linewidth=1)
    for position, effect in enumerate(rows):
        colour = COLOURS[arms.index(str(effect.of.arm)) % len(COLOURS)]
        _draw_row(axes, position, effect, estimate.level, colour)
    n_overall = sum(not row.of.segment for row in rows)
    if n_overall < len(rows):
        axes.axhline(n_overall - 0.5, color="#cccccc", linewidth=0.8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _set_texts(axes, rows, estimate, several_arms=len(arms) > 1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    _add_numbers(axes, rows, estimate.level)


def _draw_row(axes: Axes, position: int, effect: Effect, level: float, colour: str) -> None:
    if math.isnan(effect.effect):
        axes.text(0, position, " too few units", va="center", color="#888888", fontsize=9)
        return
    intervals = [(effect.simultaneous_ci(level), 1.2)] if effect.family_size > 1 else []
    for (low, high), width in [*intervals, (effect.ci(level), 3.5)]:
        if math.isfinite(high - low):  # that of a ratio may have no bounds
            axes.hlines(position, low, high, color=colour, linewidth=width)
    marker = "D" if effect.of.adjusted else "o"
    axes.plot(effect.effect, position, marker, color=colour, markersize=7, markeredgecolor="white")


def _set_texts(axes: Axes, rows: list[Effect], estimate: Estimate, *, several_arms: bool) -> None:
    """The label of each row and the label of the axis."""
    labels = [f"{row.of.label} · {row.of.arm}" if several_arms else row.of.label for row in rows]
    axes.set_yticks(range(len(rows)), [_verbatim(label) for label in labels])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if row.of.segment else "bold")
    bars = f"{100 * estimate.level:.4g}% intervals"
    if any(row.family_size > 1 for row in rows):
        bars += "; thin: all at once"
    of = rows[0].of
    against = f"against {estimate.treatment} = {of.control}"
    axes.set_xlabel(_verbatim(f"effect on {of.metric}, {against} ({bars})"))


def _title(estimate: Estimate) -> str:
    """Where the numbers come from."""
    title = estimate.mechanism
    if estimate.guarantee is not None:
        title += f", ε = {shown(estimate.guarantee.epsilon)}"
        if estimate.guarantee.delta:
            title += f", δ = {shown(estimate.guarantee.delta)}"
    return title


def _verbatim(text: str) -> str:
    """Text that matplotlib shows as it is: a dollar does not start a formula."""
    return text.replace("$", r"\$")


def _add_numbers(axes: Axes, rows: list[Effect], level: float) -> None:
    """The numbers in a column at the right, to two digits of the smallest standard error."""
    errors = [row.std_error for row in rows if row.std_error > 0]
    decimals = max(0, 1 - math.floor(math.log10(min(errors)))) if errors else 3
    for position, effect in enumerate(rows):
        if math.isnan(effect.std_error):
            continue
        interval = interval_text(effect, level, lambda bound: f"{bound:+.{decimals}f}")
        axes.text(
            1.02,
            position,
            f"{effect.effect:+.{decimals}f}  {interval}",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            family="monospace",
        )
