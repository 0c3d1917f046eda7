"""Declared shares of arms, probabilities of arms by private cluster, and pooling of small clusters.

Clusters that are too small to compare arms in are pooled into one, by sizes that are public. Which
clusters are pooled must not depend on how many of their units came into which arm. If those that
happen to lack an arm were pooled and others were not, the pool would compare treated units of one
kind of clusters with control units of another. So it depends on how many units a cluster has.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from clusterdp._text import counted
from clusterdp.cells.layout import find_arm
from clusterdp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.cells.layout import Layout


# Probabilities of the arms of each label, in the order of labels and of arms.
AssignmentProbs = tuple[tuple[float, ...], ...]
_SYNTAX = "north=0.2,south=0.5; of several arms north=email:0.3/letter:0.2, control having the rest"


def parse_by_label(
    parameter: str, texts: Sequence[str], labels: Sequence[str], syntax: str = _SYNTAX
) -> dict[str, str]:
    """What is given for every label, as text, from `north=0.2,south=0.5`.

    Raises:
        ParameterError: If a label is unknown, or one of them is left out or given twice.
    """
    found: dict[str, str] = {}
    option = parameter.replace("_", "-")
    # A label may have a comma, if it is given alone.
    alone = [[text] if text.rpartition("=")[0] in labels else text.split(",") for text in texts]
    for entry in (part.strip() for parts in alone for part in parts):
        label, _, value = entry.rpartition("=")
        if label not in labels or label in found:
            raise ParameterError(
                f"{parameter} must name each of {', '.join(labels)} once ({parameter}=..., "
                f"--{option} {syntax}); got {entry!r}"
            )
        found[label] = value
    missing = [label for label in labels if label not in found]
    if missing:
        raise ParameterError(
            f"{parameter} must name every label; add {missing[0]}=... ({parameter}=..., --{option})"
        )
    return found


def parse_positive(parameter: str, text: str) -> float:
    """A probability or a share, or a ParameterError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ParameterError(f"{parameter} must have numbers above 0, got {text!r}")
    return number


def parse_arm_shares(texts: Sequence[str], arms: Sequence[Any]) -> tuple[float, ...]:
    """The planned share of each arm, from `control=0.5,email=0.5`; their ratios count.

    Raises:
        ParameterError: If an arm is unknown, left out or given twice, or a share is not above 0.
    """
    labels = [str(arm) for arm in arms]
    syntax = ",".join(f"{label}={1 / len(labels):.2g}" for label in labels)
    given = parse_by_label("arm_shares", texts, labels, syntax)
    shares = [parse_positive("arm_shares", given[label]) for label in labels]
    return tuple(share / math.fsum(shares) for share in shares)


def are_arm_shares(shares: tuple[float, ...], n_arms: int) -> bool:
    """Whether numbers are shares of arms."""
    return len(shares) == n_arms and min(shares) > 0 and math.isclose(math.fsum(shares), 1)


def assignment_probs(given: Mapping[str, str], layout: Layout) -> AssignmentProbs:
    """The probabilities of arms by label.

    Args:
        given: Of every label, in order: the probability of the treatment (`0.2`), or of each of
            several treatments (`email:0.3/letter:0.2`). Control has the rest.
        layout: The arms.

    Raises:
        ParameterError: If they are no probabilities, or an arm is missing or unknown.
    """
    return tuple(_arm_probs(label, text, layout) for label, text in given.items())


def _arm_probs(label: str, text: str, layout: Layout) -> tuple[float, ...]:
    parts = [part.rpartition(":") for part in text.split("/")]
    if len(layout.treatments) == 1 and not parts[0][1]:
        named = {layout.treatments[0]: parse_positive("assignment", text)}
    else:
        named = {
            find_arm(layout.arms, arm.strip()): parse_positive("assignment", prob)
            for arm, _, prob in parts
        }
    if sorted(named) != sorted(layout.treatments) or math.fsum(named.values()) >= 1:
        raise ParameterError(
            f"assignment must give each treatment a probability, with a sum below 1: {_SYNTAX}; "
            f"got {text!r} for {label!r}"
        )
    named[layout.control] = 1 - math.fsum(named.values())
    return tuple(named[arm] for arm in range(len(layout.arms)))


def are_assignment_probs(probs: AssignmentProbs, n_labels: int, n_arms: int) -> bool:
    """Whether numbers are probabilities of arms, label by label."""
    return len(probs) == n_labels and all(are_arm_shares(one, n_arms) for one in probs)


def expected_sizes(
    arm_sizes: Sequence[int], response: FloatArray, shares: FloatArray, probs: FloatArray | None
) -> FloatArray:
    """What sizes of cells to expect after a response; whole numbers, axes `[label, arm]`.

    Args:
        arm_sizes: How many units each arm has, which is public.
        response: K; axes `[group, label]`.
        shares: The declared share of each group.
        probs: Declared probabilities of arms, axes `[group, arm]`; None if they are the same.
    """
    groups = shares[:, np.newaxis] * (np.ones((1, len(arm_sizes))) if probs is None else probs)
    cells = response.T @ (groups / groups.sum(axis=0)) * np.asarray(arm_sizes)
    # Rounded so that those of an arm add up to its size.
    ends = np.rint(np.cumsum(cells, axis=0))
    return np.diff(ends, axis=0, prepend=0)


def inflation(weights: FloatArray, sizes: IntArray) -> float:
    """How much larger a standard error is with weights of units than without.

    Args:
        weights: What a unit counts; axes `[label, arm]`.
        sizes: Units of cells; axes the same.
    """
    squares = (sizes * weights**2).sum(axis=0) / (sizes * weights).sum(axis=0) ** 2
    return math.sqrt(float(squares.sum() / (1 / sizes.sum(axis=0)).sum()))


POOLED_LABEL = "pooled"
# A cluster that lacks an arm with a smaller probability than this lacks it by design.
_BY_DESIGN = 1e-4
# So many standard deviations more clusters with one arm than chance gives are no chance.
_NO_CHANCE = 5.0


class Pooling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was pooled, beyond what the cells show.

    Attributes:
        n_clusters: How many clusters were pooled.
        largest: How many units the largest of them has.
        min_cell_size: The units that they were to expect in every arm; None if they were pooled
            because some lack an arm by chance.
    """

    n_clusters: int
    largest: int
    min_cell_size: int | None

    def explains(self, layout: Layout) -> bool:
        """Whether cells can be what such a pooling leaves."""
        if self.n_clusters < 2 or self.largest < 1 or layout.clusters[-1] != POOLED_LABEL:
            return False
        n_units, shares = int(layout.sizes[-1].sum()), _shares(layout)
        if not self.largest <= n_units <= self.n_clusters * self.largest:
            return False
        if self.min_cell_size is not None:
            return self.largest < self.min_cell_size / float(shares.min())
        return bool(_lack_probs(np.array([self.largest]), shares)[0] >= _BY_DESIGN)

    def in_words(self, layout: Layout) -> str:
        """What a reader of the release should know of it."""
        why = "because some lack an arm, which clusters of that size do by chance"
        if self.min_cell_size is not None:
            why = (
                f"because they expect fewer than {counted(self.min_cell_size, 'unit')} in some arm"
            )
        return (
            f"{self.n_clusters:,} clusters of at most {counted(self.largest, 'unit')} were pooled "
            f"into {POOLED_LABEL!r} ({int(layout.sizes[-1].sum()):,} units), {why}."
        )


class PooledLayout(NamedTuple):
    """Cells after pooling.

    Attributes:
        layout: The cells.
        regroup: For each old cluster the code of its new one; None if none was pooled.
        pooling: What was pooled; None if nothing was.
    """

    layout: Layout
    regroup: CodeArray | None = None
    pooling: Pooling | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the release should know."""
        return pooling_notes(self.layout, self.pooling)


def pool_small_clusters(layout: Layout, min_cell_size: int | None) -> PooledLayout:
    """Merge small clusters into one, labelled "pooled".

    Small are clusters that expect fewer than `min_cell_size` units in some arm, by the shares of
    arms among all units. Where a cluster lacks an arm by chance, small are also all that could.

    Args:
        layout: The cells.
        min_cell_size: The fewest units that a cluster should expect in an arm; None for any.

    Raises:
        ParameterError: If the size is below 1, or a cluster is called "pooled" already.
    """
    if min_cell_size is not None and min_cell_size < 1:
        raise ParameterError(f"min_cell_size must be at least 1, got {min_cell_size}")
    n_units, shares = layout.sizes.sum(axis=1), _shares(layout)
    least = 0.0 if min_cell_size is None else min_cell_size / float(shares.min())
    risky = _lack_probs(n_units, shares) >= _BY_DESIGN
    lacks_by_chance = bool((~layout.complete & risky).any())
    small = (n_units < least) | (risky & lacks_by_chance)
    if int(small.sum()) < 2:
        return PooledLayout(layout)
    kept = np.flatnonzero(~small)
    labels = tuple(str(layout.clusters[index]) for index in kept)
    if POOLED_LABEL in labels:
        raise ParameterError(f"a cluster is already called {POOLED_LABEL!r}; rename it to pool")
    regroup = np.full(len(layout.clusters), len(kept))
    regroup[kept] = np.arange(len(kept))
    pooled = replace(
        layout,
        clusters=(*labels, POOLED_LABEL),
        sizes=np.vstack([layout.sizes[kept], layout.sizes[small].sum(axis=0)]),
    )
    largest = int(n_units[small].max())
    found = Pooling(
        n_clusters=int(small.sum()),
        largest=largest,
        min_cell_size=min_cell_size if largest < least else None,
    )
    return PooledLayout(pooled, regroup, found)


def check_assignment(layout: Layout) -> None:
    """Raise a DataError if arms were assigned to clusters as a whole, not within them."""
    n_units = layout.sizes.sum(axis=1)
    several = n_units > 1
    alone = (layout.sizes[several] > 0).sum(axis=1) == 1
    if not alone.any():
        return
    probs = (_shares(layout) ** n_units[several, np.newaxis]).sum(axis=1)
    chance = float(probs.sum()) + _NO_CHANCE * float(np.sqrt((probs * (1 - probs)).sum()))
    if alone.mean() > 1 / 2 and alone.sum() > chance:
        raise DataError(
            f"{int(alone.sum()):,} of {int(several.sum()):,} clusters have units in one arm only: "
            "whole clusters were assigned. Use this column as the randomization unit: "
            "randomization_unit (--randomization-unit) instead of cluster"
        )


def _shares(layout: Layout) -> FloatArray:
    return np.asarray(layout.sizes.sum(axis=0) / layout.n_units)


def _lack_probs(n_units: IntArray, shares: FloatArray) -> FloatArray:
    """The probability that a cluster lacks some arm, at most, if units are assigned one by one."""
    return np.asarray(((1 - shares) ** n_units[:, np.newaxis]).sum(axis=1))


def pooling_notes(layout: Layout, pooling: Pooling | None) -> tuple[str, ...]:
    """Notes about clusters that were pooled, and about those that still lack an arm."""
    notes = () if pooling is None else (pooling.in_words(layout),)
    lacking = ~layout.complete
    if not lacking.any():
        return notes
    n_units = int(layout.sizes[lacking].sum())
    left_out = (
        f"Effects leave out {counted(int(lacking.sum()), 'cluster')} ({n_units:,} units) without "
        "units in some arm."
    )
    return (*notes, left_out)
