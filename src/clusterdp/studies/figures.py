"""The figures of the reproduction: one style, and one colour per mechanism throughout."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.document._matplotlib import COLOURS, new_figure, save_figure
from clusterdp.studies.study import Spread, by_draw, points, select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp._arrays import FloatArray
    from clusterdp.studies.claims import ExperimentFindings, Rows, Tables


# Colour-blind safe (Okabe and Ito), with a marker each, so that they can be distinguished in grey.
STYLES: dict[str, dict[str, Any]] = {
    "Cluster-DP": {"color": COLOURS[0], "marker": "o"},
    "Cluster-Free-DP": {"color": COLOURS[1], "marker": "s"},
    "Uniform-Prior-DP": {"color": COLOURS[2], "marker": "^"},
    "Uniform-Prior-DP, unstratified": {"color": COLOURS[2], "marker": "v", "linestyle": "--"},
    "Noisy Horvitz–Thompson": {"color": COLOURS[3], "marker": "D"},
    "Noisy Histogram": {"color": COLOURS[4], "marker": "P"},
    "without privacy": {"color": "#555555", "marker": "", "linestyle": ":"},
}
TITLES = {"paper": "the paper's accounting", "valid": "valid accounting"}


def draw_figures(findings: ExperimentFindings, folder: Path) -> list[str]:
    """Write every figure of an experiment, as SVG and PNG; returns their names without suffix."""
    names = []
    for name, draw in FIGURES.get(findings.number, {}).items():
        figure = draw(findings.tables)
        for suffix in ("svg", "png"):
            save_figure(figure, folder / f"{name}.{suffix}", dpi=110)
        names.append(name)
    return names


def _figure(n_panels: int, **options: Any) -> tuple[Figure, list[Axes]]:
    figure = new_figure(None, (4.8 * n_panels, 3.9))
    axes = figure.subplots(1, n_panels, squeeze=False, **options)[0]
    for panel in axes:
        panel.grid(color="#eeeeee")
        panel.set_axisbelow(True)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return figure, list(axes)


def _band(panel: Axes, rows: Rows, x: str, y: str, **style: Any) -> None:
    """The median over draws as a line, and most draws around it as a band."""
    along, spread = points(rows, x), Spread.of(by_draw(rows, y))
    panel.fill_between(
        along, spread.low, spread.high, color=style["color"], alpha=0.18, linewidth=0
    )
    panel.plot(along, spread.median, markersize=4, linewidth=1.4, **style)


def _lines(panel: Axes, rows: Rows, x: str, y: str = "variance") -> None:
    """One line with its band per mechanism, in the order of STYLES."""
    for name, style in STYLES.items():
        chosen = select(rows, mechanism=name)
        if chosen:
            _band(panel, chosen, x, y, label=name, **style)


def _both_accountings(  # noqa: PLR0913 - a table, and what is drawn of it
    tables: Tables,
    *,
    table: str,
    x: str,
    xlabel: str,
    y: str = "variance",
    ylabel: str = "variance of the effect",
) -> Figure:
    rows = tables[table]
    figure, panels = _figure(2, sharey=True)
    for panel, accounting in zip(panels, TITLES, strict=True):
        _lines(panel, select(rows, accounting=accounting), x, y)
        panel.set_yscale("log")
        if x == "epsilon":
            panel.set_xscale("log")
            ticks = sorted({row[x] for row in rows})[:: max(1, len({r[x] for r in rows}) // 5)]
            panel.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
            panel.minorticks_off()
        panel.set_title(TITLES[accounting], fontsize=10)
        panel.set_xlabel(xlabel)
    panels[0].set_ylabel(ylabel)
    panels[1].legend(fontsize=8, frameon=False)
    return figure


def _ratio(tables: Tables) -> Figure:
    figure, (panel,) = _figure(1)
    for prob, style in ((0.5, STYLES["Cluster-DP"]), (0.8, STYLES["Cluster-Free-DP"])):
        rows = select(tables["ratio"], resample_prob=prob)
        _band(panel, rows, "between", "ratio", label=f"λ = {prob:g}", **style)
    panel.axhline(1, color="#888888", linewidth=0.8)
    panel.set_xlabel("β: how similar the units of a cluster are")
    panel.set_ylabel("variance, Cluster-DP over Cluster-Free-DP")
    panel.legend(frameon=False)
    return figure


def _bound(tables: Tables) -> Figure:
    figure, (panel,) = _figure(1)
    rows = tables["bound"]
    drawn = {
        "bound": {"label": "the bound", "color": COLOURS[5], "linestyle": "-."},
        "first_term": {"label": "its first term", "color": COLOURS[4], "linestyle": "--"},
        "gap": {"label": "gap, exact", **STYLES["Cluster-DP"]},
    }
    for name, style in drawn.items():
        _band(panel, rows, "between", name, **style)
    simulated = Spread.of(by_draw(rows, "simulated_gap")).median
    panel.plot(points(rows, "between"), simulated, "kx", markersize=5, label="gap, simulated")
    panel.set_yscale("log")
    panel.set_xlabel("β: how similar the units of a cluster are")
    panel.set_ylabel("variance gap to no privacy")
    panel.legend(frameon=False, fontsize=8, loc="center left")
    return figure


def _errors(tables: Tables) -> Figure:
    figure, (histogram, quantiles) = _figure(2)
    errors = _in_deviations(tables)
    histogram.hist(errors.ravel(), bins=40, color=COLOURS[5], edgecolor="white", linewidth=0.5)
    histogram.axvline(0, color="#888888", linewidth=0.8)
    histogram.set_xlabel("τ̂ − τ, in standard deviations of its draw")
    histogram.set_ylabel("realizations, all draws")
    _quantiles(quantiles, errors)
    return figure


def _youtube_errors(tables: Tables) -> Figure:
    figure, (panel,) = _figure(1)
    _quantiles(panel, _in_deviations(tables))
    return figure


def _in_deviations(tables: Tables) -> FloatArray:
    """Errors over their standard deviation within a draw; axes `[draw, realization]`."""
    errors = by_draw(tables["errors"], "error")
    return np.asarray(errors / errors.std(axis=1, ddof=1, keepdims=True))


def _quantiles(panel: Axes, errors: FloatArray) -> None:
    from scipy.special import ndtri

    n_errors = errors.shape[1]
    normal = ndtri((np.arange(n_errors) + 0.5) / n_errors)
    spread = Spread.of(np.sort(errors, axis=1))
    panel.plot(normal, normal, color="#888888", linewidth=1)
    panel.fill_between(normal, spread.low, spread.high, color=COLOURS[0], alpha=0.25, linewidth=0)
    panel.plot(normal, spread.median, color=COLOURS[0], linewidth=1.6)
    panel.set_xlabel("standard normal quantiles")
    panel.set_ylabel("quantiles of τ̂ − τ, in standard deviations")


_AGAINST_FLOOR = partial(
    _both_accountings, table="against_floor", x="floor_share", xlabel="floor γ, in units of 1/K"
)
_TRADEOFF = partial(
    _both_accountings, table="tradeoff", x="epsilon", xlabel="privacy loss ε (δ = 1e-4)"
)
_BIAS = partial(
    _both_accountings,
    table="bias",
    x="epsilon",
    xlabel="privacy loss ε",
    y="bias",
    ylabel="mean |conditional bias|",
)
FIGURES: dict[int, dict[str, Callable[[Tables], Figure]]] = {
    1: {"experiment-1a": _AGAINST_FLOOR, "experiment-1b": _TRADEOFF},
    2: {"experiment-2": _ratio},
    3: {"experiment-3": _TRADEOFF},
    4: {"experiment-4": _errors},
    5: {"experiment-5": _bound},
    6: {"experiment-6": _BIAS},
    7: {"experiment-7": _youtube_errors},
}
