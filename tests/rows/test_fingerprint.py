"""Tables that differ are told apart, also by changes that leave every count as it was."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from clusterdp.rows.keys import Fingerprint, id_hashes, row_words

N_ROWS = 1000


def fingerprint(outcomes: np.ndarray) -> Fingerprint:
    ids = pl.Series(np.arange(N_ROWS))
    return Fingerprint.from_words(row_words(id_hashes(ids), np.zeros(N_ROWS, np.int64), outcomes))


def test_the_order_of_rows_does_not_matter(rng: np.random.Generator) -> None:
    ids, cells = pl.Series(np.arange(N_ROWS)), rng.integers(0, 9, N_ROWS)
    outcomes, order = rng.integers(0, 6, N_ROWS).astype(np.uint16), rng.permutation(N_ROWS)
    whole = Fingerprint.from_words(row_words(id_hashes(ids), cells, outcomes))
    moved = row_words(id_hashes(ids.gather(order)), cells[order], outcomes[order])
    assert whole == Fingerprint.from_words(moved[:300]) + Fingerprint.from_words(moved[300:])


def test_exchanged_outcomes_are_noticed(rng: np.random.Generator) -> None:
    """Each of 2,000 exchanges goes unnoticed with probability 2^-60."""
    outcomes = rng.integers(0, 6, N_ROWS).astype(np.uint16)
    whole = fingerprint(outcomes)
    for _ in range(2000):
        one, other = rng.choice(N_ROWS, 2, replace=False)
        if outcomes[one] == outcomes[other]:
            continue
        exchanged = outcomes.copy()
        exchanged[[one, other]] = outcomes[[other, one]]
        assert fingerprint(exchanged) != whole


@pytest.mark.parametrize("n_changed", [1, 2, 4, 6, 20])
def test_late_conversions_are_noticed(n_changed: int, rng: np.random.Generator) -> None:
    outcomes = np.zeros(N_ROWS, np.uint16)
    whole = fingerprint(outcomes)
    for _ in range(500):
        later = outcomes.copy()
        later[rng.choice(N_ROWS, n_changed, replace=False)] = 1
        assert fingerprint(later) != whole


def test_moving_between_cells_is_noticed() -> None:
    ids, outcomes = pl.Series(np.arange(4)), np.zeros(4, np.uint16)
    whole = Fingerprint.from_words(row_words(id_hashes(ids), np.array([0, 1, 0, 1]), outcomes))
    assert whole != Fingerprint.from_words(
        row_words(id_hashes(ids), np.array([1, 0, 0, 1]), outcomes)
    )
