"""The README of a published folder promises what the release can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

COUNTED: dict[str, Any] = {"noise_scale": 20.0, "prior_floor": 0.1, "epsilon": 2.0}


@pytest.mark.parametrize(
    ("mechanism", "is_better"),
    [
        (cdp.uniform_prior_dp(epsilon=2), False),
        (cdp.uniform_prior_dp(epsilon=2, sums=cdp.SumShares(clusters=0.4)), True),
        (cdp.cluster_dp(**COUNTED), True),
        (cdp.cluster_free_dp(**COUNTED), True),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_statistics_improve_estimates_only_where_they_estimate_means(
    mechanism: cdp.Mechanism, is_better: bool, table: pl.DataFrame, tmp_path: Path
) -> None:
    folder = cdp.publish(
        table,
        out=tmp_path / "out",
        mechanism=mechanism,
        outcomes={"clicks": "0..3"},
        unit="user",
        arm="treated",
        cluster="market",
    )
    promised = "more precisely than from rows alone" in (tmp_path / "out/README.md").read_text()
    by_rows, by_all = (cdp.estimate(folder, use=use) for use in ("rows", "everything"))
    assert promised is is_better
    assert (by_all.effect != by_rows.effect) is is_better
