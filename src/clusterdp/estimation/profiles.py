"""Profiles: the finest public partition of units that published sums distinguish.

Units of a profile are in the same cell, fold and groups. Estimates read released rows as sums over
profiles, so that fifty million rows become as many numbers as there are profiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.moments import CellMoments
from clusterdp.experiment.category_space import Ends

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scipy.sparse import csr_array

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiles:
    """Which cell, fold and groups each profile is of; axes of arrays `[profile]`.

    Attributes:
        cells: Places in a flat `[cluster, arm]` array.
        sizes: Numbers of units, all of them released.
        shape: How many clusters and arms there are.
        folds: The fold of each; None where there is one.
        groups: The group of each, for every breakdown that sums are published of.
        assigned: The group that was assigned to an arm as a whole; None if units were.
    """

    cells: IntArray
    sizes: IntArray
    shape: tuple[int, int]
    folds: IntArray | None
    groups: Mapping[tuple[str, ...], IntArray]
    assigned: IntArray | None = None

    @classmethod
    def of_cells(cls, layout: Layout) -> Profiles:
        """Every cell as a profile: where no sum distinguishes more."""
        n_clusters, n_arms = layout.sizes.shape
        sizes = layout.sizes.ravel()
        cells = np.arange(sizes.size)
        return cls(cells=cells, sizes=sizes, shape=(n_clusters, n_arms), folds=None, groups={})

    @property
    def arms(self) -> IntArray:
        """The arm of each profile."""
        return np.asarray(self.cells % self.shape[1])

    @property
    def clusters(self) -> IntArray:
        """The cluster of each profile."""
        return np.asarray(self.cells // self.shape[1])

    def chosen(self, places: IntArray) -> Profiles:
        """Some of the profiles."""
        return Profiles(
            cells=self.cells[places],
            sizes=self.sizes[places],
            shape=self.shape,
            folds=None if self.folds is None else self.folds[places],
            groups={by: groups[places] for by, groups in self.groups.items()},
            assigned=None if self.assigned is None else self.assigned[places],
        )

    def sum_cells(self, terms: FloatArray | IntArray) -> FloatArray:
        """Sums over the profiles of each cell; from `[..., profile]` to `[..., cluster, arm]`."""
        n_cells = self.shape[0] * self.shape[1]
        if np.array_equal(self.cells, np.arange(n_cells)):
            return np.asarray(terms, np.float64).reshape(*terms.shape[:-1], *self.shape)
        flat = terms.reshape(-1, terms.shape[-1])
        sums = np.stack([np.bincount(self.cells, row, n_cells) for row in flat])
        return np.asarray(sums, np.float64).reshape(*terms.shape[:-1], *self.shape)


class Counted(NamedTuple):
    """Rows counted by profile and response; axes `[entry]`."""

    profiles: IntArray
    responses: IntArray
    counts: IntArray


class Outputs(NamedTuple):
    """What an output tells of a unit; axes `[..., group of cells, output]`.

    Attributes:
        values: The debiased outcome, as a distance from the middle of the metric's values.
        noise: An unbiased estimate of the variance of the debiased outcome's noise.
        groups: The group of each cell; axes `[..., cluster, arm]`.
        middle: The middle of the metric's values.
    """

    values: FloatArray
    noise: FloatArray
    groups: IntArray
    middle: float

    @classmethod
    def of(cls, channel: Channel, space: CategorySpace, metric: int = 0) -> Outputs:
        """The outputs of a channel, for one metric."""
        return cls.decoded(channel, channel.decode(metric), space.metric_values()[metric])

    @classmethod
    def decoded(cls, channel: Channel, debiased: FloatArray, values: FloatArray) -> Outputs:
        """The outputs of a channel, for a function of the category.

        Two values are equally far from their middle. So the squared distance of a debiased outcome
        exceeds a known number by the variance of its noise, on average.

        Args:
            channel: The channel.
            debiased: What its outputs count as; axes `[..., group of cells, output]`.
            values: The function; axes `[category]`.
        """
        ends = Ends.of_values(values)
        distances = debiased - ends.middle
        if len(np.unique(values)) <= 2:
            noise = np.where(channel.possible(), distances**2 - (ends.span / 2) ** 2, 0.0)
        else:
            noise = channel.read_numbers(channel.noise_of(values, debiased))
        return cls(distances, noise, channel.groups, ends.middle)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileSums:
    """Sums over the rows of each profile; axes `[..., profile]`.

    Attributes:
        sizes: Numbers of rows.
        sums: Of debiased outcomes, as distances from the middle of the metric's values.
        squares: Of the squares of these distances.
        noise: Of the estimated variances of their noise.
    """

    sizes: IntArray
    sums: FloatArray
    squares: FloatArray
    noise: FloatArray

    @classmethod
    def of_rows(cls, counted: Counted, profiles: Profiles, outputs: Outputs) -> ProfileSums:
        """Sums over counted rows."""
        groups = outputs.groups.ravel()[profiles.cells[counted.profiles]]
        values = outputs.values[groups, counted.responses]
        noise = outputs.noise[groups, counted.responses]

        def add(terms: FloatArray | IntArray) -> FloatArray:
            sums = np.bincount(counted.profiles, counted.counts * terms, len(profiles.cells))
            return np.asarray(sums, np.float64)

        return cls(
            sizes=add(np.ones_like(counted.counts)).astype(np.int64),
            sums=add(values),
            squares=add(values**2),
            noise=add(noise),
        )

    @classmethod
    def of_cell_counts(cls, counts: IntArray, outputs: Outputs) -> ProfileSums:
        """Sums over rows counted by cell and response, cells being the profiles.

        Args:
            counts: Axes `[..., cluster, arm, response]`.
            outputs: What responses tell.
        """
        values = outputs.values[..., outputs.groups, :]

        def add(terms: FloatArray) -> FloatArray:
            sums = (counts * terms).sum(axis=-1)
            return np.asarray(sums.reshape(*sums.shape[:-2], -1))

        sizes = counts.sum(axis=-1)
        return cls(
            sizes=sizes.reshape(*sizes.shape[:-2], -1),
            sums=add(values),
            squares=add(values**2),
            noise=add(outputs.noise[..., outputs.groups, :]),
        )

    def cell_moments(self, profiles: Profiles) -> CellMoments:
        """Moments of cells; means as distances from the middle."""
        sizes = np.asarray(profiles.sum_cells(self.sizes), dtype=np.int64)
        some = np.maximum(sizes, 1)  # the moments of an empty cell are zeros, and count for nothing
        means = profiles.sum_cells(self.sums) / some
        squares = profiles.sum_cells(self.squares) - sizes * means**2
        return CellMoments(
            sizes=sizes, means=means, squares=squares, noise=profiles.sum_cells(self.noise)
        )


def spread_cells(of_cells: FloatArray, profiles: Profiles, arms: list[int]) -> FloatArray:
    """Numbers of cells of some arms, for every profile: zero in those of other arms.

    From `[..., cluster, arm]` to `[..., arm, profile]`, arms in the order given.
    """
    by_arm = np.moveaxis(of_cells, -1, -2)[..., profiles.clusters]
    return np.where(profiles.arms == np.array(arms)[:, np.newaxis], by_arm, 0.0)


def times(terms: FloatArray, matrix: csr_array) -> FloatArray:
    """A product over the last axis with a sparse matrix, whatever the axes before it."""
    flat = terms.reshape(math.prod(terms.shape[:-1]), terms.shape[-1])
    return np.asarray(flat @ matrix).reshape(*terms.shape[:-1], matrix.shape[1])
