"""One column of outcomes as levels: positions of values, or of the grid points below numbers.

Rows as categories: columns are encoded, then numbers are rounded at random.

Encoding is a function of outcomes alone. It refuses no value, and counts those that break a rule.
Rounding takes one word per row and number, which must be used for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.errors import DataError
from clusterdp.outcomes.number import Number, Steps, rounds_up

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, CodeArray, WordArray
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.outcomes.grid import Grid


class EncodedColumn(NamedTuple):
    """Levels of an outcome; those of rows outside its space mean nothing. Axes `[row]`.

    Numbers have their steps, and the grid points that these are at or above.
    """

    levels: CodeArray
    outside: BoolArray
    clipped: BoolArray
    steps: Steps | None = None
    lower: npt.NDArray[np.uint8] | None = None

    def with_missing(self, missing: BoolArray, level: int) -> EncodedColumn:
        """The same, where some rows have the level of a missing outcome."""

        def put(number: int, into: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.where(missing, into.dtype.type(number), into)

        return EncodedColumn(
            levels=np.where(missing, level, self.levels),
            outside=self.outside & ~missing,
            clipped=self.clipped & ~missing,
            # At a grid point, and so never rounded to another.
            steps=None if self.steps is None else put(0, self.steps),
            lower=None if self.lower is None else put(0, self.lower),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteColumn:
    """A column with finitely many values.

    Attributes:
        space: The values.
        stride: How far one level moves the position of a combination.
    """

    space: OutcomeSpace
    stride: int

    def encode(self, observed: npt.NDArray[Any]) -> EncodedColumn:
        """The position of each value."""
        levels, outside = self.space.encode(observed)
        return EncodedColumn(levels, outside, np.zeros(len(observed), dtype=np.bool_))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedColumn:
    """A column with finitely many values, where those beyond its ends count as the nearest end.

    Attributes:
        space: The values.
        stride: How far one level moves the position of a combination.
    """

    space: OutcomeSpace
    stride: int

    def encode(self, observed: npt.NDArray[Any]) -> EncodedColumn:
        """The position of each value after clipping."""
        kept = self.space.clip(observed)
        return EncodedColumn(*self.space.encode(kept), kept != observed)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn:
    """A column of numbers, clipped to their range and rounded to a grid later.

    Attributes:
        grid: The grid.
        stride: How far one grid point moves the position of a combination.
    """

    grid: Grid
    stride: int

    def encode(self, observed: npt.NDArray[Any]) -> EncodedColumn:
        """The position of the grid point at or below each number. No number is outside."""
        steps, clipped = self.grid.number.quantise(observed)
        nowhere = np.zeros(len(observed), dtype=np.bool_)
        lower = self.grid.lower(steps)
        return EncodedColumn(lower, nowhere, clipped, steps, lower)

    def rounds_up(self, steps: Steps, lower: npt.NDArray[np.uint8], words: WordArray) -> BoolArray:
        """Whether each number becomes the grid point above it; one word each, axes `[row]`."""
        points = np.array(self.grid.points, dtype=np.int32)
        numerators = (steps - points[lower]).astype(np.uint64)
        return rounds_up(words, numerators, self.grid.widths.astype(np.uint64)[lower])


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The column of one outcome.

    Attributes:
        values: How values are encoded.
        missing: The level of rows without a value; None if every row must have one.
    """

    values: FiniteColumn | ClippedColumn | NumberColumn
    missing: int | None = None

    def encode(self, observed: npt.NDArray[Any]) -> EncodedColumn:
        """The level of each row. What is infinite is outside every space, and is never clipped."""
        absent = missing_rows(observed)
        if absent is None:
            return self.values.encode(observed)
        known = (
            observed if self.missing is None else np.where(absent, observed.dtype.type(0), observed)
        )
        encoded = self.values.encode(known)
        encoded = encoded._replace(outside=encoded.outside | np.isinf(observed))
        return encoded if self.missing is None else encoded.with_missing(absent, self.missing)


def missing_rows(observed: npt.NDArray[Any]) -> BoolArray | None:
    """Where a value is NaN; None where no value can be."""
    return np.isnan(observed) if observed.dtype.kind == "f" else None


def columns_of(categories: Categories, clip: Collection[str]) -> dict[str, Column]:
    """How the column of each outcome is encoded, by its name.

    Args:
        categories: The categories.
        clip: Names of finite outcomes that are clipped, too. Numbers always are.
    """
    grids = iter(categories.grids)
    columns: dict[str, Column] = {}
    parts = zip(categories.declared.outcomes, categories.shape, categories.strides, strict=True)
    for outcome, n_levels, stride in parts:
        values: FiniteColumn | ClippedColumn | NumberColumn
        if isinstance(outcome.space, Number):
            values = NumberColumn(grid=next(grids), stride=stride)
        elif outcome.name in clip and outcome.space.names is None:  # no label is beyond an end
            values = ClippedColumn(space=outcome.space, stride=stride)
        else:
            values = FiniteColumn(space=outcome.space, stride=stride)
        missing = n_levels - 1 if outcome.may_be_missing else None
        columns[outcome.name] = Column(values=values, missing=missing)
    return columns


# Rows are taken in blocks that stay in the processor's cache.
_BLOCK = 2**15
_NUMERIC_KINDS = "biuf"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedRows:
    """Rows before their numbers are rounded.

    Attributes:
        positions: Each row's place among the combinations, numbers taken at the grid point below
            them. Rows outside the space have the first place after the last combination. Axes
            `[row]`.
        steps: Each number clipped to its range, in steps above its lower end: sums are of these.
            Axes `[number, row]`.
        lower: The position of the grid point at or below each number; axes `[number, row]`.
        n_missing: Rows with an outcome that is NaN and must not be missing. If there are any,
            nothing is encoded.
        n_outside: Rows with a finite outcome that is none of its values.
        n_broken: Other rows that break an implication.
        n_clipped: For each outcome how many rows were beyond its ends, and moved there; axes
            `[outcome]`.
    """

    positions: npt.NDArray[np.int32]
    steps: Steps
    lower: npt.NDArray[np.uint8]
    n_missing: int = 0
    n_outside: int = 0
    n_broken: int = 0
    n_clipped: tuple[int, ...] = ()

    def part(self, rows: npt.NDArray[Any]) -> EncodedRows:
        """Some of the rows, by their places, in which nothing is missing, outside or broken."""
        return EncodedRows(
            positions=self.positions[rows], steps=self.steps[:, rows], lower=self.lower[:, rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeEncoder:
    """Encodes batches of rows. Make one with `of`, once for all batches.

    Attributes:
        columns: How the column of each outcome is encoded, by its name.
        table: The category at each position, −1 where an implication is broken; then as many −1
            again, for rows outside the space.
        has_broken: Whether some combination breaks an implication.
    """

    columns: dict[str, Column]
    table: npt.NDArray[np.int16]
    has_broken: bool

    @classmethod
    def of(cls, categories: Categories, clip: Collection[str] = ()) -> OutcomeEncoder:
        """The encoder of these categories; `clip` names finite outcomes that are clipped, too."""
        table = np.concatenate([categories.table, np.full_like(categories.table, -1)])
        has_broken = bool((categories.table < 0).any())
        return cls(columns=columns_of(categories, clip), table=table, has_broken=has_broken)

    @property
    def numbers(self) -> list[NumberColumn]:
        """The columns that are numbers."""
        every = (column.values for column in self.columns.values())
        return [column for column in every if isinstance(column, NumberColumn)]

    def encode(self, table: Mapping[str, npt.NDArray[Any]]) -> EncodedRows:
        """Encode the outcomes of rows.

        Args:
            table: An array of numbers or booleans for each outcome, by name.

        Raises:
            DataError: If a column is not there, is longer than another, or holds no numbers.
        """
        observed = [_numeric(name, table) for name in self.columns]
        n_rows = len(observed[0])
        if any(len(column) != n_rows for column in observed):
            raise DataError("the columns of outcomes differ in length; give one value per row")
        n_missing = self._count_missing(observed)
        if n_missing:
            return self._unencoded(n_rows, n_missing)
        return _joined(
            [self._encode([each[rows] for each in observed]) for rows in _blocks(n_rows)]
        )

    def round(self, rows: EncodedRows, words: WordArray) -> npt.NDArray[np.int16]:
        """The category of each row, its numbers rounded at random; −1 if it is in none.

        Args:
            rows: Encoded rows.
            words: Uniform words, all independent; axes `[row, number]`.
        """
        if words.shape != rows.steps.T.shape:
            raise ValueError(f"words must be of shape {rows.steps.T.shape}, got {words.shape}")
        categories = np.empty(len(rows.positions), dtype=np.int16)
        for block in _blocks(len(categories)):
            positions = rows.positions[block].copy()
            for place, column in enumerate(self.numbers):
                up = column.rounds_up(
                    rows.steps[place, block], rows.lower[place, block], words[block, place]
                )
                positions += np.int32(column.stride) * up
            categories[block] = self.table[positions]
        return categories

    def _encode(self, observed: list[npt.NDArray[Any]]) -> EncodedRows:
        """One block of rows, in which nothing is missing that must not be."""
        encoded = [
            column.encode(values)
            for column, values in zip(self.columns.values(), observed, strict=True)
        ]
        positions = np.zeros(len(observed[0]), dtype=np.int32)
        outside = np.zeros(len(positions), dtype=np.bool_)
        for column, part in zip(self.columns.values(), encoded, strict=True):
            positions += part.levels.astype(np.int32) * np.int32(column.values.stride)
            outside |= part.outside
        n_outside = int(np.count_nonzero(outside))
        if n_outside:
            positions[outside] = len(self.table) // 2
        numbers = [part for part in encoded if part.steps is not None]
        shape = (len(numbers), len(positions))
        return EncodedRows(
            positions=positions,
            steps=np.array([part.steps for part in numbers], dtype=np.int32).reshape(shape),
            lower=np.array([part.lower for part in numbers], dtype=np.uint8).reshape(shape),
            n_outside=n_outside,
            # Rounding changes no side of an implication: a row breaks one before it, or never.
            n_broken=self._count_broken(positions) - n_outside if self.has_broken else 0,
            n_clipped=tuple(int(np.count_nonzero(part.clipped)) for part in encoded),
        )

    def _count_broken(self, positions: npt.NDArray[np.int32]) -> int:
        """How many rows are in no category: outside the space, or breaking an implication."""
        return int(np.count_nonzero(self.table[positions] < 0))

    def _count_missing(self, observed: list[npt.NDArray[Any]]) -> int:
        """How many rows have a NaN where none may be."""
        missing: BoolArray | None = None
        for column, values in zip(self.columns.values(), observed, strict=True):
            found = missing_rows(values) if column.missing is None else None
            if found is not None:
                missing = found if missing is None else missing | found
        return 0 if missing is None else int(np.count_nonzero(missing))

    def _unencoded(self, n_rows: int, n_missing: int) -> EncodedRows:
        shape = (len(self.numbers), n_rows)
        return EncodedRows(
            positions=np.full(n_rows, len(self.table) // 2, dtype=np.int32),
            steps=np.zeros(shape, dtype=np.int32),
            lower=np.zeros(shape, dtype=np.uint8),
            n_missing=n_missing,
            n_clipped=(0,) * len(self.columns),
        )


def _numeric(name: str, table: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if name not in table:
        raise DataError(f"there is no column {name!r} to use as outcome; add it to the table")
    column = table[name]
    if column.dtype.kind not in _NUMERIC_KINDS:
        raise DataError(f"column {name!r} (outcome) holds no numbers; convert it")
    return column


def _blocks(n_rows: int) -> list[slice]:
    """All rows, in blocks; one empty block if there are none."""
    return [slice(start, start + _BLOCK) for start in range(0, max(n_rows, 1), _BLOCK)]


def _joined(blocks: list[EncodedRows]) -> EncodedRows:
    return EncodedRows(
        positions=np.concatenate([block.positions for block in blocks]),
        steps=np.concatenate([block.steps for block in blocks], axis=1),
        lower=np.concatenate([block.lower for block in blocks], axis=1),
        n_outside=sum(block.n_outside for block in blocks),
        n_broken=sum(block.n_broken for block in blocks),
        n_clipped=tuple(
            sum(counts) for counts in zip(*(block.n_clipped for block in blocks), strict=True)
        ),
    )
