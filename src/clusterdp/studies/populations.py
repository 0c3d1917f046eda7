"""The populations of the paper's experiments.

The YouTube communities of Experiment 3: a shipped table, and how SNAP's files make it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal

import numpy as np

from clusterdp.cells.layout import Layout
from clusterdp.errors import DataError
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.studies.simulation import Population

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import FloatArray, IntArray


N_COMMUNITIES = 50
# What "edges with other clusters" may mean, communities being able to overlap: a link counts once
# when exactly one end is inside, or once for every other community that it reaches.
Reading = Literal["boundary", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterFeatures:
    """The four features of each community; axes `[cluster]` each."""

    n_nodes: IntArray
    edges_inside: IntArray
    edges_outside: IntArray

    def density(self) -> FloatArray:
        """Links inside, of all pairs: e / (n choose 2)."""
        return np.asarray(2 * self.edges_inside / (self.n_nodes * (self.n_nodes - 1)))


def population_rng(draw: int) -> np.random.Generator:
    """The randomness of a population: draw 7 has seed 7, in every experiment."""
    return np.random.default_rng(draw)


def shipped_features(reading: Reading = "boundary") -> ClusterFeatures:
    """The 50 largest communities of SNAP's com-Youtube network, from the table in this package."""
    import polars as pl

    text = resources.files("clusterdp.studies").joinpath("youtube_top50.csv").read_bytes()
    table = pl.read_csv(text, comment_prefix="#")
    return ClusterFeatures(
        n_nodes=table["n_nodes"].to_numpy(),
        edges_inside=table["edges_inside"].to_numpy(),
        edges_outside=table[f"edges_outside_{reading}"].to_numpy(),
    )


def features_from_snap(
    communities: Path, edges: Path, reading: Reading = "boundary"
) -> ClusterFeatures:
    """The same table from SNAP's own files.

    Args:
        communities: `com-youtube.top5000.cmty.txt`: a community a line, user ids between tabs.
        edges: `com-youtube.ungraph.txt`, or any table of two ids a line; lines that do not start
            with a digit are passed over.
        reading: What "edges with other clusters" means.
    """
    members = _largest_communities(communities)
    links = _read_links(edges)
    inside = np.stack([np.isin(links, list(group)) for group in members])  # [cluster, link, end]
    both = inside.all(axis=2)
    if reading == "boundary":
        reaches = np.asarray(
            inside.any(axis=0)
        )  # a link to someone in none of the fifty does not count
        outside = (inside.any(axis=2) & ~both & reaches.all(axis=1)).sum(axis=1)
    else:
        outside = np.array([_pairwise(inside, cluster) for cluster in range(len(members))])
    return ClusterFeatures(
        n_nodes=np.array([len(group) for group in members]),
        edges_inside=both.sum(axis=1),
        edges_outside=outside,
    )


def standardized_features(features: ClusterFeatures) -> FloatArray:
    """Four features, each of zero mean and unit norm across clusters; axes `[cluster, feature]`."""
    columns = np.stack(
        [features.n_nodes, features.edges_inside, features.edges_outside, features.density()],
        axis=1,
    )
    centred = columns - columns.mean(axis=0)
    return np.asarray(centred / np.linalg.norm(centred, axis=0))


def _largest_communities(path: Path) -> list[set[int]]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        groups = [{int(user) for user in line.split()} for line in lines if line.strip()]
    except (OSError, ValueError):
        raise DataError(f"{path} is not a list of communities") from None
    if len(groups) < N_COMMUNITIES:
        raise DataError(f"{path} has {len(groups)} communities, {N_COMMUNITIES} are needed")
    by_size = sorted(range(len(groups)), key=lambda index: (-len(groups[index]), index))
    return [groups[index] for index in by_size[:N_COMMUNITIES]]


def _read_links(path: Path) -> IntArray:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        pairs = [line.replace(",", " ").split()[:2] for line in lines if line[:1].isdigit()]
        links = np.array(pairs, dtype=np.int64)
    except (OSError, ValueError):
        raise DataError(f"{path} is not a list of links") from None
    if links.ndim != 2:
        raise DataError(f"{path} has no links")
    return links


def _pairwise(inside: np.ndarray, cluster: int) -> int:
    """Links from one cluster to each other one, a link counted for every cluster it reaches."""
    others = np.delete(inside, cluster, axis=0)
    here = inside[cluster]
    return int((here[:, 0] & others[:, :, 1]).sum() + (here[:, 1] & others[:, :, 0]).sum())


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
