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
    from clusterdp.estimation.moments import Estimator
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.youtube import ClusterFeatures
    from clusterdp.theory.population import Population

DELTA = 1e-4
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


def empirical_variances(
    draw: Callable[[], Population],
    mechanism: Mechanism,
    study: Study,
    rng: np.random.Generator,
    estimator: Estimator = "stratified",
) -> FloatArray:
    """Variance of the estimator over noise and assignment, per sub-population; `[population]`."""
    variances = []
    for _ in range(study.n_populations):
        drawn = simulate_experiments(
            draw(),
            mechanism,
            n_replicates=study.n_realizations,
            rng=rng,
            estimator=estimator,
            use="rows",
        )
        variances.append(drawn.effects[:, 0].var(ddof=1))
    return np.array(variances)


def exact_variance(population: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """The same variance by theory, for one population and one of its assignments."""
    counts = population.assign(1, rng)[0]
    excess = theory.excess_variance(
        counts, population.layout, population.space, mechanism, rng=rng, n_draws=40
    )
    return float(theory.non_private_variance(population)[0] + excess.value[0])


def summarize(variances: FloatArray) -> dict[str, float]:
    """Mean and spread over sub-populations, as the paper's error bars."""
    return {"variance": float(variances.mean()), "spread": float(variances.std(ddof=1))}


def find_row(rows: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
    """The first row of a table that has these values."""
    return next(row for row in rows if all(row[key] == value for key, value in where.items()))
