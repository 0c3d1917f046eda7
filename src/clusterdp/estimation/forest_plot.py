"""Figures, for people who would rather look than read. They need matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.privacy.accounting import shown

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp.estimation.results import Effect, Estimate

# Colour-blind safe (Okabe and Ito); treatment arms take them in turn.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def forest_plot(estimate: Estimate, path: Path) -> None:
    """Effects with their intervals, one below the other, the overall ones on top.

    Thick bars are intervals of one effect, thin ones cover all segments at once.
    """
    rows = list(estimate.effects)
    arms = list(dict.fromkeys(str(effect.arm) for effect in rows))
    several = len(arms) > 1
    height = 1.9 + 0.36 * len(rows)
    figure = new_figure(path, (9, height))
    axes = figure.add_subplot()
    axes.axvline(0, color="#888888", linewidth=1)
    for position, effect in enumerate(rows):
        colour = COLOURS[arms.index(str(effect.arm)) % len(COLOURS)]
        _draw_row(axes, position, effect, estimate.level, colour)
    labels = [f"{row.label} · {row.arm}" if several else row.label for row in rows]
    axes.set_yticks(range(len(rows)), [_verbatim(label) for label in labels])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if row.segment else "bold")
    overall = sum(not row.segment for row in rows)
    if overall < len(rows):
        axes.axhline(overall - 0.5, color="#cccccc", linewidth=0.8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    bars = f"{100 * estimate.level:.4g}% intervals"
    if overall < len(rows):
        bars += "; thin: all segments at once"
    axes.set_xlabel(
        _verbatim(
            f"effect on {estimate.outcome}, against {estimate.treatment} = {rows[0].control} "
            f"({bars})"
        )
    )
    axes.set_title(_title(estimate), fontsize=11, loc="left")
    _add_numbers(axes, rows, estimate.level)
    save_figure(figure, path)


def new_figure(path: Path | None, size: tuple[float, float]) -> Figure:
    """An empty figure, if it can be drawn and written there; None if it is not to be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError("plots need matplotlib: pip install 'clusterdp[plot]'") from None
    if path is not None and path.suffix not in (".svg", ".png", ".pdf"):
        raise ParameterError(f"a plot is a .svg, .png or .pdf file, got {path}")
    return Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; two runs write the same."""
    import matplotlib as mpl

    try:
        # Text stays text, and nothing in the file depends on when or where it was made.
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "clusterdp"}):
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
    except (OSError, ValueError) as error:
        raise ParameterError(f"cannot write the plot {path}: {error}") from None


def _draw_row(axes: Axes, position: int, effect: Effect, level: float, colour: str) -> None:
    if math.isnan(effect.effect):
        axes.text(0, position, " no units in an arm", va="center", color="#888888", fontsize=9)
        return
    if math.isnan(effect.std_error):
        axes.plot(effect.effect, position, "o", color=colour, markersize=7, fillstyle="none")
        return
    if effect.segment:
        axes.hlines(position, *effect.simultaneous_ci(level), color=colour, linewidth=1.2)
    axes.hlines(position, *effect.ci(level), color=colour, linewidth=3.5)
    marker = "D" if effect.adjusted else "o"
    axes.plot(effect.effect, position, marker, color=colour, markersize=7, markeredgecolor="white")


def _verbatim(text: str) -> str:
    """Text in which a dollar is a dollar, not the start of a formula."""
    return text.replace("$", r"\$")


def _title(estimate: Estimate) -> str:
    if estimate.guarantee is None:
        return estimate.source
    budget = f"ε = {shown(estimate.guarantee.epsilon)}"
    if estimate.guarantee.delta:
        budget += f", δ = {shown(estimate.guarantee.delta)}"
    return f"{estimate.source}, {budget}"


def _add_numbers(axes: Axes, rows: list[Effect], level: float) -> None:
    """The numbers themselves, in a column at the right, to two digits of the least error."""
    errors = [row.std_error for row in rows if row.std_error > 0]
    decimals = max(0, 1 - math.floor(math.log10(min(errors)))) if errors else 3
    for position, effect in enumerate(rows):
        if math.isnan(effect.std_error):
            continue
        low, high = (f"{bound:+.{decimals}f}" for bound in effect.ci(level))
        axes.text(
            1.02,
            position,
            f"{effect.effect:+.{decimals}f}  [{low}, {high}]",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            family="monospace",
        )
