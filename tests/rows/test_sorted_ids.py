"""Rows in the order of ids, beside Polars' own sort of whole rows."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.rows.ids import sorted_rows

# Few letters, long shared beginnings and the byte that short text is filled with: many ties.
_TEXTS = st.tuples(
    st.sampled_from(["", "user-", "user-é", "a much longer beginning/"]),
    st.text(st.sampled_from("\0a9é😀"), max_size=12),
).map("".join)
_KINDS: dict[type[pl.DataType], tuple[int, int]] = {
    pl.Int8: (-(2**7), 2**7 - 1),
    pl.UInt8: (0, 2**8 - 1),
    pl.Int64: (-(2**63), 2**63 - 1),
    pl.UInt64: (0, 2**64 - 1),
}


def _check(ids: pl.Series) -> None:
    rows = ids.to_frame("user").with_row_index("row")
    assert sorted_rows(rows, "user").equals(rows.sort("user"))


@given(st.lists(_TEXTS, unique=True))
def test_text_is_in_the_order_of_its_bytes(ids: list[str]) -> None:
    _check(pl.Series(ids, dtype=pl.String))


@given(st.data())
@pytest.mark.parametrize("kind", _KINDS)
def test_integers_of_every_size_and_sign_are_in_order(
    kind: type[pl.DataType], data: st.DataObject
) -> None:
    low, high = _KINDS[kind]
    numbers = st.lists(st.integers(low, high), unique=True)
    _check(pl.Series(data.draw(numbers), dtype=kind))


@given(st.data())
@pytest.mark.parametrize("kind", _KINDS)
def test_integers_that_lie_close_together_are_in_order(
    kind: type[pl.DataType], data: st.DataObject
) -> None:
    """At both ends of what a type holds, too."""
    low, high = _KINDS[kind]
    first = data.draw(st.sampled_from([low, high - 40]) | st.integers(low, high - 40))
    numbers = st.lists(st.integers(first, first + 40), min_size=20, unique=True)
    _check(pl.Series(data.draw(numbers), dtype=kind))
