"""Effects and their variances, as pure functions of cell statistics.

Every function takes arrays with leading `...` axes for replicates, so that one release and
thousands of simulated ones are estimated by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp.experiment.category_space import Ends

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.statistics.base import CellTotals, ClusterContrasts

Estimator = Literal["stratified", "unstratified"]
# What an estimate uses: rows combined with noisy sums and counts, or rows alone.
Use = Literal["everything", "rows"]


class KnownMeans(NamedTuple):
    """Means of cells that are better than those of rows.

    Attributes:
        means: As distances from the same number; axes `[..., cluster, arm]`.
        noise: The variance of the noise in them; axes `[cluster, arm]`.
    """

    means: FloatArray
    noise: FloatArray

    def of_arms(self, arms: list[int]) -> KnownMeans:
        """Those of some arms."""
        return KnownMeans(self.means[..., arms], self.noise[..., arms])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellMoments:
    """Sizes, means and spreads of each cell; axes `[..., cluster, arm]`.

    Attributes:
        sizes: Numbers of units.
        means: Mean (debiased) outcomes, as distances from any one number.
        squares: Sums of squared deviations from those means.
        noise: Sums of the estimated noise variances of units.
    """

    sizes: IntArray
    means: FloatArray
    squares: FloatArray
    noise: FloatArray

    def of_arms(self, arms: list[int]) -> CellMoments:
        """Some of the arms."""
        return CellMoments(
            **{field.name: getattr(self, field.name)[..., arms] for field in fields(self)}
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EffectArrays:
    """Effects against control; axes `[..., treatment]`, in the order of `Layout.treatments`.

    Attributes:
        effects: Estimated average effects.
        variances: Estimated variances, of assignment and privacy together.
        privacy_variances: The part of them that privacy cost.
        control_means: The mean outcome of control, axes `[...]`; None if it is not estimated.
        control_variances: Its estimated variance.
        treated_means: The mean outcome of each treatment; None if they are not estimated.
        treated_variances: Their estimated variances.
        degrees: Degrees of freedom of the variances; None where these are known, not estimated.
    """

    effects: FloatArray
    variances: FloatArray
    privacy_variances: FloatArray
    control_means: FloatArray | None = None
    control_variances: FloatArray | None = None
    treated_means: FloatArray | None = None
    treated_variances: FloatArray | None = None
    degrees: FloatArray | None = None


# Of an arm that has no units.
NO_EFFECT = EffectArrays(
    effects=np.full(1, np.nan), variances=np.full(1, np.nan), privacy_variances=np.full(1, np.nan)
)


def true_moments(counts: IntArray, space: CategorySpace, metric: int = 0) -> CellMoments:
    """Moments of true outcomes, for the owner; axes of `counts`: `[..., cluster, arm, outcome]`."""
    values = space.metric_values()[metric]
    sizes = counts.sum(axis=-1)
    means = counts @ values / np.maximum(sizes, 1)
    squares = (counts * (values - means[..., np.newaxis]) ** 2).sum(axis=-1)
    return CellMoments(sizes=sizes, means=means, squares=squares, noise=np.zeros_like(means))


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
    means = unit * sums / np.maximum(sizes, 1)
    spread = totals.squares[..., metric] * unit**2 * quarter - sizes * (means - middle) ** 2
    return CellMoments(
        sizes=sizes,
        means=means,
        squares=np.maximum(spread, 0.0),
        noise=np.zeros_like(means),
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
