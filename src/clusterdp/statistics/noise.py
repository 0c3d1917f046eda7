"""Noise on integers, one by one or several together: exact for releases, fast for simulations.

On integers one by one it is discrete Laplace noise; `box_noise.py` has the law of several.
"""

from __future__ import annotations

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clusterdp.statistics.box_noise import draw_exactly, draw_quickly

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray


# At smaller scales the probability that noise is zero rounds to one.
_NO_NOISE = 0.002


# Integers that a thread adds noise to before it takes others.
_AT_ONCE = 2**11
# Vectors of one integer of width 1: discrete Laplace noise on each.
ALONE = (1,)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class NoiseSource(Protocol):
    """Adds noise to integers, as many at a time as there are widths, along the last axis.

    Vectors are independent, with P(z) ∝ exp(−max_j ⌈|z_j|/width_j⌉/scale). By default each integer
    is a vector of its own, and the noise discrete Laplace: P(z) ∝ exp(−|z|/scale).
    """

    def __call__(self, values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        """The values with noise, in the same shape."""
        ...


def add_exact_noise(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    """Noise for a real release: sampled exactly, from the operating system's entropy.

    A sum beyond 64 bits is clamped instead of wrapped around. No generator keeps its state in the
    process, so a forked child does not repeat its parent.
    """
    flat = values.ravel().tolist()
    if widths == ALONE:
        noisy = _add_laplace(flat, scale)
    else:
        n_geometric = len(flat) // len(widths) * (len(widths) + 1)
        vectors = draw_exactly(widths, scale, _geometric(n_geometric, scale))
        noise = itertools.chain.from_iterable(vectors)
        sums = (value + one for value, one in zip(flat, noise, strict=True))
        noisy = [min(max(one, _SMALLEST), _LARGEST) for one in sums]
    return np.array(noisy, dtype=np.int64).reshape(values.shape)


def _add_laplace(values: list[int], scale: float) -> list[int]:
    """Discrete Laplace noise, added by OpenDP, which clamps as well."""
    # By their modules: `opendp.prelude` loads scikit-learn where it is installed, for seconds.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    # 64 bits throughout: OpenDP's plain `int` is 32-bit and would clamp much earlier.
    measurement = make_laplace(
        vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=float(scale)
    )
    parts = [values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE)]
    # OpenDP draws one after another, outside of Python: threads draw some each.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(itertools.chain.from_iterable(threads.map(measurement, parts)))


def _geometric(n_drawn: int, scale: float) -> list[int]:
    """Variables with P(g) ∝ exp(−g/scale), g ≥ 0: Laplace noise z, or −z − 1 where z < 0."""
    return [one if one >= 0 else ~one for one in _add_laplace([0] * n_drawn, scale)]


def simulated_noise(rng: np.random.Generator) -> NoiseSource:
    """Noise for simulations: the same distribution from a seeded generator. Not for releases."""

    def add_noise(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        if widths != ALONE:
            vectors = draw_quickly(widths, scale, values.size // len(widths), rng)
            return np.asarray(values + vectors.reshape(values.shape))
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
