"""Simulated releases of rows with totals, breakdowns and folds, from counts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.cells.layout import Breakdown, Layout
from clusterdp.estimation.effects.effect import EffectTarget, to_effect
from clusterdp.estimation.means.arms import to_means
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import declared_noise
from clusterdp.estimation.means.responses import ProfileSums, ResponseValues
from clusterdp.estimation.means.sums import WeightedSums, of_fold
from clusterdp.estimation.means.weights import weigh
from clusterdp.estimation.metrics.base import ArmPairMeans, SegmentEffect
from clusterdp.estimation.reading.profiles import Profiles, spread_cells
from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.draw import Statistics
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace

BY = ("region",)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentRelease:
    """One release: rows by segment and profile, and their calibration.

    Attributes:
        layout: Clusters, arms, one breakdown and folds.
        profiles: Cells, folds and groups.
        rows: Sums of rows; axes `[segment, profile]`.
        calibration: By all published sums, or by those of one fold.
    """

    layout: Layout
    profiles: Profiles
    rows: ProfileSums
    calibration: Calibration

    def effect(self, label: int, chosen: FloatArray | None = None) -> SegmentEffect:
        """The effect on some rows.

        Args:
            label: What the segment is called.
            chosen: Which rows: 0 or 1, with axes that broadcast to `[segment, profile]`.
        """
        rows = self.rows
        mask = np.ones((1, 1)) if chosen is None else chosen
        part = ProfileSums(
            sizes=(rows.sizes * mask).sum(axis=0).astype(np.int64),
            sums=(rows.sums * mask).sum(axis=0),
            squares=(rows.squares * mask).sum(axis=0),
            noise=(rows.noise * mask).sum(axis=0),
        )
        moments, arms = part.cell_moments(self.profiles), [0, 1]
        weights = weigh(moments.sizes, self.layout, arms)
        each = spread_cells(weights.of_units(), self.profiles, arms)
        found = self.calibration.apply(WeightedSums.from_rows(part, each))
        means = to_means(found, moments, weights)
        arrays, of = (
            means.effects(self.layout),
            EffectTarget("outcome", 1, 0, (("segment", label),)),
        )
        return SegmentEffect(
            value=to_effect(arrays, of, weights.sizes.sum(axis=0)),
            arrays=arrays,
            means=ArmPairMeans(found, means),
            n_units=int(part.sizes.sum()),
        )


def segment_layout(counts: IntArray) -> Layout:
    """The layout of counts; axes `[segment, fold, group, cluster, arm, category]`."""
    sizes = counts.sum(axis=-1)
    n_folds, n_groups, n_clusters, n_arms = sizes.shape[1:]
    names = tuple(map(str, range(n_groups)))
    breakdown = Breakdown(columns=BY, labels=(names,), sizes=sizes.sum(axis=(0, 1, 3)))
    return Layout(
        clusters=tuple(range(n_clusters)),
        arms=tuple(range(n_arms)),
        control=0,
        sizes=sizes.sum(axis=(0, 1, 2)),
        breakdowns=(breakdown,),
        folds=n_folds,
    )


def group_totals(
    counts: IntArray, space: CategorySpace, layout: Layout, mechanism: Mechanism
) -> CellTotals:
    """True totals of cells, of everyone and of the breakdown; counts as above, for one segment."""
    lattice, weights = space.metric_lattice(), mechanism.total_weights(layout)

    def by_group(integers: IntArray) -> IntArray:
        sums = counts @ integers.T  # [fold, group, cluster, arm, metric]
        weighted = (weights[..., np.newaxis] * sums).sum(axis=2)
        return np.asarray(weighted.swapaxes(0, 1))

    groups = by_group(lattice.integers), by_group(lattice.squares())
    sums, squares = (part.sum(axis=0, keepdims=True) for part in groups)
    cells = CellTotals.from_counts(counts.sum(axis=(0, 1)), space)
    return cells._replace(groups={(): (sums, squares), BY: groups})


def release_segments(
    counts: IntArray,
    space: CategorySpace,
    mechanism: Mechanism,
    rng: np.random.Generator,
    chosen_fold: int | None = None,
) -> SegmentRelease:
    """A release of some units, and one fold of it if asked for.

    Args:
        counts: Axes `[segment, fold, group, cluster, arm, category]`.
        space: The categories.
        mechanism: What is released.
        rng: Where randomness comes from.
        chosen_fold: The fold to use alone.
    """
    layout = segment_layout(counts)
    totals = group_totals(counts.sum(axis=0), space, layout, mechanism)
    statistics, channel = release_cells(totals, layout, space, mechanism, simulated_noise(rng))
    assert channel is not None
    released = channel.simulate(counts, rng)
    return read_segments(released, statistics, channel, layout, space, mechanism, chosen_fold)


def read_segments(  # noqa: PLR0917 - the parts of a release
    released: IntArray,
    statistics: Statistics,
    channel: Channel,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    chosen_fold: int | None,
) -> SegmentRelease:
    """A release as estimators read it; axes of `released` as those of counts."""
    outputs = ResponseValues.from_channel(channel, space)
    # [segment, fold, group, cluster, arm, response] to [segment, profile, response]
    by_profile = np.moveaxis(released, (3, 4), (1, 2))
    n_folds, n_groups = by_profile.shape[3:5]
    flat = by_profile.reshape(len(released), -1, released.shape[-1])
    cluster_arm, fold, group = (
        axis.ravel() for axis in np.indices((layout.sizes.size, n_folds, n_groups))
    )
    chosen = np.ones(len(fold), dtype=np.bool_) if chosen_fold is None else fold == chosen_fold
    flat, cluster_arm = flat[:, chosen], cluster_arm[chosen]
    groups = outputs.groups.ravel()[cluster_arm]
    values = outputs.values[groups]
    rows = ProfileSums(
        sizes=flat.sum(axis=-1),
        sums=(flat * values).sum(axis=-1),
        squares=(flat * values**2).sum(axis=-1),
        noise=(flat * outputs.noise[groups]).sum(axis=-1),
    )
    profiles = Profiles(
        cells=cluster_arm,
        sizes=rows.sizes.sum(axis=0),
        shape=(len(layout.clusters), len(layout.arms)),
        folds=None if chosen_fold is not None else fold[chosen],
        groups={BY: group[chosen]},
    )
    readings = tuple(reading for one in statistics for reading in one.sum_readings())
    if chosen_fold is not None:
        readings = of_fold(readings, chosen_fold)
    whole = ProfileSums(
        sizes=profiles.sizes,
        sums=rows.sums.sum(axis=0),
        squares=rows.squares.sum(axis=0),
        noise=rows.noise.sum(axis=0),
    )
    calibration = Calibration(readings, profiles, whole, declared_noise(mechanism, space))
    return SegmentRelease(layout=layout, profiles=profiles, rows=rows, calibration=calibration)


def of_group(release: SegmentRelease, group: int) -> FloatArray:
    """Which rows are of a group of the breakdown."""
    return np.asarray(release.profiles.groups[BY] == group, dtype=np.float64)[np.newaxis]


def of_segment(release: SegmentRelease, segment: int) -> FloatArray:
    """Which rows are of a segment."""
    n_segments = len(release.rows.sizes)
    return np.asarray(np.arange(n_segments) == segment, dtype=np.float64)[:, np.newaxis]
