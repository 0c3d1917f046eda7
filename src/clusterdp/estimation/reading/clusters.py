"""Private clusters: what units count by the label they were given, in means of true clusters.

A unit of cluster c was given label ℓ with the published probability K(ℓ|c). Weights w on given
labels with Σ_ℓ K(ℓ|c)·w(ℓ) = u(c) count it as u(c) on average, whatever else is true of it:

    w = K⁻¹·1_c           counts units of cluster c as one, and all others as nothing,
    g_a = K⁻¹·(1/p(a|·))  counts units of arm a by the inverse of its probability in their cluster.

The mean of an arm is a ratio, Σ w·ỹ/Σ w over its rows. Labels were drawn from words of their own,
so that their noise and that of outcomes are independent. A row's w·(ỹ − mean) has both in it, and
so has its square, which tells the variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.estimation.effects.findings import Note, Weight
from clusterdp.estimation.effects.intervals import quantile, two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.means.sums import CellMoments
    from clusterdp.estimation.means.weights import CellWeights
    from clusterdp.estimation.reading.cuts import Segment
    from clusterdp.estimation.report.results import Effect
    from clusterdp.published.release import Release


# The probability of a false alarm about the shares of arms, as in `sample_ratio.py`.
_LEVEL = 1e-3
# The level of intervals that are told to have no bounds.
_USUAL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelWeights:
    """What units count by the labels they were given.

    Attributes:
        column: The name of true clusters; given labels are in another column.
        groups: The true clusters, pooled ones as one.
        inverse: K⁻¹; axes `[label, group]`.
        probs: p(a|c), the declared probabilities of arms, axes `[group, arm]`; None if arms have
            the same in all clusters.
    """

    column: str
    groups: tuple[str, ...]
    inverse: FloatArray
    probs: FloatArray | None

    @classmethod
    def of(cls, release: Release) -> LabelWeights | None:
        """Those of a release; None where clusters are public."""
        if release.response is None or release.columns.true_cluster is None:
            return None
        clusters = tuple(map(str, release.layout.clusters))
        probs = release.assignment
        return cls(
            column=release.columns.true_cluster,
            groups=clusters,
            inverse=release.response.inverse(clusters),
            probs=None if probs is None else np.array(probs),
        )

    def factors(self, segment: Segment = ()) -> FloatArray | None:
        """What units count in a segment, which may be of a true cluster; axes `[label, arm]`.

        None where arms are compared within given labels, as with public clusters.
        """
        group = dict(segment).get(self.column)
        if group is not None:
            return self.inverse[:, [self.groups.index(group)]]
        return None if self.probs is None else self.inverse @ (1 / self.probs)

    def ratio_notes(self, layout: Layout) -> list[Note]:
        """Warnings where arms do not have their declared probabilities in a true cluster.

        Σ_i w(ℓ_i)·(1{arm a} − p(a|c)) is zero on average in every cluster c. It is compared with
        the normal distribution, for all clusters and arms together (Bonferroni).
        """
        if self.probs is None:
            return []
        is_arm = np.eye(len(layout.arms))
        gaps = is_arm[:, np.newaxis, :] - self.probs  # [own arm, group, arm]
        scores = np.einsum("lb,lg,bga->ga", layout.sizes, self.inverse, gaps)
        squares = np.einsum("lb,lg,bga->ga", layout.sizes, self.inverse**2, gaps**2)
        n_tests = scores.size
        off = [
            f"{self.groups[group]} ({layout.arms[arm]})"
            for group, arm in np.ndindex(scores.shape)
            if two_sided(float(scores[group, arm]), float(np.sqrt(squares[group, arm])))
            < _LEVEL / n_tests
        ]
        if not off:
            return []
        text = (
            f"sample-ratio mismatch in true clusters: {', '.join(off)} do not have their declared "
            "probabilities, so effects may be biased"
        )
        return [Note(text, Weight.WARNING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInterval:
    """The interval of an effect in a true cluster (Fieller's).

    How many units of the cluster an arm has is an estimate itself. With arms' means μ̂_a and counts
    W_a = Σ w, let ā = W₁/(W₁ + W₀). If the effect is τ = τ̂ + d, arms' means are μ̂₁ + (1 − ā)d and
    μ̂₀ − ād, and τ̂ has the variance V(d) = V − 2Bd + Cd² of residuals from these. The interval holds
    every d with d² ≤ q²·V(d).

    Attributes:
        effect: τ̂.
        variance: V, at d = 0.
        lean: B = (1 − ā)B₁ − āB₀, with B_a = Σ w²(ỹ − μ̂_a)/W_a².
        spread: C = (1 − ā)²C₁ + ā²C₀, with C_a = Σ w²/W_a².
        degrees: Degrees of freedom of the variance; infinite if it is normal.
    """

    effect: float
    variance: float
    lean: float
    spread: float
    degrees: float

    @classmethod
    def of(
        cls, value: Effect, means: FloatArray, moments: CellMoments, weights: CellWeights
    ) -> GroupInterval:
        """The interval of an effect in a true cluster.

        Args:
            value: The effect, with its standard error, and with arms' estimated units.
            means: Of control and the treatment, as distances from the middle.
            moments: Of the cells of both arms.
            weights: Of the same cells.
        """
        each = weights.of_units() ** 2 * moments.sizes
        leans = (each * (moments.means - means)).sum(axis=0)
        spreads = each.sum(axis=0)
        treated = value.n_treated / (value.n_treated + value.n_control)
        control = 1 - treated
        lean = float(control * leans[1] - treated * leans[0])
        spread = float(control**2 * spreads[1] + treated**2 * spreads[0])
        # A sum of squares is nowhere below zero; what was estimated of it can be, by chance.
        sampling = max(value.sampling_variance, lean**2 / spread)
        return cls(
            effect=value.effect,
            variance=sampling + value.privacy_variance,
            lean=lean,
            spread=spread,
            degrees=value.degrees,
        )

    @property
    def p_value(self) -> float:
        """Of no effect; and no less than that of no units, below which intervals have no bounds."""
        within = self.variance + 2 * self.effect * self.lean + self.effect**2 * self.spread
        no_units = two_sided(1.0, math.sqrt(self.spread), self.degrees)
        return max(two_sided(self.effect, math.sqrt(within), self.degrees), no_units)

    def ci(self, level: float) -> tuple[float, float]:
        """The interval; everything, where the cluster may have no units."""
        square = quantile(level, self.degrees) ** 2
        leading = 1 - square * self.spread
        if not leading > 0:
            return -np.inf, np.inf
        middle = -square * self.lean
        half = float(np.sqrt(middle**2 + square * self.variance * leading))
        return self.effect + (middle - half) / leading, self.effect + (middle + half) / leading

    def gap(self, level: float) -> None:
        """Nothing is left out inside."""

    def lift(self, level: float) -> None:
        """Control's mean is too uncertain to divide by."""


def group_notes(name: str, effects: Sequence[Effect]) -> list[Note]:
    """Remarks on effects in a true cluster."""
    text = "a true cluster, by inverting the response; numbers of units are estimates"
    notes = [Note(text, Weight.SCOPE, name)]
    if any(math.isnan(one.effect) for one in effects):
        text = "labels are too noisy to tell whether an arm has units there, so no effect"
        notes.append(Note(text, Weight.SCOPE, name))
    elif not all(math.isfinite(limit) for one in effects for limit in one.ci(_USUAL)):
        text = "the interval has no bounds, as labels do not tell that there are units"
        notes.append(Note(text, Weight.SCOPE, name))
    return notes
