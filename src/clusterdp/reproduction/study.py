"""How much to compute, and the measurements that every experiment shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.theory import formulas as theory
from clusterdp.theory.simulation import simulate_experiments

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.claims import Rows
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.youtube import ClusterFeatures
    from clusterdp.theory.population import Population

KINDS = ("Cluster-DP", "Cluster-Free-DP")
ACCOUNTINGS: tuple[Accounting, ...] = ("paper", "valid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The size of a reproduction.

    Attributes:
        n_populations: Sub-populations behind every error bar (50 in the paper).
        n_realizations: Draws of noise and assignment per sub-population (500 in the paper).
        n_points: Points along each axis.
        seed: Two runs with the same seed give the same numbers.
        features: The YouTube communities.
    """

    n_populations: int
    n_realizations: int
    n_points: int
    seed: int
    features: ClusterFeatures

    def rng(self, experiment: int) -> np.random.Generator:
        """The randomness of one experiment, whatever else is run."""
        return np.random.default_rng([self.seed, experiment])


def simulated_effects(
    population: Population, mechanism: Mechanism, n_realizations: int, rng: np.random.Generator
) -> FloatArray:
    """Estimates from rows alone, over noise and assignment; axes `[realization]`."""
    drawn = simulate_experiments(
        population, mechanism, n_replicates=n_realizations, rng=rng, use="rows"
    )
    return drawn.effects[:, 0]


def empirical_variances(
    draw: Callable[[], Population], mechanism: Mechanism, study: Study, rng: np.random.Generator
) -> dict[str, float]:
    """Variance over noise and assignment: its mean and its spread over sub-populations."""
    variances = np.array(
        [
            simulated_effects(draw(), mechanism, study.n_realizations, rng).var(ddof=1)
            for _ in range(study.n_populations)
        ]
    )
    return {"variance": float(variances.mean()), "spread": float(variances.std(ddof=1))}


def exact_excess(population: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """The variance that privacy adds, by theory, for one of the population's assignments."""
    counts = population.assign(1, rng)[0]
    excess = theory.excess_variance(
        counts, population.layout, population.space, mechanism, rng=rng, n_draws=40
    )
    return float(excess.value[0])


def exact_variance(population: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """The variance by theory, for one population and one of its assignments."""
    excess = exact_excess(population, mechanism, rng)
    return float(theory.non_private_variance(population)[0]) + excess


def select(rows: Rows, **where: Any) -> Rows:
    """The rows of a table that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def column(rows: Rows, name: str, **where: Any) -> FloatArray:
    """A column of the rows that have these values; axes `[row]`."""
    return np.array([row[name] for row in select(rows, **where)])
