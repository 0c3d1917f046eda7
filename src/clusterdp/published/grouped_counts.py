"""Rows counted by several columns: the codes of a row are packed into one number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from clusterdp.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray
    from clusterdp.published.column_codes import ColumnCodes

_LARGEST_KEY = 2**63
# So many numbers have a counter each, 8 bytes; of more, those that occur have.
MOST_COUNTERS = 2**22


class Packing(NamedTuple):
    """How the codes of several columns become one number, a key.

    Attributes:
        names: The columns.
        sizes: How many codes each has.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], columns: Mapping[str, ColumnCodes]) -> Self:
        """For the codes that columns have by now.

        Raises:
            DataError: If their combinations cannot be numbered.
        """
        found = cls(names, tuple(len(columns[name].values) for name in names))
        if found.n_keys >= _LARGEST_KEY:
            raise DataError(
                f"rows have too many combinations of {', '.join(names)} to be counted by; cut by "
                "fewer columns"
            )
        return found

    @property
    def n_keys(self) -> int:
        """How many keys there can be."""
        return math.prod(self.sizes)

    def pack(self, codes: Mapping[str, CodeArray]) -> IntArray:
        """The key of each row; axes `[row]`."""
        first, *others = self.names
        keys = codes[first].astype(np.int64)
        for name, size in zip(others, self.sizes[1:], strict=True):
            keys *= size
            keys += codes[name]
        return keys

    def unpack(self, keys: IntArray) -> dict[str, IntArray]:
        """The codes of columns, from keys."""
        codes = {}
        for name, size in zip(reversed(self.names), reversed(self.sizes), strict=True):
            keys, codes[name] = np.divmod(keys, size)
        return codes

    def decode(self, keys: IntArray, columns: Mapping[str, ColumnCodes]) -> pl.DataFrame:
        """The values of columns, from keys."""
        import polars as pl

        codes = self.unpack(keys)
        return pl.DataFrame([columns[name].decode(codes[name]).alias(name) for name in self.names])


class KeyCounts:
    """How many rows have each key."""

    def __init__(self, n_keys: int) -> None:
        self._counts: _Counters | _Groups = (
            _Counters(n_keys) if n_keys <= MOST_COUNTERS else _Groups()
        )

    def add(self, keys: IntArray, counts: IntArray | int = 1) -> None:
        """Count more rows, one of each key or as many as given."""
        self._counts.add(keys, counts)

    def entries(self) -> tuple[IntArray, IntArray]:
        """The keys that rows have, in order, and how many rows each; axes `[entry]`."""
        return self._counts.entries()


class _Counters:
    """A counter for every key."""

    def __init__(self, n_keys: int) -> None:
        self._counts = np.zeros(n_keys, dtype=np.int64)

    def add(self, keys: IntArray, counts: IntArray | int) -> None:
        np.add.at(self._counts, keys, counts)

    def entries(self) -> tuple[IntArray, IntArray]:
        keys = np.flatnonzero(self._counts)
        return keys, self._counts[keys]


class _Groups:
    """A row of a table for every key that was met."""

    def __init__(self) -> None:
        self._keys, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, keys: IntArray, counts: IntArray | int) -> None:
        import polars as pl

        more = pl.DataFrame({"keys": keys}).with_columns(
            counts=pl.lit(counts, pl.Int64) if isinstance(counts, int) else pl.Series(counts)
        )
        both = pl.concat([pl.DataFrame({"keys": self._keys, "counts": self._counts}), more])
        found = both.group_by("keys").agg(pl.col("counts").sum())
        self._keys, self._counts = found["keys"].to_numpy(), found["counts"].to_numpy()

    def entries(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self._keys)
        return self._keys[order], self._counts[order]


class GroupedCounts:
    """Rows counted by some columns, batch by batch.

    Attributes:
        names: The columns.
        count: The name of the column of counts.
    """

    def __init__(
        self, names: tuple[str, ...], columns: Mapping[str, ColumnCodes], count: str
    ) -> None:
        self.names = names
        self.count = count
        self._columns = columns
        self._packing = Packing.of(names, columns)
        self._counts = KeyCounts(self._packing.n_keys)

    def add(self, codes: Mapping[str, CodeArray]) -> None:
        """Count more rows, given the codes of their columns."""
        packing = Packing.of(self.names, self._columns)
        if packing != self._packing:
            self._repack(packing)
        self._counts.add(packing.pack(codes))

    def table(self) -> pl.DataFrame:
        """The columns by their values, and how many rows have them."""
        import polars as pl

        keys, counts = self._counts.entries()
        values = self._packing.decode(keys, self._columns)
        return values.with_columns(pl.Series(self.count, counts))

    def _repack(self, packing: Packing) -> None:
        """Go on with other keys, now that there are more codes."""
        keys, counts = self._counts.entries()
        self._counts = KeyCounts(packing.n_keys)
        self._counts.add(packing.pack(self._packing.unpack(keys)), counts)
        self._packing = packing
