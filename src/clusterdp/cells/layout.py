"""Cells: one per (cluster, arm). Their labels and sizes are public; the counts in them are not.

**Weights of units** in sums over clusters are public as well: stratified, rounded to integers, and
capped. The stratified mean of an arm weighs a unit by n_c/(n·n_ac). A sum of outcomes with these
weights is that mean but for a factor. Its noise grows with the largest weight, which one tiny cell
decides, so weights are capped. Estimates cover the rest by rows, without bias.

Units of clusters that lack an arm are in no effect, so they have weight zero: in totals, they would
have to be taken out by their rows.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from clusterdp._text import counted
from clusterdp.errors import DataError, ParameterError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import BoolArray, FloatArray, IntArray


# The share of the variance of outcomes that is taken to be between groups that were assigned as a
# whole, if nobody said more: as between schools.
LIKELY_CORRELATION = 0.1
# The label of the one cluster there is where none were given.
EVERYONE = "everyone"
_LABELS_SHOWN = 5


def units_in_words(n_units: int, n_clusters: int, unit: str = "unit") -> str:
    """Units, and their clusters if there are any: `600 units in 5 clusters`."""
    within = f" in {counted(n_clusters, 'cluster')}" if n_clusters else ""
    return counted(n_units, unit) + within


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Breakdown:
    """Groups of units by public columns that analysts will segment by.

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


class AssignedGroups(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Groups of units that were assigned to arms as a whole.

    Attributes:
        concentrations: Σ w² of each arm, w the share of a group in its units: one over the number
            of groups of one size that it is worth.
        correlation: The share of the variance of outcomes that is expected to be between groups.
    """

    concentrations: tuple[float, ...]
    correlation: float = LIKELY_CORRELATION

    @classmethod
    def from_sizes(cls, arms: Sequence[int], sizes: Sequence[int]) -> AssignedGroups:
        """Groups by their arms and numbers of units; the same in any order."""
        found = []
        for arm in range(max(arms) + 1):
            mine = [size for one, size in zip(arms, sizes, strict=True) if one == arm]
            found.append(sum(size**2 for size in mine) / sum(mine) ** 2)
        return cls(concentrations=tuple(found))

    @property
    def degrees(self) -> FloatArray:
        """Degrees of freedom that the groups of each arm leave, at least one; axes `[arm]`."""
        return np.maximum(1 / np.array(self.concentrations) - 1, 1.0)

    def is_sound(self, n_arms: int) -> bool:
        """Whether the numbers can be those of as many arms."""
        return (
            len(self.concentrations) == n_arms
            and all(0 < one <= 1 for one in self.concentrations)
            and 0 <= self.correlation <= 1
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """What is public of an experiment: its clusters, arms and cell sizes, breakdowns and folds.

    Attributes:
        clusters: Cluster labels, in the order of the first axis of every cell array.
        arms: Arm labels, in the order of the second axis.
        control: The position of the control arm in `arms`.
        sizes: n_{a,c}, the number of units in each cell; axes `[cluster, arm]`.
        breakdowns: What analysts will segment by.
        folds: How many public folds units are in, by a hash of their ids.
        arm_shares: The share of units that each arm was planned to have; None if none was declared.
        assigned: The groups that were assigned to arms as a whole; None if units were.
    """

    clusters: tuple[Any, ...]
    arms: tuple[Any, ...]
    control: int
    sizes: IntArray
    breakdowns: tuple[Breakdown, ...] = ()
    folds: int = 1
    arm_shares: tuple[float, ...] | None = None
    assigned: AssignedGroups | None = None

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
                "no cluster has units in every arm, so no effect can be estimated; leave out "
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
        assigned = self.assigned
        if assigned is not None:
            some = tuple(assigned.concentrations[arm] for arm in arms)
            assigned = AssignedGroups(concentrations=some, correlation=assigned.correlation)
        return replace(
            self,
            arms=tuple(self.arms[arm] for arm in arms),
            control=0,
            sizes=self.sizes[:, arms],
            breakdowns=tuple(replace(one, sizes=one.sizes[:, arms]) for one in self.breakdowns),
            arm_shares=None if planned is None else tuple(one / sum(planned) for one in planned),
            assigned=assigned,
        )

    @property
    def cluster_shares(self) -> FloatArray:
        """n_c/n, the share of units that each cluster has; axes `[cluster, 1]`."""
        return np.asarray(self.sizes.sum(axis=1, keepdims=True) / self.n_units)

    @property
    def mean_weights(self) -> FloatArray:
        """What a unit's variance counts for in an arm's mean: (n_c/n)²/n_ac; `[cluster, arm]`."""
        return np.asarray(self.cluster_shares**2 / self.sizes)

    def arm_averages(self, per_cell: FloatArray) -> FloatArray:
        """Variances of units, averaged over clusters as they count in the mean of an arm.

        Axes `[..., cluster, arm]` in, `[..., arm]` out.
        """
        weights = self.mean_weights
        return np.asarray((weights * per_cell).sum(axis=-2) / weights.sum(axis=0))

    def against_control(self, variances: FloatArray) -> FloatArray:
        """Variances of differences against control, from those of arms; axes `[..., treatment]`."""
        return np.asarray(variances[..., list(self.treatments)] + variances[..., [self.control]])

    def with_control(self, label: Any) -> Layout:
        """The same cells with another control arm."""
        return replace(self, control=find_arm(self.arms, label))

    def with_merged(self, labels: tuple[Any, ...], places: Sequence[int]) -> Layout:
        """The same units in fewer arms, each the union of some.

        Args:
            labels: What the new arms are called.
            places: Which of them each arm goes into.
        """
        into = np.eye(len(labels), dtype=np.int64)[list(places)]
        planned, assigned = self.arm_shares, self.assigned
        if assigned is not None:
            of_arms = self.sizes.sum(axis=0)
            squares = np.array(assigned.concentrations) * of_arms.astype(np.float64) ** 2
            merged = squares @ into / (of_arms @ into) ** 2
            assigned = AssignedGroups(
                concentrations=tuple(merged.tolist()), correlation=assigned.correlation
            )
        return replace(
            self,
            arms=labels,
            control=places[self.control],
            sizes=self.sizes @ into,
            breakdowns=tuple(replace(one, sizes=one.sizes @ into) for one in self.breakdowns),
            arm_shares=None if planned is None else tuple((np.array(planned) @ into).tolist()),
            assigned=assigned,
        )


def find_arm(arms: tuple[Any, ...], label: Any, option: str = "control") -> int:
    """The position of an arm, by its label or by the text of its label."""
    for position, arm in enumerate(arms):
        if arm == label or str(arm) == str(label):
            return position
    raise ParameterError(
        f"{option} {label!r} is not an arm.{did_you_mean(str(label), map(str, arms))} "
        "The arms are "
        + ", ".join(repr(arm) for arm in arms[:_LABELS_SHOWN])
        + (" and others." if len(arms) > _LABELS_SHOWN else ".")
    )


def default_control(arms: tuple[Any, ...]) -> int:
    """The arm 0 or False of a two-armed experiment; any other labels need a named control."""
    if len(arms) < 2:
        raise DataError(f"an experiment needs at least 2 arms, the arm column has {len(arms)}")
    if len(arms) == 2 and set(arms) == {0, 1}:
        return find_arm(arms, min(arms))
    raise ParameterError(
        "missing: which arm is control. Fix: name it (control=..., --control). "
        f"The arms are {', '.join(repr(arm) for arm in arms[:_LABELS_SHOWN])}."
    )


# The largest weight of a unit; it decides how finely weights are rounded, and nothing else.
LARGEST_WEIGHT = 256


def stratified_weights(layout: Layout, noise_in_rows: float) -> IntArray:
    """x_ac in 1…256, proportional to n_c/n_ac up to a cap in each arm; axes `[cluster, arm]`.

    They are zero in clusters that lack an arm. Weights follow from public numbers alone. Those of
    an arm have a scale of their own.

    Args:
        layout: The cells.
        noise_in_rows: N, how many rows have as much noise as a total whose units count once. The
            more, the lower the cap.
    """
    sizes = layout.sizes
    whole = sizes.sum(axis=1, keepdims=True)
    compared = layout.complete[:, np.newaxis]
    inverse = np.where(compared, whole / np.maximum(sizes, 1), 0.0)
    caps = np.array([_cap(*arm, noise_in_rows) for arm in zip(inverse.T, sizes.T, strict=True)])
    shares = np.minimum(inverse / caps, 1.0)
    rounded = np.maximum(np.rint(LARGEST_WEIGHT * shares), 1.0)
    return np.asarray(np.where(compared, rounded, 0.0), dtype=np.int64)


def _cap(inverse: FloatArray, sizes: IntArray, noise_in_rows: float) -> float:
    """The cap κ that minimizes N·κ² + Σ n(w − κ)², the sum over the cells with w > κ.

    If the k largest weights exceed it, it is Σ n·w/(N + Σ n) over these. That rises with k as long
    as the next weight exceeds it, so it is the largest over k.
    """
    order = np.argsort(-inverse, kind="stable")
    above = np.cumsum(sizes[order] * inverse[order])
    return float((above / (noise_in_rows + np.cumsum(sizes[order]))).max())
