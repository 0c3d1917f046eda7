"""Private clusters: what units count by the label they were given, in means of true clusters.

A unit of cluster c was given label ℓ with the published probability K(ℓ|c). Weights w on given
labels with Σ_ℓ K(ℓ|c)·w(ℓ) = u(c) count it as u(c) on average, for any outcome:

    w = K⁻¹·1_c           counts units of cluster c as one, and all others as nothing,
    g_a = K⁻¹·(1/p(a|·))  counts units of arm a by the inverse of its probability in their cluster.

The mean of an arm is a ratio, Σ w·ỹ/Σ w over its rows. Labels were drawn from words of their own,
so that their noise and that of outcomes are independent. A row's w·(ỹ − mean) has both in it, and
so has its square, which gives the variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import Effect, Segment
from clusterdp.estimation.effects.intervals import two_sided
from clusterdp.estimation.effects.notes import ALARM_LEVEL, Note, Weight
from clusterdp.published.release import Release

# The level of intervals that are told to have no bounds.
_USUAL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterInversion:
    """What units count by the labels they were given; nothing of all this where these are public.

    Attributes:
        column: The name of true clusters, if these are private; given labels are in another column.
        groups: The true clusters, pooled ones as one.
        inverse: K⁻¹; axes `[label, group]`.
        probs: p(a|c), the declared probabilities of arms, axes `[group, arm]`; None if arms have
            the same in all clusters.
    """

    column: str | None
    groups: tuple[str, ...]
    inverse: FloatArray
    probs: FloatArray | None

    @classmethod
    def from_release(cls, release: Release) -> ClusterInversion:
        """Those of a release."""
        if release.response is None:
            return PUBLIC_CLUSTERS
        clusters = tuple(map(str, release.layout.clusters))
        probs = release.assignment
        return cls(
            column=release.columns.true_cluster,
            groups=clusters,
            inverse=release.response.inverse(clusters),
            probs=None if probs is None else np.array(probs),
        )

    def with_merged(self, places: Sequence[int], n_arms: int) -> ClusterInversion:
        """The same of merged arms, whose probabilities add up; `places` is where each goes."""
        if self.probs is None:
            return self
        return replace(self, probs=self.probs @ np.eye(n_arms)[list(places)])

    def factors(self, segment: Segment = ()) -> FloatArray | None:
        """What units count in a segment, which may be of a true cluster; axes `[label, arm]`.

        None where arms are compared within given labels, as with public clusters.
        """
        values = dict(segment)
        if self.column in values:
            return self.inverse[:, [self.groups.index(values[self.column])]]
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
            < ALARM_LEVEL / n_tests
        ]
        if not off:
            return []
        return [
            Note(
                f"SRM in true clusters: {', '.join(off)} differ from their declared probabilities. "
                "Effects may be biased. Check assignment and logging.",
                Weight.WARNING,
            )
        ]


PUBLIC_CLUSTERS = ClusterInversion(column=None, groups=(), inverse=np.zeros((0, 0)), probs=None)


def inverted_cluster_notes(name: str, effects: Sequence[Effect]) -> list[Note]:
    """Remarks on effects in a true cluster."""
    texts = ["a true cluster, estimated from noisy clusters. Numbers of units are estimates."]
    noisy = "because clusters are too noisy to show that"
    if any(math.isnan(one.effect) for one in effects):
        texts.append(f"not reported, {noisy} an arm has units there.")
    elif not all(math.isfinite(limit) for one in effects for limit in one.ci(_USUAL)):
        texts.append(f"the CI holds every possible value, {noisy} it has units.")
    return [Note(text, Weight.SCOPE, name) for text in texts]
