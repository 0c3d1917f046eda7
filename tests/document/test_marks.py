"""Points that are marked on the lines of a chart."""

from __future__ import annotations

from clusterdp.document.charts import Axis, ChartLine, line_chart, mark_places
from clusterdp.document.scales import Logarithmic

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
