"""Experiments 4, 5 and 7: unbiasedness, Gaussianity, and the bound on the variance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Rows, Tables, decide_over_draws
from clusterdp.reproduction.draws import by_draw, describe, everywhere, noise_rng, points
from clusterdp.reproduction.study import exact_excess, simulated_effects
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.study import Study
    from clusterdp.theory.population import Population

# "Unless otherwise specified": γ = 0.02, σ = 10, λ = 0.8.
DEFAULT = builders.cluster_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.8)
# K = 8, γ = 0.1/K, σ = 5, λ = 0.8.
ON_YOUTUBE = builders.cluster_dp(noise_scale=5, prior_floor=0.1 / 8, resample_prob=0.8)
# Tests of unbiasedness and normality reject a true claim this often, in each draw. That more than 5
# of 100 draws reject one has probability 1e-9.
LEVEL = 1e-3


def measure_errors(study: Study, draw: int) -> Tables:
    """τ̂ − τ over realizations of noise and assignment, in one sub-population."""
    population = pops.sub_population(draw)
    return _errors(population, DEFAULT, study.n_realizations, noise_rng(draw, 4))


def measure_youtube_errors(study: Study, draw: int) -> Tables:
    """The same on YouTube."""
    population = pops.youtube_population(study.features, draw)
    return _errors(population, ON_YOUTUBE, study.n_realizations, noise_rng(draw, 7))


def _errors(
    population: Population, mechanism: Mechanism, n_realizations: int, rng: np.random.Generator
) -> Tables:
    effects = simulated_effects(population, mechanism, n_realizations, rng)
    errors = effects - population.effects()[0]
    return {"errors": [{"error": error} for error in errors.tolist()]}


def _judge_errors(tables: Tables, prefix: str) -> list[Claim]:
    """The claims about the mean of errors, and about their distribution."""
    errors = by_draw(tables["errors"], "error")
    return [_unbiased(errors, prefix), _gaussian(errors, prefix)]


judge_errors = partial(_judge_errors, prefix="")
judge_youtube_errors = partial(_judge_errors, prefix="YouTube: ")


def _unbiased(errors: FloatArray, prefix: str) -> Claim:
    from scipy import stats

    n_errors = errors.shape[1]
    deviation = errors.std(axis=1, ddof=1)
    score = errors.mean(axis=1) / (deviation / np.sqrt(n_errors))
    return decide_over_draws(
        f"{prefix}the estimator is unbiased",
        holds=2 * stats.norm.sf(np.abs(score)) > LEVEL,
        evidence=f"Mean over its standard error {describe(score)}, standard deviation of an "
        f"estimate {describe(deviation)}. It is also exact by construction: E[debiased | y] = y.",
        n_errors=n_errors,
        level=LEVEL,
    )


def _gaussian(errors: FloatArray, prefix: str) -> Claim:
    from scipy import stats

    p_values = np.array([stats.shapiro(one).pvalue for one in errors])
    return decide_over_draws(
        f"{prefix}the estimator is Gaussian",
        holds=p_values > LEVEL,
        evidence=f"p = {describe(p_values)}.",
        n_errors=errors.shape[1],
        level=LEVEL,
    )


def measure_bound(study: Study, draw: int) -> Tables:
    """The gap to the non-private variance, between the two boundaries of the bound, against β."""
    rng = noise_rng(draw, 5)
    rows: Rows = []
    for between in np.linspace(0.25, 4.75, study.n_points).tolist():
        population = pops.sub_population(draw, between)
        effects = simulated_effects(population, DEFAULT, study.n_realizations, rng)
        without = float(theory.non_private_variance(population)[0])
        bound = theory.variance_bound(population, DEFAULT)
        rows.append(
            {
                "between": between,
                "gap": exact_excess(population, DEFAULT, rng),
                "simulated_gap": float(effects.var(ddof=1)) - without,
                "first_term": float(bound.first_term[0]),
                "bound": float(bound.total[0]),
            }
        )
    return {"bound": rows}


def judge_bound(tables: Tables) -> list[Claim]:
    """Whether the gap is where the paper has it."""
    rows = tables["bound"]
    gap, first, bound = (by_draw(rows, name) for name in ("gap", "first_term", "bound"))
    between = points(rows, "between")
    slack, over_first = bound / gap, gap / first
    return [
        decide_over_draws(
            "the gap is within the bound",
            holds=everywhere(gap <= bound),
            evidence=f"Bound over gap: least of a draw {describe(slack.min(axis=1))}, largest "
            f"{describe(slack.max(axis=1))}.",
        ),
        decide_over_draws(
            "the bound's first term is a lower bound",
            holds=everywhere(gap >= first),
            evidence=f"Gap over first term: least of a draw {describe(over_first.min(axis=1))}, "
            f"largest {describe(over_first.max(axis=1))}.",
        ),
        decide_over_draws(
            "the bound is tight up to its second term",
            holds=everywhere((over_first >= 0.5) & (over_first <= 2)),
            evidence="At the most homogeneous clusters the gap is "
            f"{describe(over_first[:, -1])} times the first term, and the bound "
            f"{describe((bound / first)[:, -1])} times.",
        ),
        decide_over_draws(
            "variance falls with homogeneity",
            holds=gap[:, -1] < gap[:, 0],
            evidence=f"{describe(gap[:, 0])} at β = {between[0]:g}, {describe(gap[:, -1])} at "
            f"β = {between[-1]:g}; ratio {describe(gap[:, -1] / gap[:, 0])}.",
        ),
    ]
