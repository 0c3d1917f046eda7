"""Experiment 6: the bias that one draw of noise leaves, for rows and for aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.mechanisms.draw import release_cells
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Findings, decide
from clusterdp.reproduction.paper_accounting import clustered
from clusterdp.reproduction.study import DELTA
from clusterdp.statistics.noise import simulated_noise
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.study import Study
    from clusterdp.theory.population import Population

N_SUBPOPULATIONS = 500
NAMES = ("Cluster-DP", "Noisy Horvitz–Thompson", "Noisy Histogram")
WEIGHTS = np.array(pops.SUB_SIZES) / sum(pops.SUB_SIZES)
ARM_SIZES = np.array(pops.SUB_SIZES) // 2


def experiment_six(study: Study) -> Findings:
    """Mean |bias| over sub-populations given the noise, against ε."""
    rng = study.rng(6)
    whole = pops.population(pops.Mixture.draw(rng).control_counts(pops.DEFAULT_BETWEEN))
    rows: list[dict[str, Any]] = []
    accountings: tuple[Accounting, ...] = ("paper", "valid")
    for accounting in accountings:
        for epsilon in np.geomspace(0.5, 16, study.n_points):
            biases = {
                "Cluster-DP": _row_biases(whole, float(epsilon), accounting, study, rng),
                "Noisy Horvitz–Thompson": _contrast_biases(
                    whole, float(epsilon), accounting, study, rng
                ),
                "Noisy Histogram": _histogram_biases(whole, float(epsilon), accounting, study, rng),
            }
            rows += [
                {
                    "accounting": accounting,
                    "mechanism": name,
                    "epsilon": float(epsilon),
                    "bias": float(np.abs(values).mean()),
                    "spread": float(np.abs(values).std(ddof=1) / np.sqrt(len(values))),
                }
                for name, values in biases.items()
            ]
    return Findings(number=6, tables={"bias": rows}, claims=[_bias_claim(rows), _gap_claim(whole)])


def _row_biases(
    whole: Population,
    epsilon: float,
    accounting: Accounting,
    study: Study,
    rng: np.random.Generator,
) -> FloatArray:
    """Everyone's two potential responses are randomized once; sub-populations are drawn of them."""
    mechanism = clustered(
        "Cluster-DP",
        noise_scale=10,
        prior_floor=0.02,
        epsilon=epsilon,
        delta=DELTA,
        accounting=accounting,
    )
    everyone = whole.potential_counts()
    layout = pops.balanced_layout(2 * everyone[:, 0].sum(axis=-1))
    biases = []
    for _ in range(study.n_populations):
        noise = simulated_noise(rng)
        channel = release_cells(everyone, layout, pops.SPACE, mechanism, noise).channel
        assert channel is not None  # noqa: S101 - Cluster-DP publishes rows
        released = channel.simulate(everyone, rng)
        decode = channel.decode()[channel.groups]
        biases.append(_mean_effect(released, decode, rng) - whole.effects()[0])
    return np.array(biases)


def _contrast_biases(
    whole: Population,
    epsilon: float,
    accounting: Accounting,
    study: Study,
    rng: np.random.Generator,
) -> FloatArray:
    values = pops.SPACE.as_array()
    # The paper's Δ takes max|y|; what replacing an outcome can do is y_max − y_min (C4).
    reach = np.abs(values).max() if accounting == "paper" else np.ptp(values)
    noise = rng.laplace(scale=reach / (ARM_SIZES * epsilon), size=(study.n_populations, 3))
    return _true_biases(whole, study, rng) + noise @ WEIGHTS


def _histogram_biases(
    whole: Population,
    epsilon: float,
    accounting: Accounting,
    study: Study,
    rng: np.random.Generator,
) -> FloatArray:
    values = pops.SPACE.as_array()
    sensitivity = 1 if accounting == "paper" else 2  # C3
    scale = sensitivity / (ARM_SIZES * epsilon)
    noise = rng.laplace(
        scale=scale[:, np.newaxis, np.newaxis], size=(study.n_populations, 3, 2, len(values))
    )
    by_cluster = (noise[:, :, 1] - noise[:, :, 0]) @ values
    return _true_biases(whole, study, rng) + by_cluster @ WEIGHTS


def _true_biases(whole: Population, study: Study, rng: np.random.Generator) -> FloatArray:
    """What is left of bias without noise: the error of averaging 500 sub-populations."""
    everyone = whole.potential_counts()
    values = np.broadcast_to(pops.SPACE.as_array(), everyone.shape)
    effect = whole.effects()[0]
    return np.array(
        [_mean_effect(everyone, values, rng) - effect for _ in range(study.n_populations)]
    )


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


def _bias_claim(rows: list[dict[str, Any]]) -> Claim:
    paper = [row for row in rows if row["accounting"] == "paper"]
    bias = {
        name: np.array([row["bias"] for row in paper if row["mechanism"] == name]) for name in NAMES
    }
    ours, contrasts, histogram = (bias[name] for name in NAMES)
    lower = bool((ours < contrasts).all() and (ours < histogram).all())
    return Claim(
        name="rows have lower conditional bias than aggregates",
        place="Experiment 6, Figure fig:baselines, and Limitations",
        sentence="Under one-shot communication Cluster-DP achieves a lower conditional bias than "
        "noisy Horvitz–Thompson and the noisy histogram, as ε varies.",
        test="Mean |bias| over noise draws, the paper's accounting; lower than both at every ε.",
        verdict=decide(holds=lower),
        evidence=f"Cluster-DP from {ours[0]:.3g} (ε = 0.5) to {ours[-1]:.3g} (ε = 16); "
        f"Horvitz–Thompson {contrasts[0]:.3g} to {contrasts[-1]:.3g}; histogram "
        f"{histogram[0]:.3g} to {histogram[-1]:.3g}.",
        why="Noise on a mean of n outcomes has standard deviation of order 1/(nε); noise on n rows "
        "averages to order 1/√n times that of a row, which at small ε is itself of order 1/ε². "
        "Rows catch up only once a row is nearly always kept, at the right end of the figure, "
        "where all biases are down to the error of averaging 500 sub-populations.",
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
    return Claim(
        name="noisy Horvitz–Thompson has a smaller gap than the noisy histogram",
        place="Appendix, after Proposition prop:NH",
        sentence="For the same guarantee, noisy Horvitz–Thompson has the smaller variance gap.",
        test="Closed forms at ε = 1 in Experiment 1's layout, with the paper's scales and with the "
        "corrected ones.",
        verdict=decide(holds=bool(contrast < histogram and paper_contrast < paper_histogram)),
        evidence=f"The paper's scales: {paper_contrast:.3g} against {paper_histogram:.3g}; "
        f"corrected: {contrast:.3g} against {histogram:.3g}.",
    )
