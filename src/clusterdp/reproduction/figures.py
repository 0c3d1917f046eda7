"""The figures of the reproduction: one style, and one colour per mechanism throughout."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._figures import COLOURS, new_figure, save_figure
from clusterdp.reproduction.study import column, select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp._arrays import FloatArray
    from clusterdp.reproduction.claims import Findings, Rows

    Tables = dict[str, Rows]

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


def draw_figures(findings: Findings, folder: Path) -> list[str]:
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


def _error_bars(panel: Axes, rows: Rows, x: str, y: str, **style: Any) -> None:
    spread = column(rows, "spread")
    panel.errorbar(column(rows, x), column(rows, y), spread, markersize=4, capsize=2, **style)


def _lines(panel: Axes, rows: Rows, x: str, y: str = "variance") -> None:
    """One line with error bars per mechanism, in the order of STYLES."""
    for name, style in STYLES.items():
        chosen = select(rows, mechanism=name)
        if chosen:
            _error_bars(panel, chosen, x, y, label=name, linewidth=1.4, **style)


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
        _error_bars(panel, rows, "between", "ratio", label=f"λ = {prob:g}", **style)
    panel.axhline(1, color="#888888", linewidth=0.8)
    panel.set_xlabel("β: how alike the units of a cluster are")
    panel.set_ylabel("variance, Cluster-DP over Cluster-Free-DP")
    panel.legend(frameon=False)
    return figure


def _bound(tables: Tables) -> Figure:
    figure, (panel,) = _figure(1)
    rows = tables["bound"]
    beta = column(rows, "between")
    panel.fill_between(
        beta,
        column(rows, "first_term"),
        column(rows, "bound"),
        color=COLOURS[5],
        alpha=0.3,
        label="between the first term and the bound",
    )
    _error_bars(panel, rows, "between", "gap", label="gap, simulated", **STYLES["Cluster-DP"])
    panel.plot(beta, column(rows, "exact_gap"), "k--", linewidth=1, label="gap, exact")
    panel.set_yscale("log")
    panel.set_xlabel("β: how alike the units of a cluster are")
    panel.set_ylabel("variance gap to no privacy")
    panel.legend(frameon=False, fontsize=8)
    return figure


def _errors(tables: Tables) -> Figure:
    figure, (histogram, quantiles) = _figure(2)
    errors = column(tables["errors"], "error")
    histogram.hist(errors, bins=30, color=COLOURS[5], edgecolor="white", linewidth=0.5)
    histogram.axvline(0, color="#888888", linewidth=0.8)
    histogram.set_xlabel("τ̂ − τ")
    histogram.set_ylabel("realizations")
    _quantiles(quantiles, errors)
    return figure


def _youtube_errors(tables: Tables) -> Figure:
    figure, (panel,) = _figure(1)
    _quantiles(panel, column(tables["errors"], "error"))
    return figure


def _quantiles(panel: Axes, errors: FloatArray) -> None:
    from scipy.special import ndtri

    probs = (np.arange(len(errors)) + 0.5) / len(errors)
    normal = ndtri(probs)
    panel.plot(normal, errors.std(ddof=1) * normal, color="#888888", linewidth=1)
    panel.plot(normal, np.sort(errors), "o", color=COLOURS[0], markersize=2.5)
    panel.set_xlabel("standard normal quantiles")
    panel.set_ylabel("quantiles of τ̂ − τ")


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
