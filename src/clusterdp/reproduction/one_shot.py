"""Experiment 6: the bias that one draw of noise leaves, for rows and for aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.mechanisms import catalogue as builders
from clusterdp.mechanisms.draw import release_cells
from clusterdp.reproduction import populations as pops
from clusterdp.reproduction.claims import Claim, Rows, Tables, decide, decide_over_draws
from clusterdp.reproduction.draws import by_draw, describe, everywhere, noise_rng, points
from clusterdp.reproduction.paper_accounting import clustered
from clusterdp.reproduction.study import ACCOUNTINGS
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.reproduction.paper_accounting import Accounting
    from clusterdp.reproduction.study import Study
    from clusterdp.theory.population import Population

# Draws of noise behind every mean |bias|, as in the paper.
N_NOISES = 50
NAMES = ("Cluster-DP", "Noisy Horvitz–Thompson", "Noisy Histogram")
WEIGHTS = np.array(pops.SUB_SIZES) / sum(pops.SUB_SIZES)
ARM_SIZES = np.array(pops.SUB_SIZES) // 2


def measure(study: Study, draw: int) -> Tables:
    """Mean |bias| given the noise, over all sub-populations, against ε."""
    rng = noise_rng(draw, 6)
    whole = pops.whole_population(draw)
    rows: Rows = [
        {
            "accounting": accounting,
            "mechanism": name,
            "epsilon": epsilon,
            "bias": float(np.abs(_biases(name, epsilon, accounting, whole, rng)).mean()),
        }
        for accounting in ACCOUNTINGS
        for epsilon in np.geomspace(0.5, 16, study.n_points).tolist()
        for name in NAMES
    ]
    return {"bias": rows}


def judge(tables: Tables) -> list[Claim]:
    """What all draws say on bias, and closed forms on the gap of aggregates."""
    return [_bias_claim(tables["bias"]), _gap_claim()]


def _biases(
    name: str, epsilon: float, accounting: Accounting, whole: Population, rng: np.random.Generator
) -> FloatArray:
    """The bias of each draw of noise; axes `[noise]`.

    A sub-population is drawn uniformly, so the mean over all of them is that of the whole. Of
    aggregates the noise alone is left.
    """
    if name == "Cluster-DP":
        mechanism = clustered(
            name, epsilon=epsilon, noise_scale=10, prior_floor=0.02, accounting=accounting
        )
        return row_biases(whole, mechanism, rng)
    if name == "Noisy Horvitz–Thompson":
        return _contrast_noise(epsilon, accounting, rng)
    return _histogram_noise(epsilon, accounting, rng)


def row_biases(whole: Population, mechanism: Mechanism, rng: np.random.Generator) -> FloatArray:
    """Everyone's two potential responses are randomized once per draw of noise; axes `[noise]`."""
    everyone = whole.potential_counts()
    sizes = everyone.sum(axis=-1)
    counts = np.broadcast_to(everyone, (N_NOISES, *everyone.shape))
    layout = pops.balanced_layout(2 * sizes[:, 0])
    channel = release_cells(
        CellTotals.of_counts(counts, pops.SPACE),
        layout,
        pops.SPACE,
        mechanism,
        simulated_noise(rng),
    ).channel
    assert channel is not None  # noqa: S101 - Cluster-DP publishes rows
    released = channel.simulate(counts, rng)
    means = (released * channel.decode()[..., channel.groups, :]).sum(axis=-1) / sizes
    return np.asarray((means[..., 1] - means[..., 0]) @ WEIGHTS - whole.effects()[0])


def _contrast_noise(epsilon: float, accounting: Accounting, rng: np.random.Generator) -> FloatArray:
    """The noise of noisy Horvitz–Thompson on the effect; axes `[noise]`."""
    values = pops.SPACE.as_array()
    # The paper's Δ takes max|y|; what replacing an outcome can do is y_max − y_min (C4).
    reach = np.abs(values).max() if accounting == "paper" else np.ptp(values)
    return rng.laplace(scale=reach / (ARM_SIZES * epsilon), size=(N_NOISES, 3)) @ WEIGHTS


def _histogram_noise(
    epsilon: float, accounting: Accounting, rng: np.random.Generator
) -> FloatArray:
    """The noise of the noisy histogram on the effect; axes `[noise]`."""
    values = pops.SPACE.as_array()
    sensitivity = 1 if accounting == "paper" else 2  # C3
    scale = (sensitivity / (ARM_SIZES * epsilon))[:, np.newaxis, np.newaxis]
    noise = rng.laplace(scale=scale, size=(N_NOISES, 3, 2, len(values)))
    return np.asarray((noise[:, :, 1] - noise[:, :, 0]) @ values @ WEIGHTS)


def _bias_claim(rows: Rows) -> Claim:
    ours, contrasts, histogram = (
        by_draw(rows, "bias", accounting="paper", mechanism=name) for name in NAMES
    )
    epsilons = points(rows, "epsilon", accounting="paper", mechanism="Cluster-DP")
    found = (
        f"ε = {epsilons[place]:g}: Cluster-DP {describe(ours[:, place])}, Horvitz–Thompson "
        f"{describe(contrasts[:, place])}, histogram {describe(histogram[:, place])}"
        for place in (0, -1)
    )
    return decide_over_draws(
        "rows have lower conditional bias than aggregates",
        holds=everywhere(ours < np.minimum(contrasts, histogram)),
        evidence="; ".join(found) + ".",
    )


def _gap_claim() -> Claim:
    # Closed forms: neither outcomes nor random numbers enter, only the sizes of clusters.
    population, rng = pops.sub_population(0), np.random.default_rng(0)
    layout, counts, values = population.layout, population.potential_counts(), pops.SPACE.as_array()
    alone = (builders.noisy_horvitz_thompson(epsilon=1.0), builders.noisy_histogram(epsilon=1.0))
    contrast, histogram = (
        float(theory.excess_variance(counts, layout, pops.SPACE, one, rng=rng).value[0])
        for one in alone
    )
    inverse = (1 / layout.sizes**2).sum(axis=1)
    paper_contrast = 2 * ((WEIGHTS * np.abs(values).max() / layout.sizes.min(axis=1)) ** 2).sum()
    paper_histogram = 2 * (values**2).sum() * (WEIGHTS**2 * inverse).sum()
    return decide(
        "noisy Horvitz–Thompson has a smaller gap than the noisy histogram",
        holds=bool(contrast < histogram and paper_contrast < paper_histogram),
        evidence=f"The paper's scales: {paper_contrast:.3g} against {paper_histogram:.3g}; "
        f"corrected: {contrast:.3g} against {histogram:.3g}.",
    )
