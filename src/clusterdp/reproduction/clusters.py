"""Experiments 2 and 3: what clusters are worth, simulated and on YouTube."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Findings, decide
from clusterdp.reproduction.paper_accounting import clustered
from clusterdp.reproduction.study import (
    ACCOUNTINGS,
    DELTA,
    KINDS,
    empirical_variances,
    exact_variance,
    find_row,
    summarize,
)
from clusterdp.reproduction.youtube import shipped_features, standardized_features
from clusterdp.theory import formulas as theory
from clusterdp.theory.simulation import simulate_experiments

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.study import Study
    from clusterdp.reproduction.youtube import Reading
    from clusterdp.theory.population import Population


def experiment_two(study: Study) -> Findings:
    """Ratio of variances, Cluster-DP over Cluster-Free-DP, at equal parameters, against β."""
    rng = study.rng(2)
    mixture = pops.Mixture.draw(rng)
    rows: list[dict[str, Any]] = []
    for resample_prob in (0.5, 0.8):
        for between in np.linspace(0.25, 4.75, study.n_points):
            counts = mixture.control_counts(float(between))
            ratios, phi = [], []
            for _ in range(study.n_populations):
                population = pops.sub_population(counts, rng)
                phi.append(float(theory.homogeneity(population).sum()))
                one, other = (
                    simulate_experiments(
                        population,
                        made,
                        n_replicates=study.n_realizations,
                        rng=rng,
                        use="rows",
                    )
                    .effects[:, 0]
                    .var(ddof=1)
                    for made in _at_equal_parameters(resample_prob)
                )
                ratios.append(float(one / other))
            rows.append(
                {
                    "resample_prob": resample_prob,
                    "between": float(between),
                    "ratio": float(np.mean(ratios)),
                    "spread": float(np.std(ratios, ddof=1)),
                    "homogeneity": float(np.mean(phi)),
                }
            )
    return Findings(number=2, tables={"ratio": rows}, claims=_ratio_claims(rows))


def _at_equal_parameters(resample_prob: float) -> list[Mechanism]:
    return [
        build(noise_scale=10, prior_floor=0.02, resample_prob=resample_prob)
        for build in (builders.cluster_dp, builders.cluster_free_dp)
    ]


def _ratio_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    by_prob = {
        prob: np.array([row["ratio"] for row in rows if row["resample_prob"] == prob])
        for prob in (0.5, 0.8)
    }
    ends = {prob: (ratio[:2].mean(), ratio[-2:].mean()) for prob, ratio in by_prob.items()}
    return [
        Claim(
            name="clusters lower variance at equal parameters",
            place="Experiment 2, Figure 1.c",
            sentence="As clusters become more homogeneous (β grows), the variance under Cluster-DP "
            "falls against that under Cluster-Free-DP.",
            test="Mean ratio at the two largest β below that at the two smallest, for both λ.",
            verdict=decide(holds=all(high < low for low, high in ends.values())),
            evidence="; ".join(
                f"λ = {prob:g}: {low:.2f} at small β, {high:.2f} at large"
                for prob, (low, high) in ends.items()
            )
            + ".",
        ),
        Claim(
            name="the benefit is stronger at smaller λ",
            place="Experiment 2",
            sentence="This effect is stronger at smaller values of λ.",
            test="Ratio at the two largest β: smaller for λ = 0.5 than for λ = 0.8.",
            verdict=decide(holds=bool(ends[0.5][1] < ends[0.8][1])),
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
    floor = 0.1 / pops.YOUTUBE_SPACE.n_outcomes
    rows: list[dict[str, Any]] = []
    for accounting in ACCOUNTINGS:
        for epsilon in np.geomspace(0.5, 4, study.n_points):
            for kind in KINDS:
                mechanism = clustered(
                    kind,
                    epsilon=float(epsilon),
                    delta=DELTA,
                    noise_scale=5.0,
                    prior_floor=floor,
                    accounting=accounting,
                )
                rows.append(
                    {"accounting": accounting, "mechanism": kind, "epsilon": float(epsilon)}
                    | summarize(empirical_variances(draw, mechanism, study, rng))
                )
    free = float(theory.non_private_variance(draw())[0])
    rows += [
        {"accounting": accounting, "mechanism": "without privacy", "epsilon": epsilon}
        | {"variance": free, "spread": 0.0}
        for accounting in ACCOUNTINGS
        for epsilon in (0.5, 4.0)
    ]
    ratio = np.array(
        [
            row["variance"]
            / find_row(
                rows,
                accounting=row["accounting"],
                mechanism="Cluster-Free-DP",
                epsilon=row["epsilon"],
            )["variance"]
            for row in rows
            if row["mechanism"] == "Cluster-DP"
        ]
    )
    claim = Claim(
        name="clusters help on YouTube",
        place="Experiment 3, Figure 1.d",
        sentence="Cluster-DP achieves a better trade-off than Cluster-Free-DP on YouTube.",
        test="Ratio of variances at equal (ε, δ), both accountings; below 1 at every ε.",
        verdict=decide(holds=bool((ratio < 1).all())),
        evidence=f"Ratios from {ratio.min():.2f} to {ratio.max():.2f}; without privacy the "
        f"variance is {free:.2g}.",
    )
    tables = {"tradeoff": rows, "readings": _readings(rng)}
    return Findings(number=3, tables=tables, claims=[claim])


def _readings(rng: np.random.Generator) -> list[dict[str, Any]]:
    """What the two readings of "edges with other clusters" lead to, by exact variance at ε = 1."""
    readings: tuple[Reading, ...] = ("boundary", "pairwise")
    features = {reading: shipped_features(reading) for reading in readings}
    standard = standardized_features(features["boundary"])
    rows = []
    for reading, given in features.items():
        population = pops.youtube_population(given, rng)
        variance = {
            kind: exact_variance(
                population,
                clustered(
                    kind,
                    epsilon=1.0,
                    delta=DELTA,
                    noise_scale=5.0,
                    prior_floor=0.1 / pops.YOUTUBE_SPACE.n_outcomes,
                    accounting="valid",
                ),
                rng,
            )
            for kind in KINDS
        }
        moved = np.abs(standardized_features(given) - standard).max()
        rows.append(
            {
                "reading": reading,
                "largest_change_of_a_feature": float(moved),
                "ratio_of_variances": variance["Cluster-DP"] / variance["Cluster-Free-DP"],
            }
        )
    return rows
