"""Where units stand in a list of ids, beside a dictionary of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.estimation import coded_rows, id_places
from clusterdp.estimation.id_places import NOWHERE, find_places
from clusterdp.published import row_counts

if TYPE_CHECKING:
    import numpy as np

CLOSE = st.integers(-20, 20)
WIDE = st.sampled_from([-(2**63), -(2**62), -1, 0, 7, 2**62, 2**63 - 1])
WIDER = st.sampled_from([0, 1, 5, 2**63, 2**64 - 3, 2**64 - 1])


def assert_places(own: list[Any], listed: list[Any], kind: Any) -> None:
    ids = pl.Series("user", listed, dtype=kind)
    units = pl.DataFrame({"user": pl.Series(own, dtype=kind), "arm": [0] * len(own)})
    found = find_places(units.lazy(), ids)
    assert found is not None
    places = {one: place for place, one in enumerate(listed) if one is not None}
    assert found.tolist() == [places.get(one, NOWHERE) for one in own]


@given(
    own=st.lists(CLOSE | WIDE, max_size=30),
    listed=st.lists(CLOSE | st.none(), max_size=30, unique=True),
)
def test_integers_that_are_close_are_looked_up(own: list[int], listed: list[int | None]) -> None:
    """Also where units have ids that are far from those of the list."""
    assert_places(own, listed, pl.Int64)


@given(
    own=st.lists(WIDER, max_size=30), listed=st.lists(WIDER | st.none(), max_size=30, unique=True)
)
def test_integers_that_are_far_apart_are_joined(own: list[int], listed: list[int | None]) -> None:
    assert_places(own, listed, pl.UInt64)


@given(own=st.lists(st.text(max_size=2)), listed=st.lists(st.text(max_size=2), unique=True))
def test_text_is_joined(own: list[str], listed: list[str]) -> None:
    assert_places(own, listed, pl.String)


def test_both_ways_give_the_same(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batches and the parts of a join."""
    ids = pl.Series("user", rng.permutation(300)[:200] - 50)
    units = pl.LazyFrame({"user": rng.permutation(400) - 100})
    monkeypatch.setattr(coded_rows, "_ROWS_TOGETHER", 13)
    looked_up = find_places(units, ids)
    monkeypatch.setattr(id_places, "_MOST_ENTRIES", 0)
    monkeypatch.setattr(id_places, "_IDS_TOGETHER", 37)
    monkeypatch.setattr(row_counts, "_BATCH_ROWS", 11)
    joined = find_places(units, ids)
    assert looked_up is not None
    assert joined is not None
    assert (looked_up >= 0).sum() == 200
    assert joined.tolist() == looked_up.tolist()


def test_words_that_are_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed ids get other words; a unit that has the word of another id is not taken for it."""
    seeds = []

    def poor(ids: pl.Series, seed: int) -> pl.Expr:
        seeds.append(seed)
        return pl.col(ids.name).str.slice(seed, 1)

    monkeypatch.setattr(id_places, "_word", poor)
    assert_places(["aax", "aay", "aaz", "bbx", "ax"], ["aax", "aby", "bbz"], pl.String)
    assert max(seeds) == 2


@pytest.mark.parametrize("listed", [[3, 4, 3], [-(2**60), 2**60, 2**60], ["a", "b", "a"]])
def test_a_list_that_repeats_an_id_has_no_places(listed: list[Any]) -> None:
    ids = pl.Series("user", listed)
    assert find_places(pl.LazyFrame({"user": ids}), ids) is None
