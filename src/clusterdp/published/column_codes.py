"""The values of a column as small numbers, which rows are counted by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import column as named_column
from clusterdp._named import unnamed
from clusterdp.rows.labels import minus

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray

# The code of null, and what stands for values that have none.
_NULL, _UNKNOWN = 0, -1
# A look-up table beats a search while it stays within a few megabytes.
_LARGEST_LOOKUP = 2**20
# Rows that are encoded at once: what is computed for them stays in the processor's cache.
_ROWS_TOGETHER = 2**18


class ColumnCodes:
    """The values of a column that were met so far. A value's code is its place; that of null is 0.

    Attributes:
        values: The values, in the order of their codes, null first.
    """

    def __init__(self, kind: pl.DataType) -> None:
        import polars as pl

        # Text becomes categories, which are small numbers already.
        is_text = kind == pl.String
        self._kind = pl.Categorical(pl.Categories.random()) if is_text else kind
        self.values = pl.Series([None], dtype=self._kind)

    def typed(self, name: str) -> pl.Expr:
        """A column of this name, of the type that `encode` takes."""
        return named_column(name).cast(self._kind)

    def encode(self, column: pl.Series) -> CodeArray:
        """The codes of a column, as narrow as they can be; values that are new get codes."""
        parts = [self._encode(part) for part in _slices(unnamed(column))]
        return np.concatenate([np.empty(0, np.uint8), *parts])

    def decode(self, codes: CodeArray) -> pl.Series:
        """Values from their codes; categories without an order by their text."""
        import polars as pl

        found = self.values.gather(codes)
        return found.cast(pl.String) if isinstance(found.dtype, pl.Categorical) else found

    def _encode(self, column: pl.Series) -> CodeArray:
        import polars as pl

        codes = self._find(column)
        is_new = codes == _UNKNOWN
        if is_new.any():
            new = column.filter(pl.Series(is_new)).unique(maintain_order=True)
            self.values = pl.concat([self.values, new])
            codes = self._find(column)
        return codes.astype(np.min_scalar_type(len(self.values)))

    def _find(self, column: pl.Series) -> CodeArray:
        """The codes of values that have one."""
        if column.null_count():
            codes = np.full(len(column), _NULL)
            codes[column.is_not_null().to_numpy()] = self._find(column.drop_nulls())
            return codes
        numbers = _integers(column)
        if numbers is None or not len(numbers):
            return self._search(column)
        low, high = int(numbers.min()), int(numbers.max())  # type: ignore[arg-type]  # integers
        if high - low >= _LARGEST_LOOKUP:
            return self._search(column)
        table = self._table(low, high)
        return table[minus(numbers.to_numpy(), low) if low else numbers.to_numpy()]

    def _table(self, low: int, high: int) -> CodeArray:
        """The codes of all integers from a low one to a high one."""
        codes = np.full(high - low + 1, _UNKNOWN, np.min_scalar_type(-len(self.values)))
        known = _integers(self.values[1:])
        assert known is not None  # noqa: S101 - of the same type
        inside = known.is_between(low, high)
        codes[minus(known.filter(inside).to_numpy(), low)] = np.flatnonzero(inside.to_numpy()) + 1
        return codes

    def _search(self, column: pl.Series) -> CodeArray:
        """Codes by hashes, for integers that are far apart and what is not like integers."""
        import polars as pl

        known = self.values[1:]
        codes = pl.int_range(1, len(known) + 1, eager=True)
        found = column.replace_strict(known, codes, default=_UNKNOWN, return_dtype=pl.Int64)
        return found.to_numpy()


def _slices(column: pl.Series) -> list[pl.Series]:
    """The rows of a column, not too many at a time."""
    starts = range(0, len(column), _ROWS_TOGETHER)
    return [column.slice(start, _ROWS_TOGETHER) for start in starts]


def _integers(column: pl.Series) -> pl.Series | None:
    """Integers of up to 64 bits that tell the values of a column apart; None if there are none."""
    import polars as pl

    if column.dtype == pl.Boolean:
        return column.cast(pl.UInt8)
    numbers = column.to_physical()
    is_short = numbers.dtype.is_integer() and numbers.dtype not in (pl.Int128, pl.UInt128)
    return numbers if is_short else None
