"""Rows as numbers, column by column: codes to count by, and covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from clusterdp._named import columns
from clusterdp.published.column_codes import ColumnCodes
from clusterdp.published.grouped_counts import MOST_COUNTERS, Packing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import polars as pl

    from clusterdp._arrays import BoolArray, CodeArray, FloatArray

# Rows that are worked on at once: what is computed for them stays in the processor's cache.
_ROWS_TOGETHER = 2**18
# What the names of columns of numbers begin with; no column of a user has such a name.
_NUMBER = "__clusterdp_number_"


def parts_of(n_rows: int) -> Iterator[slice]:
    """All rows, a few at a time."""
    return (slice(start, start + _ROWS_TOGETHER) for start in range(0, n_rows, _ROWS_TOGETHER))


class CodedRows(NamedTuple):
    """Some rows; axes `[row]`.

    Attributes:
        codes: Columns to count by; see `ColumnCodes`.
        numbers: Columns to adjust for, NaN where missing.
    """

    codes: Mapping[str, CodeArray]
    numbers: Mapping[str, FloatArray]

    @classmethod
    def concat(cls, parts: list[Self]) -> Self:
        """The rows of all parts, each column by itself: the parts of a column are let go."""
        codes, numbers = [dict(one.codes) for one in parts], [dict(one.numbers) for one in parts]
        parts.clear()
        return cls(_concat(codes), _concat(numbers))

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.codes.values()), ()))

    def parts(self) -> Iterator[Mapping[str, CodeArray]]:
        """The codes of a few rows at a time."""
        for rows in parts_of(self.n_rows):
            yield {name: one[rows] for name, one in self.codes.items()}

    def chosen(self, rows: BoolArray) -> Self:
        """Some of the rows."""
        return self._replace(
            codes={name: one[rows] for name, one in self.codes.items()},
            numbers={name: one[rows] for name, one in self.numbers.items()},
        )

    def beside(self, others: Self) -> Self:
        """The same rows with the columns of others, too."""
        return self._replace(
            codes={**self.codes, **others.codes}, numbers={**self.numbers, **others.numbers}
        )


def _concat(parts: list[dict[str, Any]]) -> dict[str, Any]:
    names = [*parts[0]] if parts else []
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in names}


class RowColumns(NamedTuple):
    """Which columns of rows are wanted, and as what.

    Attributes:
        codes: What the codes of columns to count by stand for.
        numbers: The columns that numbers are read from.
    """

    codes: Mapping[str, ColumnCodes]
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, schema: pl.Schema, codes: Collection[str], numbers: Collection[str]) -> Self:
        """Some columns as codes, and some as numbers."""
        return cls({name: ColumnCodes(schema[name]) for name in codes}, tuple(numbers))

    def chosen(self, names: Collection[str]) -> Self:
        """Those of some columns, whatever they are wanted as."""
        return self._replace(
            codes={name: one for name, one in self.codes.items() if name in names},
            numbers=tuple(name for name in self.numbers if name in names),
        )

    def typed(self) -> list[pl.Expr]:
        """The columns that `encode` takes, as expressions over rows."""
        import polars as pl

        codes = [one.typed(name) for name, one in self.codes.items()]
        floats = columns(self.numbers).cast(pl.Float64).fill_null(np.nan)
        return [*codes, *([floats.name.prefix(_NUMBER)] if self.numbers else [])]

    def encode(self, typed: pl.DataFrame) -> CodedRows:
        """Rows as numbers."""
        return CodedRows(
            codes={name: one.encode(typed[name]) for name, one in self.codes.items()},
            numbers={name: typed[_NUMBER + name].to_numpy() for name in self.numbers},
        )


class GroupedRows(NamedTuple):
    """Rows by their values in some columns.

    Attributes:
        values: The combinations that occur; axes `[group]`.
        groups: The group of each row; axes `[row]`.
    """

    values: pl.DataFrame
    groups: CodeArray

    @classmethod
    def of(
        cls, rows: CodedRows, names: tuple[str, ...], columns: Mapping[str, ColumnCodes]
    ) -> Self:
        """Rows by the values of some columns; all in one group without any."""
        import polars as pl

        if not names:
            return cls(pl.DataFrame(), np.zeros(rows.n_rows, np.uint8))
        packing = Packing.of(names, columns)
        if packing.n_keys > MOST_COUNTERS:
            found, groups = np.unique(packing.pack(rows.codes), return_inverse=True)
            return cls(packing.decode(found, columns), groups.astype(np.uint32))
        keys = np.concatenate(
            [np.empty(0, np.uint32), *(packing.pack(one).astype(np.uint32) for one in rows.parts())]
        )
        occurs = np.zeros(packing.n_keys, dtype=np.bool_)
        occurs[keys] = True
        found = np.flatnonzero(occurs)
        groups = (np.cumsum(occurs) - 1).astype(np.min_scalar_type(len(found)))
        return cls(packing.decode(found, columns), groups[keys])
