"""Rows as categories: columns are encoded, then numbers are rounded at random.

Encoding is a function of outcomes alone. It refuses no value, and counts those that break a rule.
Rounding takes one word per row and number, which must be used for nothing else.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import DataError
from clusterdp.experiment.encoded_columns import NumberColumn, columns_of, missing_rows
from clusterdp.experiment.rounding import up_prob

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy.typing as npt

    from clusterdp._arrays import BoolArray, WordArray
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.encoded_columns import Column
    from clusterdp.experiment.number import Steps

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


def category_probs(categories: Categories, row: Mapping[str, float]) -> dict[int, Fraction]:
    """The exact distribution of one row's category, with the probabilities of the machine.

    A row outside the space, or one that breaks an implication, is in category −1.
    """
    encoder = OutcomeEncoder.of(categories)
    encoded = encoder.encode({name: np.array([value]) for name, value in row.items()})
    choices = [
        _choices(column, int(encoded.steps[place, 0]), int(encoded.lower[place, 0]))
        for place, column in enumerate(encoder.numbers)
    ]
    probs: dict[int, Fraction] = {}
    for chosen in itertools.product(*choices):
        position = int(encoded.positions[0]) + sum(move for move, _ in chosen)
        category = int(encoder.table[position])
        prob = math.prod((prob for _, prob in chosen), start=Fraction(1))
        probs[category] = probs.get(category, Fraction(0)) + prob
    return probs


def _choices(column: NumberColumn, step: int, lower: int) -> list[tuple[int, Fraction]]:
    """How far rounding moves the position, with the probability of each."""
    above = step - column.grid.points[lower]
    if above == 0:
        return [(0, Fraction(1))]
    up = up_prob(above, int(column.grid.widths[lower]))
    return [(0, 1 - up), (column.stride, up)]


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
