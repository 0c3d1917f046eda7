"""Discrete Laplace noise: exact for releases, fast for simulations, and its variance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray


# At smaller scales the probability that noise is zero rounds to one.
_NO_NOISE = 0.002


class NoiseSource(Protocol):
    """Adds independent discrete Laplace noise, P(z) ∝ exp(−|z|/scale), to integers."""

    def __call__(self, values: IntArray, scale: float) -> IntArray:
        """The values with noise, in the same shape."""
        ...


def add_exact_noise(values: IntArray, scale: float) -> IntArray:
    """Noise for a real release: sampled exactly by OpenDP, from the operating system's entropy.

    OpenDP adds the noise itself, and clamps a sum beyond 64 bits instead of wrapping it around. It
    keeps no generator state in the process, so a forked child does not repeat its parent.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    # 64 bits throughout: OpenDP's plain `int` is 32-bit and would clamp much earlier.
    measurement = dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=float(scale)
    )
    noisy = measurement(values.ravel().tolist())
    return np.array(noisy, dtype=np.int64).reshape(values.shape)


def simulated_noise(rng: np.random.Generator) -> NoiseSource:
    """Noise for simulations: the same distribution from a seeded generator. Not for releases."""

    def add_noise(values: IntArray, scale: float) -> IntArray:
        # A discrete Laplace variable is the difference of two geometric ones.
        stop_prob = -math.expm1(-1 / scale)
        shape = values.shape
        return np.asarray(
            values + rng.geometric(stop_prob, shape) - rng.geometric(stop_prob, shape)
        )

    return add_noise


def noise_variance(scale: float) -> float:
    """Var = 2e^(−1/σ)/(1−e^(−1/σ))² = 1/(2 sinh²(1/(2σ))): just below 2σ², the continuous one's."""
    if scale < _NO_NOISE:
        return 0.0
    return 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)
