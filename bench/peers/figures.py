"""The figures of docs/studies/peers.md: one for each question, a panel for each population."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from bench.peers import methods
from bench.peers.promise import CENTRAL, LOCAL, RECORD, RECORD_OF_ARM, TRUE_ROWS
from bench.peers.study import EPSILONS
from bench.peers.summary import FEATURE_ERROR, GAIN, OVERALL_ERROR, OWN_ERROR, Question, Summary
from clusterdp.document._matplotlib import new_figure, save_figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from bench.peers.methods import Method
    from bench.peers.promise import Promise

# Promises by line, so that no two of them look alike.
LINES: Final[dict[Promise, str]] = {
    LOCAL: ":",
    CENTRAL: "-",
    RECORD: "--",
    RECORD_OF_ARM: "-.",
    TRUE_ROWS: "-",
}
# Colour and marker of what is drawn; methods that others stand for are left out.
STYLES: Final[dict[Method, tuple[str, str]]] = {
    methods.FORCED: ("#0072B2", "o"),
    methods.LAPLACE: ("#56B4E9", "v"),
    methods.ONE_CLUSTER: ("#999999", "x"),
    methods.FEW_BINS: ("#E69F00", "P"),
    methods.OURS: ("black", "*"),
    methods.OURS_OVERALL: ("#D55E00", "s"),
    methods.OURS_SEGMENTS: ("#D55E00", "^"),
    methods.OURS_BINS: ("#D55E00", "P"),
    methods.SUBSAMPLED: ("#CC79A7", "D"),
    methods.BOOSTED: ("#009E73", "d"),
    methods.NO_PRIVACY: ("#555555", ""),
}


class Figure(NamedTuple):
    """One file: what is drawn, and how its axis reads."""

    name: str
    question: Question
    axis: str
    log: bool


FIGURES: Final = (
    Figure("peers_overall.svg", OVERALL_ERROR, "mean squared error", log=True),
    Figure("peers_features.svg", FEATURE_ERROR, "mean squared error", log=True),
    Figure("peers_own_column.svg", OWN_ERROR, "mean squared error", log=True),
    Figure("peers_targeting.svg", GAIN, "gain over treating at random", log=False),
)


def draw_figures(summary: Summary, folder: Path) -> None:
    """Write every figure."""
    for one in FIGURES:
        _draw(one, summary, folder / one.name)


def _draw(wanted: Figure, summary: Summary, path: Path) -> None:
    populations = summary.populations
    figure = new_figure(path, (3.6 * len(populations) + 3.4, 4.4))
    panels = figure.subplots(1, len(populations), sharey=False, squeeze=False)[0]
    for panel, population in zip(panels, populations, strict=True):
        for method, style in STYLES.items():
            _line(panel, wanted.question, summary, population, method, style)
        _dress(panel, wanted, population)
    panels[0].set_ylabel(wanted.axis)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)
    save_figure(figure, path)


def _line(  # noqa: PLR0917, PLR0913 - what one line is of
    panel: Axes,
    question: Question,
    summary: Summary,
    population: str,
    method: Method,
    style: tuple[str, str],
) -> None:
    """Means with their Monte Carlo error, over ε."""
    means = [summary.mean(question, population, method, epsilon) for epsilon in EPSILONS]
    drawn = [(at, one) for at, one in zip(EPSILONS, means, strict=True) if one is not None]
    if not drawn:
        return
    colour, marker = style
    panel.errorbar(
        [at for at, _ in drawn],
        [one.value for _, one in drawn],
        yerr=[one.error for _, one in drawn],
        color=colour,
        marker=marker,
        linestyle=LINES[method.promise],
        linewidth=2.2 if method is methods.OURS else 1.3,
        markersize=9 if marker == "*" else 5,
        label=f"{method.name}\n   {method.promise.title}",
    )


def _dress(panel: Axes, wanted: Figure, population: str) -> None:
    panel.set_xscale("log", base=2)
    if wanted.log:
        panel.set_yscale("log")
    panel.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    panel.set_xlabel("ε")
    panel.set_title(population, loc="left", fontsize=10)
    panel.grid(color="#eeeeee")
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
