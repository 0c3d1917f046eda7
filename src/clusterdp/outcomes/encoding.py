"""Outcomes of rows as levels: positions of values, or of the grid points below numbers.

Columns are encoded, then numbers are rounded at random, which makes every row a category.
Encoding is a function of outcomes alone. It refuses no value, and counts those that break a rule.
Rounding takes one word per row and number, which must be used for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.errors import DataError
from clusterdp.outcomes.declaration import Outcome
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.outcomes.number import Steps, rounds_up

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from fractions import Fraction

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, CodeArray, FloatArray, WordArray
    from clusterdp.outcomes.grid import Grid


# Rows are taken in blocks that stay in the processor's cache.
_BLOCK = 2**15
_NUMERIC_KINDS = "biuf"


class LevelCodes(NamedTuple):
    """Levels of an outcome; those of rows outside its space mean nothing. Axes `[row]`.

    Numbers have their steps, and the grid points that these are at or above.
    """

    levels: CodeArray
    outside: BoolArray
    clipped: BoolArray
    steps: Steps | None = None
    lower: npt.NDArray[np.uint8] | None = None

    def with_missing(self, missing: BoolArray, level: int) -> LevelCodes:
        """The same, where some rows have the level of a missing outcome."""

        def put(number: int, into: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.where(missing, into.dtype.type(number), into)

        return LevelCodes(
            levels=np.where(missing, level, self.levels),
            outside=self.outside & ~missing,
            clipped=self.clipped & ~missing,
            # At a grid point, and so never rounded to another.
            steps=None if self.steps is None else put(0, self.steps),
            lower=None if self.lower is None else put(0, self.lower),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeLevels(Outcome):
    """An outcome with its grid: the levels that categories are combinations of.

    A level is a value of a finite outcome or a grid point of a number. Of an outcome that may be
    missing, the last level stands for that.

    Attributes:
        grid: The grid of a number; None of other outcomes.
        axis: Its index among the outcomes.
        stride: How far one level moves the position of a combination.
        values: The value of each level, exactly; None where the outcome is missing.
    """

    grid: Grid | None
    axis: int
    stride: int
    values: tuple[Fraction | None, ...]

    @property
    def n_known(self) -> int:
        """How many levels have a value."""
        return len(self.values) - self.may_be_missing

    def numbers(self) -> FloatArray:
        """The value of each level, or NaN; axes `[level]`."""
        return np.array([np.nan if value is None else float(value) for value in self.values])

    def encode(self, observed: npt.NDArray[Any], *, clip: bool) -> LevelCodes:
        """The level of each row, that of a number being the grid point at or below it.

        What is infinite is outside every space, and is never clipped. No finite number is outside.

        Args:
            observed: One number per row.
            clip: Whether values beyond the ends of a finite outcome count as the nearest end.
        """
        absent = missing_rows(observed)
        if absent is None:
            return self._encode(observed, clip=clip)
        known = observed
        if self.may_be_missing:
            known = np.where(absent, observed.dtype.type(0), observed)
        codes = self._encode(known, clip=clip)
        codes = codes._replace(outside=codes.outside | np.isinf(observed))
        return codes.with_missing(absent, self.n_known) if self.may_be_missing else codes

    def _encode(self, observed: npt.NDArray[Any], *, clip: bool) -> LevelCodes:
        space, nowhere = self.space, np.zeros(len(observed), dtype=np.bool_)
        if self.grid is not None:
            steps, clipped = self.grid.number.quantize(observed)
            lower = self.grid.lower(steps)
            return LevelCodes(lower, nowhere, clipped, steps, lower)
        assert isinstance(space, OutcomeSpace)  # noqa: S101 - a number has a grid
        if not clip or space.names is not None:  # no label is beyond an end
            return LevelCodes(*space.encode(observed), nowhere)
        kept = space.clip(observed)
        return LevelCodes(*space.encode(kept), kept != observed)

    def rounds_up(self, steps: Steps, lower: npt.NDArray[np.uint8], words: WordArray) -> BoolArray:
        """Whether each number becomes the grid point above it; one word each, axes `[row]`."""
        assert self.grid is not None  # noqa: S101 - it is a number
        points = np.array(self.grid.points, dtype=np.int32)
        numerators = (steps - points[lower]).astype(np.uint64)
        return rounds_up(words, numerators, self.grid.widths.astype(np.uint64)[lower])


def missing_rows(observed: npt.NDArray[Any]) -> BoolArray | None:
    """Where a value is NaN; None where no value can be."""
    return np.isnan(observed) if observed.dtype.kind == "f" else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeCodes:
    """Rows before their numbers are rounded.

    Attributes:
        positions: Each row's place among the combinations, numbers taken at the grid point below
            them. Rows outside the space have the first place after the last combination. Axes
            `[row]`.
        categories: The category at that position, −1 without one; axes `[row]`.
        steps: Each number clipped to its range, in steps above its lower end, which sums use.
            Axes `[number, row]`.
        lower: The position of the grid point at or below each number; axes `[number, row]`.
        n_missing: Rows with an outcome that is NaN and must not be missing. If there are any,
            nothing is encoded.
        n_outside: Rows with a finite outcome outside its allowed values.
        n_broken: Other rows that break a constraint.
        n_clipped: For each outcome how many rows were beyond its ends, and moved there; axes
            `[outcome]`.
    """

    positions: npt.NDArray[np.int32]
    categories: npt.NDArray[np.int16]
    steps: Steps
    lower: npt.NDArray[np.uint8]
    n_missing: int = 0
    n_outside: int = 0
    n_broken: int = 0
    n_clipped: tuple[int, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether every row has outcomes of the space that break no constraint."""
        return not (self.n_missing or self.n_outside or self.n_broken)

    def part(self, rows: npt.NDArray[Any]) -> OutcomeCodes:
        """Some of the rows, by their places, in which nothing is missing, outside or broken."""
        return OutcomeCodes(
            positions=self.positions[rows],
            categories=self.categories[rows],
            steps=self.steps[:, rows],
            lower=self.lower[:, rows],
        )


class OutcomeEncoder:
    """Encodes batches of rows. Make one with `Categories.encoder`, once for all batches.

    Args:
        outcomes: The outcomes with their levels.
        table: The category at each position, −1 where a constraint is broken; axes `[position]`.
        clip: Names of finite outcomes that are clipped, too. Numbers always are.

    Attributes:
        numbers: The outcomes that are numbers.
        table: As it was given; then as many −1 again, for rows outside the space.
    """

    def __init__(
        self,
        outcomes: Sequence[OutcomeLevels],
        table: npt.NDArray[np.int16],
        clip: Collection[str],
    ) -> None:
        self.outcomes = tuple(outcomes)
        self.numbers = [one for one in outcomes if one.grid is not None]
        self.table = np.concatenate([table, np.full_like(table, -1)])
        self._clip, self._has_broken = frozenset(clip), bool((table < 0).any())

    def encode(self, table: Mapping[str, npt.NDArray[Any]]) -> OutcomeCodes:
        """Encode the outcomes of rows.

        Args:
            table: An array of numbers or booleans for each outcome, by name.

        Raises:
            DataError: If a column is not there, is longer than another, or holds no numbers.
        """
        observed = [_numeric(outcome.name, table) for outcome in self.outcomes]
        n_rows = len(observed[0])
        if any(len(column) != n_rows for column in observed):
            raise DataError("the columns of outcomes differ in length; give one value per row")
        missing = [
            found
            for outcome, values in zip(self.outcomes, observed, strict=True)
            if not outcome.may_be_missing and (found := missing_rows(values)) is not None
        ]
        n_missing = int(np.count_nonzero(np.logical_or.reduce(missing))) if missing else 0
        if not n_missing:
            return _joined(
                [self._encode([each[rows] for each in observed]) for rows in _blocks(n_rows)]
            )
        return OutcomeCodes(
            positions=np.full(n_rows, len(self.table) // 2, dtype=np.int32),
            categories=np.full(n_rows, -1, dtype=np.int16),
            steps=np.zeros((len(self.numbers), n_rows), dtype=np.int32),
            lower=np.zeros((len(self.numbers), n_rows), dtype=np.uint8),
            n_missing=n_missing,
            n_clipped=(0,) * len(self.outcomes),
        )

    def round(self, rows: OutcomeCodes, words: WordArray) -> npt.NDArray[np.int16]:
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
            for place, number in enumerate(self.numbers):
                up = number.rounds_up(
                    rows.steps[place, block], rows.lower[place, block], words[block, place]
                )
                positions += np.int32(number.stride) * up
            categories[block] = self.table[positions]
        return categories

    def _encode(self, observed: list[npt.NDArray[Any]]) -> OutcomeCodes:
        """One block of rows, in which nothing is missing that must not be."""
        encoded = [
            outcome.encode(values, clip=outcome.name in self._clip)
            for outcome, values in zip(self.outcomes, observed, strict=True)
        ]
        positions = np.zeros(len(observed[0]), dtype=np.int32)
        outside = np.zeros(len(positions), dtype=np.bool_)
        for outcome, part in zip(self.outcomes, encoded, strict=True):
            positions += part.levels.astype(np.int32) * np.int32(outcome.stride)
            outside |= part.outside
        n_outside = int(np.count_nonzero(outside))
        if n_outside:
            positions[outside] = len(self.table) // 2
        numbers = [part for part in encoded if part.steps is not None]
        shape, categories = (len(numbers), len(positions)), self.table[positions]
        return OutcomeCodes(
            positions=positions,
            categories=categories,
            steps=np.array([part.steps for part in numbers], dtype=np.int32).reshape(shape),
            lower=np.array([part.lower for part in numbers], dtype=np.uint8).reshape(shape),
            n_outside=n_outside,
            # Rounding changes no side of a constraint: a row breaks one before it, or never.
            n_broken=int(np.count_nonzero(categories < 0)) - n_outside if self._has_broken else 0,
            n_clipped=tuple(int(np.count_nonzero(part.clipped)) for part in encoded),
        )


def _numeric(name: str, table: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if name not in table:
        raise DataError(f"there is no column {name!r} to use as outcome; add it to the table")
    column = table[name]
    if column.dtype.kind not in _NUMERIC_KINDS:
        raise DataError(f"column {name!r} (outcome) holds no numbers; convert it")
    return column


def _blocks(n_rows: int) -> list[slice]:
    """All rows, in blocks; one empty block without any."""
    return [slice(start, start + _BLOCK) for start in range(0, max(n_rows, 1), _BLOCK)]


def _joined(blocks: list[OutcomeCodes]) -> OutcomeCodes:
    return OutcomeCodes(
        positions=np.concatenate([block.positions for block in blocks]),
        categories=np.concatenate([block.categories for block in blocks]),
        steps=np.concatenate([block.steps for block in blocks], axis=1),
        lower=np.concatenate([block.lower for block in blocks], axis=1),
        n_outside=sum(block.n_outside for block in blocks),
        n_broken=sum(block.n_broken for block in blocks),
        n_clipped=tuple(
            sum(counts) for counts in zip(*(block.n_clipped for block in blocks), strict=True)
        ),
    )
