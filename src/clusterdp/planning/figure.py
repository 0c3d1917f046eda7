"""The trade-off figure of a plan: what every mechanism could do at other budgets."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._figures import COLOURS, DASHES, MARKERS, new_figure, save_figure
from clusterdp.planning.plan import shown_prediction
from clusterdp.planning.trade_off import trade_off

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp.planning.plan import Comparison
    from clusterdp.planning.trade_off import Curve

# Curves that are nowhere further apart than this share cannot be told apart, and are drawn as one.
_SAME = 0.03
# Letters in a line of the legend, and of the title.
_LEGEND, _TITLE = 30, 90


class _Drawn(NamedTuple):
    """Mechanisms that are drawn as one line, and the curve that is drawn."""

    names: tuple[str, ...]
    curve: Curve


def trade_off_plot(plan: Comparison, metric: str, path: Path | None) -> Figure:
    """Standard errors of the first metric against ε, one line per mechanism, and the choice.

    Mechanisms that do as well as each other share a line.
    """
    figure = new_figure(path, (9, 5.4))
    axes = figure.add_subplot()
    for place, drawn in enumerate(_merged(trade_off(plan), plan.chosen)):
        is_chosen = plan.chosen in drawn.names
        axes.plot(
            drawn.curve.epsilons,
            drawn.curve.std_errors,
            color=COLOURS[place],
            marker=MARKERS[place],
            linestyle="-" if is_chosen else DASHES[place],
            linewidth=2.4 if is_chosen else 1.4,
            zorder=3 if is_chosen else 2,
            markersize=4,
            label=textwrap.fill(", ".join(drawn.names), _LEGEND, break_on_hyphens=False),
        )
    point = shown_prediction(plan.choice.precisions[0], plan.request, plan.scenario)
    axes.axhline(point.sampling_std_error, color="#555555", linewidth=1, label="without privacy")
    axes.plot(
        [plan.epsilon],
        [point.std_error],
        color="black",
        marker="*",
        markersize=16,
        linestyle="",
        label=f"the plan: {point.std_error:.3g} at ε = {plan.epsilon:g}",
        zorder=4,
    )
    _set_scales(axes)
    axes.set_xlabel("ε of the whole release")
    axes.set_ylabel("expected standard error")
    axes.set_title(_title(plan, metric), fontsize=11, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if path is not None:
        save_figure(figure, path)
    return figure


def _merged(curves: list[Curve], chosen: str) -> list[_Drawn]:
    """Curves that can be told apart; the chosen one is drawn for those that are as good."""
    found: list[_Drawn] = []
    for curve in sorted(curves, key=lambda one: one.name != chosen):
        for place, drawn in enumerate(found):
            ratios = np.divide(curve.std_errors, drawn.curve.std_errors)
            if np.abs(ratios - 1).max() <= _SAME:
                found[place] = drawn._replace(names=(*drawn.names, curve.name))
                break
        else:
            found.append(_Drawn((curve.name,), curve))
    return found


def _set_scales(axes: Axes) -> None:
    """Both in logarithms, with numbers as people write them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for formatted in (axes.xaxis.set_major_formatter, axes.yaxis.set_major_formatter):
        formatted(lambda value, _: f"{value:g}")
    low, high = axes.get_ylim()
    dense = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 8.0, 9.0)
    axes.yaxis.set_major_locator(LogLocator(subs=dense if high < 10 * low else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _title(plan: Comparison, metric: str) -> str:
    """What is to be seen of which outcome, in which data."""
    wanted = "the overall effect"
    if plan.request.purpose is not None:
        wanted = " and ".join(one.in_words(plan.scenario.layout) for one in plan.purposes)
    lines = (f"What can be seen of {wanted} on {metric}", plan.scenario.layout.in_words)
    return "\n".join(textwrap.fill(line, _TITLE).replace("$", r"\$") for line in lines)
