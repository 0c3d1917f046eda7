"""Betlei et al. (2021), ADUM: uplift from noisy sums of outcomes in bins of the features.

The trusted collector sorts units into bins of their features and publishes, for each bin and arm,
the number of units and the sum of outcomes with Laplace noise of scale 1/ε. The uplift of a person
is the difference in means of their bin.

Left open by the paper, and chosen in its favour: bins are those of k-means on the features, at no
cost since features are public; numbers of units have no noise; two numbers of bins are run. The
intervals are ours: those of a stratified estimate, with the variance of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.bins import Binning, bins_of
from bench.peers.given import Answer

if TYPE_CHECKING:
    from bench.peers.trial import Sample
    from clusterdp._arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BinsGiven:
    """Noisy sums in bins, and what follows from them.

    Attributes:
        binning: Which bin features are in.
        bins: That of each unit; axes `[unit]`.
        sizes: Numbers of units; axes `[bin, arm]`.
        sums: Noisy sums of outcomes; axes `[bin, arm]`.
        scale: Of the noise.
    """

    binning: Binning
    bins: IntArray
    sizes: IntArray
    sums: FloatArray
    scale: float

    def overall(self) -> Answer:
        """Bins weighted by size."""
        return self._weighted(np.bincount(self.bins, minlength=len(self.sizes)))

    def segment(self, inside: BoolArray) -> Answer:
        """Bins weighted by how much of the segment is in them, as if all in a bin were alike."""
        return self._weighted(np.bincount(self.bins[inside], minlength=len(self.sizes)))

    def uplift(self, features: FloatArray) -> FloatArray:
        """The difference in means of each person's bin."""
        return self._effects()[self.binning.assign(features)]

    def _effects(self) -> FloatArray:
        means = self.sums / np.maximum(self.sizes, 1)
        usable = (self.sizes > 0).all(axis=1)
        return np.where(usable, means[:, 1] - means[:, 0], 0.0)

    def _weighted(self, counts: IntArray) -> Answer:
        weights = counts / counts.sum()
        sizes = np.maximum(self.sizes, 1)
        means = np.clip(self.sums / sizes, 0, 1)
        variances = means * (1 - means) / sizes + 2 * self.scale**2 / sizes**2
        return Answer.of(
            float(weights @ self._effects()), float(weights**2 @ variances.sum(axis=1))
        )


def release(sample: Sample, epsilon: float, rng: np.random.Generator, *, n_bins: int) -> BinsGiven:
    """Publish noisy sums in bins of the features."""
    binning = bins_of(sample, n_bins)
    bins = binning.assign(sample.features)
    cells = bins * 2 + sample.arms
    sizes = np.bincount(cells, minlength=2 * n_bins)
    sums = np.bincount(cells, sample.outcomes, minlength=2 * n_bins).astype(np.float64)
    return BinsGiven(
        binning=binning,
        bins=bins,
        sizes=sizes.reshape(-1, 2),
        sums=noisy(sums, epsilon, rng).reshape(-1, 2),
        scale=1 / epsilon,
    )


def noisy(sums: FloatArray, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """Sums of disjoint units' outcomes in [0, 1], with the noise that ε needs."""
    return sums + rng.laplace(scale=1 / epsilon, size=len(sums))
