"""Bins of the features, which are public: those of k-means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sklearn.cluster import KMeans

    from bench.peers.trial import Sample
    from clusterdp._arrays import FloatArray, IntArray

_N_TO_BIN_BY = 3000  # units by whose features bins are chosen


@dataclass(frozen=True, slots=True, eq=False)
class Binning:
    """Which bin features are in; they are divided by `spans` before, axes `[feature]`."""

    model: KMeans
    spans: FloatArray

    @property
    def n_bins(self) -> int:
        """How many bins there are."""
        return len(self.model.cluster_centers_)

    def assign(self, features: FloatArray) -> IntArray:
        """The bin of each row; axes `[unit]`."""
        return np.asarray(self.model.predict(features / self.spans), dtype=np.int64)


def bins_of(sample: Sample, n_bins: int) -> Binning:
    """Bins for a sample. No outcome is read."""
    from sklearn.cluster import KMeans

    spans = sample.bounds[:, 1] - sample.bounds[:, 0]
    model = KMeans(n_clusters=n_bins, n_init=1, random_state=0)
    return Binning(model.fit(sample.features[:_N_TO_BIN_BY] / spans), spans)
