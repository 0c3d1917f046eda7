"""The paper's variance theory as functions, corrected where `docs/explanation/privacy.md` says so.

Effects compare treatments with control; results have axes `[treatment]` unless stated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.resampling import ResampledRows
from clusterdp.errors import ParameterError
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import declared_noise
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.means.sums import WeightedSums
from clusterdp.estimation.reading.profiles import Profiles, spread_cells
from clusterdp.mechanisms.draw import draw_statistics
from clusterdp.precision.row_noise import unit_noise
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.effects.effect import Use
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import SumReading
    from clusterdp.studies.simulation import Population


class Averaged(NamedTuple):
    """A quantity averaged over simulated noise, and the standard error of that average."""

    value: FloatArray
    std_error: FloatArray


class VarianceBound(NamedTuple):
    """The two boundaries of thm:variance_upper_bound: its first term, and the whole."""

    first_term: FloatArray
    total: FloatArray


def homogeneity(population: Population) -> FloatArray:
    """φ_a = Σ (n_c/n)² S²(y_c(a))/n_{a,c} (def:phi); axes `[arm]`. Small for similar units."""
    spread = _finite_variance(population.potential_counts(), population.space.metric_values()[0])
    weights = population.layout.cluster_shares
    return np.asarray((weights**2 * spread / population.layout.sizes).sum(axis=0))


def non_private_variance(population: Population) -> FloatArray:
    """Variance over assignments of the stratified estimator from true outcomes.

    Σ (n_c/n)² (S²(y_c(1))/n₁ + S²(y_c(0))/n₀ − S²(τ_c)/n_c). For the unstratified one, take
    `population.merged()`.
    """
    layout, counts = population.layout, population.type_counts
    gains = population.unit_effects()
    effect_spread = np.stack(
        [_finite_variance(counts, gain) for gain in gains.T], axis=-1
    )  # [cluster, treatment]
    weights = layout.cluster_shares
    cluster_sizes = layout.sizes.sum(axis=1, keepdims=True)
    sampled = _both_arms(homogeneity(population), layout)
    return np.asarray(sampled - (weights**2 * effect_spread / cluster_sizes).sum(axis=0))


def excess_variance(  # noqa: PLR0913 - what to predict, by name
    counts: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    *,
    rng: np.random.Generator,
    n_draws: int = 2000,
    use: Use = "rows",
    segment_share: float = 1.0,
    metric: int = 0,
) -> Averaged:
    """What privacy adds to the variance of the stratified estimator, given observed counts.

    For rows it is Σ (n_c/n)² Σ_a E[mean of Var(debiased | y)]/n_{a,c}: exact given the channel, and
    averaged over the noise that the channel was made of where there is any.

    Args:
        counts: Observed counts; axes `[cluster, arm, outcome]`.
        layout: What is public.
        space: The outcome space.
        mechanism: The mechanism.
        rng: For the noise of the statistics.
        n_draws: How many draws of the statistics to average over.
        use: "rows", or "everything" for estimates that use sums and counts as well.
        segment_share: The share of every cell that the estimate covers.
        metric: Which metric.
    """
    exact = np.zeros(len(layout.treatments))
    if not mechanism.releases_rows:
        noise = mechanism.statistics[0].contrast_variance(layout, space, metric)
        return Averaged((layout.cluster_shares**2 * noise).sum(axis=0), exact)
    readings: list[SumReading] = []
    if use == "everything":
        totals = CellTotals.from_counts(counts, space)
        drawn = draw_statistics(totals, layout, space, mechanism, simulated_noise(rng))
        readings = [reading for one in drawn for reading in one.sum_readings(metric)]
    # What is public of sums is used alone: which there are, and how noisy they are.
    profiles, nothing = Profiles.from_layout(layout), np.zeros(layout.sizes.size)
    public = declared_noise(mechanism, space, metric)

    def draw() -> FloatArray:
        per_unit = unit_noise(counts, layout, space, mechanism, rng)[metric]
        rows = ProfileSums(
            sizes=profiles.sizes,
            sums=nothing,
            squares=nothing,
            noise=(layout.sizes * per_unit).ravel(),
        )
        calibration = Calibration(readings, profiles, rows, public)
        means = calibration.apply(_shares_of_cells(per_unit, layout, segment_share))
        return _both_arms(means.privacy, layout)

    if mechanism.find(NoisyCounts) is None:
        return Averaged(draw(), exact)
    draws = np.stack([draw() for _ in range(n_draws)])
    return Averaged(draws.mean(axis=0), draws.std(axis=0, ddof=1) / math.sqrt(n_draws))


def _shares_of_cells(per_unit: FloatArray, layout: Layout, segment_share: float) -> WeightedSums:
    """Stratified means of every arm in a share f of every cell: rows weigh (n_c/n)/(f·n_ac)."""
    profiles, arms = Profiles.from_layout(layout), list(range(len(layout.arms)))
    shares = np.broadcast_to(layout.cluster_shares, layout.sizes.shape)
    squares = shares**2 * per_unit / (segment_share * layout.sizes)
    return WeightedSums(
        values=np.zeros(len(arms)),
        weights=spread_cells(shares, profiles, arms),
        sums=np.zeros((len(arms), layout.sizes.size)),
        squares=np.zeros((len(arms), layout.sizes.size)),
        noise=spread_cells(shares * per_unit, profiles, arms),
        square_noise=squares.sum(axis=0),
        square_weights=(shares**2 / (segment_share * layout.sizes)).sum(axis=0),
    )


def variance_bound(population: Population, mechanism: Mechanism) -> VarianceBound:
    """thm:variance_upper_bound: the excess variance of Cluster-DP is at most `total`.

    A(x) is taken in the product form of the proof (correction C5). Its lemma on the prior is for
    continuous noise; the discrete noise that is drawn exceeds that step of the proof by a few
    percent in cells of a handful of units, far within the slack of the others.
    """
    counts, layout, space = mechanism.find(NoisyCounts), population.layout, population.space
    rows = mechanism.settled_rows(space)
    if counts is None or counts.scope != "cluster" or not isinstance(rows, ResampledRows):
        raise ParameterError(f"the bound is about Cluster-DP, not about {mechanism.name}")
    bound = rows.bound(space)
    keep, resample = float(bound.keep_prob), bound.resample_prob
    first = (1 / keep**2 - 1) * _both_arms(homogeneity(population), layout)

    scale = counts.noise_scale / layout.sizes  # σ/n_{a,c}
    floor, n_outcomes = float(bound.prior_floor), space.n_categories
    # lem:tq-tp: how far the prior is from the cell's frequencies, in expected L1 distance
    distance = 2 * n_outcomes * (floor + scale * (np.exp(-floor / scale) - np.exp(-1 / scale)))
    values = space.metric_values()[0]
    worst = np.abs(values).max() ** 2 * (3 / keep**2 + 2)
    spread = (resample * math.sqrt(n_outcomes) + 1) ** 2 / keep**2
    spread *= (values**2).sum() * (1 - resample * (n_outcomes - 1) * floor)
    weights = layout.cluster_shares
    second = (weights**2 * distance * (worst + spread) / layout.sizes).sum(axis=0)
    return VarianceBound(first, first + _both_arms(second, layout))


def sampling_variance(probs: FloatArray, layout: Layout, values: FloatArray) -> FloatArray:
    """The variance of the stratified estimator from true outcomes of given distributions.

    Args:
        probs: Axes `[cluster, arm or 1, outcome]`.
        layout: What is public.
        values: Of the outcomes.
    """
    means = (probs @ values)[..., np.newaxis]
    spread = (probs * (values - means) ** 2).sum(axis=-1)
    return weighted(spread / layout.sizes, layout)


def weighted(per_cell: FloatArray, layout: Layout) -> FloatArray:
    """The variance of effects from those of cell means: Σ (n_c/n)², of both arms."""
    return _both_arms((layout.cluster_shares**2 * per_cell).sum(axis=0), layout)


def _finite_variance(counts: IntArray, values: FloatArray) -> FloatArray:
    """S², with n−1, of the values that `counts` counts along its last axis."""
    sizes = counts.sum(axis=-1)
    means = counts @ values / sizes
    squares = (counts * (values - means[..., np.newaxis]) ** 2).sum(axis=-1)
    return np.asarray(squares / np.maximum(sizes - 1, 1))


def _both_arms(per_arm: FloatArray, layout: Layout) -> FloatArray:
    """Each treatment's term plus control's."""
    return np.asarray(per_arm[list(layout.treatments)] + per_arm[layout.control])
