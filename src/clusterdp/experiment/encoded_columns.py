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
    """Levels of an outcome; those of rows outside its space mean nothing. Axes `[row]`."""

    levels: CodeArray
    outside: BoolArray
    clipped: BoolArray
    steps: Steps | None = None


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
        return EncodedColumn(self.grid.lower(steps), nowhere, clipped, steps)

    def rounds_up(self, steps: Steps, lower: npt.NDArray[np.uint8], words: WordArray) -> BoolArray:
        """Whether each number becomes the grid point above it; one word each, axes `[row]`."""
        points = np.array(self.grid.points, dtype=np.int32)
        numerators = (steps - points[lower]).astype(np.uint64)
        return rounds_up(words, numerators, self.grid.widths.astype(np.uint64)[lower])


Column = FiniteColumn | ClippedColumn | NumberColumn


def columns_of(categories: Categories, clip: Collection[str]) -> dict[str, Column]:
    """How the column of each outcome is encoded, by its name.

    Args:
        categories: The categories.
        clip: Names of finite outcomes that are clipped, too. Numbers always are.
    """
    grids = iter(categories.grids)
    columns: dict[str, Column] = {}
    for outcome, stride in zip(categories.declared.outcomes, categories.strides, strict=True):
        if isinstance(outcome.space, Number):
            columns[outcome.name] = NumberColumn(grid=next(grids), stride=stride)
        elif outcome.name in clip:
            columns[outcome.name] = ClippedColumn(space=outcome.space, stride=stride)
        else:
            columns[outcome.name] = FiniteColumn(space=outcome.space, stride=stride)
    return columns
