"""Arms that were assigned to groups as a whole: standard errors are of how groups differ."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp

MECHANISM = cdp.optimal(epsilon=2, sums=cdp.SumShares(totals=0.1))


def schools(n_groups: int, rng: np.random.Generator) -> pl.DataFrame:
    """No effect; schools of 20 to 80 pupils that differ, and a segment in each."""
    school = np.repeat(np.arange(n_groups), rng.integers(20, 80, n_groups))
    rates = np.clip(0.4 + rng.normal(0, 0.15, n_groups), 0, 1)
    n_units = len(school)
    return pl.DataFrame(
        {
            "pupil": rng.permutation(n_units),
            "arm": rng.permutation(np.arange(n_groups) % 2)[school],
            "school": school,
            "tier": rng.integers(0, 2, n_units),
            "passed": (rng.random(n_units) < rates[school]).astype(np.int64),
        }
    )


def estimate(table: pl.DataFrame, **options: object) -> cdp.Estimate:
    with warnings.catch_warnings():
        # Schools are not an order of outcomes; the net cannot know that.
        warnings.simplefilter("ignore", cdp.OwnerNotice)
        released = cdp.release(
            table,
            unit="pupil",
            arm="arm",
            assigned_by="school",
            keep="tier",
            outcomes={"passed": "0,1"},
            mechanism=MECHANISM,
        )
    return cdp.estimate(released, **options)  # type: ignore[arg-type]  # of `estimate`


def test_standard_errors_are_of_groups_and_the_result_says_so(rng: np.random.Generator) -> None:
    table = schools(40, rng)
    found = estimate(table)
    by_units = float(table["passed"].to_numpy().var()) * 4 / len(table)
    assert found.std_error**2 > 1.5 * by_units  # about 6 times; chance gives less than 3 at times
    assert "arms were assigned by school" in str(found)
    with pytest.raises(cdp.ParameterError, match="leave out adjust"):
        estimate(table, adjust="tier")


def test_one_group_in_an_arm_has_no_interval(rng: np.random.Generator) -> None:
    table = schools(3, rng).with_columns(arm=(pl.col("school") == 0).cast(pl.Int64))
    assert np.isnan(estimate(table).std_error)


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [10, 30, 100])
def test_intervals_cover_and_tests_of_homogeneity_hold_their_level(
    n_groups: int, rng: np.random.Generator
) -> None:
    """Coverage 93.5 to 98%, and 4 to 6% false alarms, each widened by 3 standard errors.

    With 300 releases these are 1.26% each; a false alarm of each check is below 0.3%.
    """
    n_releases, error = 300, 3 * 0.0126
    covered = in_segments = rejected = 0.0
    for _ in range(n_releases):
        found = estimate(schools(n_groups, rng), by="tier", differences="rest")
        overall, *segments = [one for one in found.effects if one.of.against is None]
        low, high = overall.ci()
        covered += low <= 0 <= high
        in_segments += sum(one.ci()[0] <= 0 <= one.ci()[1] for one in segments) / len(segments)
        rejected += found.tests[0].p_value < 0.05
    assert 0.935 - error <= covered / n_releases <= 0.98 + error
    assert 0.935 - error <= in_segments / n_releases <= 0.98 + error
    assert rejected / n_releases <= 0.06 + error
