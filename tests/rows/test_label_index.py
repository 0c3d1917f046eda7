"""Labels are found by their hashes, and whatever is no label is noticed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from clusterdp.rows.value_codes import HashIndex


@pytest.mark.parametrize("n_labels", [1, 2, 7, 1000, 30_000])
def test_codes_are_places(n_labels: int, rng: np.random.Generator) -> None:
    labels = pl.Series([f"market {place}" for place in rng.permutation(n_labels)])
    places = rng.integers(0, n_labels, 5000)
    codes = HashIndex.from_values(labels).find(labels.gather(places))
    assert codes is not None
    np.testing.assert_array_equal(codes, places)


@pytest.mark.parametrize("stranger", ["market", "", "market 70", None])
def test_other_values_have_no_code(stranger: str | None) -> None:
    labels = pl.Series([f"market {place}" for place in range(70)])
    index = HashIndex.from_values(labels)
    assert index.find(labels.extend(pl.Series([stranger], dtype=pl.String))) is None
    empty = index.find(pl.Series([], dtype=pl.String))
    assert empty is not None
    assert len(empty) == 0


def test_labels_that_share_a_hash_are_hashed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = pl.Series.hash

    def colliding(self: pl.Series, seed: int = 0) -> pl.Series:
        hashes = honest(self, seed)
        return hashes // 2**60 if seed == 0 else hashes

    monkeypatch.setattr(pl.Series, "hash", colliding)
    labels = pl.Series([f"market {place}" for place in range(70)])
    index = HashIndex.from_values(labels)
    codes = index.find(labels)
    assert index.seed > 0
    assert codes is not None
    assert codes.tolist() == list(range(70))
