"""Experiment 6: the bias that one draw of noise leaves, for rows and for aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.mechanisms.draw import release_cells
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Findings, Rows, decide
from clusterdp.reproduction.paper_accounting import clustered
from clusterdp.reproduction.study import ACCOUNTINGS, column
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.study import Study
    from clusterdp.theory.population import Population

N_SUBPOPULATIONS = 500
NAMES = ("Cluster-DP", "Noisy Horvitz–Thompson", "Noisy Histogram")
WEIGHTS = np.array(pops.SUB_SIZES) / sum(pops.SUB_SIZES)
ARM_SIZES = np.array(pops.SUB_SIZES) // 2


class _Draws(NamedTuple):
    """How often noise is drawn, and for whom."""

    whole: Population
    n_draws: int
    rng: np.random.Generator


def experiment_six(study: Study) -> Findings:
    """Mean |bias| over sub-populations given the noise, against ε."""
    rng = study.rng(6)
    whole = pops.population(pops.Mixture.draw(rng).control_counts(pops.DEFAULT_BETWEEN))
    draws = _Draws(whole, study.n_populations, rng)
    rows: Rows = []
    for accounting in ACCOUNTINGS:
        for epsilon in np.geomspace(0.5, 16, study.n_points).tolist():
            for name in NAMES:
                sizes = np.abs(_biases(name, epsilon, accounting, draws))
                rows.append(
                    {
                        "accounting": accounting,
                        "mechanism": name,
                        "epsilon": epsilon,
                        "bias": float(sizes.mean()),
                        "spread": float(sizes.std(ddof=1) / np.sqrt(len(sizes))),
                    }
                )
    return Findings(number=6, tables={"bias": rows}, claims=[_bias_claim(rows), _gap_claim(whole)])


def _biases(name: str, epsilon: float, accounting: Accounting, draws: _Draws) -> FloatArray:
    """The bias of each draw of noise; axes `[draw]`."""
    whole, n_draws, rng = draws
    if name == "Cluster-DP":
        mechanism = clustered(
            name, epsilon=epsilon, noise_scale=10, prior_floor=0.02, accounting=accounting
        )
        return np.array([_row_bias(whole, mechanism, rng) for _ in range(n_draws)])
    add_noise = _contrast_noise if name == "Noisy Horvitz–Thompson" else _histogram_noise
    noise = add_noise(epsilon, accounting, n_draws, rng)
    everyone = whole.potential_counts()
    values = np.broadcast_to(pops.SPACE.as_array(), everyone.shape)
    # Without noise, what is left of bias is the error of averaging 500 sub-populations.
    left = np.array([_mean_effect(everyone, values, rng) for _ in range(n_draws)])
    return np.asarray(left - whole.effects()[0] + noise)


def _row_bias(whole: Population, mechanism: Mechanism, rng: np.random.Generator) -> float:
    """Everyone's two potential responses are randomized once; sub-populations are drawn of them."""
    everyone = whole.potential_counts()
    layout = pops.balanced_layout(2 * everyone[:, 0].sum(axis=-1))
    channel = release_cells(
        CellTotals.of_counts(everyone, pops.SPACE, layout),
        layout,
        pops.SPACE,
        mechanism,
        simulated_noise(rng),
    ).channel
    assert channel is not None  # noqa: S101 - Cluster-DP publishes rows
    released = channel.simulate(everyone, rng)
    decode = channel.decode()[channel.groups]
    return _mean_effect(released, decode, rng) - float(whole.effects()[0])


def _contrast_noise(
    epsilon: float, accounting: Accounting, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """The noise of noisy Horvitz–Thompson on the effect; axes `[draw]`."""
    values = pops.SPACE.as_array()
    # The paper's Δ takes max|y|; what replacing an outcome can do is y_max − y_min (C4).
    reach = np.abs(values).max() if accounting == "paper" else np.ptp(values)
    return rng.laplace(scale=reach / (ARM_SIZES * epsilon), size=(n_draws, 3)) @ WEIGHTS


def _histogram_noise(
    epsilon: float, accounting: Accounting, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """The noise of the noisy histogram on the effect; axes `[draw]`."""
    values = pops.SPACE.as_array()
    sensitivity = 1 if accounting == "paper" else 2  # C3
    scale = (sensitivity / (ARM_SIZES * epsilon))[:, np.newaxis, np.newaxis]
    noise = rng.laplace(scale=scale, size=(n_draws, 3, 2, len(values)))
    return np.asarray((noise[:, :, 1] - noise[:, :, 0]) @ values @ WEIGHTS)


def _mean_effect(counts: IntArray, numbers: FloatArray, rng: np.random.Generator) -> float:
    """The stratified effect averaged over 500 sub-populations drawn of the given counts."""
    effect = 0.0
    for cluster, (weight, size) in enumerate(zip(WEIGHTS, ARM_SIZES, strict=True)):
        for arm, sign in ((0, -1), (1, 1)):
            drawn = rng.multivariate_hypergeometric(
                counts[cluster, arm], int(size), size=N_SUBPOPULATIONS, method="marginals"
            )
            effect += sign * weight * float((drawn @ numbers[cluster, arm]).mean()) / size
    return effect


def _bias_claim(rows: Rows) -> Claim:
    ours, contrasts, histogram = (
        column(rows, "bias", accounting="paper", mechanism=name) for name in NAMES
    )
    return decide(
        "rows have lower conditional bias than aggregates",
        holds=bool((ours < contrasts).all() and (ours < histogram).all()),
        evidence=f"Cluster-DP from {ours[0]:.3g} (ε = 0.5) to {ours[-1]:.3g} (ε = 16); "
        f"Horvitz–Thompson {contrasts[0]:.3g} to {contrasts[-1]:.3g}; histogram "
        f"{histogram[0]:.3g} to {histogram[-1]:.3g}.",
    )


def _gap_claim(whole: Population) -> Claim:
    layout = pops.balanced_layout(np.array(pops.SUB_SIZES))
    alone = (builders.noisy_horvitz_thompson(epsilon=1.0), builders.noisy_histogram(epsilon=1.0))
    everyone, rng = whole.potential_counts(), np.random.default_rng(0)  # neither is drawn from
    contrast, histogram = (
        float(theory.excess_variance(everyone, layout, whole.space, one, rng=rng).value[0])
        for one in alone
    )
    values = pops.SPACE.as_array()
    inverse = (1 / layout.sizes**2).sum(axis=1)
    paper_contrast = 2 * ((WEIGHTS * np.abs(values).max() / layout.sizes.min(axis=1)) ** 2).sum()
    paper_histogram = 2 * (values**2).sum() * (WEIGHTS**2 * inverse).sum()
    return decide(
        "noisy Horvitz–Thompson has a smaller gap than the noisy histogram",
        holds=bool(contrast < histogram and paper_contrast < paper_histogram),
        evidence=f"The paper's scales: {paper_contrast:.3g} against {paper_histogram:.3g}; "
        f"corrected: {contrast:.3g} against {histogram:.3g}.",
    )
