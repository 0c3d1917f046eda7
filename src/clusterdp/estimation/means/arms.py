"""Means of arms and their differences: the same for everyone, segments and adjusted effects.

Variances where arms were assigned to groups of units as a whole.

Units of a group share their arm and much else, so that what counts is how groups differ. With w_g
the share of a group in its arm's mean and T_g what it adds to the mean m, the residual is
e_g = T_g − w_g·m. A large group pulls the mean towards itself; e_g²/(1 − w_g) makes up for that
(Bell and McCaffrey, 2002). Few groups know their variance badly: degrees of freedom follow from the
shares, if groups of any size differ by as much.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import EffectArrays, Estimator
from clusterdp.estimation.means import weights as cell_weights
from clusterdp.estimation.means.calibration import CalibratedSums, Calibration
from clusterdp.estimation.means.responses import CellMoments, ProfileSums
from clusterdp.estimation.means.spread import ratio
from clusterdp.estimation.means.sums import WeightedSums
from clusterdp.estimation.means.weights import CellWeights, weigh
from clusterdp.estimation.reading.profiles import Profiles, spread_cells, sums_by
from clusterdp.outcomes.space import CategorySpace, ValueRange
from clusterdp.statistics.base import CellTotals, ClusterContrasts

# An effect has an interval unless noise of privacy gives its variance V an error of variance above
# this times V²: as much as one degree of freedom.
MOST_ERROR = 2.0


class ArmMeans(NamedTuple):
    """Means of arms with the parts of their variances; axes `[..., arm]`.

    Attributes:
        means: As distances from any one number.
        sampling: Estimated variances of sampling; they can be negative by chance.
        privacy: Estimated variances of privacy.
        degrees: Degrees of freedom of the variances, from numbers of units or groups.
        errors: What else there is in the variances of the variances: noise of privacy, and events
            that are few.
        least: What variances of sampling are at least: zero, or what no slope can explain.
    """

    means: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    degrees: FloatArray
    errors: FloatArray
    least: FloatArray

    @property
    def variances(self) -> FloatArray:
        """Of sampling and privacy together, arm by arm."""
        return np.asarray(np.maximum(self.sampling, self.least) + self.privacy)

    @property
    def effective_degrees(self) -> FloatArray:
        """Degrees of freedom of the variances, from all sources of uncertainty.

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
        found = self._replace(sampling=sampling, degrees=degrees)
        # What is subtracted is known, and what privacy adds to the mean as well: the error is that
        # of the spread of groups with its noise, more or less than the whole variance would have.
        return found._replace(errors=2 * (spread**2 - found.variances**2) / degrees)

    def explained(self, plain: ArmMeans, share: FloatArray) -> ArmMeans:
        """The same, adjusted by slopes that take off a share of what they explain.

        Slopes explain the whole variance of plain means at most, for any noise in them.
        """
        return self._replace(least=(1 - share) * np.maximum(plain.sampling, 0.0))

    def effects(self, layout: Layout, origin: float = 0.0) -> EffectArrays:
        """Differences against control; `origin` is the number that means are distances from.

        Parts of the variance are added up before what falls below the least is raised to it: one
        arm makes up for the other. A variance is infinite where it is not estimated better than to
        about its own size.
        """
        treated = list(layout.treatments)
        sampling, least, privacy, errors = (
            layout.against_control(part)
            for part in (self.sampling, self.least, self.privacy, self.errors)
        )
        of_arms, variances = self.variances, np.maximum(sampling, least) + privacy
        return EffectArrays(
            effects=self.means[..., treated] - self.means[..., [layout.control]],
            variances=np.where(errors > MOST_ERROR * variances**2, np.inf, variances),
            privacy_variances=privacy,
            control_means=self.means[..., layout.control] + origin,
            control_variances=of_arms[..., layout.control],
            treated_means=self.means[..., treated] + origin,
            treated_variances=of_arms[..., treated],
            degrees=welch_degrees(of_arms, self.effective_degrees, layout),
        )


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
            least=np.zeros_like(sampling),
        )
        pairs.append(means.effects(layout.of_arms(arms)))
    return _joined(pairs)


def to_means(  # noqa: PLR0913, PLR0917 - means, and what their variances follow from
    found: CalibratedSums,
    moments: CellMoments,
    weights: CellWeights,
    n_slopes: int = 0,
    explained: FloatArray | float = 0.0,
    known: tuple[FloatArray, ...] | None = None,
) -> ArmMeans:
    """Calibrated means of arms with their variances.

    Args:
        found: The means.
        moments: Moments of their rows, for these arms.
        weights: Of the same cells.
        n_slopes: How many slopes were fitted in each arm.
        explained: The share of what slopes explain of the variance that is taken off.
        known: Better means of the same cells, and their noise, if there are any.
    """
    sampling = np.minimum(_sampling(found, moments, weights, known), found.spread.most)
    if moments.asked is not None:  # an arm with one answer shows no spread
        sampling = np.where(moments.asked.sum(axis=-2) > 1, sampling, np.nan)
    return ArmMeans(
        means=found.values,
        sampling=sampling,
        privacy=found.privacy,
        degrees=weights.of_asked(moments).degrees(n_slopes),
        errors=found.spread.error(sampling, n_slopes, explained),
        least=np.zeros_like(sampling),
    )


def _sampling(
    found: CalibratedSums,
    moments: CellMoments,
    weights: CellWeights,
    known: tuple[FloatArray, ...] | None,
) -> FloatArray:
    """Variances of sampling: those of rows, minus what noise adds to them, with squares calibrated.

    Within strata, outcomes are compared with the mean of their cell. That has noise of its own,
    which calibration does not take off. Compared with the calibrated mean of the arm, outcomes vary
    more, by how much cells differ; and the estimate is better. The difference is taken off, and
    three standard errors of its noise are added: less where they are small compared with what is
    left, none of rows alone. The smaller of the two is used, which errs on the wide side. Where
    sums of cells are published, these show how cells differ. Cells differ by no more than outcomes
    do, so a difference that is noisier than that is hardly taken off: one cell with noise of eight
    standard deviations would leave nothing of the variance.
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
        means, errors = known
        distances = means - found.values[..., np.newaxis, :]
        of_cells = np.where(moments.sizes > 1, each * moments.sizes, 0.0)
        between = (of_cells * (distances**2 - errors)).sum(axis=-2)
        noise = (of_cells**2 * (4 * distances**2 * errors + 2 * errors**2)).sum(axis=-2)
        whole = (each * moments.sizes).sum(axis=-2)
        lost = (of_cells / np.maximum(moments.sizes - 1, 1)).sum(axis=-2) / whole
    most = np.maximum(widest, 0.0)
    shrunk = np.minimum(between, most) * ratio(most**2, most**2 + noise)
    between = np.where(noise > 0, shrunk, between)
    left = np.maximum(widest - np.maximum(between, 0.0), 0.0) + found.privacy
    inside = widest - between
    inside = inside + lost * np.maximum(inside, 0.0)
    inside = inside + ratio(9 * noise, left + 3 * np.sqrt(noise))
    alone = (np.abs(weights.shares) > 0).sum(axis=-2) == 1  # one cell differs from no other
    # Outcomes are nearer to an estimate of their mean than to it, by its variance.
    missed = found.spread.weights * (most + found.privacy)
    smaller = np.where(alone, widest + missed, np.minimum(widest, inside))
    sampling = np.where(noise > 0, smaller, inside)
    return np.where(np.isnan(within), np.nan, sampling)  # an arm of one unit shows no spread


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
        part: Their rows; with sizes that are the same in all replicates for all units.
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
        found = calibration.apply(WeightedSums.from_rows(part, each))
        known = calibration.known_cells(arms)
        means = to_means(found, moments.of_arms(arms), weights, known=known)
        pairs.append(means.effects(layout.of_arms(arms), origin))
    return _joined(pairs)


def _joined(pairs: list[EffectArrays]) -> EffectArrays:
    """Effects of one treatment each, together; control's mean is that of the first comparison."""
    every = {one.name: [getattr(pair, one.name) for pair in pairs] for one in fields(EffectArrays)}
    return EffectArrays(
        **{
            name: parts[0] if name.startswith("control") else np.concatenate(parts, axis=-1)
            for name, parts in every.items()
        }
    )


# More groups than these are not calibrated one by one: so many know their variance by rows.
_MOST_CALIBRATED = 1000


class GroupScores(NamedTuple):
    """What groups say of the variance of an arm's mean.

    Attributes:
        scores: e/√(1 − w); their squares add up to the variance, and products with those of
            another segment to a covariance. NaN where one group is all of the arm. Axes `[group]`.
        degrees: Degrees of freedom of the variance.
        noise: What noise of privacy adds to the variance.
        most: What the variance is at most without noise, for any outcomes.
    """

    scores: FloatArray
    degrees: float
    noise: float = 0.0
    most: float = np.inf

    @property
    def variance(self) -> float:
        """The variance of the arm's mean, with what noise of privacy adds to it."""
        return float(self.scores @ self.scores)


def profile_scores(
    assigned: IntArray,
    part: ProfileSums,
    places: IntArray,
    each: FloatArray,
    calibration: Calibration,
) -> GroupScores:
    """The scores of groups for the mean of an arm.

    What a group adds to the mean is a weighted sum over rows itself, and calibrated like the mean:
    by totals of the groups, where these are published.

    Args:
        assigned: The group of each profile.
        part: The rows of each profile.
        places: Which of all profiles these are.
        each: The weight of a unit of each profile in the mean.
        calibration: By published sums.
    """
    labels, groups = np.unique(assigned, return_inverse=True)
    by_group = partial(sums_by, groups, n_groups=len(labels))
    shares = by_group(each * part.sizes)
    if len(labels) > _MOST_CALIBRATED:
        totals = by_group(each * part.sums)
        covariances = np.diag(by_group(each**2 * part.noise))
    else:
        mine = groups == np.arange(len(labels))[:, np.newaxis]
        found = calibration.apply(WeightedSums.from_rows(part, np.where(mine, each, 0.0), places))
        totals = found.values
        covariances, _ = calibration.covariances(
            coefficients=found.coefficients, noise_sums=found.noise_sums
        )
        np.fill_diagonal(covariances, found.privacy)
    scores = group_scores(shares, totals, covariances)
    by_label = np.zeros(int(labels[-1]) + 1)
    by_label[labels] = scores.scores
    most = calibration.unit_noise.most_spread * float(shares @ shares)
    return scores._replace(scores=by_label, most=most)


def group_scores(
    shares: FloatArray, totals: FloatArray, noise: FloatArray | None = None
) -> GroupScores:
    """The scores of groups for an arm's mean.

    Args:
        shares: w, what each group weighs in the mean; they add up to one. Axes `[group]`.
        totals: T, what each group adds to the mean; axes `[group]`.
        noise: Covariances of the noise of privacy in T, axes `[group, group]`; None without.
    """
    there = shares > 0
    if there.sum() < 2:
        return GroupScores(np.where(there, np.nan, 0.0), 1.0)
    factors = 1 / (1 - shares)
    residuals = np.where(there, totals - shares * totals.sum(), 0.0)
    added = 0.0
    if noise is not None:
        of_residuals = np.diag(noise) - 2 * shares * noise.sum(axis=1) + shares**2 * noise.sum()
        added = float((factors * of_residuals)[there].sum())
    degrees = _degrees(shares[there], factors[there])
    return GroupScores(residuals * np.sqrt(factors), degrees, added)


def _degrees(shares: FloatArray, factors: FloatArray) -> float:
    """Satterthwaite's (tr ΩM)²/tr (ΩM)², Ω = diag(w²).

    The variance is T'MT with M_ij = d_i·[i = j] − a_i − a_j + c, d the factors, a = dw and
    c = Σ dw².
    """
    spread, pulled = shares**2, factors * shares
    shared = factors @ spread
    diagonal = spread * (factors - 2 * pulled + shared)
    # Σ_ij Ω_i·Ω_j·(c − a_i − a_j)², then the diagonal, which also has d.
    total, first, second = spread.sum(), spread @ pulled, spread @ pulled**2
    everywhere = (
        shared**2 * total**2 - 4 * shared * total * first + 2 * total * second + 2 * first**2
    )
    without = spread * (shared - 2 * pulled)
    squared = everywhere + (diagonal**2 - without**2).sum()
    return float(max(diagonal.sum() ** 2 / squared, 1.0))


def total_moments(
    totals: CellTotals, layout: Layout, space: CategorySpace, metric: int
) -> CellMoments:
    """Moments of true outcomes, for the owner, from totals of cells.

    Args:
        totals: Sums of the metrics of every cell, and of their squares.
        layout: The cells.
        space: The categories.
        metric: Which metric.
    """
    lattice, middle = (
        space.metric_lattice(),
        ValueRange.from_values(space.metric_values()[metric]).middle,
    )
    unit, quarter = float(lattice.units[metric]), 4.0 ** lattice.shifts[metric] / 4
    sizes, sums = layout.sizes, totals.sums[..., metric]
    means = unit * sums / np.maximum(sizes, 1)
    spread = totals.squares[..., metric] * unit**2 * quarter - sizes * (means - middle) ** 2
    return CellMoments(
        sizes=sizes,
        means=means,
        squares=np.maximum(spread, 0.0),
        noise=np.zeros_like(means),
    )


def contrast_effects(read: ClusterContrasts, layout: Layout, ends: ValueRange) -> EffectArrays:
    """Stratified effects from a statistic alone (algNH, algNHT).

    Where the statistic estimates how outcomes spread, and little is left of that after noise, the
    sampling variance is taken as zero. Where it does not, it is the largest possible: a variable on
    an interval has variance at most (y_max − y_min)²/4 (Popoviciu).
    """
    sizes, weights = layout.sizes, layout.cluster_shares
    effects = (weights * read.contrasts).sum(axis=-2)
    privacy = np.broadcast_to((weights**2 * read.noise).sum(axis=-2), effects.shape)
    degrees = None
    if read.spread is None or read.arm_noise is None:
        n_units = sizes.sum(axis=-1, keepdims=True)
        spread = ends.span**2 / 4 * n_units / np.maximum(n_units - 1, 1)
    else:
        spread = read.spread
        of_means = read.arm_noise + np.maximum(spread, 0.0) / sizes
        arm_variances = (weights**2 * of_means).sum(axis=-2)
        # Satterthwaite's, from sizes alone: (Σ v_c)²/Σ(v_c²/(n_ac − 1)), v_c = (n_c/n)²/n_ac.
        parts = layout.mean_weights
        uncertainty = (parts**2 / np.maximum(sizes - 1, 1)).sum(axis=-2)
        degrees = welch_degrees(arm_variances, parts.sum(axis=-2) ** 2 / uncertainty, layout)
    by_arm = (weights**2 * spread / sizes).sum(axis=-2)
    sampling = layout.against_control(by_arm)
    return EffectArrays(
        effects=effects,
        variances=privacy + np.maximum(sampling, 0.0),
        privacy_variances=privacy,
        degrees=degrees,
    )


def welch_degrees(arm_variances: FloatArray, arm_degrees: FloatArray, layout: Layout) -> FloatArray:
    """Degrees of freedom of the variance of a difference (Welch); axes `[..., treatment]`.

    (V₁ + V₀)²/(V₁²/ν₁ + V₀²/ν₀), never less than one; the smaller ν where both variances are zero.
    """
    variances = np.nan_to_num(arm_variances)
    uncertainty = variances**2 / arm_degrees
    treated, control = list(layout.treatments), [layout.control]
    above, below = layout.against_control(variances) ** 2, layout.against_control(uncertainty)
    least = np.minimum(arm_degrees[..., treated], arm_degrees[..., control])
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), least)
