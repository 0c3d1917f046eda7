"""Rows counted by packed codes, beside Polars' own grouping."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl
import pytest

from clusterdp.errors import DataError
from clusterdp.published import column_codes, grouped_counts
from clusterdp.published.column_codes import ColumnCodes
from clusterdp.published.grouped_counts import GroupedCounts
from clusterdp.published.row_counts import COUNT

VALUES = {
    "text": pl.Series(["b", "a", None, "c"]),
    "number": pl.Series([3, -1, None, 2**40]),
    "float": pl.Series([0.5, float("nan"), None, -1.0]),
    "flag": pl.Series([True, False, None, True]),
    "day": pl.Series([date(2024, 1, 2), None, date(1999, 1, 1), date(2024, 1, 3)]),
    "ordered": pl.Series(["low", "high", None, "low"], dtype=pl.Enum(["low", "high"])),
    "category": pl.Series(["x", "y", None, "z"], dtype=pl.Categorical),
}


def tallied(batches: list[pl.DataFrame], several: list[tuple[str, ...]]) -> list[pl.DataFrame]:
    columns = {name: ColumnCodes(kind) for name, kind in batches[0].schema.items()}
    tallies = [GroupedCounts(names, columns, COUNT) for names in several]
    for batch in batches:
        typed = batch.select(one.typed(name) for name, one in columns.items())
        codes = {name: one.encode(typed[name]) for name, one in columns.items()}
        for tally in tallies:
            tally.add(codes)
    return [tally.table() for tally in tallies]


@pytest.mark.parametrize("limit", [None, 0], ids=["looked up and counted", "searched and grouped"])
@pytest.mark.parametrize("n_batches", [1, 7])
def test_counts_are_those_of_a_grouping_whatever_the_types_and_batches(
    n_batches: int, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are too many values, or combinations of them, for a table of all."""
    if limit is not None:
        monkeypatch.setattr(column_codes, "_LARGEST_LOOKUP", limit)
        monkeypatch.setattr(grouped_counts, "MOST_COUNTERS", limit)
    rng = np.random.default_rng(1)
    table = pl.DataFrame(
        {name: values.gather(rng.integers(0, 4, 2000)) for name, values in VALUES.items()}
    ).sort("number")  # later batches have values that earlier ones lack
    several = [("text", "number"), ("float", "flag", "day"), tuple(VALUES)]
    size = -(-len(table) // n_batches)
    found = tallied([table[first : first + size] for first in range(0, 2000, size)], several)
    plain = table.with_columns(pl.col("category").cast(pl.String))
    for names, counts in zip(several, found, strict=True):
        expected = plain.group_by(names).agg(pl.len().cast(pl.Int64).alias(COUNT))
        assert counts.sort(names).equals(expected.sort(names), null_equal=True)
        assert counts.schema == expected.schema


def test_codes_of_integers_at_the_ends_of_their_types() -> None:
    for kind, values in {pl.Int8: [-128, 127], pl.UInt64: [2**64 - 1, 2**64 - 3]}.items():
        column = pl.Series([*values, None, *values], dtype=kind)
        codes = ColumnCodes(column.dtype)
        assert codes.encode(column).tolist() == [1, 2, 0, 1, 2]
        assert codes.decode(np.array([2, 0, 1])).to_list() == [values[1], None, values[0]]


def test_counts_go_on_when_combinations_become_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a counter for every one of them to those that occur."""
    monkeypatch.setattr(grouped_counts, "MOST_COUNTERS", 50)
    batches = [pl.DataFrame({"a": range(n), "b": range(n)}) for n in (3, 5, 40)]
    (counts,) = tallied(batches, [("a", "b")])
    assert counts["a"].to_list() == counts["b"].to_list() == list(range(40))
    assert counts[COUNT].to_list() == [3] * 3 + [2] * 2 + [1] * 35


def test_no_rows_give_no_counts() -> None:
    batch = pl.DataFrame(VALUES).clear()
    (counts,) = tallied([batch], [("text", "number")])
    assert counts.is_empty()
    assert counts.columns == ["text", "number", COUNT]


def test_too_many_combinations_are_refused() -> None:
    numbers = pl.DataFrame({str(place): pl.Series(range(5000)) for place in range(6)})
    with pytest.raises(DataError, match="cut by fewer columns"):
        tallied([numbers], [tuple(numbers.columns)])
