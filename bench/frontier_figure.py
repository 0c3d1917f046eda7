"""The figure of docs/studies/frontier.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.document._matplotlib import new_figure, save_figure
from clusterdp.studies.study import Spread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clusterdp._arrays import FloatArray

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
SEGMENT = 0.1
SHARES = (1.0, SEGMENT)
STYLES = {
    "Cluster-DP": ("#0072B2", "o", "-"),
    "Uniform-Prior-DP": ("#009E73", "^", "-"),
    "two-point (Duchi et al.)": ("#E69F00", "P", "-"),
    "piecewise (Wang et al.)": ("#CC79A7", "D", "-"),
    "Noisy Horvitz–Thompson": ("#999999", "x", "--"),
    "ours, uniform prior": ("#D55E00", "s", "--"),
    "ours, as planned": ("black", "*", "-"),
    "limit of rows": ("#555555", "", ":"),
}


def draw(found: Mapping[tuple[str, float, str, float], FloatArray], path: Path) -> None:
    """The figure; numbers go by population, share, mechanism and ε, with axes `[draw]`."""
    figure = new_figure(path, (10, 4.6))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, share in zip(panels, SHARES, strict=True):
        for name, (colour, marker, line) in STYLES.items():
            numbers = [found["Experiment 1", share, name, epsilon] for epsilon in EPSILONS]
            spread = Spread.of(np.array(numbers).T)
            panel.fill_between(
                EPSILONS, spread.low, spread.high, color=colour, alpha=0.18, linewidth=0
            )
            panel.plot(
                EPSILONS,
                spread.median,
                color=colour,
                marker=marker,
                linestyle=line,
                markersize=9 if marker == "*" else 5,
                linewidth=2.2 if marker == "*" else 1.3,
                label=name,
            )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlabel("ε of the whole release")
        panel.set_title(
            "overall effect" if share == 1 else f"effect in a segment of {share:.0%}", loc="left"
        )
        panel.grid(color="#eeeeee")
        panel.set_axisbelow(True)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0].set_ylabel("excess variance: what privacy adds")
    panels[1].legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))
    figure.suptitle("The paper's Experiment 1, at equal and valid privacy", x=0.01, ha="left")
    save_figure(figure, path)
