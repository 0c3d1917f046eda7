"""The paper's accounting of Cluster-DP: understated, so never a guarantee (corrections C1, C2).

It exists to reproduce the paper's figures. `docs/privacy.md` has the counter-examples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from clusterdp.errors import ParameterError
from clusterdp.mechanisms import catalogue as builders
from clusterdp.statistics.counts import NoisyCounts

if TYPE_CHECKING:
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism

Accounting = Literal["valid", "paper"]
# The δ of all experiments.
DELTA = 1e-4


def clustered(  # noqa: PLR0913 - the parameters of the paper's mechanism
    kind: str,
    *,
    epsilon: float,
    noise_scale: float,
    prior_floor: float,
    accounting: Accounting,
    delta: float = DELTA,
) -> Mechanism:
    """Cluster-DP or Cluster-Free-DP at a privacy target, by either accounting.

    Raises:
        ParameterError: If the noisy counts leave nothing for the rows.
    """
    build = builders.cluster_dp if kind == "Cluster-DP" else builders.cluster_free_dp
    if accounting == "valid":
        return build(noise_scale=noise_scale, prior_floor=prior_floor, epsilon=epsilon, delta=delta)
    spent = summary_epsilon(noise_scale, prior_floor)
    if epsilon <= spent:
        raise ParameterError(f"noisy counts cost {spent:.6g} of epsilon={epsilon:g}")
    odds = prior_floor * math.expm1(epsilon - spent)
    keep = min(1 - 2**-52, (delta + odds) / (1 + odds))
    return build(
        noise_scale=noise_scale, prior_floor=prior_floor, resample_prob=1 - keep, delta=delta
    )


def stated_epsilon(mechanism: Mechanism, space: OutcomeSpace) -> float:
    """The ε that the paper states for Cluster-DP (thm:privacy-loss): min(1/σ, 2/γ) + ε̃."""
    numbers, counts = mechanism.parameters(space), mechanism.find(NoisyCounts)
    floor = numbers.get("prior_floor", 1 / space.n_categories)
    resample = numbers["resample_prob"]
    delta = mechanism.guarantee(space).delta
    odds = max(0.0, 1 - resample - delta) / (resample * floor)
    spent = 0.0 if counts is None else summary_epsilon(counts.noise_scale, floor)
    return spent + math.log1p(odds)


def summary_epsilon(noise_scale: float, prior_floor: float) -> float:
    """The paper's cost of the prior, min(1/σ, 2/γ)."""
    return min(1 / noise_scale, 2 / prior_floor)
