"""Effects and their variances, as pure functions of cell statistics.

Every function takes arrays with leading `...` axes for replicates, so that one release and
thousands of simulated ones are estimated by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.category_space import Ends
from clusterdp.statistics.base import lone_unit_squares

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.estimation.calibration import CellReadings
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import Statistics
    from clusterdp.statistics.base import CellTotals, ClusterContrasts

Estimator = Literal["stratified", "unstratified"]
# What an estimate uses: rows combined with noisy sums and counts, or rows alone.
Use = Literal["everything", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellMoments:
    """Sizes, means and spreads of each cell; axes `[..., cluster, arm]`.

    Attributes:
        sizes: Numbers of units.
        means: Mean (debiased) outcomes.
        squares: Sums of squared deviations from those means.
        privacy: Estimated privacy variance of one unit, averaged over the cell.
        shifts: What calibration adds to the means; zeros without it.
        saved: What calibration takes off the variance of the means; zeros without it.
        uncalibrated: Sums of squared deviations from the means of rows alone, if not `squares`.
    """

    sizes: IntArray
    means: FloatArray
    squares: FloatArray
    privacy: FloatArray
    shifts: FloatArray | None = None
    saved: FloatArray | None = None
    uncalibrated: FloatArray | None = None

    @property
    def row_squares(self) -> FloatArray:
        """Sums of squared deviations of rows from the means of rows."""
        return self.squares if self.uncalibrated is None else self.uncalibrated

    @property
    def centred(self) -> FloatArray:
        """Means after calibration."""
        return self.means if self.shifts is None else np.asarray(self.means + self.shifts)

    def merged(self) -> CellMoments:
        """The same rows as one cluster."""
        sizes = self.sizes.sum(axis=-2, keepdims=True)
        share = self.sizes / np.maximum(sizes, 1)
        means = (share * self.means).sum(axis=-2, keepdims=True)
        between = self.sizes * (self.means - means) ** 2
        shifts = saved = None
        if self.shifts is not None and self.saved is not None:
            shifts = (share * self.shifts).sum(axis=-2, keepdims=True)
            saved = (share**2 * self.saved).sum(axis=-2, keepdims=True)
        return CellMoments(
            sizes=sizes,
            means=means,
            squares=(self.squares + between).sum(axis=-2, keepdims=True),
            privacy=(share * self.privacy).sum(axis=-2, keepdims=True),
            shifts=shifts,
            saved=saved,
        )

    def of_arms(self, arms: list[int]) -> CellMoments:
        """Some of the arms."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen: dict[str, Any] = {
            name: None if part is None else part[..., arms] for name, part in parts.items()
        }
        return CellMoments(**chosen)

    def unit_variances(self) -> FloatArray:
        """Estimated variance of one unit's (debiased) outcome in each cell.

        The sample variance, where a cell has two units. A cell of one unit is compared with the
        rest of its arm instead, see `lone_unit_squares`. NaN where an arm has one unit in all.
        """
        spread = self.squares / np.maximum(self.sizes - 1, 1)
        return np.where(self.sizes > 1, spread, lone_unit_squares(self.sizes, self.means))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EffectArrays:
    """Effects against control; axes `[..., treatment]`, in the order of `Layout.treatments`.

    Attributes:
        effects: Estimated average effects.
        variances: Estimated variances, of assignment and privacy together.
        privacy_variances: The part of them that privacy cost.
        control_means: The mean outcome of control, axes `[...]`; None if it is not estimated.
        control_variances: Its estimated variance.
        degrees: Degrees of freedom of the variances; None where these are known, not estimated.
    """

    effects: FloatArray
    variances: FloatArray
    privacy_variances: FloatArray
    control_means: FloatArray | None = None
    control_variances: FloatArray | None = None
    degrees: FloatArray | None = None


# Of an arm that has no units.
NO_EFFECT = EffectArrays(
    effects=np.full(1, np.nan), variances=np.full(1, np.nan), privacy_variances=np.full(1, np.nan)
)


def estimate_effects(  # noqa: PLR0913 - the parts of a release, by name
    layout: Layout,
    space: CategorySpace,
    estimator: Estimator,
    *,
    moments: CellMoments | None,
    statistics: Statistics,
    readings: CellReadings | None = None,
    metric: int = 0,
) -> EffectArrays:
    """Effects from the rows of a release if it has any, else from its statistics.

    Args:
        layout: What is public.
        space: The outcome space.
        estimator: "stratified", or "unstratified" for a release of rows.
        moments: Of the rows, if there are any.
        statistics: The noisy statistics.
        readings: What these estimate for every cell; None for rows alone.
        metric: Which metric.
    """
    if moments is not None:
        if readings is not None:
            moments = calibrated(moments, moments, readings)
        return moment_effects(moments, layout, estimator)
    if estimator == "unstratified":
        raise ParameterError("a release without rows has stratified effects only")
    return contrast_effects(statistics[0].contrasts(layout, metric), layout, Ends.of(space, metric))


def moment_effects(moments: CellMoments, layout: Layout, estimator: Estimator) -> EffectArrays:
    """Effects from cell moments: within clusters, or of all clusters as one (coro:unstratified)."""
    if estimator == "unstratified":
        moments = moments.merged()
    return stratified_effects(moments, layout)


def row_moments(released_counts: IntArray, channel: Channel, metric: int = 0) -> CellMoments:
    """Moments of debiased outcomes, from how often each outcome was released.

    Args:
        released_counts: Axes `[..., cluster, arm, released]`.
        channel: The channel the rows went through.
        metric: Which metric.
    """
    decode = channel.decode(metric)[..., channel.groups, :]
    noise = channel.decode_noise_variance(metric)[..., channel.groups, :]
    sizes = released_counts.sum(axis=-1)
    some = np.maximum(sizes, 1)  # the moments of an empty cell are zeros, and count for nothing
    means = (released_counts * decode).sum(axis=-1) / some
    squares = (released_counts * (decode - means[..., np.newaxis]) ** 2).sum(axis=-1)
    privacy = (released_counts * noise).sum(axis=-1) / some
    return CellMoments(sizes=sizes, means=means, squares=squares, privacy=privacy)


def calibrated(moments: CellMoments, whole: CellMoments, readings: CellReadings) -> CellMoments:
    """Moments of all rows or of a segment, combined with readings of their cells.

    Readings are of whole cells, so a segment's mean is moved by the error of its cell's mean, see
    `calibration`. The noise variance v of a cell's units is the mean square of their debiased
    outcomes minus the reading of the mean square of true outcomes.

    Args:
        moments: Of all rows, or of a segment.
        whole: Of all rows.
        readings: Of all rows.
    """
    kappa, summary, centre = readings.shrinkage, readings.means, readings.centre
    whole_sizes, sizes = np.maximum(whole.sizes, 1), np.maximum(moments.sizes, 1)
    cell_noise = whole.privacy
    if readings.squares is not None:
        cell_noise = _mean_squares(whole, centre) - readings.squares.value
    # A segment whose outcomes are unlike those of its cells has another noise variance.
    noise = cell_noise + (moments.privacy - whole.privacy)
    shifts = -kappa * (whole.means - summary.value)
    cell_variance = cell_noise / whole_sizes + summary.variance
    saved = 2 * kappa * noise / whole_sizes - kappa**2 * cell_variance
    moved = replace(moments, shifts=shifts, saved=saved)
    mean_noise = noise / sizes - saved
    # Deviations are taken from the better means, and what is left of their noise is added.
    spread = _mean_squares(moments, centre) - noise
    spread = spread - (moved.centred - centre) ** 2 + mean_noise
    squares = moments.sizes * spread + (sizes - 1) * noise
    return replace(
        moved,
        squares=np.where(moments.sizes > 1, squares, 0.0),
        uncalibrated=moments.squares,
        # An estimate, but never less than the share that the noise of the summary has in it.
        privacy=np.maximum(mean_noise, kappa**2 * summary.variance) * moments.sizes,
    )


def _mean_squares(moments: CellMoments, centre: float) -> FloatArray:
    """The mean squared distance of debiased outcomes from a number."""
    inside = moments.squares / np.maximum(moments.sizes, 1)
    return np.asarray(inside + (moments.means - centre) ** 2)


def true_moments(counts: IntArray, space: CategorySpace, metric: int = 0) -> CellMoments:
    """Moments of true outcomes, for the owner; axes of `counts`: `[..., cluster, arm, outcome]`."""
    values = space.metric_values()[metric]
    sizes = counts.sum(axis=-1)
    means = counts @ values / sizes
    squares = (counts * (values - means[..., np.newaxis]) ** 2).sum(axis=-1)
    return CellMoments(sizes=sizes, means=means, squares=squares, privacy=np.zeros_like(means))


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
    lattice, middle = space.metric_lattice(), Ends.of(space, metric).middle
    unit, quarter = float(lattice.units[metric]), 4.0 ** lattice.shifts[metric] / 4
    sizes, sums = layout.sizes, totals.sums[..., metric]
    means = unit * sums / sizes
    spread = totals.squares[..., metric] * unit**2 * quarter - sizes * (means - middle) ** 2
    return CellMoments(
        sizes=sizes,
        means=means,
        squares=np.maximum(spread, 0.0),
        privacy=np.zeros_like(means),
    )


def stratified_effects(moments: CellMoments, layout: Layout) -> EffectArrays:
    """τ̂_Q of thm:unbiased_consistent_estimator: differences in means, weighted by n_c/n.

    The variance is Neyman's, Σ (n_c/n)² (s²₁/n₁ + s²₀/n₀), with sample variances of debiased
    outcomes. Given the priors, rows are randomized independently, so s² estimates the variance of
    outcomes plus that of privacy; it leaves out only the variance of unit effects, which makes it
    conservative. What calibration saves is taken off; at least the variance of privacy is left.
    """
    weights = _cluster_weights(moments.sizes)
    degrees = _stratum_degrees(moments.sizes)
    means = weights * moments.centred
    mean_variances = weights**2 * moments.unit_variances() / moments.sizes
    privacy = weights**2 * moments.privacy / moments.sizes
    variances = _against_control(mean_variances, layout, sign=1)
    arm_variances = mean_variances.sum(axis=-2)
    privacy_variances = _against_control(privacy, layout, sign=1)
    if moments.saved is not None:
        mean_variances = mean_variances - weights**2 * moments.saved
        variances = np.maximum(_against_control(mean_variances, layout, sign=1), privacy_variances)
        arm_variances = np.maximum(mean_variances, privacy).sum(axis=-2)
    return EffectArrays(
        effects=_against_control(means, layout, sign=-1),
        variances=variances,
        control_means=means.sum(axis=-2)[..., layout.control],
        control_variances=arm_variances[..., layout.control],
        privacy_variances=privacy_variances,
        degrees=welch_degrees(arm_variances, degrees, layout),
    )


def contrast_effects(read: ClusterContrasts, layout: Layout, ends: Ends) -> EffectArrays:
    """Stratified effects from a statistic alone (algNH, algNHT).

    Where the statistic estimates how outcomes spread, and little is left of that after noise, the
    sampling variance is taken as zero. Where it does not, it is the largest possible: a variable on
    an interval has variance at most (y_max − y_min)²/4 (Popoviciu).
    """
    sizes, weights = layout.sizes, _cluster_weights(layout.sizes)
    effects = (weights * read.contrasts).sum(axis=-2)
    privacy = np.broadcast_to((weights**2 * read.noise).sum(axis=-2), effects.shape)
    if read.spread is None or read.arm_noise is None:
        n_units = sizes.sum(axis=-1, keepdims=True)
        largest = ends.span**2 / 4 * n_units / np.maximum(n_units - 1, 1)
        sampling = _against_control(weights**2 * largest / sizes, layout, sign=1)
        return EffectArrays(
            effects=effects, variances=privacy + sampling, privacy_variances=privacy
        )
    sampling = _against_control(weights**2 * read.spread / sizes, layout, sign=1)
    of_means = read.arm_noise + np.maximum(read.spread, 0.0) / sizes
    arm_variances = (weights**2 * of_means).sum(axis=-2)
    return EffectArrays(
        effects=effects,
        variances=privacy + np.maximum(sampling, 0.0),
        privacy_variances=privacy,
        degrees=welch_degrees(arm_variances, _stratum_degrees(sizes), layout),
    )


def welch_degrees(arm_variances: FloatArray, arm_degrees: FloatArray, layout: Layout) -> FloatArray:
    """Degrees of freedom of the variance of a difference (Welch); axes `[..., treatment]`.

    (V₁ + V₀)²/(V₁²/ν₁ + V₀²/ν₀), never less than one; the smaller ν where both variances are zero.
    """
    variances = np.nan_to_num(arm_variances)
    uncertainty = variances**2 / arm_degrees
    treated, control = list(layout.treatments), [layout.control]
    above = (variances[..., treated] + variances[..., control]) ** 2
    below = uncertainty[..., treated] + uncertainty[..., control]
    least = np.minimum(arm_degrees[..., treated], arm_degrees[..., control])
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), least)


def _stratum_degrees(sizes: IntArray) -> FloatArray:
    """Degrees of freedom of the variance of each arm's stratified mean, if all units vary alike.

    Satterthwaite's, from sizes alone: (Σ v_c)²/Σ(v_c²/(n_ac − 1)), v_c = (n_c/n)²/n_ac.
    """
    parts = _cluster_weights(sizes) ** 2 / np.maximum(sizes, 1)
    uncertainty = (parts**2 / np.maximum(sizes - 1, 1)).sum(axis=-2)
    return np.asarray(parts.sum(axis=-2) ** 2 / uncertainty)


def _cluster_weights(sizes: IntArray) -> FloatArray:
    """n_c/n; axes `[..., cluster, 1]`."""
    cluster_sizes = sizes.sum(axis=-1, keepdims=True)
    return np.asarray(cluster_sizes / cluster_sizes.sum(axis=-2, keepdims=True))


def _against_control(terms: FloatArray, layout: Layout, *, sign: int) -> FloatArray:
    """Σ over clusters of treatment plus `sign` times control; axes `[..., treatment]`."""
    totals = terms.sum(axis=-2)
    treated = totals[..., list(layout.treatments)]
    return np.asarray(treated + sign * totals[..., [layout.control]])
