"""How much to compute, and the measurements that every experiment shares.

Many draws of one population: whose numbers they are, and how far they spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.studies import formulas as theory
from clusterdp.studies.simulation import simulate_experiments

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.studies.claims import Accounting, Rows, Tables
    from clusterdp.studies.populations import ClusterFeatures
    from clusterdp.studies.simulation import Population


KINDS = ("Cluster-DP", "Cluster-Free-DP")
ACCOUNTINGS: tuple[Accounting, ...] = ("paper", "valid")
# Assignments, each with its noise, that a variance is averaged over. The noise moves it by up to a
# tenth, so that the average is good to 1%.
N_AVERAGED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The size of a reproduction.

    Attributes:
        n_draws: Populations that are drawn; draw 0 has seed 0, and so on.
        n_realizations: Simulated experiments per population (500 in the paper).
        n_points: Points along each axis.
        features: The YouTube communities.
    """

    n_draws: int
    n_realizations: int
    n_points: int
    features: ClusterFeatures


def simulated_effects(
    population: Population, mechanism: Mechanism, n_realizations: int, rng: np.random.Generator
) -> FloatArray:
    """Estimates from rows alone, over noise and assignment; axes `[realization]`."""
    drawn = simulate_experiments(
        population, mechanism, n_replicates=n_realizations, rng=rng, use="rows"
    )
    return drawn.effects[:, 0]


def exact_excess(population: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """The variance that privacy adds to estimates from rows: Σ (n_c/n)² Σ_a E[Var(debiased)]/n_ac.

    It is exact given a channel, and averaged over the assignments and the noise that channels
    follow from.
    """
    counts, layout = population.assign(N_AVERAGED, rng), population.layout
    _, channel = release_cells(
        CellTotals.from_counts(counts, population.space),
        layout,
        population.space,
        mechanism,
        simulated_noise(rng),
    )
    assert channel is not None  # noqa: S101 - there are rows
    noise = channel.noise_variance()[..., channel.groups, :]
    per_unit = (counts * noise).sum(axis=-1).mean(axis=0) / layout.sizes
    return float(theory.weighted(per_unit / layout.sizes, layout)[0])


def exact_variance(population: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """The variance of estimates from rows, over noise and assignment."""
    excess = exact_excess(population, mechanism, rng)
    return float(theory.non_private_variance(population)[0]) + excess


# What a band in a figure holds: the draws between these shares of them.
BAND = (0.1, 0.9)


def noise_rng(draw: int, experiment: int) -> np.random.Generator:
    """The randomness of noise and assignment in one draw, the same for any other experiments."""
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


def in_brief(numbers: FloatArray) -> str:
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
