"""Each metric has a panel of its own: effects on different metrics share no axis."""

from __future__ import annotations

import polars as pl

import clusterdp as cdp


def test_a_panel_for_each_metric(table: pl.DataFrame) -> None:
    frame = table.with_columns(bought=(pl.col("clicks") > 1).cast(pl.Int64))
    released = cdp.release(
        frame,
        mechanism="optimal",
        epsilon=2,
        sums_share=0,
        outcomes={"clicks": "0..3", "bought": "0,1"},
        implies=["bought -> clicks"],
        unit="user",
        arm="treated",
        cluster="market",
    )
    estimate = cdp.estimate(released)
    figure = estimate.plot()
    assert [axes.get_xlabel().split(",")[0] for axes in figure.axes] == [
        "effect on clicks",
        "effect on bought",
    ]
    for axes, metric in zip(figure.axes, estimate.metrics, strict=True):
        low, high = estimate[metric].ci()
        left, right = axes.get_xlim()
        assert left <= low <= high <= right
