"""Publish user-level results of randomized experiments under label differential privacy.

The data owner declares an `OutcomeSpace`, chooses a mechanism and calls `release`; the analyst
calls `estimate` on what was released. Names are loaded when they are first used, so that importing
this package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clusterdp.errors import (
        ClusterDPError,
        DataError,
        FormatError,
        LedgerError,
        OutputError,
        OwnerNotice,
        ParameterError,
    )
    from clusterdp.estimation.estimate import estimate
    from clusterdp.estimation.results import Effect, Estimate
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.mechanisms.catalogue import (
        cluster_dp,
        cluster_free_dp,
        noisy_histogram,
        noisy_horvitz_thompson,
        optimal,
        uniform_prior_dp,
    )
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.published.folder import read_release
    from clusterdp.published.release import Release
    from clusterdp.releasing.in_memory import release
    from clusterdp.releasing.true_effects import estimate_without_privacy

__version__ = "0.2.0"

# Where each public name is defined.
_HOMES = {
    "errors": (
        "ClusterDPError",
        "DataError",
        "FormatError",
        "LedgerError",
        "OutputError",
        "OwnerNotice",
        "ParameterError",
    ),
    "estimation.estimate": ("estimate",),
    "estimation.results": ("Effect", "Estimate"),
    "experiment.outcomes": ("OutcomeSpace",),
    "ledger.ledger": ("Ledger",),
    "mechanisms.catalogue": (
        "cluster_dp",
        "cluster_free_dp",
        "noisy_histogram",
        "noisy_horvitz_thompson",
        "optimal",
        "uniform_prior_dp",
    ),
    "mechanisms.mechanism": ("Mechanism",),
    "privacy.accounting": ("Guarantee",),
    "published.folder": ("read_release",),
    "published.release": ("Release",),
    "releasing.in_memory": ("release",),
    "releasing.true_effects": ("estimate_without_privacy",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ClusterDPError",
    "DataError",
    "Effect",
    "Estimate",
    "FormatError",
    "Guarantee",
    "Ledger",
    "LedgerError",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'clusterdp' has no attribute {name!r}")
    found = getattr(import_module(f"clusterdp.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
