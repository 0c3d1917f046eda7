"""Experiments 2 and 3: what clusters are worth, simulated and on YouTube."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Findings, Rows, decide
from clusterdp.reproduction.paper_accounting import clustered
from clusterdp.reproduction.study import (
    ACCOUNTINGS,
    KINDS,
    column,
    empirical_variances,
    exact_variance,
    simulated_effects,
)
from clusterdp.reproduction.youtube import shipped_features, standardized_features
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.study import Study
    from clusterdp.reproduction.youtube import Reading
    from clusterdp.theory.population import Population

RESAMPLE_PROBS = (0.5, 0.8)


def experiment_two(study: Study) -> Findings:
    """Ratio of variances, Cluster-DP over Cluster-Free-DP, at equal parameters, against β."""
    rng = study.rng(2)
    mixture = pops.Mixture.draw(rng)
    rows: Rows = []
    for resample_prob in RESAMPLE_PROBS:
        for between in np.linspace(0.25, 4.75, study.n_points).tolist():
            counts = mixture.control_counts(between)
            drawn = [_ratio(counts, resample_prob, study, rng) for _ in range(study.n_populations)]
            ratios, homogeneity = np.array(drawn).T
            rows.append(
                {
                    "resample_prob": resample_prob,
                    "between": between,
                    "ratio": float(ratios.mean()),
                    "spread": float(ratios.std(ddof=1)),
                    "homogeneity": float(homogeneity.mean()),
                }
            )
    return Findings(number=2, tables={"ratio": rows}, claims=_ratio_claims(rows))


def _ratio(
    counts: IntArray, resample_prob: float, study: Study, rng: np.random.Generator
) -> tuple[float, float]:
    """The ratio of variances in one sub-population, and its homogeneity."""
    population = pops.sub_population(counts, rng)
    one, other = (
        simulated_effects(
            population,
            build(noise_scale=10, prior_floor=0.02, resample_prob=resample_prob),
            study.n_realizations,
            rng,
        ).var(ddof=1)
        for build in (builders.cluster_dp, builders.cluster_free_dp)
    )
    return float(one / other), float(theory.homogeneity(population).sum())


def _ratio_claims(rows: Rows) -> list[Claim]:
    ratios = {prob: column(rows, "ratio", resample_prob=prob) for prob in RESAMPLE_PROBS}
    ends = {prob: (ratio[:2].mean(), ratio[-2:].mean()) for prob, ratio in ratios.items()}
    found = (
        f"λ = {prob:g}: {low:.2f} at small β, {high:.2f} at large"
        for prob, (low, high) in ends.items()
    )
    return [
        decide(
            "clusters lower variance at equal parameters",
            holds=all(high < low for low, high in ends.values()),
            evidence="; ".join(found) + ".",
        ),
        decide(
            "the benefit is stronger at smaller λ",
            holds=bool(ends[0.5][1] < ends[0.8][1]),
            evidence=f"{ends[0.5][1]:.2f} for λ = 0.5, {ends[0.8][1]:.2f} for λ = 0.8.",
        ),
    ]


def experiment_three(study: Study) -> Findings:
    """YouTube: trade-off of Cluster-DP and Cluster-Free-DP, and the variance without privacy."""
    rng = study.rng(3)

    def draw() -> Population:
        return pops.youtube_population(study.features, rng)

    # There are no sub-populations here: error bars are over draws of the outcomes.
    study = replace(study, n_populations=max(3, study.n_populations // 5))
    rows: Rows = []
    for accounting in ACCOUNTINGS:
        for epsilon in np.geomspace(0.5, 4, study.n_points).tolist():
            for kind in KINDS:
                mechanism = _on_youtube(kind, epsilon, accounting)
                rows.append(
                    {"accounting": accounting, "mechanism": kind, "epsilon": epsilon}
                    | empirical_variances(draw, mechanism, study, rng)
                )
    one, other = (column(rows, "variance", mechanism=kind) for kind in KINDS)
    ratio = one / other
    free = float(theory.non_private_variance(draw())[0])
    rows += [
        {"accounting": accounting, "mechanism": "without privacy", "epsilon": epsilon}
        | {"variance": free, "spread": 0.0}
        for accounting in ACCOUNTINGS
        for epsilon in (0.5, 4.0)
    ]
    claim = decide(
        "clusters help on YouTube",
        holds=bool((ratio < 1).all()),
        evidence=f"Ratios from {ratio.min():.2f} to {ratio.max():.2f}; without privacy the "
        f"variance is {free:.2g}.",
    )
    tables = {"tradeoff": rows, "readings": _readings(rng)}
    return Findings(number=3, tables=tables, claims=[claim])


def _on_youtube(kind: str, epsilon: float, accounting: Accounting) -> Mechanism:
    floor = 0.1 / pops.YOUTUBE_SPACE.n_categories
    return clustered(
        kind, epsilon=epsilon, noise_scale=5.0, prior_floor=floor, accounting=accounting
    )


def _readings(rng: np.random.Generator) -> Rows:
    """What the two readings of "edges with other clusters" lead to, by exact variance at ε = 1."""
    readings: tuple[Reading, ...] = ("boundary", "pairwise")
    features = {reading: shipped_features(reading) for reading in readings}
    standard = standardized_features(features["boundary"])
    rows = []
    for reading, given in features.items():
        population = pops.youtube_population(given, rng)
        one, other = (
            exact_variance(population, _on_youtube(kind, 1.0, "valid"), rng) for kind in KINDS
        )
        moved = np.abs(standardized_features(given) - standard).max()
        rows.append(
            {
                "reading": reading,
                "largest_change_of_a_feature": float(moved),
                "ratio_of_variances": one / other,
            }
        )
    return rows
