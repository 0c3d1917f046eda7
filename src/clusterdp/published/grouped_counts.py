"""Rows counted by several columns: each column as small numbers, and these as one number a row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

# A name that no column of a user has.
_KEY = "__clusterdp_key"
_LARGEST_KEY = 2**63


class ColumnCodes:
    """The values of a column that were met so far. A value's code is its place; that of null is 0.

    Attributes:
        values: The values, in the order of their codes, null first.
    """

    def __init__(self, kind: pl.DataType) -> None:
        import polars as pl

        self.values = pl.Series([None], dtype=kind)

    def learn(self, column: pl.Series) -> None:
        """Give codes to those values of a column that have none."""
        import polars as pl

        found = column.unique()
        new = found.filter(~found.is_in(self.values.implode(), nulls_equal=True))
        self.values = pl.concat([self.values, new])

    def encode(self, name: str) -> pl.Expr:
        """The codes of a column; null for values that have none, and for null."""
        import polars as pl

        known = self.values[1:]
        codes = pl.int_range(1, len(known) + 1, eager=True)
        return pl.col(name).replace_strict(known, codes, default=None, return_dtype=pl.Int64)

    def decode(self, codes: pl.Series) -> pl.Series:
        """Values from their codes; categories without an order by their text."""
        import polars as pl

        found = self.values.gather(codes)
        return found.cast(pl.String) if isinstance(found.dtype, pl.Categorical) else found


def encode_batch(batch: pl.DataFrame, columns: Mapping[str, ColumnCodes]) -> pl.DataFrame:
    """Codes instead of values, all columns at once; values that are new get codes."""
    codes = batch.select(columns[name].encode(name) for name in batch.columns)
    new = [one.name for one in batch if codes[one.name].null_count() > one.null_count()]
    for name in new:
        columns[name].learn(batch[name])
    again = batch.select(columns[name].encode(name) for name in new)
    return codes.with_columns(again).fill_null(0)


class GroupedCounts:
    """Rows counted by some columns, batch by batch. The codes of a row are packed into one number.

    Attributes:
        names: The columns.
        count: The name of the column of counts.
    """

    def __init__(
        self, names: tuple[str, ...], columns: Mapping[str, ColumnCodes], count: str
    ) -> None:
        import polars as pl

        self.names = names
        self.count = count
        self._columns = columns
        self._sizes = self._current_sizes()
        self._counts = pl.DataFrame(schema={_KEY: pl.Int64, count: pl.Int64})

    def add(self, codes: pl.DataFrame) -> None:
        """Count more rows, given the codes of their columns, see `encode_batch`."""
        import polars as pl

        sizes = self._current_sizes()
        if sizes != self._sizes:
            unpacked = self._unpack(self._counts[_KEY])
            self._counts = self._counts.with_columns(_pack(unpacked, sizes))
            self._sizes = sizes
        keys = _pack([codes[name] for name in self.names], sizes).to_frame()
        more = keys.group_by(_KEY).agg(pl.len().cast(pl.Int64).alias(self.count))
        both = pl.concat([self._counts, more])
        self._counts = both.group_by(_KEY).agg(pl.col(self.count).sum())

    def table(self) -> pl.DataFrame:
        """The columns by their values, and how many rows have them."""
        import polars as pl

        columns = [
            self._columns[name].decode(codes).alias(name)
            for name, codes in zip(self.names, self._unpack(self._counts[_KEY]), strict=True)
        ]
        return pl.DataFrame([*columns, self._counts[self.count]])

    def _current_sizes(self) -> list[int]:
        """How many codes each column has.

        Raises:
            DataError: If their combinations cannot be numbered.
        """
        sizes = [len(self._columns[name].values) for name in self.names]
        if math.prod(sizes) >= _LARGEST_KEY:
            raise DataError(
                f"rows have too many combinations of {', '.join(self.names)} to be counted by; cut "
                "by fewer columns"
            )
        return sizes

    def _unpack(self, keys: pl.Series) -> list[pl.Series]:
        codes = []
        for size in reversed(self._sizes):
            codes.append(keys % size)
            keys = keys // size
        return codes[::-1]


def _pack(codes: list[pl.Series], sizes: list[int]) -> pl.Series:
    """One number for the codes of all columns."""
    packed = codes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        packed = packed * size + code
    return packed.alias(_KEY)
