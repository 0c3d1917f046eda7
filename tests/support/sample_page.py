"""A page of all parts, for tests."""

from __future__ import annotations

import math

from clusterdp.document.charts import Axis, ChartLine, interval_axis, interval_chart, line_chart
from clusterdp.document.markup import render
from clusterdp.document.scales import Interval, Logarithmic

INTERVALS = (
    Interval("everyone", 0.5, 0.2, 0.8, "0.5 (0.2 to 0.8)"),
    Interval("region=north", -1.0, -2.0, 1.0, "−1.0 (−2.0 to 1.0)"),
    Interval("region=south", 0.1, -math.inf, math.inf, "0.1 (unknown)"),
)


def sample(heading: str) -> str:
    """A page with this text everywhere."""
    shares = [0.01, 0.1, 1.0]
    lines = [
        ChartLine(f"with privacy, {heading[:20]}", shares, [0.3, 0.04, 0.01]),
        ChartLine("without privacy", shares, [0.09, 0.03, 0.009]),
    ]
    drawn = line_chart(
        lines,
        Axis("share", Logarithmic.over(shares), "{:.0%}".format),
        Axis("effect", Logarithmic.over([0.009, 0.3])),
        title=heading,
        description=heading,
    )
    intervals = interval_chart(
        INTERVALS,
        interval_axis("effect", INTERVALS),
        reference=0.5,
        title=heading,
        description=heading,
    )
    return render(
        "page_templates", "sample.html", heading=heading, lines=drawn, intervals=intervals
    )
