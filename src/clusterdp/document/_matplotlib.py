"""What all figures share: colours, an empty figure, and how it is written. Needs matplotlib."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure


# Colour-blind safe (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# What goes with the colours, for those who see none.
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("--", ":", "-.", (0, (6, 1)), (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
# The formats of files, each with what keeps the time out of it.
_WITHOUT_TIME: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".png": {},
    ".pdf": {"CreationDate": None},
}


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
