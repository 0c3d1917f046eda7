"""The trade-off figure of a plan: what every mechanism could do at other budgets."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from clusterdp._figures import COLOURS, new_figure, save_figure
from clusterdp.planning.plan import shown_prediction
from clusterdp.planning.trade_off import trade_off

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from clusterdp.planning.plan import Comparison


def trade_off_plot(plan: Comparison, metric: str, path: Path | None) -> Figure:
    """Standard errors of the first metric against ε, one line per mechanism, and the choice."""
    figure = new_figure(path, (8, 5))
    from matplotlib.ticker import LogLocator, NullFormatter

    axes = figure.add_subplot()
    for curve, colour, marker in zip(
        trade_off(plan), itertools.cycle(COLOURS), "o^sDPv", strict=False
    ):
        style: dict[str, Any] = (
            {"linewidth": 2.4, "zorder": 3} if curve.name == plan.chosen else {"linewidth": 1.2}
        )
        axes.plot(
            curve.epsilons,
            curve.std_errors,
            color=colour,
            marker=marker,
            markersize=4,
            label=curve.name,
            **style,
        )
    point = shown_prediction(plan.choice.precisions[0], plan.request, plan.scenario)
    axes.axhline(point.sampling_std_error, color="#555555", linestyle=":", label="without privacy")
    axes.plot(
        [plan.epsilon],
        [point.std_error],
        color="black",
        marker="*",
        markersize=16,
        linestyle="",
        label="the plan",
        zorder=4,
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for formatted in (axes.xaxis.set_major_formatter, axes.yaxis.set_major_formatter):
        formatted(lambda value, _: f"{value:g}")
    low, high = axes.get_ylim()
    dense = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=dense if high < 10 * low else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    wanted = "the overall effect"
    if plan.request.purpose is not None:
        wanted = " and ".join(one.in_words(plan.scenario.layout) for one in plan.purposes)
    axes.set_xlabel("ε of the whole release")
    axes.set_ylabel(f"expected standard error of {wanted} on {metric}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    if path is not None:
        save_figure(figure, path)
    return figure
