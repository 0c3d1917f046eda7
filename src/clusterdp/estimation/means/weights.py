"""Public weights of cells: an arm's mean in a segment is a weighted mean of its cells' means.

Arms were assigned at random within each cluster, so arm a is expected to have m_c·n_ac/n_c of a
segment's m_c units there. If both arms almost surely have two units, the cluster is a stratum, and
its cells have weight m_c/m each. The other clusters are pooled: a unit there has weight n_c/n_ac,
the inverse of its arm's share, so that both arms represent the same mix of clusters. An arm's
weights are scaled to add up to one.

Weights follow from counts of units alone, never from outcomes. m_c counts the units of all arms:
every arm's effect is on the same people. Clusters that lack an arm have weight zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clusterdp._arrays import BoolArray, FloatArray, IntArray
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import Estimator
from clusterdp.estimation.means.responses import CellMoments

# A cluster is a stratum if each arm has fewer units of the segment than these with at most this
# probability, before assignment. If an arm has fewer after assignment, the cluster joins the pool.
# A choice that depends on assignment causes a bias; this one is too rare for the bias to matter.
_ENOUGH_FOUND = 2
_FEW_PROB = 5e-4
# An arm that expects this many units has fewer than two less often than that (it is 4.99e-4 for a
# Poisson variable, and less for sums of draws without replacement: Hoeffding, 1956).
ENOUGH_EXPECTED = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellWeights:
    """The weight of each cell's mean in the mean of its arm; axes `[..., cluster, arm]`.

    Attributes:
        shares: Weights of cell means; those of an arm add up to one. NaN where an arm has no units.
        sizes: m_ac, the units of the segment.
        pooled: Which clusters are pooled; axes `[..., cluster, 1]`.
        inverse_sizes: 1/n_ac, of all units of a cell; 0 if arms were not drawn within clusters.
        lone_factors: n_c/(n_c − 1) for cells of one unit in all, and 1 for others: the mean square
            of a cluster's n_c units is less than their variance, and one unit cannot show it.
        compared: Which clusters effects are compared in; axes `[cluster]`.
    """

    shares: FloatArray
    sizes: IntArray
    pooled: BoolArray
    inverse_sizes: FloatArray
    lone_factors: FloatArray
    compared: BoolArray

    def of_units(self) -> FloatArray:
        """The weight of each unit of a cell: the cell's share, divided by its units."""
        return np.asarray(self.shares / np.maximum(self.sizes, 1))

    def of_asked(self, moments: CellMoments) -> CellWeights:
        """The same of units that were asked, each with what it stands for."""
        if moments.asked is None or moments.stands_for is None:
            return self
        shares = self.shares * moments.stands_for / np.maximum(self.sizes, 1)
        return replace(self, sizes=np.asarray(moments.asked, np.int64), shares=shares)

    def pool_means(self, means: FloatArray) -> FloatArray:
        """Weighted means of the pooled cells of each arm; axes `[..., 1, arm]`."""
        return _ratio(self._pool_sum(self.shares * means), self._pool_sum(self.shares))

    def pool_factors(self) -> FloatArray:
        """The correction for deviations from the pool's own mean; axes `[..., 1, arm]`.

        With weights h that add up to one, a squared residual is expected to be 1 − 2h + Σh² times
        the variance; this is the inverse of the average of that by h². With equal weights it is
        n/(n − 1). NaN where the pool of an arm has one unit.
        """
        weight = _ratio(self.of_units(), self._pool_sum(self.shares))
        second = self._pool_sum(self.sizes * weight**2)
        third = self._pool_sum(self.sizes * weight**3)
        left = 1 - 2 * _ratio(third, second) + second
        lone = self._pool_sum(self.sizes) == 1
        return np.where(lone, np.nan, 1 / np.where(second > 0, np.maximum(left, 1e-9), 1.0))

    def degrees(self, n_slopes: int) -> FloatArray:
        """Degrees of freedom of an arm's variance, if all units vary equally; axes `[..., arm]`.

        Satterthwaite's: a stratum of m units has m − 1, a pooled unit one, and they add up by the
        squares of what they contribute. Each fitted slope takes one.
        """
        each = self.of_units() ** 2
        strata = (self.sizes * each) ** 2 / np.maximum(self.sizes - 1, 1)
        uncertainty = np.where(self.pooled, self.pool_factors() * self.sizes * each**2, strata)
        total = (self.sizes * each).sum(axis=-2)
        return np.maximum(_ratio(total**2, uncertainty.sum(axis=-2)) - n_slopes, 1.0)

    def _pool_sum(self, terms: FloatArray | IntArray) -> FloatArray:
        return np.asarray(np.where(self.pooled, terms, 0).sum(axis=-2, keepdims=True))


def weigh_cells(
    sizes: IntArray, layout: Layout, arms: list[int], *, as_totals: bool = False
) -> CellWeights:
    """Weights of the cells of some arms within a segment.

    Args:
        sizes: m_ac, the units of the segment, of all arms; axes `[..., cluster, arm]`.
        layout: The cells of the whole table.
        arms: The arms to compare.
        as_totals: Pool all clusters, so that units have the weights that they have in totals.
    """
    compared = layout.complete[:, np.newaxis]
    sizes = np.where(compared, sizes, 0)
    arm_sizes = np.where(compared, layout.sizes[:, arms], 1)
    inside = sizes.sum(axis=-1, keepdims=True)  # m_c
    whole = np.where(compared, layout.sizes.sum(axis=1, keepdims=True), 1)  # n_c
    inverse = whole / arm_sizes
    found = sizes[..., arms]
    risky = (found < _ENOUGH_FOUND) | (_few_probs(inside, whole, arm_sizes) > _FEW_PROB)
    small = (inside > 0) & (risky.any(axis=-1, keepdims=True) | as_totals)
    pooled = _choose_pool(small, found, inside / inverse)
    pool_size = np.where(pooled, inside, 0).sum(axis=-2, keepdims=True)
    # A ratio of two sums is biased by their covariance over the square of the lower one (Beale,
    # 1962): units with a large weight are too often the only ones. This removes the bias.
    spare = (whole - inside) / np.maximum(whole - 1, 1)
    beale = 1 + (inverse - 1) * spare / np.maximum(pool_size, 1)
    weight = np.where(pooled, found * inverse * beale, 0.0)
    of_pool = pool_size * _ratio(weight, weight.sum(axis=-2, keepdims=True), missing=np.nan)
    whole_inside = inside.sum(axis=-2, keepdims=True)  # zero if every cluster lacks an arm
    shares = _ratio(np.where(pooled, of_pool, inside), whole_inside, missing=np.nan)
    return CellWeights(
        shares=np.asarray(shares),
        sizes=found,
        pooled=pooled,
        inverse_sizes=np.where(arm_sizes > 1, 1 / arm_sizes, 0.0),
        lone_factors=np.where(arm_sizes > 1, 1.0, whole / np.maximum(whole - 1, 1)),
        compared=layout.complete,
    )


def weigh(  # noqa: PLR0913 - how cells are weighed
    sizes: IntArray,
    layout: Layout,
    arms: list[int],
    estimator: Estimator = "stratified",
    *,
    as_totals: bool = False,
    factors: FloatArray | None = None,
) -> CellWeights:
    """Weights of the cells of some arms in a segment, or in everyone.

    Where units count by the noisy label they were given, weights may be negative. An arm whose
    units count nothing or less together has no mean.

    Args:
        sizes: The units of the segment in every cell, of all arms; axes `[..., cluster, arm]`.
        layout: The cells of the whole table.
        arms: The arms to compare.
        estimator: How cells are weighed: unstratified, every unit of an arm counts the same.
        as_totals: Whether units are to have the weights that they have in totals.
        factors: What units count by noisy labels, axes `[cluster, arm]`, or `[cluster, 1]` in all
            arms; None if cells are compared as they are.
    """
    if factors is None and estimator == "stratified":
        return weigh_cells(sizes, layout, arms, as_totals=as_totals)
    found = sizes[..., arms]
    each = np.broadcast_to(1 if factors is None else factors, sizes.shape[-2:])[:, arms]
    counted = (found * each).sum(axis=-2, keepdims=True)
    return CellWeights(
        shares=_ratio(found * each, counted, missing=np.nan),
        sizes=found,
        pooled=np.ones((*found.shape[:-1], 1), dtype=np.bool_),
        inverse_sizes=np.zeros(found.shape[-2:]),
        lone_factors=np.ones(found.shape[-2:]),
        compared=np.ones(found.shape[-2], dtype=np.bool_),
    )


def by_inverse_variance(
    whole: CellWeights, parts: Sequence[tuple[CellWeights, float]]
) -> CellWeights:
    """Weights of several folders, each of which counts by the inverse of its variance.

    Args:
        whole: Weights of all cells, which stay if no folder has a variance.
        parts: Weights within each folder, and the variance of its effect.
    """
    known = [(part, 1 / variance) for part, variance in parts if 0 < variance < np.inf]
    if not known:
        return whole
    total = sum(precision for _, precision in known)
    shares = [precision / total * np.nan_to_num(part.shares) for part, precision in known]
    pooled = np.any([part.pooled for part, _ in known], axis=0)
    return replace(whole, shares=np.sum(shares, axis=0), pooled=pooled)


def arm_variances(moments: CellMoments, weights: CellWeights) -> FloatArray:
    """Variances of weighted means of arms by linearization, noise included; axes `[..., arm]`.

    A stratum's variance is Neyman's. In the pool a unit's residual e is its distance from the arm's
    pooled mean. Arms were drawn within clusters, so what a cell adds is the variance of n_ac
    numbers: e for its units of the segment, zero for the others.

    Args:
        moments: Of the segment, of the arms that were weighed.
        weights: Of the same arms.
    """
    sizes = np.maximum(moments.sizes, 1)
    strata = weights.shares**2 * moments.squares / np.maximum(sizes - 1, 1) / sizes
    distance = moments.means - weights.pool_means(moments.means)
    total = moments.sizes * distance
    squares = moments.squares + total * distance
    # n/(n − 1)·(Σe² − (Σe)²/n), the sum of squares of n numbers of which some are zero.
    around = (squares - total**2 * weights.inverse_sizes) / (1 - weights.inverse_sizes)
    pool = weights.pool_factors() * weights.of_units() ** 2 * around * weights.lone_factors
    return np.asarray(np.where(weights.pooled, pool, strata).sum(axis=-2))


def _few_probs(inside: IntArray, whole: IntArray, arm_sizes: IntArray) -> FloatArray:
    """The probability that fewer than two of a cluster's units of the segment are in an arm.

    That of a hypergeometric variable: m_c units are drawn, n_ac of n_c are the arm's. It is not
    computed, and given as one, for clusters without units of the segment, which most may be.
    """
    shape = np.broadcast_shapes(inside.shape, arm_sizes.shape)
    there = np.broadcast_to(inside > 0, shape)
    drawn, every, of_arm = (
        np.broadcast_to(terms, shape)[there] for terms in (inside, whole, arm_sizes)
    )
    none = log_choose(every - of_arm, drawn) - log_choose(every, drawn)
    one = log_choose(every - of_arm, drawn - 1) - log_choose(every, drawn)
    probs = np.ones(shape)
    probs[there] = np.exp(none) + of_arm * np.exp(one)
    return probs


def log_choose(n_all: IntArray, n_chosen: IntArray) -> FloatArray:
    """The logarithm of a binomial coefficient; −∞ where it is zero."""
    from scipy.special import gammaln

    logs = gammaln(n_all + 1.0) - gammaln(n_chosen + 1.0) - gammaln(n_all - n_chosen + 1.0)
    return np.asarray(logs)


def _choose_pool(small: BoolArray, found: IntArray, expected: FloatArray) -> BoolArray:
    """The small clusters, and strata that join them; axes `[..., cluster, 1]`.

    If all small clusters together expect too few units in an arm, strata join them, those that
    expect least first, until the pool expects enough.
    """
    least = np.where(small, -1.0, expected.min(axis=-1, keepdims=True))
    order = np.argsort(least, axis=-2, kind="stable")
    unsafe = np.zeros_like(small)
    for terms, enough in ((expected, ENOUGH_EXPECTED), (found, _ENOUGH_FOUND)):
        ordered = np.take_along_axis(np.broadcast_to(terms, found.shape), order, axis=-2)
        before = np.cumsum(ordered, axis=-2) - ordered
        # Sums of floats have rounding errors.
        unsafe |= (before < enough - 1e-9).any(axis=-1, keepdims=True)
    joins = np.zeros_like(small)
    np.put_along_axis(joins, order, unsafe, axis=-2)
    return np.asarray(small | (joins & small.any(axis=-2, keepdims=True)))


def _ratio(above: FloatArray | IntArray, below: FloatArray, missing: float = 0.0) -> FloatArray:
    """A ratio, or `missing` where the denominator is zero."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), missing)
