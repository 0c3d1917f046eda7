"""The privacy theorems themselves, by enumeration of a small cell. No experiment of the paper."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.priors import estimate_prior
from clusterdp.reproduction.claims import Claim, Findings, decide

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

_REACH = 60
# Two neighbouring tables of one cell: an outcome of the first kind becomes one of the second.
_BEFORE, _AFTER = np.array([10, 10]), np.array([9, 11])


def privacy_claims() -> Findings:
    """Counter-examples to C1, C3 and C4, computed."""
    return Findings(number=0, tables={}, claims=[_cluster_dp(), _histogram(), _contrasts()])


def _cluster_dp() -> Claim:
    scale, floor = 2.0, 0.01
    noisy = np.array(list(itertools.product(range(-_REACH, 20 + _REACH), repeat=2)))
    prior = estimate_prior(noisy, np.array(20), floor)
    priors, place = np.unique(np.round(prior[:, 0], 12), return_inverse=True)
    mass = [
        np.bincount(place, np.exp(_log_mass(noisy, counts, scale)), len(priors))
        for counts in (_BEFORE, _AFTER)
    ]
    loss = float(np.log(mass[0] / mass[1]).max())
    delta = float(np.maximum(mass[0] - math.exp(1 / scale) * mass[1], 0).sum())
    return decide(
        "the privacy guarantee of Cluster-DP",
        holds=loss <= 1 / scale,
        evidence=f"The loss reaches {loss:.3f} = 2/σ; at ε = 0.5 the prior leaks δ = {delta:.3f}.",
    )


def _histogram() -> Claim:
    epsilon = 1.0
    noisy = np.array(list(itertools.product(range(-_REACH, _REACH), repeat=2)))
    before, after = (_log_mass(noisy, counts, 1 / epsilon) for counts in (_BEFORE, _AFTER))
    loss = float((before - after).max())
    return decide(
        "the privacy guarantee of the noisy histogram",
        holds=loss <= epsilon + 1e-9,
        evidence=f"The loss reaches {loss:.3f}, where {2 * epsilon:.0f} is 2ε.",
    )


def _contrasts() -> Claim:
    values, epsilon = np.array([-1.0, 0.0, 1.0]), 1.0
    scale = np.abs(values).max() / epsilon  # times 1/min(n₀, n₁), which cancels below
    loss = float(np.ptp(values) / scale)
    return decide(
        "the privacy guarantee of noisy Horvitz–Thompson",
        holds=loss <= epsilon,
        evidence=f"The mean moves by 2/n against noise of scale 1/n: the loss is {loss:.0f}.",
    )


def _log_mass(noisy: IntArray, counts: IntArray, scale: float) -> FloatArray:
    """Log P of discrete Laplace noise around the counts; axes `[point]`."""
    distance = np.abs(noisy - counts).sum(axis=1)
    return np.asarray(counts.size * math.log(math.tanh(1 / (2 * scale))) - distance / scale)
