"""Repeated ids are counted exactly, however many there are and wherever they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from clusterdp.rows.ids import IdCollector, repeated_hashes
from clusterdp.rows.keys import id_hashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import WordArray

N_IDS = 70_000  # enough for several parts
HASHES: dict[str, Callable[[np.random.Generator], WordArray]] = {
    "all differ": lambda rng: rng.permutation(N_IDS).astype(np.uint64) << np.uint64(40),
    "a few repeat": lambda rng: rng.integers(0, N_IDS**2, N_IDS).astype(np.uint64),
    "many repeat": lambda rng: rng.integers(0, N_IDS, N_IDS).astype(np.uint64),
    "one, always": lambda rng: np.full(N_IDS, rng.integers(2**63), dtype=np.uint64),
    "in steps": lambda rng: np.arange(N_IDS, dtype=np.uint64) << np.uint64(rng.integers(0, 48)),
    "hardly any": lambda rng: rng.integers(0, 3, 4).astype(np.uint64),
    "none": lambda rng: np.empty(0, np.uint64),
}


@pytest.mark.parametrize("case", HASHES)
def test_hashes_that_repeat_are_found(case: str, rng: np.random.Generator) -> None:
    hashes = HASHES[case](rng)
    values, counts = np.unique(hashes, return_counts=True)
    np.testing.assert_array_equal(repeated_hashes(hashes), values[counts > 1])


def count_repeated(ids: pl.Series, hashes: WordArray, n_expected: int) -> int:
    """What a collector counts that was given ids in batches."""
    collector = IdCollector(n_expected)
    for start in range(0, len(ids), 9000):
        part = slice(start, start + 9000)
        collector.add(ids[part], hashes[part])
    return collector.count_repeated(lambda wanted: ids.filter(np.isin(hashes, wanted)))


@pytest.mark.parametrize("n_expected", [1, N_IDS, 10**9])
@pytest.mark.parametrize("kind", [pl.Int64, pl.String])
def test_rows_that_repeat_an_id_are_counted(
    kind: type[pl.DataType], n_expected: int, rng: np.random.Generator
) -> None:
    """However many were expected: a table may have grown since its cells were read."""
    ids = pl.Series(rng.integers(0, 10**6, N_IDS)).cast(kind)
    assert count_repeated(ids, id_hashes(ids), n_expected) == N_IDS - ids.n_unique()
    ids = ids.unique()
    assert count_repeated(ids, id_hashes(ids), n_expected) == 0


def test_ids_that_share_a_hash_do_not_repeat() -> None:
    ids = pl.Series([f"user {number}" for number in range(N_IDS)])
    assert count_repeated(ids, id_hashes(ids) >> np.uint64(50), N_IDS) == 0
    twice = pl.concat([ids, ids[:3]])
    assert count_repeated(twice, id_hashes(twice) >> np.uint64(50), N_IDS) == 3


NUMBERED: dict[str, Callable[[np.random.Generator], pl.Series]] = {
    "one after another": lambda rng: pl.Series(rng.permutation(N_IDS)),
    "backwards, below zero": lambda rng: pl.Series(-np.arange(N_IDS) * 5),
    "the least there are": lambda rng: pl.Series(np.int64(-(2**63)) + rng.permutation(N_IDS)),
    "the largest there are": lambda rng: pl.Series(np.uint64(2**64 - 1) - _words(N_IDS)),
    "of 32 bits": lambda rng: pl.Series(rng.permutation(N_IDS), dtype=pl.Int32),
    "far apart": lambda rng: pl.Series(rng.permutation(N_IDS) * 2**40),
    "one is far away": lambda rng: pl.Series([*rng.permutation(N_IDS - 1), 2**50]),
    "far away from others below zero": lambda rng: pl.Series([*(-np.arange(N_IDS - 1)), 2**50]),
    "the first is far away": lambda rng: pl.Series([2**50, *rng.permutation(N_IDS - 1)]),
    "two ranges": lambda rng: pl.Series([*range(N_IDS // 2), *range(2**40, 2**40 + N_IDS // 2)]),
}


def _words(n_words: int) -> WordArray:
    return np.arange(n_words, dtype=np.uint64)


@pytest.mark.parametrize("case", NUMBERED)
@pytest.mark.parametrize("n_again", [0, 1, 2000])
def test_numbers_that_repeat_are_counted(case: str, n_again: int, rng: np.random.Generator) -> None:
    """Also where some were marked before others turned out to be far away."""
    ids = NUMBERED[case](rng)
    again = pl.concat([ids[:n_again], ids])
    assert count_repeated(again, id_hashes(again), len(again)) == n_again


def test_missing_ids_do_not_hide_repeated_ones() -> None:
    ids = pl.Series([1, None, 2, 2, 3, None])
    assert count_repeated(ids, id_hashes(ids), len(ids)) == 1
