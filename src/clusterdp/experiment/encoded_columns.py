"""One column of outcomes as levels: positions of values, or of the grid points below numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.experiment.number import Number, Steps
from clusterdp.experiment.rounding import rounds_up

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, CodeArray, WordArray
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.grid import Grid
    from clusterdp.experiment.outcomes import OutcomeSpace


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
