"""Cells: one per (cluster, arm). Their labels and sizes are public; the counts in them are not."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._words import counted
from clusterdp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, IntArray

# The label of the one cluster there is where none were given.
EVERYONE = "everyone"
_LABELS_SHOWN = 5


def units_in_words(n_units: int, n_clusters: int) -> str:
    """Units, and their clusters if there are any: `600 units in 5 clusters`."""
    within = f" in {counted(n_clusters, 'cluster')}" if n_clusters else ""
    return counted(n_units, "unit") + within


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Breakdown:
    """Groups of units by public columns that effects are going to be cut by.

    Attributes:
        columns: The columns; several are crossed.
        labels: The distinct values of each column as text, in the order of the values. Groups are
            their combinations, the last column first to change; some may have no units.
        sizes: Numbers of units; axes `[group, arm]`.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    sizes: IntArray

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The labels of each group, one per column."""
        return list(itertools.product(*self.labels))

    @property
    def compares_arms(self) -> bool:
        """Whether some group has units in every arm; groups that were assigned have not."""
        return bool((self.sizes > 0).all(axis=1).any())


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
        arm_shares: The share of units that each arm was planned to have; None if none was declared.
    """

    clusters: tuple[Any, ...]
    arms: tuple[Any, ...]
    control: int
    sizes: IntArray
    breakdowns: tuple[Breakdown, ...] = ()
    folds: int = 1
    arm_shares: tuple[float, ...] | None = None

    @property
    def n_units(self) -> int:
        """n, the number of units."""
        return int(self.sizes.sum())

    @property
    def n_clusters(self) -> int:
        """How many clusters there are; 0 where none were given."""
        return 0 if self.clusters == (EVERYONE,) else len(self.clusters)

    @property
    def in_words(self) -> str:
        """How many units there are, in how many clusters."""
        return units_in_words(self.n_units, self.n_clusters)

    @property
    def treatments(self) -> tuple[int, ...]:
        """Positions of the arms that are compared with control."""
        return tuple(arm for arm in range(len(self.arms)) if arm != self.control)

    @property
    def complete(self) -> BoolArray:
        """Which clusters have units in every arm: in others no effect can be compared."""
        return np.asarray((self.sizes > 0).all(axis=1))

    def compared(self) -> Layout:
        """The clusters that have units in every arm."""
        return self.of_clusters(np.flatnonzero(self.complete))

    def n_groups(self, by: tuple[str, ...]) -> int:
        """How many groups some columns make; one of everyone for no column.

        Raises:
            ParameterError: If there is no such breakdown.
        """
        return math.prod(map(len, self._breakdown(by).labels)) if by else 1

    def group_names(self, by: tuple[str, ...]) -> list[str]:
        """What each group of some columns is called."""
        return [" | ".join(group) for group in self._breakdown(by).groups] if by else [EVERYONE]

    def _breakdown(self, by: tuple[str, ...]) -> Breakdown:
        for breakdown in self.breakdowns:
            if breakdown.columns == by:
                return breakdown
        raise ParameterError(f"there is no breakdown by {', '.join(by)}")

    def check(self) -> None:
        """Raise a DataError unless some cluster has units in every arm, and arms can be named."""
        if len(self.arms) < 2:
            raise DataError(
                f"an experiment needs at least 2 arms, the arm column has {len(self.arms)}"
            )
        if any(isinstance(arm, float) and not math.isfinite(arm) for arm in self.arms):
            raise DataError(
                "the arm column holds an infinite number, which no manifest can name; recode it"
            )
        if self.sizes.min() < 0 or not self.complete.any():
            raise DataError(
                "no cluster has units in every arm, so no effect can be compared; leave out "
                "cluster (--cluster)"
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
        planned = None if self.arm_shares is None else [self.arm_shares[arm] for arm in arms]
        return replace(
            self,
            arms=tuple(self.arms[arm] for arm in arms),
            control=0,
            sizes=self.sizes[:, arms],
            breakdowns=tuple(replace(one, sizes=one.sizes[:, arms]) for one in self.breakdowns),
            arm_shares=None if planned is None else tuple(one / sum(planned) for one in planned),
        )

    def with_control(self, label: Any) -> Layout:
        """The same cells with another control arm."""
        return replace(self, control=find_arm(self.arms, label))


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
