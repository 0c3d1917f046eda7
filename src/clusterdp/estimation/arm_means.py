"""Means of arms and their differences: the same for everyone, segments and adjusted effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation import cell_weights
from clusterdp.estimation.calibration import Functional
from clusterdp.estimation.moments import EffectArrays, welch_degrees
from clusterdp.estimation.profiles import spread_cells

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.calibration import Calibrated, Calibration
    from clusterdp.estimation.cell_weights import CellWeights
    from clusterdp.estimation.group_variance import GroupScores
    from clusterdp.estimation.moments import CellMoments, Estimator, KnownMeans
    from clusterdp.estimation.profiles import Profiles, ProfileSums
    from clusterdp.experiment.layout import Layout


# An effect has an interval unless noise of privacy gives its variance V an error of variance above
# this times V²: as much as one degree of freedom.
_MOST_ERROR = 2.0


class ArmMeans(NamedTuple):
    """Means of arms with the parts of their variances; axes `[..., arm]`.

    Attributes:
        means: As distances from any one number.
        sampling: Estimated variances of sampling; they can be negative by chance.
        privacy: Estimated variances of privacy.
        degrees: Degrees of freedom of the variances, from numbers of units or groups.
        errors: What else there is in the variances of the variances: noise of privacy, and events
            that are few.
    """

    means: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    degrees: FloatArray
    errors: FloatArray

    @property
    def variances(self) -> FloatArray:
        """Of sampling and privacy together, arm by arm."""
        return np.asarray(np.maximum(self.sampling, 0.0) + self.privacy)

    @property
    def effective_degrees(self) -> FloatArray:
        """Degrees of freedom of the variances, whatever they are uncertain from.

        A variance V that is estimated with variance 2V²/ν has ν of them.
        """
        more = self.errors / np.maximum(2 * self.variances**2, np.finfo(float).tiny)
        return np.asarray(np.maximum(1 / (1 / self.degrees + more), 1.0))

    def between_groups(self, scores: tuple[GroupScores, ...]) -> ArmMeans:
        """The same, where groups were assigned to arms as a whole; `scores` are arm by arm."""
        spread, noise, most, degrees = np.array(
            [(one.variance, one.noise, one.most, one.degrees) for one in scores]
        ).T
        sampling = np.minimum(spread - noise, most)
        # What is subtracted is known, so that the error of the rest is as large.
        errors = 2 * (spread**2 - np.maximum(sampling, 0.0) ** 2) / degrees
        return self._replace(sampling=sampling, degrees=degrees, errors=np.maximum(errors, 0.0))

    def effects(self, layout: Layout, origin: float = 0.0) -> EffectArrays:
        """Differences against control; `origin` is the number that means are distances from.

        Parts of the variance are added up before what falls below zero is set to zero. A variance
        is infinite where it is not estimated better than to about its own size.
        """
        control, treated = [layout.control], list(layout.treatments)
        sampling = self.sampling[..., treated] + self.sampling[..., control]
        privacy = self.privacy[..., treated] + self.privacy[..., control]
        errors = self.errors[..., treated] + self.errors[..., control]
        of_arms, variances = self.variances, np.maximum(sampling, 0.0) + privacy
        return EffectArrays(
            effects=self.means[..., treated] - self.means[..., control],
            variances=np.where(errors > _MOST_ERROR * variances**2, np.inf, variances),
            privacy_variances=privacy,
            control_means=self.means[..., layout.control] + origin,
            control_variances=of_arms[..., layout.control],
            treated_means=self.means[..., treated] + origin,
            treated_variances=of_arms[..., treated],
            degrees=welch_degrees(of_arms, self.effective_degrees, layout),
        )


def weigh(
    sizes: IntArray,
    layout: Layout,
    arms: list[int],
    estimator: Estimator = "stratified",
    *,
    as_totals: bool = False,
) -> CellWeights:
    """Weights of the cells of some arms in a segment, or in everyone.

    Args:
        sizes: The units of the segment in every cell, of all arms; axes `[..., cluster, arm]`.
        layout: The cells of the whole table.
        arms: The arms to compare.
        estimator: How cells are weighed.
        as_totals: Whether units are to have the weights that they have in totals.
    """
    if estimator == "unstratified":
        return cell_weights.weigh_units_alike(sizes, arms)
    return cell_weights.weigh_cells(sizes, layout, arms, as_totals=as_totals)


def true_effects(moments: CellMoments, layout: Layout, estimator: Estimator) -> EffectArrays:
    """Overall effects of all treatments, from true outcomes."""
    pairs = []
    for arm in layout.treatments:
        arms = [layout.control, arm]
        weights, chosen = weigh(layout.sizes, layout, arms, estimator), moments.of_arms(arms)
        sampling = cell_weights.arm_variances(chosen, weights)
        means = ArmMeans(
            means=(weights.shares * chosen.means).sum(axis=-2),
            sampling=sampling,
            privacy=np.zeros_like(sampling),
            degrees=weights.degrees(n_slopes=0),
            errors=np.zeros_like(sampling),
        )
        pairs.append(means.effects(layout.of_arms(arms)))
    return _joined(pairs)


def to_means(
    found: Calibrated,
    moments: CellMoments,
    weights: CellWeights,
    n_slopes: int = 0,
    known: KnownMeans | None = None,
) -> ArmMeans:
    """Calibrated means of arms with their variances.

    Args:
        found: The means.
        moments: Of the rows they are of, of these arms.
        weights: Of the same cells.
        n_slopes: How many slopes were fitted in each arm.
        known: Better means of the same cells, if there are any.
    """
    sampling = np.minimum(_sampling(found, moments, weights, known), found.spread.most)
    return ArmMeans(
        means=found.values,
        sampling=sampling,
        privacy=found.privacy,
        degrees=weights.degrees(n_slopes),
        errors=found.spread.error(sampling, found.privacy, n_slopes),
    )


def _sampling(
    found: Calibrated, moments: CellMoments, weights: CellWeights, known: KnownMeans | None
) -> FloatArray:
    """Variances of sampling: those of rows, minus what noise adds to them, with squares calibrated.

    Within strata, outcomes are compared with the mean of their cell. That has noise of its own,
    which calibration does not take off. Compared with the calibrated mean of the arm, outcomes vary
    more, by how much cells differ; and the estimate is better. The difference is taken off, and
    three standard errors of its noise are added: less where they are small beside what is left,
    none of rows alone. The smaller of the two is used, which errs on the wide side. Where sums of
    cells are published, these tell how cells differ.
    """
    each = weights.lone_factors * weights.of_units() ** 2
    within = cell_weights.arm_variances(moments, weights)
    distances = moments.means - found.values[..., np.newaxis, :]
    around = (each * (moments.squares + moments.sizes * distances**2)).sum(axis=-2)
    between = around - within
    widest = around - (each * moments.noise).sum(axis=-2) + found.spread.shift
    noise = found.saved_share**2 * _between_noise(moments, weights, distances)
    lost = np.zeros(())  # of the spread within cells, to their own means
    if known is not None:
        distances, errors = known.means - found.values[..., np.newaxis, :], known.noise
        of_cells = np.where(moments.sizes > 1, each * moments.sizes, 0.0)
        between = (of_cells * (distances**2 - errors)).sum(axis=-2)
        noise = (of_cells**2 * (4 * distances**2 * errors + 2 * errors**2)).sum(axis=-2)
        whole = (each * moments.sizes).sum(axis=-2)
        lost = (of_cells / np.maximum(moments.sizes - 1, 1)).sum(axis=-2) / whole
    left = np.maximum(widest - np.maximum(between, 0.0), 0.0) + found.privacy
    inside = widest - between
    inside = inside + lost * np.maximum(inside, 0.0)
    inside = inside + _ratio(9 * noise, left + 3 * np.sqrt(noise))
    alone = (np.abs(weights.shares) > 0).sum(axis=-2) == 1  # one cell differs from no other
    smaller = np.where(alone, widest, np.minimum(widest, inside))
    sampling = np.where(noise > 0, smaller, inside)
    return np.where(np.isnan(within), np.nan, sampling)  # an arm of one unit shows no spread


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """A ratio, or zero where the denominator is."""
    return np.asarray(above / np.where(below == 0, 1.0, below))


def _between_noise(moments: CellMoments, weights: CellWeights, distances: FloatArray) -> FloatArray:
    """The variance that noise gives to the difference of cells; axes `[..., arm]`.

    It is a sum of squares of distances d of cell means, each with noise e: 2de + e². Distances are
    observed with that noise in them, so this errs on the high side.
    """
    there = np.abs(weights.shares) > 0
    used = np.where(there, moments.sizes, 0)
    each = np.where(there, moments.noise, 0.0).sum(axis=-2, keepdims=True)
    each = each / np.maximum(used.sum(axis=-2, keepdims=True), 1)
    sizes = np.maximum(used, 1)
    strata = sizes / np.maximum(sizes - 1, 1)
    pooled = (sizes * weights.inverse_sizes / (1 - weights.inverse_sizes)) ** 2
    pairs = np.where(weights.pooled, pooled, strata)
    squared = 2 * pairs * (weights.of_units() ** 2 * each) ** 2
    linear = 4 * weights.of_units() ** 4 * used * distances**2 * each
    return np.asarray((squared + linear).sum(axis=-2))


def arm_effects(  # noqa: PLR0913 - the parts of a release
    part: ProfileSums,
    layout: Layout,
    estimator: Estimator,
    profiles: Profiles,
    calibration: Calibration,
    *,
    origin: float,
) -> EffectArrays:
    """Effects of all treatments on some units, of one release or of many simulated ones.

    Args:
        part: Their rows; with sizes that are alike in all replicates for everyone.
        layout: The cells.
        estimator: How cells are weighed.
        profiles: What sums distinguish.
        calibration: By published sums.
        origin: The number that outcomes are distances from.
    """
    moments = part.cell_moments(profiles)
    pairs = []
    for arm in layout.treatments:
        arms = [layout.control, arm]
        weights = weigh(moments.sizes, layout, arms, estimator)
        each = spread_cells(weights.of_units(), profiles, arms)
        found = calibration.apply(Functional.of_rows(part, each))
        known = None if calibration.cells is None else calibration.cells.of_arms(arms)
        means = to_means(found, moments.of_arms(arms), weights, known=known)
        pairs.append(means.effects(layout.of_arms(arms), origin))
    return _joined(pairs)


def _joined(pairs: list[EffectArrays]) -> EffectArrays:
    """Effects of one treatment each, together; control's mean is that of the first comparison."""

    def joined(parts: list[FloatArray | None]) -> FloatArray:
        return np.concatenate([part for part in parts if part is not None], axis=-1)

    return EffectArrays(
        effects=joined([one.effects for one in pairs]),
        variances=joined([one.variances for one in pairs]),
        privacy_variances=joined([one.privacy_variances for one in pairs]),
        control_means=pairs[0].control_means,
        control_variances=pairs[0].control_variances,
        treated_means=joined([one.treated_means for one in pairs]),
        treated_variances=joined([one.treated_variances for one in pairs]),
        degrees=joined([one.degrees for one in pairs]),
    )
