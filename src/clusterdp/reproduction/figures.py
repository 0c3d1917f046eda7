"""The figures of the reproduction: one style, and one colour per mechanism throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._figures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp.reproduction.claims import Findings

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


def _lines(panel: Axes, rows: list[dict[str, Any]], x: str, y: str = "variance") -> None:
    """One line with error bars per mechanism, in the order of STYLES."""
    for name, style in STYLES.items():
        chosen = [row for row in rows if row["mechanism"] == name]
        if not chosen:
            continue
        panel.errorbar(
            [row[x] for row in chosen],
            [row[y] for row in chosen],
            yerr=[row["spread"] for row in chosen],
            label=name,
            markersize=4,
            linewidth=1.4,
            capsize=2,
            **style,
        )


def _both_accountings(
    rows: list[dict[str, Any]], x: str, xlabel: str, ylabel: str, y: str = "variance"
) -> Figure:
    figure, panels = _figure(2, sharey=True)
    for panel, accounting in zip(panels, TITLES, strict=True):
        _lines(panel, [row for row in rows if row["accounting"] == accounting], x, y)
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


def _against_floor(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    return _both_accountings(
        tables["against_floor"], "floor_share", "floor γ, in units of 1/K", "variance of the effect"
    )


def _tradeoff(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    return _both_accountings(
        tables["tradeoff"], "epsilon", "privacy loss ε (δ = 1e-4)", "variance of the effect"
    )


def _bias(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    return _both_accountings(
        tables["bias"], "epsilon", "privacy loss ε", "mean |conditional bias|", y="bias"
    )


def _ratio(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    figure, (panel,) = _figure(1)
    for prob, style in ((0.5, STYLES["Cluster-DP"]), (0.8, STYLES["Cluster-Free-DP"])):
        rows = [row for row in tables["ratio"] if row["resample_prob"] == prob]
        panel.errorbar(
            [row["between"] for row in rows],
            [row["ratio"] for row in rows],
            yerr=[row["spread"] for row in rows],
            label=f"λ = {prob:g}",
            capsize=2,
            markersize=4,
            **style,
        )
    panel.axhline(1, color="#888888", linewidth=0.8)
    panel.set_xlabel("β: how alike the units of a cluster are")
    panel.set_ylabel("variance, Cluster-DP over Cluster-Free-DP")
    panel.legend(frameon=False)
    return figure


def _bound(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    figure, (panel,) = _figure(1)
    rows = tables["bound"]
    beta = [row["between"] for row in rows]
    panel.fill_between(
        beta,
        [row["first_term"] for row in rows],
        [row["bound"] for row in rows],
        color=COLOURS[5],
        alpha=0.3,
        label="between the first term and the bound",
    )
    panel.errorbar(
        beta,
        [row["gap"] for row in rows],
        yerr=[row["spread"] for row in rows],
        label="gap, simulated",
        capsize=2,
        markersize=4,
        **STYLES["Cluster-DP"],
    )
    panel.plot(beta, [row["exact_gap"] for row in rows], "k--", linewidth=1, label="gap, exact")
    panel.set_yscale("log")
    panel.set_xlabel("β: how alike the units of a cluster are")
    panel.set_ylabel("variance gap to no privacy")
    panel.legend(frameon=False, fontsize=8)
    return figure


def _errors(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    figure, (histogram, quantiles) = _figure(2)
    errors = np.array([row["error"] for row in tables["errors"]])
    histogram.hist(errors, bins=30, color=COLOURS[5], edgecolor="white", linewidth=0.5)
    histogram.axvline(0, color="#888888", linewidth=0.8)
    histogram.set_xlabel("τ̂ − τ")
    histogram.set_ylabel("realizations")
    _quantiles(quantiles, errors)
    return figure


def _youtube_errors(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    figure, (panel,) = _figure(1)
    _quantiles(panel, np.array([row["error"] for row in tables["errors"]]))
    return figure


def _quantiles(panel: Axes, errors: np.ndarray) -> None:
    from scipy.special import ndtri

    probs = (np.arange(len(errors)) + 0.5) / len(errors)
    normal = ndtri(probs)
    panel.plot(normal, errors.std(ddof=1) * normal, color="#888888", linewidth=1)
    panel.plot(normal, np.sort(errors), "o", color=COLOURS[0], markersize=2.5)
    panel.set_xlabel("standard normal quantiles")
    panel.set_ylabel("quantiles of τ̂ − τ")


FIGURES: dict[int, dict[str, Callable[[dict[str, list[dict[str, Any]]]], Figure]]] = {
    1: {"experiment-1a": _against_floor, "experiment-1b": _tradeoff},
    2: {"experiment-2": _ratio},
    3: {"experiment-3": _tradeoff},
    4: {"experiment-4": _errors},
    5: {"experiment-5": _bound},
    6: {"experiment-6": _bias},
    7: {"experiment-7": _youtube_errors},
}
