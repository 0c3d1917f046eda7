"""Publish user-level results of randomized experiments under label differential privacy.

The data owner declares an `OutcomeSpace`, chooses a mechanism and calls `release`; the analyst
calls `estimate` on what was released.
"""

from clusterdp.accounting import Guarantee
from clusterdp.analysis import estimate, estimate_without_privacy
from clusterdp.builders import (
    cluster_dp,
    cluster_free_dp,
    noisy_histogram,
    noisy_horvitz_thompson,
    optimal,
    uniform_prior_dp,
)
from clusterdp.effects import Effect, Estimate
from clusterdp.errors import (
    ClusterDPError,
    DataError,
    FormatError,
    OutputError,
    OwnerNotice,
    ParameterError,
)
from clusterdp.folder import read_release
from clusterdp.mechanisms import Mechanism
from clusterdp.outcomes import OutcomeSpace
from clusterdp.pipeline import Release, release

__version__ = "0.2.0"

__all__ = [
    "ClusterDPError",
    "DataError",
    "Effect",
    "Estimate",
    "FormatError",
    "Guarantee",
    "Mechanism",
    "OutcomeSpace",
    "OutputError",
    "OwnerNotice",
    "ParameterError",
    "Release",
    "cluster_dp",
    "cluster_free_dp",
    "estimate",
    "estimate_without_privacy",
    "noisy_histogram",
    "noisy_horvitz_thompson",
    "optimal",
    "read_release",
    "release",
    "uniform_prior_dp",
]
