"""Kept columns that give outcomes away, and those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from clusterdp.rows.leaks import (
    ValueCounter,
    counts_reveal_outcome,
    leak_notice,
    n_bins,
    reveals_outcome,
)

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray

N_ROWS = 100_000


def judge(values: IntArray, outcomes: IntArray) -> bool:
    """The judgement of a column whose values are small integers."""
    counts = np.zeros((values.max() + 1, outcomes.max() + 1), dtype=np.int64)
    np.add.at(counts, (values, outcomes), 1)
    return counts_reveal_outcome(counts)


def add_in_batches(values: IntArray, outcomes: IntArray, most: int) -> ValueCounter:
    counter = ValueCounter(int(outcomes.max()) + 1, most)
    for start in range(0, len(values), 30_000):
        part = slice(start, start + 30_000)
        counter.add(start, pl.Series(values[part]), outcomes[part])
    return counter


def some(n_positive: int, rng: np.random.Generator) -> IntArray:
    """A rare outcome, anywhere."""
    outcomes = np.zeros(N_ROWS, dtype=np.int64)
    outcomes[rng.choice(N_ROWS, n_positive, replace=False)] = 1
    return outcomes


@pytest.mark.parametrize("n_positive", [1, 12, 1000, 50_000])
def test_a_copy_reveals(n_positive: int, rng: np.random.Generator) -> None:
    outcomes = some(n_positive, rng)
    assert judge(1 - outcomes, outcomes)
    assert judge(3 * outcomes + rng.integers(0, 3, N_ROWS), outcomes)


@pytest.mark.parametrize("n_positive", [1, 2, 12, 1000, 50_000])
@pytest.mark.parametrize("n_values", [1, 2, 100, 3000, 8000, N_ROWS])
def test_a_column_that_has_nothing_to_do_with_it_does_not(
    n_positive: int, n_values: int, rng: np.random.Generator
) -> None:
    """Values of a few rows hold a rare outcome by chance: they must not be left out."""
    outcomes = some(n_positive, rng)
    assert not judge(rng.integers(0, n_values, N_ROWS), outcomes)
    half = np.where(rng.random(N_ROWS) < 0.5, 0, rng.integers(1, N_ROWS, N_ROWS))
    assert not judge(half, outcomes)


def test_a_copy_where_values_are_shared_reveals(rng: np.random.Generator) -> None:
    outcomes = some(30_000, rng)
    known = rng.random(N_ROWS) < 0.7
    assert judge(np.where(known, outcomes, np.arange(N_ROWS) + 2), outcomes)
    known = rng.random(N_ROWS) < 0.3  # of most rows, nothing is told
    assert not judge(np.where(known, outcomes, np.arange(N_ROWS) + 2), outcomes)


@pytest.mark.parametrize("most", [2**14, 2**22])
def test_counts_by_batches_are_those_of_the_whole(most: int, rng: np.random.Generator) -> None:
    """Also if the counter adds up after every batch; the oracle counts all rows at once."""
    outcomes = some(30_000, rng)
    for values in (rng.integers(0, 8000, N_ROWS), 7 * outcomes + rng.integers(0, 3, N_ROWS)):
        counter = add_in_batches(values, outcomes, most)
        limit, found, counts = counter.counted()
        expected = np.zeros((values.max() + 1, 2), dtype=np.int64)
        np.add.at(expected, (values, outcomes), 1)
        distinct = pl.Series(np.unique(values))
        order = np.argsort(hashes := distinct.hash().to_numpy())
        assert limit == 2**64 - 1
        np.testing.assert_array_equal(found, hashes[order])
        np.testing.assert_array_equal(counts, expected[distinct.to_numpy()[order]])
        assert judge(values, outcomes) == counts_reveal_outcome(counts)


def test_of_many_values_all_rows_of_some_are_counted(rng: np.random.Generator) -> None:
    """Which ones does not follow from outcomes."""
    values, outcomes = rng.integers(0, 8000, N_ROWS), some(30_000, rng)
    limit, found, counts = add_in_batches(values, outcomes, 2**12).counted()
    other, as_found, _ = add_in_batches(values, 1 - outcomes, 2**12).counted()
    assert limit == other < 2**64 - 1
    np.testing.assert_array_equal(found, as_found)
    assert 2**10 < counts.size <= 2**12
    n_rows = pl.Series(values).hash().value_counts().filter(pl.nth(0) <= limit)
    assert counts.sum() == n_rows["count"].sum()


def test_no_rows_have_no_values() -> None:
    _, values, counts = ValueCounter(3, 9).counted()
    assert (len(values), counts.shape) == (0, (0, 3))


def test_columns_of_any_shape_that_show_nothing_pass_silently(rng: np.random.Generator) -> None:
    """A false alarm is rarer than one in 10^5 tables, of any size, with values rare or common."""
    for _ in range(500):
        n_rows = int(10 ** rng.uniform(1, 3.5))
        shares = [
            rng.dirichlet(np.full(rng.integers(2, 60), 10.0 ** rng.integers(-1, 2))) for _ in "12"
        ]
        values, outcomes = (rng.choice(len(one), n_rows, p=one) for one in shares)
        assert not judge(values, outcomes)


def test_a_column_that_follows_from_outcomes_reveals_a_part(rng: np.random.Generator) -> None:
    """Which of 30 outcomes it was is mostly unknown, and that it was one of the first is known."""
    outcomes = rng.integers(0, 30, N_ROWS)
    assert judge((outcomes < 10).astype(np.int64), outcomes)
    nearly = np.where(rng.random(N_ROWS) < 0.97, outcomes < 10, outcomes >= 10).astype(np.int64)
    assert judge(nearly, outcomes)
    assert not judge(rng.permutation(nearly), outcomes)


def test_the_threshold_is_a_tenth_of_the_wrong_guesses() -> None:
    def found(n_right: int) -> bool:
        return reveals_outcome(n_rows=1000, n_right=n_right, n_right_blindly=500)

    assert found(951)
    assert not found(950)
    assert not reveals_outcome(n_rows=1000, n_right=1000, n_right_blindly=1000)
    assert not reveals_outcome(n_rows=0, n_right=0, n_right_blindly=0)


def test_bins_hold_some_rows_each() -> None:
    assert [n_bins(n) for n in (1, 640, 10**9)] == [1, 20, 2**14]


def test_the_notice_names_columns_and_shows_no_value() -> None:
    assert leak_notice("a", ("b",), is_cluster=False) == (
        "passthrough column 'a' almost certainly reveals 'b', a private outcome. Do not share the "
        "folder: remove the column, and publish again, which spends the budget again"
    )
