"""The populations of the paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.experiment.layout import Layout
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.reproduction.draws import population_rng
from clusterdp.reproduction.youtube import standardized_features
from clusterdp.theory.population import Population

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.reproduction.youtube import ClusterFeatures

# Section "Numerical Experiments": K' = 5, v = 5, τ = 1, β = 4.5 unless varied.
HALF_RANGE, TOTAL_VARIANCE, EFFECT, DEFAULT_BETWEEN = 5, 5.0, 1, 4.5
SPACE = OutcomeSpace.integers(-HALF_RANGE, HALF_RANGE + EFFECT)
SUPER_SIZES, SUB_SIZES = (2500, 5000, 10_000), (500, 1000, 2000)

# The paper does not define how YouTube outcomes are quantized to K = 8 levels. We declare a grid
# whose step is half the effect, from below the least expected outcome to above the largest.
YOUTUBE_SPACE = OutcomeSpace.of([-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
YOUTUBE_NOISE, YOUTUBE_EFFECT = 0.1, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The standard normal draws behind a Gaussian mixture (exp:yi), kept as β varies.

    Attributes:
        centers: μ_c; axes `[cluster]`.
        units: w_i, cluster by cluster.
    """

    centers: FloatArray
    units: tuple[FloatArray, ...]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Mixture:
        """The super-population of three clusters."""
        return cls(
            centers=rng.normal(size=len(SUPER_SIZES)),
            units=tuple(rng.normal(size=size) for size in SUPER_SIZES),
        )

    def control_counts(self, between: float) -> IntArray:
        """How many units of each cluster have each control outcome; axes `[cluster, outcome]`.

        `between` is β. Outcomes are quantized with step 2√v/K' and clipped at ±K'.
        """
        step = 2 * np.sqrt(TOTAL_VARIANCE) / HALF_RANGE
        counts = []
        for center, noise in zip(self.centers, self.units, strict=True):
            latent = np.sqrt(between) * center + np.sqrt(TOTAL_VARIANCE - between) * noise
            codes = np.clip(np.rint(latent / step), -HALF_RANGE, HALF_RANGE) + HALF_RANGE
            counts.append(np.bincount(codes.astype(np.int64), minlength=2 * HALF_RANGE + 1))
        return np.array(counts)


def whole_population(draw: int) -> Population:
    """The super-population of one draw."""
    return _population(Mixture.draw(population_rng(draw)).control_counts(DEFAULT_BETWEEN))


def sub_population(draw: int, between: float = DEFAULT_BETWEEN) -> Population:
    """500, 1000 and 2000 units drawn uniformly from the three clusters of one draw.

    `between` is β; the random numbers behind a draw stay the same as it varies.
    """
    rng = population_rng(draw)
    drawn = [
        rng.multivariate_hypergeometric(counts, size)
        for counts, size in zip(Mixture.draw(rng).control_counts(between), SUB_SIZES, strict=True)
    ]
    return _population(np.array(drawn))


def _population(type_counts: IntArray) -> Population:
    """A population with the given control outcomes, everyone's treated outcome one higher."""
    types = np.arange(2 * HALF_RANGE + 1)
    return Population(
        type_outcomes=np.stack([types, types + EFFECT], axis=1),
        type_counts=type_counts,
        layout=balanced_layout(type_counts.sum(axis=1)),
        space=SPACE,
    )


def spread_of_centers(draw: int) -> float:
    """The standard deviation of the centres μ_c of one draw, clusters weighted by size."""
    centers = Mixture.draw(population_rng(draw)).centers
    mean = np.average(centers, weights=SUPER_SIZES)
    return float(np.sqrt(np.average((centers - mean) ** 2, weights=SUPER_SIZES)))


def youtube_population(features: ClusterFeatures, draw: int) -> Population:
    """Experiment 3: y(0) = xᵀ(1,1,1,1) + w with w of standard deviation 0.1, y(1) = y(0) + 1."""
    cluster_effects = standardized_features(features).sum(axis=1)
    clusters = np.repeat(np.arange(len(features.n_nodes)), features.n_nodes)
    noise = population_rng(draw).normal(size=len(clusters))
    control = cluster_effects[clusters] + YOUTUBE_NOISE * noise
    codes = np.stack([_quantize(control), _quantize(control + YOUTUBE_EFFECT)], axis=1)
    types, kinds = np.unique(codes, axis=0, return_inverse=True)
    counts = np.zeros((len(features.n_nodes), len(types)), dtype=np.int64)
    np.add.at(counts, (clusters, kinds.ravel()), 1)
    return Population(
        type_outcomes=types,
        type_counts=counts,
        layout=balanced_layout(counts.sum(axis=1)),
        space=YOUTUBE_SPACE,
    )


def balanced_layout(cluster_sizes: IntArray) -> Layout:
    """Half of every cluster treated, control first."""
    sizes = np.stack([(cluster_sizes + 1) // 2, cluster_sizes // 2], axis=1)
    return Layout(clusters=tuple(range(len(cluster_sizes))), arms=(0, 1), control=0, sizes=sizes)


def _quantize(outcomes: FloatArray) -> IntArray:
    """The nearest level of the declared grid."""
    values = YOUTUBE_SPACE.as_array()
    codes = np.rint((outcomes - values[0]) / (values[1] - values[0]))
    return np.asarray(np.clip(codes, 0, len(values) - 1), dtype=np.int64)
