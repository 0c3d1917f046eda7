"""Experiments 2 and 3: what clusters are worth, simulated and on YouTube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Rows, Tables, decide_over_draws
from clusterdp.reproduction.draws import by_draw, describe, everywhere, noise_rng
from clusterdp.reproduction.paper_accounting import clustered
from clusterdp.reproduction.study import ACCOUNTINGS, KINDS, exact_variance
from clusterdp.reproduction.youtube import shipped_features, standardized_features
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.study import Study
    from clusterdp.reproduction.youtube import Reading

RESAMPLE_PROBS = (0.5, 0.8)


def measure_ratio(study: Study, draw: int) -> Tables:
    """Ratio of variances, Cluster-DP over Cluster-Free-DP, at equal parameters, against β."""
    rng = noise_rng(draw, 2)
    rows: Rows = []
    for resample_prob in RESAMPLE_PROBS:
        for between in np.linspace(0.25, 4.75, study.n_points).tolist():
            population = pops.sub_population(draw, between)
            ours, free = (
                exact_variance(
                    population,
                    build(noise_scale=10, prior_floor=0.02, resample_prob=resample_prob),
                    rng,
                )
                for build in (builders.cluster_dp, builders.cluster_free_dp)
            )
            rows.append(
                {
                    "resample_prob": resample_prob,
                    "between": between,
                    "ratio": ours / free,
                    "homogeneity": float(theory.homogeneity(population).sum()),
                    "spread_of_centers": pops.spread_of_centers(draw),
                }
            )
    return {"ratio": rows}


def judge_ratio(tables: Tables) -> list[Claim]:
    """Whether clusters help more as they become alike, and more at smaller λ."""
    ratios = {
        prob: by_draw(tables["ratio"], "ratio", resample_prob=prob) for prob in RESAMPLE_PROBS
    }
    spread_out = {prob: ratio[:, :2].mean(axis=1) for prob, ratio in ratios.items()}
    alike = {prob: ratio[:, -2:].mean(axis=1) for prob, ratio in ratios.items()}
    found = (
        f"λ = {prob:g}: {describe(spread_out[prob])} at small β, {describe(alike[prob])} at large"
        for prob in RESAMPLE_PROBS
    )
    falls = np.all([alike[prob] < spread_out[prob] for prob in RESAMPLE_PROBS], axis=0)
    apart = by_draw(tables["ratio"], "spread_of_centers")[:, 0]
    return [
        decide_over_draws(
            "clusters lower variance at equal parameters",
            holds=falls,
            evidence="; ".join(found) + ".",
            close=apart[~falls].max(initial=0),
            usual=np.median(apart),
        ),
        decide_over_draws(
            "the benefit is stronger at smaller λ",
            holds=alike[0.5] < alike[0.8],
            evidence=f"{describe(alike[0.5])} for λ = 0.5, {describe(alike[0.8])} for λ = 0.8.",
        ),
    ]


def measure_youtube(study: Study, draw: int) -> Tables:
    """YouTube: trade-off of Cluster-DP and Cluster-Free-DP, and the variance without privacy."""
    rng = noise_rng(draw, 3)
    population = pops.youtube_population(study.features, draw)
    without = float(theory.non_private_variance(population)[0])
    rows: Rows = []
    for accounting in ACCOUNTINGS:
        for epsilon in np.geomspace(0.5, 4, study.n_points).tolist():
            here = {"accounting": accounting, "epsilon": epsilon}
            rows += [
                {
                    **here,
                    "mechanism": kind,
                    "variance": exact_variance(
                        population, _on_youtube(kind, epsilon, accounting), rng
                    ),
                }
                for kind in KINDS
            ]
            rows.append({**here, "mechanism": "without privacy", "variance": without})
    return {"tradeoff": rows, "readings": _readings(draw, rng)}


def judge_youtube(tables: Tables) -> list[Claim]:
    """Whether clusters help on YouTube."""
    ours, free, without = (
        by_draw(tables["tradeoff"], "variance", mechanism=name)
        for name in (*KINDS, "without privacy")
    )
    ratio = ours / free
    return [
        decide_over_draws(
            "clusters help on YouTube",
            holds=everywhere(ratio < 1),
            evidence=f"Least ratio of a draw {describe(ratio.min(axis=1))}, largest "
            f"{describe(ratio.max(axis=1))}; without privacy the variance is "
            f"{describe(without[:, 0])}.",
        )
    ]


def _on_youtube(kind: str, epsilon: float, accounting: Accounting) -> Mechanism:
    floor = 0.1 / pops.YOUTUBE_SPACE.n_categories
    return clustered(
        kind, epsilon=epsilon, noise_scale=5.0, prior_floor=floor, accounting=accounting
    )


def _readings(draw: int, rng: np.random.Generator) -> Rows:
    """What the two readings of "edges with other clusters" lead to at ε = 1."""
    readings: tuple[Reading, ...] = ("boundary", "pairwise")
    features = {reading: shipped_features(reading) for reading in readings}
    standard = standardized_features(features["boundary"])
    rows = []
    for reading, given in features.items():
        population = pops.youtube_population(given, draw)
        ours, free = (
            exact_variance(population, _on_youtube(kind, 1.0, "valid"), rng) for kind in KINDS
        )
        moved = np.abs(standardized_features(given) - standard).max()
        rows.append(
            {
                "reading": reading,
                "largest_change_of_a_feature": float(moved),
                "ratio_of_variances": ours / free,
            }
        )
    return rows
