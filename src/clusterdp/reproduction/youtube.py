"""The YouTube communities of Experiment 3: a shipped table, and how SNAP's files make it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal

import numpy as np

from clusterdp.errors import DataError

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


def shipped_features(reading: Reading = "boundary") -> ClusterFeatures:
    """The 50 largest communities of SNAP's com-Youtube network, from the table in this package."""
    import polars as pl

    text = resources.files("clusterdp.reproduction").joinpath("youtube_top50.csv").read_bytes()
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
