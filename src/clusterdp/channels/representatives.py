"""Cells with similar priors share a channel. Priors are public by then: sharing costs nothing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

# Representatives are found from this many priors at most, and serve the others as well.
_MOST_SAMPLED = 20_000


def representative_priors(priors: FloatArray, most: int) -> FloatArray:
    """At most so many priors that stand for all; axes `[prior, outcome]`.

    Distinct priors stand for themselves while they are few. Otherwise they are the means of
    clusters (k-means on square roots, where distances are alike in their effect on variance).
    """
    distinct = np.unique(priors, axis=0)
    if len(distinct) <= most:
        return distinct
    from scipy.cluster.vq import kmeans2

    step = -(-len(distinct) // _MOST_SAMPLED)
    sample = distinct[::step]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty cluster is one channel less
        # The seed is fixed so that a channel follows from its priors; nothing secret is drawn.
        _, members = kmeans2(np.sqrt(sample), most, minit="++", rng=np.random.default_rng(0))
    sums = np.zeros((most, priors.shape[1]))
    np.add.at(sums, members, sample)
    sizes = np.bincount(members, minlength=most)
    return np.asarray((sums[sizes > 0].T / sizes[sizes > 0]).T)
