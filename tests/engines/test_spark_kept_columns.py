"""Kept columns of a Spark table that give the outcome away are noticed, over all rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.engines.spark import _counting
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.leaks import Pair, ValueCounter, leak_notice, shared_and_rare
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from clusterdp._arrays import IntArray, WordArray

pytestmark = pytest.mark.spark

N_ROWS = 100_000
N_POSITIVE = 12


def rare_outcomes(rng: np.random.Generator) -> pl.DataFrame:
    """A table of a rare outcome, none of it in the first 65,536 rows."""
    clicks = np.zeros(N_ROWS, dtype=np.int64)
    clicks[2**16 + rng.choice(N_ROWS - 2**16, N_POSITIVE, replace=False)] = 1
    return pl.DataFrame(
        {
            "user": np.arange(N_ROWS),
            "treated": np.arange(N_ROWS) % 2,
            "market": np.arange(N_ROWS) // 2 % 5,
            "clicks": clicks,
        }
    )


def noticed(
    spark: SparkSession, table: pl.DataFrame, space: cdp.OutcomeSpace, kept: tuple[str, ...]
) -> tuple[str, ...]:
    columns = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=kept)
    rows = spark.createDataFrame(table.to_arrow()).repartition(3)
    prepared = prepare(rows, columns=columns, spaces=(one_outcome("clicks", space),))
    return prepared.count().notices


def test_copies_of_a_rare_outcome_are_noticed_and_ordinary_columns_are_not(
    spark: SparkSession, rng: np.random.Generator
) -> None:
    clicks = pl.col("clicks")
    # Spend of those who clicked: values of their own, and zero for everyone else.
    spend = pl.Series(rng.gamma(2, 10, N_ROWS))
    moments = pl.lit(pl.Series(rng.permutation(N_ROWS)))
    telling = {
        "copy": 17 - 3 * clicks,
        "text": pl.format("no {}", clicks),
        "spend": clicks * spend,
        "gaps": pl.when(clicks == 0).then(pl.lit(1.5)),
    }
    ordinary: dict[str, pl.Expr | pl.Series] = {
        "number": pl.Series(rng.normal(size=N_ROWS)),
        "integer": pl.Series(rng.integers(0, 50_000, N_ROWS)),
        "few": pl.Series(rng.integers(0, 10, N_ROWS)),
        "values of few rows": pl.Series(rng.integers(0, 8000, N_ROWS)),
        "name": pl.format("user {}", pl.col("user")),
        "names of few rows": pl.format("n{}", pl.Series(rng.integers(0, 8000, N_ROWS))),
        "day": pl.date(2020, 1, 1) + pl.duration(days=pl.col("user") % 3650),
        "at": pl.datetime(2024, 1, 1) + pl.duration(seconds=moments),
        "missing": pl.when(pl.col("user") % 3 > 0).then(pl.Series(rng.normal(size=N_ROWS))),
    }
    table = rare_outcomes(rng).with_columns(**telling, **ordinary)
    kept = (*ordinary, *telling)
    found = noticed(spark, table, cdp.OutcomeSpace.binary(), kept)
    assert found == tuple(leak_notice(name, ("clicks",), is_cluster=False) for name in telling)


def test_bins_of_a_common_outcome_are_noticed(
    spark: SparkSession, rng: np.random.Generator
) -> None:
    true = rng.normal(size=N_ROWS)
    table = rare_outcomes(rng).with_columns(
        clicks=pl.Series(np.digitize(true, np.linspace(-2, 2, 63))),
        exact=pl.Series(true),
        noisy=pl.Series(true + rng.normal(size=N_ROWS)),
    )
    space = cdp.OutcomeSpace.integers(0, 63)
    found = noticed(spark, table, space, ("noisy", "exact"))
    assert found == (leak_notice("exact", ("clicks",), is_cluster=False),)


def test_an_owner_of_a_frame_is_warned_and_gets_the_release(
    table: pl.DataFrame, spark: SparkSession
) -> None:
    rows = spark.createDataFrame(table.with_columns(copy=17 - 3 * pl.col("clicks")).to_arrow())
    with pytest.warns(cdp.OwnerNotice, match="column 'copy' almost certainly reveals 'clicks'"):
        released = release(rows, "copy")
    assert released.units.count() == len(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cdp.OwnerNotice)
        release(rows, "secret")


def release(rows: object, kept: str) -> cdp.Release:
    return cdp.release(
        rows,
        mechanism=cdp.uniform_prior_dp(epsilon=1),
        outcomes={"clicks": "0..3"},
        unit="user",
        arm="treated",
        cluster="market",
        passthrough=(kept,),
    )


def text_of(n_classes: int) -> Pair:
    return Pair(0, "text", is_number=False, n_classes=n_classes, step=1)


def counts_of(
    values: list[pl.Series], codes: list[np.ndarray], n_classes: int
) -> list[tuple[int, WordArray, IntArray]]:
    """What several partitions send of a column, opened again."""
    sent: list[bytes] = []
    for of_values, of_codes in zip(values, codes, strict=True):
        counter = ValueCounter(n_classes, _counting._MOST_SENT)  # noqa: SLF001 - one partition
        for batch in range(0, len(of_values), 1000):
            counter.add(batch, of_values[batch : batch + 1000], of_codes[batch : batch + 1000])
        sent += _counting.packed_values(*counter.counted())
    return [_counting.unpacked_values(held, n_classes) for held in sent]


def test_values_too_many_to_be_sent_are_told_by_some_of_them(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_counting, "_MOST_SENT", 2**10)
    monkeypatch.setattr(_counting, "_MOST_ADDED", 2**9)
    n_values, n_classes = 2000, 2
    numbers = [rng.integers(0, n_values, size) for size in (30_000, 60_000)]
    codes = [of_part % n_classes for of_part in numbers]
    texts = [pl.select(pl.format("value {}", pl.Series(one))).to_series() for one in numbers]
    sums = text_of(n_classes).counter(_counting._MOST_ADDED)  # noqa: SLF001 - where all meet
    for counted in counts_of(texts, codes, n_classes):
        sums.take(*counted)
    shared, rare, n_right = shared_and_rare(sums.groups())
    # Every value goes with one outcome, and has rows in both parts.
    assert n_right == shared.sum() > 0
    assert rare.sum() == 0
    assert 2**6 < shared.sum() / (90_000 / n_values) <= 2**9 / n_classes * 1.5
    # Other outcomes of the same values: as many counts, of the same values.
    other = counts_of(texts, [rng.integers(0, n_classes, len(one)) for one in codes], n_classes)
    for ours, theirs in zip(counts_of(texts, codes, n_classes), other, strict=True):
        assert ours[0] == theirs[0]
        assert np.array_equal(ours[1], theirs[1])
