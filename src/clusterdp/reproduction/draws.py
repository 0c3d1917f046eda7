"""Many draws of one population: whose numbers they are, and how far they spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.reproduction.claims import Rows, Tables

# What a band in a figure holds: the draws between these shares of them.
BAND = (0.1, 0.9)


def population_rng(draw: int) -> np.random.Generator:
    """The randomness of a population: draw 7 has seed 7, in every experiment."""
    return np.random.default_rng(draw)


def noise_rng(draw: int, experiment: int) -> np.random.Generator:
    """The randomness of noise and assignment in one draw, whatever else is run."""
    return np.random.default_rng([draw, experiment])


class Spread(NamedTuple):
    """How a number varies over draws."""

    median: FloatArray
    low: FloatArray
    high: FloatArray
    least: FloatArray
    greatest: FloatArray

    @classmethod
    def of(cls, numbers: FloatArray) -> Spread:
        """Of axes `[draw, ...]`, for each of the other axes."""
        low, high = np.quantile(numbers, BAND, axis=0)
        return cls(np.median(numbers, axis=0), low, high, numbers.min(axis=0), numbers.max(axis=0))


def describe(numbers: FloatArray) -> str:
    """Numbers of draws in words: the median, and the range in brackets; axes `[draw]`."""
    spread = Spread.of(numbers)
    median, least, greatest = map(written, (spread.median, spread.least, spread.greatest))
    return median if least == greatest else f"{median} ({least} to {greatest})"


def written(number: FloatArray | float) -> str:
    """A number with three digits that count, without an exponent where it is large."""
    value = float(number)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def joined(tables: list[Tables]) -> Tables:
    """The tables of all draws, in their order, as one; each row names its draw."""
    return {
        name: [{"draw": draw, **row} for draw, one in enumerate(tables) for row in one[name]]
        for name in tables[0]
    }


def select(rows: Rows, **where: Any) -> Rows:
    """The rows of a table that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def points(rows: Rows, name: str, **where: Any) -> list[Any]:
    """The values of a column along the axis of a table, as in any one draw."""
    chosen = select(rows, **where)
    return [row[name] for row in chosen if row["draw"] == chosen[0]["draw"]]


def by_draw(rows: Rows, name: str, **where: Any) -> FloatArray:
    """A column of the rows that have these values; axes `[draw, row]`."""
    chosen = select(rows, **where)
    n_draws = len({row["draw"] for row in chosen})
    return np.array([row[name] for row in chosen]).reshape(n_draws, -1)


def everywhere(holds: BoolArray) -> BoolArray:
    """In which draws something holds at every point; of axes `[draw, point]`."""
    return np.asarray(holds.all(axis=1))
