"""Experiments 4, 5 and 7: unbiasedness, Gaussianity, and the bound on the variance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Findings, Rows, decide
from clusterdp.reproduction.study import column, exact_excess, simulated_effects
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.study import Study
    from clusterdp.theory.population import Population

# "Unless otherwise specified": γ = 0.02, σ = 10, λ = 0.8.
DEFAULT = builders.cluster_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.8)
# Tests of unbiasedness and normality reject a true claim this often.
LEVEL = 1e-3


def experiment_four(study: Study) -> Findings:
    """τ̂ − τ over realizations of noise and assignment, in one sub-population."""
    rng = study.rng(4)
    counts = pops.Mixture.draw(rng).control_counts(pops.DEFAULT_BETWEEN)
    errors = _errors(pops.sub_population(counts, rng), DEFAULT, study, rng)
    return _error_findings(4, errors)


def experiment_seven(study: Study) -> Findings:
    """The same on YouTube: K = 8, γ = 0.1/K, σ = 5, λ = 0.8."""
    rng = study.rng(7)
    population = pops.youtube_population(study.features, rng)
    mechanism = builders.cluster_dp(noise_scale=5, prior_floor=0.1 / 8, resample_prob=0.8)
    return _error_findings(7, _errors(population, mechanism, study, rng), prefix="YouTube: ")


def experiment_five(study: Study) -> Findings:
    """The gap to the non-private variance, between the two boundaries of the bound, against β."""
    rng = study.rng(5)
    mixture = pops.Mixture.draw(rng)
    n_populations = max(2, study.n_populations // 5)
    rows: Rows = []
    for between in np.linspace(0.25, 4.75, study.n_points).tolist():
        counts = mixture.control_counts(between)
        drawn = [_gap(counts, study, rng) for _ in range(n_populations)]
        row = {name: float(np.mean([one[name] for one in drawn])) for name in drawn[0]}
        spread = float(np.std([one["gap"] for one in drawn], ddof=1))
        rows.append({"between": between, **row, "spread": spread})
    return Findings(number=5, tables={"bound": rows}, claims=_bound_claims(rows))


def _gap(counts: IntArray, study: Study, rng: np.random.Generator) -> dict[str, float]:
    """The gap of one sub-population, simulated and exact, and the terms of its bound."""
    population = pops.sub_population(counts, rng)
    effects = simulated_effects(population, DEFAULT, study.n_realizations, rng)
    bound = theory.variance_bound(population, DEFAULT)
    return {
        "gap": float(effects.var(ddof=1)) - float(theory.non_private_variance(population)[0]),
        "exact_gap": exact_excess(population, DEFAULT, rng),
        "first_term": float(bound.first_term[0]),
        "bound": float(bound.total[0]),
    }


def _errors(
    population: Population, mechanism: Mechanism, study: Study, rng: np.random.Generator
) -> FloatArray:
    effects = simulated_effects(population, mechanism, max(study.n_realizations, 500), rng)
    return np.asarray(effects - population.effects()[0])


def _error_findings(number: int, errors: FloatArray, prefix: str = "") -> Findings:
    """Errors of the estimate, and the claims about their mean and their distribution."""
    return Findings(
        number=number,
        tables={"errors": [{"error": error} for error in errors.tolist()]},
        claims=[_unbiased(errors, prefix), _gaussian(errors, prefix)],
    )


def _unbiased(errors: FloatArray, prefix: str) -> Claim:
    score = float(errors.mean() / (errors.std(ddof=1) / math.sqrt(len(errors))))
    p_value = math.erfc(abs(score) / math.sqrt(2))
    return decide(
        f"{prefix}the estimator is unbiased",
        holds=p_value > LEVEL,
        evidence=f"Mean {errors.mean():.3g}, standard deviation {errors.std(ddof=1):.3g}, "
        f"p = {p_value:.2g}. It is also exact by construction: E[debiased | y] = y.",
        n_errors=len(errors),
        level=LEVEL,
    )


def _gaussian(errors: FloatArray, prefix: str) -> Claim:
    from scipy import stats

    p_value = float(stats.shapiro(errors).pvalue)
    return decide(
        f"{prefix}the estimator is Gaussian",
        holds=p_value > LEVEL,
        evidence=f"p = {p_value:.2g}.",
        n_errors=len(errors),
        level=LEVEL,
    )


def _bound_claims(rows: Rows) -> list[Claim]:
    gap, first, bound = (column(rows, name) for name in ("exact_gap", "first_term", "bound"))
    between = column(rows, "between")
    slack, over_first = bound / gap, gap / first
    return [
        decide(
            "the gap is within the bound",
            holds=bool((gap <= bound).all()),
            evidence=f"The bound is {slack.min():.0f} to {slack.max():.0f} times the gap.",
        ),
        decide(
            "the bound's first term is a lower bound",
            holds=bool((gap >= first).all()),
            evidence=f"Gap over first term from {over_first.min():.2f} to {over_first.max():.2f}.",
        ),
        decide(
            "the bound is tight up to its second term",
            holds=bool(((over_first >= 0.5) & (over_first <= 2)).all()),
            evidence=f"At the most homogeneous clusters the gap is {over_first[-1]:.1f} times the "
            f"first term, and the bound {bound[-1] / first[-1]:,.0f} times.",
        ),
        decide(
            "variance falls with homogeneity",
            holds=bool(gap[-1] < gap[0]),
            evidence=f"{gap[0]:.3f} at β = {between[0]:g}, {gap[-1]:.3f} at β = {between[-1]:g}.",
        ),
    ]
