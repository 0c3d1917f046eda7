"""The forest plot: effects with their intervals, one below the other. It needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.document._matplotlib import interval_figure
from clusterdp.document.charts import IntervalPanel
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.effects.text import plain_label, short_label
from clusterdp.estimation.report.forest_table import largest
from clusterdp.estimation.report.numbers import MetricNumbers
from clusterdp.estimation.report.sentences import budget_text, title
from clusterdp.estimation.report.tables import (
    cells_of,
    has_several_arms,
    is_significant,
    level_text,
    to_interval,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


# Rows of a panel; of more, those of the largest segments are drawn.
_MOST_ROWS = 150
# Letters of a row's label.
_LONGEST = 40


def forest_plot(estimate: Findings, path: str | Path | None = None) -> Figure:
    """A figure of all effects, a panel for each metric; written to a file if a path is given.

    Overall effects are on top, and dashed lines lead down from them. Thick bars are intervals of
    one effect. Thin bars are simultaneous intervals of a multiple-testing family. Differences
    between segments have panels of their own.
    """
    if not estimate.effects:
        raise ParameterError("There are no effects to plot. Add a metric (metrics=...).")
    found = []
    for metric in estimate.metrics:
        effects = [effect for effect in estimate.effects if effect.of.metric == metric]
        for of_segments, name in ((False, "effect on {}"), (True, "differences of effects on {}")):
            rows = [one for one in effects if (one.of.against is not None) == of_segments]
            if rows:
                found.append(_panel(estimate, rows, name.format(plain_label(metric))))
    return interval_figure(found, _title(estimate), None if path is None else Path(path))


def _panel(estimate: Findings, every: list[Effect], name: str) -> IntervalPanel:
    """Effects on one metric, or differences between them."""
    effects, level = largest(every, _MOST_ROWS, lambda _: 1), estimate.level
    percent = level_text(estimate)
    numbers = MetricNumbers.from_effects(estimate, effects[0].of.metric)
    effect_name = "effect" if effects[0].of.against is None else "difference"
    names = {effect_name: effect_name, "CI": f"{percent} CI", "units": "units"}
    header, *texts = _aligned(
        [(written, *cells_of(estimate, effects, name)) for name, written in names.items()]
    )
    arms = list(dict.fromkeys(str(effect.of.arm) for effect in estimate.effects))
    several = has_several_arms(estimate)
    intervals = [
        to_interval(effect, numbers, level)._replace(
            label=effect.of.in_short(_LONGEST)
            + (f" · {short_label(effect.of.arm, _LONGEST)}" if several else ""),
            told=text,
            outer=_simultaneous(effect, numbers, level),
            series=arms.index(str(effect.of.arm)),
            is_main=not effect.of.segment,
            is_reference=effect.to_report and not effect.of.segment,
            is_hollow=effect.of.adjusted,
            is_muted=not is_significant(effect, level),
        )
        for effect, text in zip(effects, texts, strict=True)
    ]
    caption = f"vs {plain_label(effects[0].of.control)} (control), {percent} CI"
    caption += f" in {numbers.unit}" if numbers.unit else ""
    if any(one.outer is not None for one in intervals):
        caption += f", thin: simultaneous {percent} CI"
    if len(effects) < len(every):
        caption += f", {len(effects)} of {len(every):,} effects: the largest segments"
    return IntervalPanel(name, caption, header, intervals)


def _simultaneous(
    effect: Effect, numbers: MetricNumbers, level: float
) -> tuple[float, float] | None:
    """The simultaneous interval of an effect that has a family."""
    if effect.family_size == 1:
        return None
    wide = to_interval(effect, numbers, effect.simultaneous_level(level))
    return wide.low, wide.high


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Cells beside each other, each column as wide as its widest."""
    widths = [max(map(len, cells)) for cells in columns]
    return ["  ".join(map(str.rjust, row, widths)) for row in zip(*columns, strict=True)]


def _title(estimate: Findings) -> str:
    """What the figure shows, and where the numbers come from."""
    what = short_label(title(estimate), 2 * _LONGEST)
    return f"{what}\n{estimate.origin.in_short()}, {budget_text(estimate)}"
