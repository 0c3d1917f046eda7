"""How much to compute, and the measurements that every experiment shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.theory import formulas as theory
from clusterdp.theory.simulation import simulate_experiments

if TYPE_CHECKING:
    import numpy as np

    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.youtube import ClusterFeatures
    from clusterdp.theory.population import Population

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
    channel = release_cells(
        CellTotals.of_counts(counts, population.space),
        layout,
        population.space,
        mechanism,
        simulated_noise(rng),
    ).channel
    assert channel is not None  # noqa: S101 - there are rows
    noise = channel.noise_variance()[..., channel.groups, :]
    per_unit = (counts * noise).sum(axis=-1).mean(axis=0) / layout.sizes
    return float(theory.weighted(per_unit / layout.sizes, layout)[0])


def exact_variance(population: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """The variance of estimates from rows, over noise and assignment."""
    excess = exact_excess(population, mechanism, rng)
    return float(theory.non_private_variance(population)[0]) + excess
