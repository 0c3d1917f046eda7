"""Publish user-level results of randomized experiments under label differential privacy.

The data owner declares an `OutcomeSpace`, chooses a mechanism and calls `release`; the analyst
calls `estimate` on what was released.
"""

from clusterdp.accounting import Guarantee
from clusterdp.effects import Effect, Estimate, estimate, estimate_without_privacy
from clusterdp.errors import ClusterDPError, DataError, OwnerNotice, ParameterError
from clusterdp.mechanisms import (
    Mechanism,
    cluster_dp,
    cluster_free_dp,
    noisy_histogram,
    noisy_horvitz_thompson,
    uniform_prior_dp,
)
from clusterdp.outcomes import OutcomeSpace
from clusterdp.pipeline import Release, release

__version__ = "0.1.0"

__all__ = [
    "ClusterDPError",
    "DataError",
    "Effect",
    "Estimate",
    "Guarantee",
    "Mechanism",
    "OutcomeSpace",
    "OwnerNotice",
    "ParameterError",
    "Release",
    "cluster_dp",
    "cluster_free_dp",
    "estimate",
    "estimate_without_privacy",
    "noisy_histogram",
    "noisy_horvitz_thompson",
    "release",
    "uniform_prior_dp",
]
