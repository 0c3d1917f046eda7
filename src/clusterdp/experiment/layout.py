"""Cells: one per (cluster, arm). Their labels and sizes are public; the counts in them are not."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, CodeArray, IntArray

POOLED_LABEL = "pooled"
_LABELS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Breakdown:
    """Groups of units by public columns that effects are going to be cut by.

    Attributes:
        columns: The columns; several are crossed.
        labels: The distinct values of each column, sorted. Groups are their combinations, the last
            column first to change; some may have no units.
        sizes: Numbers of units; axes `[group, arm]`.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[Any, ...], ...]
    sizes: IntArray

    @property
    def groups(self) -> list[tuple[Any, ...]]:
        """The labels of each group, one per column."""
        return list(itertools.product(*self.labels))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """What is public of an experiment: its clusters, arms and cell sizes, breakdowns and folds.

    Attributes:
        clusters: Cluster labels, in the order of the first axis of every cell array.
        arms: Arm labels, in the order of the second axis.
        control: The position of the control arm in `arms`.
        sizes: n_{a,c}, the number of units in each cell; axes `[cluster, arm]`.
        breakdowns: What effects are going to be cut by.
        folds: How many public folds units are in, by a hash of their ids.
    """

    clusters: tuple[Any, ...]
    arms: tuple[Any, ...]
    control: int
    sizes: IntArray
    breakdowns: tuple[Breakdown, ...] = ()
    folds: int = 1

    @property
    def n_units(self) -> int:
        """n, the number of units."""
        return int(self.sizes.sum())

    @property
    def treatments(self) -> tuple[int, ...]:
        """Positions of the arms that are compared with control."""
        return tuple(arm for arm in range(len(self.arms)) if arm != self.control)

    def n_groups(self, by: tuple[str, ...]) -> int:
        """How many groups some columns make; one of everyone for no column.

        Raises:
            ParameterError: If there is no such breakdown.
        """
        if not by:
            return 1
        for breakdown in self.breakdowns:
            if breakdown.columns == by:
                return math.prod(map(len, breakdown.labels))
        raise ParameterError(f"there is no breakdown by {', '.join(by)}")

    def check(self) -> None:
        """Raise a DataError unless every cluster has units in every arm, and arms can be named."""
        if len(self.arms) < 2:
            raise DataError(
                f"an experiment needs at least 2 arms, the arm column has {len(self.arms)}"
            )
        if any(isinstance(arm, float) and not math.isfinite(arm) for arm in self.arms):
            raise DataError(
                "the arm column holds an infinite number, which no manifest can name; recode it"
            )
        lacking = (self.sizes == 0).any(axis=1)
        if lacking.any():
            raise DataError(
                f"{int(lacking.sum())} of {len(self.clusters)} clusters have no unit in some arm "
                f"({self._shown(lacking)}); effects cannot be compared there. Drop them, or pool "
                "small clusters (min_cell_size=1, --min-cell-size 1, or more)"
            )

    def of_clusters(self, chosen: IntArray) -> Layout:
        """Some of the clusters."""
        return replace(
            self,
            clusters=tuple(self.clusters[index] for index in chosen),
            sizes=self.sizes[chosen],
        )

    def clusters_by_size(self, n_wanted: int) -> IntArray:
        """So many clusters of evenly spread ranks by size, to stand for all; or all of them."""
        n_clusters = len(self.clusters)
        if n_clusters <= n_wanted:
            return np.arange(n_clusters)
        ranks = (np.arange(n_wanted) + 0.5) * n_clusters / n_wanted
        return np.argsort(self.sizes.sum(axis=1), kind="stable")[ranks.astype(np.int64)]

    def of_arms(self, arms: list[int]) -> Layout:
        """Some of the arms, of which the first is control."""
        return replace(
            self,
            arms=tuple(self.arms[arm] for arm in arms),
            control=0,
            sizes=self.sizes[:, arms],
            breakdowns=tuple(replace(one, sizes=one.sizes[:, arms]) for one in self.breakdowns),
        )

    def with_control(self, label: Any) -> Layout:
        """The same cells with another control arm."""
        return replace(self, control=find_arm(self.arms, label))

    def _shown(self, chosen: BoolArray) -> str:
        labels = [str(self.clusters[index]) for index in np.flatnonzero(chosen)[:_LABELS_SHOWN]]
        more = int(chosen.sum()) - len(labels)
        return ", ".join(labels) + (f" and {more} more" if more else "")


def find_arm(arms: tuple[Any, ...], label: Any) -> int:
    """The position of an arm, by its label or by the text of its label."""
    for position, arm in enumerate(arms):
        if arm == label or str(arm) == str(label):
            return position
    raise ParameterError(
        f"control={label!r} is not an arm; the arms are "
        + ", ".join(repr(arm) for arm in arms[:_LABELS_SHOWN])
        + (" and others" if len(arms) > _LABELS_SHOWN else "")
    )


def default_control(arms: tuple[Any, ...]) -> int:
    """The arm 0 or False of a two-armed experiment; any other labels need a named control."""
    if len(arms) < 2:
        raise DataError(f"an experiment needs at least 2 arms, the arm column has {len(arms)}")
    if len(arms) == 2 and set(arms) == {0, 1}:
        return find_arm(arms, min(arms))
    raise ParameterError(
        "name the control arm (control=..., --control); "
        f"the arms are {', '.join(repr(arm) for arm in arms[:_LABELS_SHOWN])}"
    )


def pool_small_clusters(layout: Layout, min_cell_size: int) -> tuple[Layout, CodeArray]:
    """Merge every cluster that has a cell below `min_cell_size` into one, labelled "pooled".

    Sizes are public, so this reads no outcome.

    Returns:
        The cells after pooling, and for each old cluster the code of its new one.
    """
    if min_cell_size < 1:
        raise ParameterError(f"min_cell_size must be at least 1, got {min_cell_size}")
    small = (layout.sizes < min_cell_size).any(axis=1)
    kept = np.flatnonzero(~small)
    if not small.any():
        return layout, kept
    labels = tuple(str(layout.clusters[index]) for index in kept)
    if POOLED_LABEL in labels:
        raise ParameterError(f"a cluster is already called {POOLED_LABEL!r}; rename it to pool")
    recode = np.full(len(layout.clusters), len(kept))
    recode[kept] = np.arange(len(kept))
    pooled = replace(
        layout,
        clusters=(*labels, POOLED_LABEL),
        sizes=np.vstack([layout.sizes[kept], layout.sizes[small].sum(axis=0)]),
    )
    if (pooled.sizes[-1] < min_cell_size).any():
        raise DataError(
            "even pooled, small clusters have an arm with fewer than "
            f"min_cell_size={min_cell_size} units; lower min_cell_size"
        )
    return pooled, recode
