"""What stands next to the lines of a chart: marked points, names, gaps, the numbers of axes."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.document.charts import Axis, ChartLine, bar_axis, line_chart, mark_places
from clusterdp.document.scales import Linear, Logarithmic

HOSTILE = "<script>alert(1)</script>"


def test_a_mark_stands_on_its_lines_and_its_numbers_do_not_overlap() -> None:
    scale = Logarithmic(1, 8)
    lines = [
        ChartLine("one", [1.0, 2.0, 8.0], [4.0, 2.0, 1.0], [1.0, 1.0, 1.0]),
        ChartLine("other", [1.0, 2.0, 8.0], [4.1, 2.1, 1.1]),
    ]
    x, y = Axis("x", scale), Axis("y", scale)
    marked = (1, {"a": "2.0", "b": HOSTILE})
    drawn = line_chart(lines, x, y, title="t", description="d", gap="cost", marked=marked)
    marks = mark_places(lines, x, y)
    assert [mark.x for mark in marks] == sorted(mark.x for mark in marks)
    for mark in marks:
        low, high = sorted(mark.label_ys)
        assert high - low >= 14
    assert marks[0].anchor == "start"
    assert marks[-1].anchor == "end"
    for level in marks[1].ys:
        assert f'cx="{marks[1].x:.1f}" cy="{level:.1f}"' in drawn
    assert drawn.count('class="limit"') == drawn.count('class="gap"') == 1
    assert drawn.count(">cost<") == 1
    assert all(f">{line.name}<" in drawn for line in lines)
    assert drawn.count("data-slot=") == 2
    assert "<script" not in drawn


def test_names_of_lines_that_end_together_stay_apart_and_inside() -> None:
    lines = [ChartLine(f"arm {place}", [0.0, 1.0], [0.5, 1.0]) for place in range(4)]
    axis = Axis("x", Linear.over([0.0, 1.0]))
    drawn = line_chart(lines, axis, axis, title="t", description="d")
    levels = sorted(float(one) for one in re.findall(r'y="([-\d.]+)" class="end"', drawn))
    assert len(levels) == 4
    assert levels[0] >= 14
    assert min(np.diff(levels)) >= 14


def test_a_gap_is_named_between_its_lines() -> None:
    """At both ends of the name, where the lines fall steeply too."""
    xs, gap = [0.01, 0.1, 1.0], "cost"
    above = ChartLine("above", xs, [200.0, 20.0, 2.0], [20.0, 2.0, 0.2])
    below = ChartLine("below", xs, above.limits)
    x, y = Axis("x", Logarithmic(0.01, 1)), Axis("y", Logarithmic(0.1, 200))
    drawn = line_chart([above, below], x, y, title="t", description="d", gap=gap)
    ((left, level),) = re.findall(r'x="([\d.]+)" y="([\d.]+)" class="cost"', drawn)
    marks = mark_places([above, below], x, y)
    for at in (float(left), float(left) + 8 * len(gap)):
        high, low = (
            np.interp(at, [one.x for one in marks], [one.ys[place] for one in marks])
            for place in range(2)
        )
        assert high + 12 <= float(level) <= low


@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1))
def test_the_axis_of_bars_has_a_zero_and_numbers_that_do_not_touch(values: list[float]) -> None:
    drawn = bar_axis(Linear.over([0.0, *values]))
    found = [(float(at), name) for at, name in re.findall(r'x="([-\d.]+)"[^>]*>([^<]+)<', drawn)]
    assert "0" in {name for _, name in found}
    ends = sorted((at - 4 * len(name), at + 4 * len(name)) for at, name in found)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert ends[0][0] >= 0
    assert ends[-1][1] <= 280
