"""The analyst's table joined to released rows, and rows counted, beside dictionaries."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.errors import DataError
from clusterdp.estimation.reading import rows as joining
from clusterdp.estimation.reading.rows import MATCHED, join_table
from clusterdp.published.rows import COUNT, count_rows

if TYPE_CHECKING:
    import numpy as np

# Names that Polars takes for patterns.
UNIT, VALUE = "^user$", "*"
INTEGERS = st.integers(-20, 20) | st.sampled_from([-(2**63), -(2**62), 2**62, 2**63 - 1])
WIDER = st.sampled_from([0, 1, 5, 2**63, 2**64 - 3, 2**64 - 1])
TEXTS = st.text(max_size=2)
VALUES = {
    "text": pl.Series(["b", "a", None, "c"]),
    "number": pl.Series([3, -1, None, 2**40]),
    "float": pl.Series([0.5, float("nan"), None, -1.0]),
    "flag": pl.Series([True, False, None, True]),
    "day": pl.Series([date(2024, 1, 2), None, date(1999, 1, 1), date(2024, 1, 3)]),
    "ordered": pl.Series(["low", "high", None, "low"], dtype=pl.Enum(["low", "high"])),
    "category": pl.Series(["x", "y", None, "z"], dtype=pl.Categorical),
}


def assert_joined(own: list[Any], listed: list[Any], kind: Any) -> None:
    """Each row is there once, with the values of its id; ids that are null match nothing."""
    units = pl.LazyFrame({UNIT: pl.Series(own, dtype=kind), "row": range(len(own))})
    table = pl.DataFrame({UNIT: pl.Series(listed, dtype=kind), VALUE: range(len(listed))})
    parts, size = join_table(units, table, UNIT)
    rows = pl.concat([part.collect(engine="streaming") for part in parts]).sort("row")
    places = {one: place for place, one in enumerate(listed) if one is not None}
    assert rows[UNIT].to_list() == own
    assert rows[VALUE].to_list() == [places.get(one) for one in own]
    assert rows[MATCHED].fill_null(value=False).to_list() == [one in places for one in own]
    assert size == (len(places), len(listed) - len(places), 0)


def unique(ids: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(ids | st.none(), max_size=30, unique=True)


@pytest.mark.parametrize("n_together", [2**24, 7], ids=["at once", "in parts"])
@pytest.mark.parametrize(
    ("ids", "kind"), [(INTEGERS, pl.Int64), (WIDER, pl.UInt64), (TEXTS, pl.String)]
)
def test_a_join_is_a_dictionary(ids: Any, kind: Any, n_together: int) -> None:
    @given(own=st.lists(ids, max_size=30), listed=unique(ids))
    def check(own: list[Any], listed: list[Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(joining, "_IDS_TOGETHER", n_together)
            assert_joined(own, listed, kind)

    check()


@pytest.mark.parametrize("listed", [["aax", "bbz"], ["aax", "aby"]], ids=["apart", "alike"])
def test_hashes_that_are_alike_are_told_apart(
    listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that has the hash of a listed id is not taken for it; nor are two listed ids."""
    monkeypatch.setattr(joining, "_hash", lambda word: word.str.slice(0, 1))
    assert_joined(["aax", "aay", "aby", "bbx", "ax"], listed, pl.String)


@pytest.mark.parametrize("listed", [[3, 4, 3], [-(2**60), 2**60, 2**60], ["a", "b", "a"]])
def test_a_table_repeats_no_id(listed: list[Any]) -> None:
    """Unless the whole row is repeated."""
    ids = pl.Series("user", listed)
    same = pl.DataFrame([ids, pl.Series("tier", ["x", "x", "x"])])
    rows = same.select("user").lazy()
    assert join_table(rows, same, "user")[1] == (2, 0, 1)
    with pytest.raises(DataError, match="duplicate ids"):
        join_table(rows, same.with_columns(tier=pl.int_range(3)), "user")


@pytest.mark.parametrize("n_parts", [1, 7])
def test_counts_are_those_of_rows(n_parts: int, rng: np.random.Generator) -> None:
    """Whatever the types and the parts, in the order of values; categories become text."""
    table = pl.DataFrame(
        {name: values.gather(rng.integers(0, 4, 500)) for name, values in VALUES.items()}
    ).sort("number")  # later parts have values that earlier ones lack
    size = -(-len(table) // n_parts)
    several = [("text", "number"), ("float", "flag", "day"), tuple(VALUES)]
    found = count_rows([part.lazy() for part in table.iter_slices(size)], several)
    for names, counts in zip(several, found, strict=True):
        kinds = {name: table.schema[name] for name in names}
        assert counts.schema == {
            **{
                name: pl.String() if kind == pl.Categorical else kind
                for name, kind in kinds.items()
            },
            COUNT: pl.Int64(),
        }
        shown = Counter(map(str, table.select(names).iter_rows()))
        assert {str(row[:-1]): row[-1] for row in counts.iter_rows()} == shown
        assert counts.equals(counts.sort(names))
