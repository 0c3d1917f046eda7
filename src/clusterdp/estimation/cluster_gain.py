"""How good clusters were: what comparing within them takes off the variance of arms' means.

The paper's homogeneity of an arm is φ = Σ (n_c/n)² S²_c/n_ac, S²_c the variance of outcomes within
cluster c: the sampling variance of the arm's mean. Without clusters it would be φ⁰ = S²/n_a, S²
that of all units. Both are estimated without bias from rows. With z = ỹ − M, distances of debiased
outcomes from their mean, g = z² − v̂ estimates the square of an outcome's distance, v̂ being the
estimated noise of a row; products of two units' z need no correction, as their noise is
independent. So S²_c is the mean of g minus the mean product of pairs.

Any φ − λφ⁰ is thus Σ a_i·g_i − Σ_{i≠j} b_ij·z_i·z_j with public a and b. Rows are independent. With
σ² the variance of z within a cell, noise included, p = n_c/n, k = n/((n − 1)n_a) and d how far the
mean of a cell is from M, the variance is the sum of two parts (Hoeffding):

- of units: Σ n·Var(u) over cells, u = a·g − 2βd·z, where β = ((p²/n_ac) + λk·p²/n_c)/n_ac is what
  is left of b when the other units of all cells are at their means;
- of pairs: 2Σ n(n − 1)b²σ⁴ within cells, and 2λ²k²·Σ_{c≠e} (p²σ²/n)_c·(p²σ²/n)_e between them.

An estimate of d has noise of its own, of variance near σ²/n. So the first part is expected to come
out larger by Σ 4β²σ⁴ − 4aβ·Cov(g, z²), which is as large as the second; that is taken off. The
gain 1 − φ/φ⁰ has the standard error of φ − λφ⁰ at λ = φ/φ⁰, divided by φ⁰. Outcomes are treated as
redrawn; that they are drawn without replacement makes errors smaller than stated, if at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._arrays import BoolArray, FloatArray, IntArray
from clusterdp.estimation.means.responses import ResponseValues
from clusterdp.estimation.reading.profiles import sums_by
from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.published.manifest import plain
from clusterdp.published.release import Release
from clusterdp.published.rows import COUNT, count_released, released_cells
from clusterdp.spec.columns import RESPONSE

if TYPE_CHECKING:
    import polars as pl


# A cell shows how its units differ if it has as many.
_FEWEST = 2
# Gains are shares of a variance that is at least so many standard errors above zero.
_SEEN = 2.0
GAIN_HEADER = ("arm", "within clusters", "without clusters", "variance reduction")


class ClusterGain(NamedTuple):
    """How much stratification by clusters reduces the sampling variance of an arm's mean.

    Attributes:
        metric: The metric.
        arm: The arm.
        within: φ, the sampling variance with clusters.
        within_error: Its standard error.
        merged: φ⁰, what it would be without clusters.
        merged_error: Its standard error.
        gain: 1 − φ/φ⁰; NaN where φ⁰ is not significantly different from zero.
        gain_error: Its standard error.
    """

    metric: str
    arm: Any
    within: float
    within_error: float
    merged: float
    merged_error: float
    gain: float
    gain_error: float

    def row(self) -> tuple[str, ...]:
        """A row of a table for people; see `GAIN_HEADER`."""
        seen = "too noisy"
        if math.isfinite(self.gain):
            seen = f"{100 * self.gain:.2g}% ± {100 * self.gain_error:.2g}%"
        return (
            str(self.arm),
            f"{self.within:.3g} ± {self.within_error:.2g}",
            f"{self.merged:.3g} ± {self.merged_error:.2g}",
            seen,
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**self._asdict(), "arm": plain(self.arm)}


def cluster_gains(release: Release) -> list[ClusterGain]:
    """What clusters give, by metric and arm, from all rows of a release.

    It covers clusters with two units or more in every arm, and means of all units, not only of
    those with an observed outcome. Nothing where no rows are published, there are fewer than two
    such clusters, or arms were assigned to groups as a whole.
    """
    layout, columns = release.layout, release.columns
    chosen = np.asarray((layout.sizes >= _FEWEST).all(axis=1))
    if release.units is None or columns.randomization_unit is not None or chosen.sum() < 2:
        return []
    return [
        gain
        for question, counted in zip(release.questions, count_released(release), strict=True)
        for gain in _question_gains(release, question, counted, chosen)
    ]


def _question_gains(
    release: Release, question: ReleasedQuestion, counted: pl.DataFrame, chosen: BoolArray
) -> list[ClusterGain]:
    """What clusters give the metrics of a question, from rows counted by cell and response."""
    layout, found = release.layout, []
    cells = released_cells(counted, release.columns, layout)
    counts, responses = (counted[name].to_numpy() for name in (COUNT, RESPONSE))
    clusters, arms = np.divmod(cells, len(layout.arms))
    places = np.cumsum(chosen) - 1
    sizes = layout.sizes[chosen].sum(axis=1)
    of_observed = question.space.of_observed()
    for place, metric in enumerate(question.space.declared.metrics):
        if place in of_observed:
            continue
        outputs = ResponseValues.from_channel(question.answers, question.space, place)
        groups = outputs.groups.ravel()[cells]
        values, noise = outputs.values[groups, responses], outputs.noise[groups, responses]
        for arm, label in enumerate(layout.arms):
            there = (arms == arm) & chosen[clusters]
            moments = ArmMoments(
                places[clusters[there]], counts[there], values[there], noise[there], sizes
            )
            found.append(moments.gain(str(metric), label))
    return found


class ArmMoments:
    """Moments of an arm's rows; axes `[cluster]`.

    Args:
        clusters: The cluster of each entry of rows counted by cluster and response; axes `[entry]`.
        counts: How many rows it stands for.
        values: Their debiased outcome.
        noise: The estimated variance of its noise.
        cluster_sizes: n_c, the units of all arms; axes `[cluster]`.
    """

    def __init__(
        self,
        clusters: IntArray,
        counts: IntArray,
        values: FloatArray,
        noise: FloatArray,
        cluster_sizes: IntArray,
    ) -> None:
        def add(terms: FloatArray | float) -> FloatArray:
            return sums_by(clusters, np.asarray(counts * terms, np.float64), len(cluster_sizes))

        self.cluster_sizes, self.sizes = cluster_sizes, add(1.0)  # n_c, n_ac
        n_units, sizes = int(cluster_sizes.sum()), self.sizes
        self.shares = shares = np.asarray(cluster_sizes / n_units)  # p = n_c/n
        self.merged_weight = n_units / (n_units - 1) / float(sizes.sum())  # k = n/((n − 1)·n_a)
        means = add(values) / sizes
        centre = shares @ means
        distances = values - centre
        squares = distances**2 - noise  # g
        self.distances = means - centre  # d, how far the mean of a cell is from that of all, M
        self.spread = add((values - means[clusters]) ** 2) / (sizes - 1)  # σ², of z within a cell
        self.squares = add(squares) / sizes  # the mean of g
        residuals = squares - self.squares[clusters]
        self.square_spread = add(residuals**2) / (sizes - 1)  # the variance of g within a cell
        self.with_values = add(residuals * distances) / (sizes - 1)  # the covariance of g and z
        self.with_squares = add(residuals * distances**2) / (sizes - 1)  # that of g and z²
        second, fourth = (float(shares @ (add(distances**k) / sizes)) for k in (2, 4))
        self.kurtosis = fourth / second**2 if second else 1.0  # E z⁴/(E z²)², of all cells
        # σ⁴. The square of an estimate of σ² exceeds it by the variance of the estimate.
        above = self.kurtosis - (sizes - 3) / (sizes - 1)
        self.fourth = np.asarray(self.spread**2 / (1 + above / sizes))

    def gain(self, metric: str, arm: Any) -> ClusterGain:
        """What clusters give, with standard errors."""
        shares, noise = self.shares, self.spread / self.sizes
        inside = self.squares - (self.distances**2 - noise)  # S²_c
        within = float((shares**2 / self.sizes) @ inside)
        merged = self.merged_weight * float(
            shares @ self.squares + shares**2 @ (noise - inside / self.cluster_sizes)
        )
        merged_error = self.std_error(within=0.0, merged=1.0)
        ratio, ratio_error = math.nan, math.nan
        if merged > _SEEN * merged_error:
            ratio = within / merged
            ratio_error = self.std_error(within=1.0, merged=-ratio) / merged
        return ClusterGain(
            metric=metric,
            arm=arm,
            within=within,
            within_error=self.std_error(within=1.0, merged=0.0),
            merged=merged,
            merged_error=merged_error,
            gain=1 - ratio,
            gain_error=ratio_error,
        )

    def std_error(self, *, within: float, merged: float) -> float:
        """The standard error of a weighted sum of φ and φ⁰, from their weights."""
        shares, weight = self.shares, merged * self.merged_weight
        noise = shares**2 * self.spread / self.sizes
        pairs = shares**2 * (within / self.sizes + weight * (1 - 1 / self.cluster_sizes))
        inside = 2 * pairs**2 / (self.sizes * (self.sizes - 1)) @ self.fourth
        same = float((shares**2 / self.sizes) ** 2 @ self.fourth)
        between = 2 * weight**2 * max(noise.sum() ** 2 - same, 0.0)
        return math.sqrt(max(self.unit_variance(within, weight), 0.0) + inside + between)

    def unit_variance(self, within: float, weight: float) -> float:
        """Σ n·Var(u), without what the noise of d adds to it."""
        shares, sizes, spread = self.shares, self.sizes, self.spread
        each = within * shares**2 / sizes
        squares = each + weight * shares * (1 - shares / self.cluster_sizes)  # n·a
        means = each - weight * shares**2 / self.cluster_sizes  # n·β
        # E d²σ² of estimates is that of what they estimate, and these.
        more = self.fourth * ((1 - 2 * shares) / sizes + (self.kurtosis - 3) / sizes**2)
        more += shares**2 @ (spread / sizes) * spread
        joint = self.distances * self.with_values - (1 - shares) * self.with_squares / sizes
        variances = (
            squares**2 * self.square_spread
            - 4 * squares * means * joint
            + 4 * means**2 * (self.distances**2 * spread - more)
        )
        return float((variances / sizes).sum())
