"""The README of a published folder promises what the release can do."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run

if TYPE_CHECKING:
    from pathlib import Path

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


def published(table: pl.DataFrame, folder: Path, **more: Any) -> str:
    """The README of a release of three arms with text labels, whose shares differ by market."""
    arms = pl.when(pl.col("user") % 5 < pl.col("market") % 3).then(pl.lit("B")).otherwise("treated")
    labelled = table.with_columns(
        arm=pl.when(pl.col("user") % 4 == 0).then(pl.lit("A")).otherwise(arms.cast(pl.String)),
        clicks=pl.col("clicks") / 2,
    )
    options: dict[str, Any] = {"outcomes": {"clicks": "0, 0.5, 1, 1.5"}, "cluster": "market"}
    options |= {"unit": "user", "arm": "arm", "control": "A", **more}
    cdp.publish(labelled, out=folder, **options)
    return (folder / "README.md").read_text()


@pytest.mark.parametrize("folds", [1, 2])
@pytest.mark.parametrize("cluster", [None, "market"])
def test_queries_on_sums_give_what_estimates_read(
    folds: int,
    cluster: str | None,
    table: pl.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums = cdp.SumShares(totals=0.2, clusters=0.2)
    mechanism = cdp.optimal(epsilon=2, sums=sums)
    folder = tmp_path / "published"
    text = published(table, folder, mechanism=mechanism, folds=folds, cluster=cluster)
    monkeypatch.chdir(folder)
    queries = [one for one in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) if "noisy" in one]
    release = cdp.read_release(folder)
    sizes = release.layout.sizes
    by_level = {one.level: one.sum_readings()[0] for one in release.questions[0].statistics}
    assert len(queries) == 2
    for query, reading in zip(queries, (by_level[None], by_level[()]), strict=True):
        # Axes of sums are [group, fold, arm]; those of weights are [cluster, arm].
        if reading is by_level[None]:
            compared = release.layout.complete
            whole = sizes[compared].sum(axis=1)
            means = reading.value.sum(axis=1)[compared] / sizes[compared]
            expected = whole @ means / whole.sum()
        else:
            expected = reading.value.sum(axis=(0, 1)) / (reading.weights * sizes).sum(axis=0)
        found = duckdb.execute(query).fetchall()
        assert [arm for arm, _ in found] == list(release.layout.arms)
        assert np.allclose([mean for _, mean in found], expected, rtol=1e-12)


def test_without_sums_there_are_no_queries_on_them(table: pl.DataFrame, tmp_path: Path) -> None:
    text = published(table, tmp_path / "out", mechanism=cdp.optimal(epsilon=2))
    assert "noisy_sum" not in text


@pytest.mark.parametrize(
    "outcomes",
    [
        {"clicks": "0, 0.5, 1, 1.5"},
        {"clicks": "binary"},
        {"clicks": cdp.Number(low=0, high=1.5)},
        {"score": "0..3"},
        {"score": "0..3", "clicks": "0, 0.5, 1, 1.5"},
    ],
    ids=["values", "binary", "number", "may be missing", "one may be missing"],
)
def test_the_commands_for_what_columns_cannot_tell_run(
    outcomes: dict[str, Any], table: pl.DataFrame, tmp_path: Path
) -> None:
    folder = tmp_path / "published"
    missing = [name for name in outcomes if name == "score"]
    table = table.with_columns(score=pl.when(pl.col("user") % 3 > 0).then("clicks"))
    if "binary" in outcomes.values():
        table = table.with_columns(clicks=(pl.col("clicks") > 1) * 2)
    text = published(table, folder, outcomes=outcomes, missing=missing, epsilon=4, folds=2)
    box = text[text.index("## What not to do") : text.index("## Provenance")]
    commands = re.findall(r"`clusterdp (\w+) \. (.*?)(?:  # .*)?`", box)
    filled = {"METRIC": next(iter(outcomes)), "COLUMN": "market"}
    assert len(commands) == 6 + (len(outcomes) > 1)  # of several questions, who is not asked
    for name, given in commands:
        options = given
        for place, value in filled.items():
            options = options.replace(place, value)
        done = run(name, folder, *shlex.split(options))
        assert done.exit_code == 0, (options, done.output)
