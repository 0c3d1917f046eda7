"""The forest plot: a panel for each metric, with names, units, numbers and the overall effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import clusterdp as cdp
from clusterdp.estimation.effects.effect import EffectTarget
from reports import effect, estimate_of, many_segments

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

BY = (("tier", "gold"),)


def texts(axes: Axes) -> str:
    return "\n".join(text.get_text() for text in axes.texts)


def few() -> cdp.Estimate:
    """Two metrics, one with a segment, and a difference."""
    return estimate_of(
        effect(0.05, 0.01),
        effect(3.0, 2.0, EffectTarget("spend", "B", "A")),
        effect(0.08, 0.02, EffectTarget("visit", "B", "A", BY), n_units=40),
        effect(0.03, 0.03, EffectTarget("visit", "B", "A", BY, against="rest"), n_units=40),
    )


def test_panels_hold_metrics_and_differences_apart() -> None:
    estimate = few()
    figure = estimate.plot()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["effect on visit", "differences of effects on visit", "effect on spend"]
    for axes, metric in zip((figure.axes[0], figure.axes[2]), estimate.metrics, strict=True):
        low, high = estimate[metric].ci()
        left, right = axes.get_xlim()
        factor = 100 if metric in estimate.origin.shares else 1
        assert left <= factor * low <= factor * high <= right


def test_a_figure_names_its_data_and_units() -> None:
    figure = few().plot()
    title = figure.get_suptitle()
    for said in (
        "Effect of arm on visit and spend",
        "30,000 units in 7 clusters",
        "ε = 2",
    ):
        assert said in title
    assert "80" in texts(figure.axes[0])
    assert "[0.030, 0.070]" in texts(figure.axes[0])


def test_what_is_not_significant_is_gray() -> None:
    colors = []
    for number, said in ((0.05, ""), (0.001, "gray: not significantly different from zero")):
        (axes,) = estimate_of(effect(number, 0.01)).plot().axes
        colors.append(axes.lines[-1].get_color())
        assert ("gray" in axes.get_xlabel()) == bool(said)
        assert said in axes.get_xlabel()
    assert colors[0] != colors[1]


def test_lines_lead_down_from_overall_effects() -> None:
    figure = few().plot()
    ends = [
        np.asarray(path.vertices)[:, 0]
        for lines in figure.axes[0].collections
        for path in lines.get_paths()
    ]
    vertical = [float(first) for first, last in ends if first == last]
    assert vertical == [pytest.approx(0.05)]


def test_a_long_interval_ends_in_an_arrow_and_leaves_others_visible() -> None:
    short = [
        effect(0.01 * one, 0.01, EffectTarget("visit", "B", "A", (("s", one),))) for one in range(9)
    ]
    long = effect(5.0, 50.0, EffectTarget("visit", "B", "A", (("s", "tiny"),)))
    (axes,) = estimate_of(*short, long).plot().axes
    assert axes.get_xlim()[1] < 1
    assert {"<", ">"} <= {line.get_marker() for line in axes.lines}


def test_many_segments_are_cut_off_and_counted() -> None:
    name = "a name that goes on and on and on, for $5, number {}"
    figure = many_segments(400, name).plot()
    for axes in figure.axes:
        assert "150 of 802 effects: the largest segments" in axes.get_xlabel()
        assert len(axes.get_yticklabels()) == 150
        assert max(len(label.get_text()) for label in axes.get_yticklabels()) < 60


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_the_name_of_the_file_decides_its_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    first, second = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    for path in (first, second):
        few().plot(path)
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


def test_another_format_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(cdp.ParameterError, match=r"got 'one\.gif'; name it one\.svg"):
        few().plot(tmp_path / "one.gif")
