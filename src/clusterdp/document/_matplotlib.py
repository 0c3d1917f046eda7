"""Charts as figures, and how figures are written. Needs matplotlib."""

from __future__ import annotations

import math
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar

from clusterdp.document.scales import interval_scale
from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clusterdp.document.scales import Interval, IntervalPanel

T = TypeVar("T")


# Colour-blind safe (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Marks that go with the colors, for readers who do not see color.
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("--", ":", "-.", (0, (6, 1)), (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
# The formats of files, each with what keeps the time out of it.
_WITHOUT_TIME: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".png": {},
    ".pdf": {"CreationDate": None},
}


# Inches of a row, of a row where there are many, and of what a panel has next to its rows.
_ROW, _NARROW_ROW, _PANEL, _TITLE = 0.3, 0.2, 1.0, 0.5
_MANY_ROWS = 40
# Where numbers begin, as a share of the axis, and room for arrows before it.
_NUMBERS_AT = 1.04
_GREY, _MUTED = "#666666", "#87909b"
# Parts of the axis; the numbers of more of them would touch.
_MOST_TICKS = 6


def new_figure(path: Path | None, size: tuple[float, float]) -> Figure:
    """An empty figure of some inches, if matplotlib can draw it and write it to that path."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError("plots need matplotlib: pip install '.[plot]'") from None
    if path is not None and path.suffix not in _WITHOUT_TIME:
        raise ParameterError(
            f"a plot is a .svg, .png or .pdf file, got {path.name!r}; name it {path.stem}.svg"
        )

    class ShownFigure(Figure):
        """A figure that notebooks show even if pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            image = BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    return ShownFigure(figsize=size, layout="constrained")


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure. The same figure gives the same file."""
    import matplotlib as mpl

    try:
        # Text stays text, and the file depends neither on the time nor on the machine.
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "clusterdp"}):
            figure.savefig(path, dpi=dpi, metadata=_WITHOUT_TIME[path.suffix])
    except (OSError, ValueError) as error:
        raise ParameterError(f"cannot write the plot {path}: {error}") from None


def interval_figure(panels: Sequence[IntervalPanel], title: str, path: Path | None) -> Figure:
    """Panels of intervals, one below the other; written to a file if a path is given.

    Thick bars are intervals, and thin ones those that are wider. What reaches beyond an axis ends
    in an arrow. Dashed lines lead down from references.
    """
    rows = [_NARROW_ROW if len(one.intervals) > _MANY_ROWS else _ROW for one in panels]
    heights = [_PANEL + row * len(one.intervals) for row, one in zip(rows, panels, strict=True)]
    figure = new_figure(path, (10, _TITLE + sum(heights)))
    figure.get_layout_engine().set(h_pad=0.12)  # type: ignore[union-attr,call-arg]  # constrained
    every = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    letters = max((len(panel.header) for panel in panels), default=0)
    for axes, panel in zip(every, panels, strict=True):
        _draw_panel(axes, panel, letters)
    figure.suptitle(_verbatim(title), fontsize=11, x=0.01, ha="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_panel(axes: Axes, panel: IntervalPanel, letters: int) -> None:
    """One panel; its numbers take as many letters as those of all panels."""
    rows = panel.intervals
    scale = interval_scale([row.outer or (row.low, row.high) for row in rows])
    axes.set_xlim(scale.low, scale.high)
    axes.locator_params(axis="x", nbins=_MOST_TICKS)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(0, color="#888888", linewidth=1)
    n_main = sum(row.is_main for row in rows)
    for position, row in enumerate(rows):
        _draw_interval(axes, position, row)
        if row.is_reference and n_main < len(rows):
            axes.vlines(
                row.estimate,
                n_main - 0.5,
                len(rows) - 0.4,
                color=_of_series(COLOURS, row),
                linestyle=_of_series(DASHES, row),
                linewidth=1,
            )
    if 0 < n_main < len(rows):
        axes.axhline(n_main - 0.5, color="#cccccc", linewidth=0.8)
    _set_texts(axes, panel, letters)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)


def _draw_interval(axes: Axes, position: int, row: Interval) -> None:
    if math.isnan(row.low):
        axes.text(0, position, " too few units", va="center", color=_GREY, fontsize=9)
        return
    colour = _MUTED if row.is_muted else _of_series(COLOURS, row)
    left, right = axes.get_xlim()
    outer = [] if row.outer is None else [(*row.outer, 1.4, _MUTED)]  # gray, as on pages
    for low, high, width, drawn in [*outer, (row.low, row.high, 3.0, colour)]:
        axes.hlines(position, max(low, left), min(high, right), color=drawn, linewidth=width)
        for is_beyond, end, marker in ((low < left, left, "<"), (high > right, right, ">")):
            if is_beyond:
                axes.plot(end, position, marker, color=drawn, markersize=6, clip_on=False)
    if left <= row.estimate <= right:
        axes.plot(
            row.estimate,
            position,
            _of_series(MARKERS, row),
            color="white" if row.is_hollow else colour,
            markersize=6.5,
            markeredgecolor=colour if row.is_hollow else "white",
        )


def _set_texts(axes: Axes, panel: IntervalPanel, letters: int) -> None:
    """Labels of rows at the left, their texts at the right, the title above, the caption below."""
    rows = panel.intervals
    small = 7 if len(rows) > _MANY_ROWS else 9
    axes.set_yticks(range(len(rows)), [_verbatim(row.label) for row in rows], fontsize=small)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.is_main else "normal")
    texts: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "family": "monospace",
        "fontsize": small,
    }
    for position, row in enumerate(rows):
        axes.text(_NUMBERS_AT, position, row.told.rjust(letters), **texts)
    axes.text(_NUMBERS_AT, -1.0, panel.header.rjust(letters), color=_GREY, **texts)
    axes.set_title(_verbatim(panel.title), fontsize=10, loc="left", fontweight="bold")
    axes.set_xlabel(_verbatim(panel.caption), fontsize=9, loc="left")


def _of_series(choices: Sequence[T], row: Interval) -> T:
    return choices[row.series % len(choices)]


def _verbatim(text: str) -> str:
    """Text that matplotlib shows as it is: a dollar does not start a formula."""
    return text.replace("$", r"\$")
