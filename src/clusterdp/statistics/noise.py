"""Noise on integers, one by one or several together: exact for releases, fast for simulations.

On integers one by one it is discrete Laplace noise. On several together it is wide where an integer
can move far.

**The law.** A vector z of integers, one for each width w_j, has probability ∝ exp(−N(z)/σ), with
N(z) = max_j ⌈|z_j|/w_j⌉ its *level*. A neighbour that moves integer j by g·w_j at most changes the
level by g at most, since ⌈(|z_j| + g·w_j)/w_j⌉ = ⌈|z_j|/w_j⌉ + g. So the noise costs g/σ, and one
integer that moves by g·w_j reaches it. For one integer of width 1 it is discrete Laplace noise of
scale σ.

**How it is drawn.** A box of level k holds the vectors with |z_j| ≤ k·w_j: W(k) = Π_j (2k·w_j + 1)
of them. Draw k with probability ∝ q^k·W(k), q = e^(−1/σ), then a vector of its box, uniformly. A
vector z then has probability ∝ Σ_{k ≥ N(z)} q^k ∝ q^N(z), as stated. W is a polynomial of degree m
in k, so it is Σ_i h_i·C(k − i + m, m) with i from 0 to m. The integers h_i are not negative, since
W counts the points of a lattice polytope (Ehrhart, Stanley). And the sum of i and m + 1 geometric
variables has probability (1 − q)^(m + 1)·q^(k − i)·C(k − i + m, m). So k is i plus m + 1 geometric
variables, with i drawn with probability ∝ h_i·q^i.
"""

from __future__ import annotations

import bisect
import itertools
import math
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import FloatArray, IntArray


# How many random bits a choice is first made with.
_FIRST_BITS = 64
_DIGITS_PER_BIT, _SPARE_DIGITS = 0.302, 20


@lru_cache(maxsize=256)
def start_weights(widths: tuple[int, ...]) -> tuple[int, ...]:
    """h_0 to h_m: W(k) = Σ_i h_i·C(k − i + m, m) vectors have level k or less."""
    n_widths = len(widths)
    held = [math.prod(2 * level * width + 1 for width in widths) for level in range(n_widths + 1)]
    return tuple(
        sum(
            (-1) ** back * math.comb(n_widths + 1, back) * held[start - back]
            for back in range(start + 1)
        )
        for start in range(n_widths + 1)
    )


def box_variances(widths: tuple[int, ...], scale: npt.ArrayLike) -> FloatArray:
    """The variance of the noise on each integer; axes `[..., width]` after those of the scales.

    Given the level k, an integer is uniform between −k·w and k·w: E z² = (w²·E k² + w·E k)/3.
    """
    with np.errstate(divide="ignore"):
        rates = 1 / np.asarray(scale, dtype=np.float64)[..., np.newaxis]
        decay, stop_prob = np.exp(-rates), -np.expm1(-rates)
        starts, total = np.arange(len(widths) + 1), sum(start_weights(widths))
        shares = [float(Fraction(one, total)) for one in start_weights(widths)]
        chances = np.array(shares) * np.exp(-rates * starts)
        chances /= chances.sum(axis=-1, keepdims=True)
        first = (chances * starts).sum(axis=-1, keepdims=True)
        second = (chances * starts**2).sum(axis=-1, keepdims=True)
        mean = first + len(starts) * decay / stop_prob
        square = second - first**2 + len(starts) * decay / stop_prob**2 + mean**2
    wide = np.array(widths, dtype=np.float64)
    return np.asarray((wide**2 * square + wide * mean) / 3)


def draw_exactly(widths: tuple[int, ...], scale: float, geometric: list[int]) -> list[list[int]]:
    """Vectors of noise, in integers alone and from the operating system's entropy.

    Args:
        widths: The width of each integer.
        scale: σ.
        geometric: Variables with P(g) ∝ e^(−g/σ), g ≥ 0; m + 1 for each vector.
    """
    n_each = len(widths) + 1
    vectors = []
    for place in range(0, len(geometric), n_each):
        level = _start(widths, scale) + sum(geometric[place : place + n_each])
        ends = [level * width for width in widths]
        vectors.append([secrets.randbelow(2 * end + 1) - end for end in ends])
    return vectors


def _start(widths: tuple[int, ...], scale: float, n_bits: int = _FIRST_BITS) -> int:
    """Draw i with probability ∝ h_i·e^(−i/σ), exactly.

    It is where a uniform number falls among cumulative probabilities. These are known to as many
    bits as the number has; where that does not decide, both get more.
    """
    drawn, total_bits = secrets.randbits(n_bits), n_bits
    while True:
        bounds = _bounds(widths, scale, total_bits)
        start = bisect.bisect_right(bounds, drawn)
        above = start == 0 or drawn > bounds[start - 1]
        if above and (start == len(bounds) or drawn + 1 < bounds[start]):
            return start
        drawn, total_bits = drawn << n_bits | secrets.randbits(n_bits), total_bits + n_bits


@lru_cache(maxsize=256)
def _bounds(widths: tuple[int, ...], scale: float, n_bits: int) -> list[int]:
    """2^bits times the probability that i is at most 0, 1, …, m − 1; each off by less than 1."""
    with localcontext() as context:
        context.prec = _SPARE_DIGITS + math.ceil(_DIGITS_PER_BIT * n_bits)
        decay = (-1 / Decimal(scale)).exp()
        chances = [one * decay**place for place, one in enumerate(start_weights(widths))]
        *below, total = accumulate(chances)
        return [int(2**n_bits * one / total) for one in below]


def draw_quickly(
    widths: tuple[int, ...], scale: float, n_vectors: int, rng: np.random.Generator
) -> IntArray:
    """The same law from a seeded generator, for simulations; axes `[vector, width]`."""
    weights, starts = start_weights(widths), np.arange(len(widths) + 1)
    shares = np.array([float(Fraction(one, sum(weights))) for one in weights])
    chances = shares * np.exp(-starts / scale)
    levels = rng.choice(starts, n_vectors, p=chances / chances.sum())
    stop_prob = -math.expm1(-1 / scale)
    levels = levels + (rng.geometric(stop_prob, (n_vectors, len(starts))) - 1).sum(axis=1)
    ends = levels[:, np.newaxis] * np.array(widths)
    return np.asarray(rng.integers(-ends, ends, endpoint=True))


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
        # Laplace noise z, or −z − 1 where z < 0, has P(g) ∝ exp(−g/scale), g ≥ 0.
        geometric = [one if one >= 0 else ~one for one in _add_laplace([0] * n_geometric, scale)]
        vectors = draw_exactly(widths, scale, geometric)
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


def nearest_distribution(frequencies: FloatArray) -> FloatArray:
    """Euclidean projection onto the simplex, which takes noise away from rare outcomes.

    Args:
        frequencies: Any numbers; axes `[..., outcome]`.
    """
    # A constant changes nothing, and neither does what lies more than 1 below the largest.
    lowered = np.maximum(frequencies - frequencies.max(axis=-1, keepdims=True), -1.0)
    falling = -np.sort(-lowered, axis=-1)
    above = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, frequencies.shape[-1] + 1)
    n_kept = (falling > above).sum(axis=-1, keepdims=True)
    taken = np.take_along_axis(above, n_kept - 1, axis=-1)
    return np.asarray(np.maximum(lowered - taken, 0.0))
