"""Discrete Laplace noise: exact draws for releases, fast ones for simulations, and its variance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from clusterdp.arrays import IntArray


class NoiseSource(Protocol):
    """Draws independent discrete Laplace noise, P(z) ∝ exp(−|z|/scale)."""

    def __call__(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        """An integer array of the given shape."""
        ...


def exact_noise(scale: float, shape: tuple[int, ...]) -> IntArray:
    """Noise for a real release: sampled exactly by OpenDP, from the operating system's entropy.

    OpenDP keeps no generator state in the process, so a forked child does not repeat its parent.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    # 64 bits throughout: OpenDP's plain `int` is 32-bit and would saturate.
    measurement = dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=float(scale)
    )
    return np.array(measurement([0] * math.prod(shape)), dtype=np.int64).reshape(shape)


def simulated_noise(rng: np.random.Generator) -> NoiseSource:
    """Noise for simulations: the same distribution from a seeded generator. Not for releases."""

    def draw(scale: float, shape: tuple[int, ...]) -> IntArray:
        # A discrete Laplace variable is the difference of two geometric ones.
        stop_prob = -math.expm1(-1 / scale)
        return rng.geometric(stop_prob, shape) - rng.geometric(stop_prob, shape)

    return draw


def noise_variance(scale: float) -> float:
    """Var = 2e^(−1/σ)/(1−e^(−1/σ))² = 1/(2 sinh²(1/(2σ))): just below 2σ², the continuous one's."""
    return 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)
