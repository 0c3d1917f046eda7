"""Experiment 1: privacy against variance.

Experiments 2 and 3: what clusters are worth, simulated and on YouTube.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.mechanisms import catalogue as builders
from clusterdp.studies import formulas as theory
from clusterdp.studies import populations as pops
from clusterdp.studies.claims import (
    DELTA,
    Claim,
    Rows,
    Tables,
    clustered,
    decide_over_draws,
    stated_epsilon,
)
from clusterdp.studies.populations import shipped_features, standardized_features
from clusterdp.studies.study import (
    ACCOUNTINGS,
    KINDS,
    by_draw,
    everywhere,
    exact_variance,
    in_brief,
    noise_rng,
    select,
)

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.studies.claims import Accounting
    from clusterdp.studies.populations import Reading
    from clusterdp.studies.simulation import Population
    from clusterdp.studies.study import Study


K = pops.SPACE.n_categories
FIXED_EPSILON = 0.2
# σ = 10 costs 0.1 by the paper's accounting, half of ε. Validly it costs all of ε = 0.2, so that
# nothing is left for the rows; the noise that costs half of ε is σ = 20.
NOISE_AT_HALF = {"paper": 10.0, "valid": 20.0}
# The paper's sets; σ = ∞ is a scale at which no count is left of the histogram.
NOISE_SCALES = {10.0: "10", 20.0: "20", 1e9: "∞"}
FLOOR_SHARES = (0.01, 0.1, 1.0)
# Better means a variance below this share of the other's.
BETTER = 0.95


def measure_tradeoffs(study: Study, draw: int) -> Tables:
    """Variance against γ at fixed privacy, and the trade-off with σ and γ optimized."""
    measured = _Measured(population=pops.sub_population(draw), rng=noise_rng(draw, 1))
    by_floor: Rows = []
    tradeoff: Rows = []
    for accounting in ACCOUNTINGS:
        by_floor += _against_floor(measured, study.n_points, accounting)
        tradeoff += _tradeoff(measured, study.n_points, accounting)
    equal = _at_equal_strength(measured)
    return {"against_floor": by_floor, "tradeoff": tradeoff, "equal_strength": equal}


def judge_tradeoffs(tables: Tables) -> list[Claim]:
    """What all draws say on the paper's claims."""
    floors = _floor_claims(tables["against_floor"], tables["equal_strength"])
    return [*floors, *_tradeoff_claims(tables["tradeoff"])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What measures the variance of mechanisms in one population."""

    population: Population
    rng: np.random.Generator

    def variance(self, mechanism: Mechanism) -> float:
        return exact_variance(self.population, mechanism, self.rng)

    def uniform_variances(self, epsilon: float) -> dict[str, float]:
        """Uniform-Prior-DP, whose accounting nobody doubts: stratified, and unstratified.

        The unstratified estimator is of an experiment assigned over the whole population at once;
        under balanced assignment by cluster it would be the same number as the stratified one.
        """
        mechanism = builders.uniform_prior_dp(epsilon=epsilon, delta=DELTA)
        return {
            "Uniform-Prior-DP": self.variance(mechanism),
            "Uniform-Prior-DP, unstratified": exact_variance(
                self.population.merged(), mechanism, self.rng
            ),
        }


def _at_equal_strength(measured: _Measured) -> Rows:
    """The reading under which a small floor helps: λ kept at 0.8, for any resulting privacy."""
    small, large = (
        builders.cluster_dp(noise_scale=10, prior_floor=share / K, resample_prob=0.8)
        for share in (0.1, 1.0)
    )
    made = [
        ("Cluster-DP", 0.1, small),
        ("Cluster-DP", 1.0, large),
        ("Uniform-Prior-DP", 1.0, builders.uniform_prior_dp(resample_prob=0.8)),
    ]
    return [
        {
            "mechanism": name,
            "floor_share": share,
            "variance": measured.variance(mechanism),
            "paper_epsilon": stated_epsilon(mechanism, pops.SPACE),
        }
        for name, share, mechanism in made
    ]


def _against_floor(measured: _Measured, n_points: int, accounting: Accounting) -> Rows:
    uniform = measured.uniform_variances(FIXED_EPSILON)
    rows: Rows = []
    for share in np.linspace(0.1, 1, n_points).tolist():
        here = {"accounting": accounting, "floor_share": share}
        for kind in KINDS:
            mechanism = clustered(
                kind,
                epsilon=FIXED_EPSILON,
                noise_scale=NOISE_AT_HALF[accounting],
                prior_floor=share / K,
                accounting=accounting,
            )
            rows.append({**here, "mechanism": kind, "variance": measured.variance(mechanism)})
        rows += [
            {**here, "mechanism": name, "variance": variance} for name, variance in uniform.items()
        ]
    return rows


def _tradeoff(measured: _Measured, n_points: int, accounting: Accounting) -> Rows:
    rows: Rows = []
    for epsilon in np.geomspace(0.25, 4, n_points).tolist():
        here = {"accounting": accounting, "epsilon": epsilon}
        rows += [
            {**here, "mechanism": kind} | _best(kind, epsilon, measured, accounting)
            for kind in KINDS
        ]
        rows += [
            {**here, "mechanism": name, "noise_scale": "", "floor_share": 1.0, "variance": variance}
            for name, variance in measured.uniform_variances(epsilon).items()
        ]
    return rows


def _best(kind: str, epsilon: float, measured: _Measured, accounting: Accounting) -> dict[str, Any]:
    """The best (σ, γ) of the paper's sets at this ε, and its variance."""
    candidates = []
    for scale, share in itertools.product(NOISE_SCALES, FLOOR_SHARES):
        with suppress(ParameterError):  # noisy counts that leave nothing for the rows
            mechanism = clustered(
                kind,
                epsilon=epsilon,
                noise_scale=scale,
                prior_floor=share / K,
                accounting=accounting,
            )
            candidates.append(
                {
                    "noise_scale": NOISE_SCALES[scale],
                    "floor_share": share,
                    "variance": measured.variance(mechanism),
                }
            )
    return min(candidates, key=lambda candidate: candidate["variance"])


def _floor_claims(rows: Rows, equal: Rows) -> list[Claim]:
    paper = select(rows, accounting="paper")
    least, edge = (
        by_draw(paper, "variance", mechanism="Cluster-DP", floor_share=share)[:, 0]
        for share in (0.1, 1.0)
    )
    uniform = by_draw(paper, "variance", mechanism="Uniform-Prior-DP")[:, 0]
    return [
        decide_over_draws(
            "small floor beats uniform prior",
            holds=least < uniform,
            evidence=f"Cluster-DP {in_brief(least)}, Uniform-Prior-DP {in_brief(uniform)}: "
            f"{in_brief(least / uniform)} times as much.",
            small=_medians(select(equal, mechanism="Cluster-DP", floor_share=0.1)),
            plain=_medians(select(equal, mechanism="Uniform-Prior-DP")),
        ),
        decide_over_draws(
            "uniform prior is lower at the largest floor",
            holds=uniform < edge,
            evidence=f"Cluster-DP {in_brief(edge)}, Uniform-Prior-DP {in_brief(uniform)}.",
        ),
    ]


def _medians(rows: Rows) -> dict[str, float]:
    names = ("variance", "paper_epsilon")
    return {name: float(np.median(by_draw(rows, name))) for name in names}


def _tradeoff_claims(rows: Rows) -> list[Claim]:
    paper = select(rows, accounting="paper")
    uniform = by_draw(paper, "variance", mechanism="Uniform-Prior-DP")
    ours, free = (by_draw(paper, "variance", mechanism=kind) for kind in KINDS)
    to_uniform, to_free = ours / uniform, ours / free
    return [
        decide_over_draws(
            "optimized trade-off beats uniform prior",
            holds=everywhere(np.maximum(to_uniform, free / uniform) < BETTER),
            evidence=f"Least ratio of a draw {in_brief(to_uniform.min(axis=1))}, largest "
            f"{in_brief(to_uniform.max(axis=1))}; the floor chosen is {_floors_chosen(paper)}.",
        ),
        decide_over_draws(
            "optimized Cluster-DP beats Cluster-Free-DP",
            holds=everywhere(to_free < BETTER),
            evidence=f"Least ratio of a draw {in_brief(to_free.min(axis=1))}, largest "
            f"{in_brief(to_free.max(axis=1))}.",
        ),
    ]


def _floors_chosen(rows: Rows) -> str:
    """How often Cluster-DP chose each floor, over ε and draws."""
    chosen = Counter(row["floor_share"] for row in select(rows, mechanism="Cluster-DP"))
    return ", ".join(
        f"{share:g}/K in {n / chosen.total():.1%}" for share, n in sorted(chosen.items())
    )


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
    """Whether clusters help more as they become homogeneous, and more at smaller λ."""
    ratios = {
        prob: by_draw(tables["ratio"], "ratio", resample_prob=prob) for prob in RESAMPLE_PROBS
    }
    spread_out = {prob: ratio[:, :2].mean(axis=1) for prob, ratio in ratios.items()}
    uniform = {prob: ratio[:, -2:].mean(axis=1) for prob, ratio in ratios.items()}
    found = (
        f"λ = {prob:g}: {in_brief(spread_out[prob])} at small β, {in_brief(uniform[prob])} at large"
        for prob in RESAMPLE_PROBS
    )
    falls = np.all([uniform[prob] < spread_out[prob] for prob in RESAMPLE_PROBS], axis=0)
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
            holds=uniform[0.5] < uniform[0.8],
            evidence=f"{in_brief(uniform[0.5])} for λ = 0.5, {in_brief(uniform[0.8])} for λ = 0.8.",
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
            evidence=f"Least ratio of a draw {in_brief(ratio.min(axis=1))}, largest "
            f"{in_brief(ratio.max(axis=1))}; without privacy the variance is "
            f"{in_brief(without[:, 0])}.",
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
